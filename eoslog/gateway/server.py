"""The gateway's server: its socket, its connections, and its end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import Any

from eoslog.gateway.addresses import Address, check_address
from eoslog.gateway.authentication import Authentication
from eoslog.gateway.batch_cache import BatchCache
from eoslog.gateway.batch_queue import BatchQueue
from eoslog.gateway.connection import READ_AHEAD, Connection, Handlers
from eoslog.gateway.discovery import Discovery
from eoslog.gateway.fetch import Fetch
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.gateway_counts import GatewayCounts, GatewayMetrics
from eoslog.gateway.group_coordinator import GroupCoordinator
from eoslog.gateway.group_offsets import GroupOffsetRequests
from eoslog.gateway.group_requests import GroupRequests
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.live_gateways import LiveGateways
from eoslog.gateway.log_follower import LogFollower
from eoslog.gateway.memory_budget import Lease, MemoryBudget
from eoslog.gateway.offsets import Offsets
from eoslog.gateway.produce import Produce
from eoslog.gateway.protocol import ApiKey, Request, supported_versions
from eoslog.gateway.sasl_requests import SaslRequests
from eoslog.gateway.security import OPEN, Security
from eoslog.gateway.topic_changes import TopicChanges
from eoslog.gateway.topic_settings import TopicSettings
from eoslog.gateway.transactions import Transactions
from eoslog.session.session import Session
from eoslog.storage.library_threads import LibraryExecutor

_logger = logging.getLogger(__name__)
_WRITE_AHEAD = 64 << 10
_BACKLOG = 512
_THREADS = 16
_COORDINATOR_THREADS = 64
"""Each request of a transaction or a group waits in a thread until its record is in the store. The requests that wait
share a record, so few threads would mean more records."""
_GRACE_S = 10.0
"""When the gateway ends, the time for the answers of requests, and then the time for appends of their batches (s)."""
_THREADS_END_S = 2.0
"""The time that the threads of each executor have to end (s). The store may never answer their requests."""


class Phase(Enum):
    """The phases of a gateway, which say whether it takes connections."""

    STARTING = "the gateway is starting"
    SERVING = "the gateway serves clients"
    ENDING = "the gateway is ending"


class Gateway:
    """A server for Kafka's clients in front of a store."""

    def __init__(
        self,
        store: Session,
        config: GatewayConfig,
        advertised: Address,
        *,
        listens_elsewhere: bool = False,
        security: Security = OPEN,
    ) -> None:
        """
        Args:
            advertised: the address at which clients reach the gateway.
            listens_elsewhere: True if the gateway does not listen at its advertised address. Then other gateways may
                advertise the same one.
        """
        self._store = store
        self._config = config
        self._environment = store.environment
        self._security = security
        self._counts = GatewayCounts([key.name.lower() for key in ApiKey], store.environment.monotonic_ns)
        self.phase = Phase.STARTING
        self._executor = LibraryExecutor(_THREADS, "eoslog-gateway")
        self._requests = MemoryBudget(config.request_bytes)
        self._rows = MemoryBudget(config.row_bytes)
        self._responses = MemoryBudget(config.response_bytes)
        known = KnownTopics(store, self._executor)
        self.gateways = LiveGateways(store, advertised, rack=config.rack, protocol=security.protocol)
        self._follower = LogFollower(store, known, self._executor)
        # The queue's two threads are its own, and so are those of coordinators: fetches that read slowly do not delay
        # appends.
        self._coordinator_threads = LibraryExecutor(_COORDINATOR_THREADS, "eoslog-gateway-coordinator")
        self._appenders = LibraryExecutor(2, "eoslog-gateway-append")
        self._queue = BatchQueue(
            store, config, counts=self._counts, executor=self._appenders, appended=self._follower.appended
        )
        self._cache = cache = BatchCache(config.cache_bytes)
        self._fetch = Fetch(
            store,
            known,
            self.gateways,
            counts=self._counts,
            cache=cache,
            follower=self._follower,
            answers=self._responses,
            executor=self._executor,
        )
        self._groups = GroupCoordinator(
            store,
            config,
            self.gateways,
            executor=self._coordinator_threads,
            listens_elsewhere=listens_elsewhere,
        )
        discovery = Discovery(
            store, config, known, executor=self._executor, gateways=self.gateways, groups=self._groups
        )
        changes = TopicChanges(store, config, known, self._executor)
        settings = TopicSettings(
            store, config, known, executor=self._executor, own=self.gateways.own, protocol=security.protocol
        )
        offsets = Offsets(store, known, self._executor)
        groups = GroupRequests(store, self._groups, self._coordinator_threads)
        group_offsets = GroupOffsetRequests(store, known, self._groups, self._coordinator_threads)
        self._transactions = Transactions(
            store, known, groups=self._groups, executor=self._coordinator_threads, appended=self._follower.appended
        )
        self._answers: dict[ApiKey, Callable[[Request], Awaitable[Any]]] = {
            ApiKey.METADATA: discovery.metadata,
            ApiKey.DESCRIBE_CLUSTER: discovery.cluster,
            ApiKey.CREATE_TOPICS: changes.create,
            ApiKey.DELETE_TOPICS: changes.delete,
            ApiKey.CREATE_PARTITIONS: changes.create_partitions,
            ApiKey.DELETE_RECORDS: changes.delete_records,
            ApiKey.DESCRIBE_CONFIGS: settings.describe,
            ApiKey.ALTER_CONFIGS: settings.alter,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: settings.alter_incrementally,
            ApiKey.LIST_OFFSETS: offsets.list,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: offsets.of_leader_epoch,
            ApiKey.FIND_COORDINATOR: discovery.coordinator,
            ApiKey.INIT_PRODUCER_ID: self._transactions.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._transactions.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._transactions.add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self._transactions.commit_offsets,
            ApiKey.END_TXN: self._transactions.end,
            ApiKey.OFFSET_COMMIT: group_offsets.commit,
            ApiKey.OFFSET_FETCH: group_offsets.fetch,
            ApiKey.JOIN_GROUP: groups.join,
            ApiKey.HEARTBEAT: groups.heartbeat,
            ApiKey.LEAVE_GROUP: groups.leave,
            ApiKey.SYNC_GROUP: groups.sync,
            ApiKey.DESCRIBE_GROUPS: groups.describe,
            ApiKey.LIST_GROUPS: groups.list,
            ApiKey.DELETE_GROUPS: groups.delete,
            ApiKey.OFFSET_DELETE: groups.delete_offsets,
            ApiKey.API_VERSIONS: _versions,
        }
        produce = Produce(
            config, known, self._queue, self.gateways, cache=cache, rows=self._rows, executor=self._executor
        )
        self._sasl = SaslRequests(security.mechanisms)
        self._handlers = Handlers(produce.begin, self._other, self._sasl.answer)
        self._connections: dict[asyncio.Task[None], Connection | None] = {}
        """The connections, the oldest one first. Those in the handshake of TLS are None."""

    async def _other(self, request: Request) -> tuple[bytes, Lease | None]:
        if request.api.key is ApiKey.FETCH:
            return await self._fetch.answer(request)
        return request.encoded(await self._answers[request.api.key](request)), None

    async def run(self, listening: socket.socket, ready: Callable[[], object], stop: asyncio.Event) -> None:
        """Serve the clients that connect to a socket until ``stop`` is set."""
        # Before it serves: a gateway that coordinates a group is one that the others know.
        await self.gateways.register()
        server = await asyncio.start_server(self._connected, sock=listening, limit=READ_AHEAD, backlog=_BACKLOG)
        running = (self._queue, self._follower, self.gateways, self._groups, self._transactions)
        background = [asyncio.create_task(each.run()) for each in running]
        stopped = asyncio.create_task(stop.wait())
        try:
            self.phase = Phase.SERVING
            ready()
            done, _ = await asyncio.wait([stopped, *background], return_when=asyncio.FIRST_COMPLETED)
            self.phase = Phase.ENDING
            for each in done - {stopped}:
                # A background task never ends by itself.
                await each
            # First of all: clients that lose their connection ask the other gateways.
            await self.gateways.deregister()
            await self._groups.close()
            self._follower.close()
            if self.gateways.sends_away and self._connections:
                # A client that is told to move knows that its request had no effect. After a disconnect it does not.
                await asyncio.wait([*self._connections], timeout=self._config.redirect_ms / 1000)
            # Not wait_closed(): from Python 3.12 on it waits until the clients disconnect.
            server.close()
            await self._finish()
        finally:
            server.close()
            stopped.cancel()
            ending = [*self._connections, *background]
            for each in ending:
                each.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            self.gateways.close()
            for executor in (self._executor, self._appenders, self._coordinator_threads):
                executor.shutdown(cancel_futures=True, timeout_s=_THREADS_END_S)
            self._sasl.close()

    def metrics(self) -> GatewayMetrics:
        """Return the metrics of this gateway. Any thread may call it."""
        budgets = {"requests": self._requests, "rows": self._rows, "responses": self._responses}
        members = self._groups.members()
        return GatewayMetrics(
            counts=self._counts,
            connections=len(self._connections),
            most_connections=self._config.max_connections,
            waiting_batches=self._queue.waiting,
            memory={
                **{use: (budget.total - budget.free, budget.total) for use, budget in budgets.items()},
                "cache": (self._cache.bytes, self._cache.most_bytes),
                "groups": (self._groups.size, self._config.group_bytes),
            },
            groups=len(members),
            group_members=sum(members),
            rebalances=self._groups.rebalances,
            aborted_transactions=self._store.overdue_transactions.aborted,
            cache_hits=self._cache.hits,
            cache_misses=self._cache.misses,
        )

    async def _finish(self) -> None:
        """Answer the requests that were read, so that clients repeat fewer of them."""
        finishing = [asyncio.create_task(each.finish()) for each in self._connections.values() if each is not None]
        if finishing:
            await asyncio.wait(finishing, timeout=_GRACE_S)
            for each in finishing:
                each.cancel()
        await self._queue.drain(_GRACE_S)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._has_room():
            self._counts.refused += 1
            _logger.warning("a connection is refused: there are %d already", len(self._connections))
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[task] = None
        try:
            tls = self._security.tls
            if tls is not None and not await tls.begin(writer, self._config.handshake_timeout_ms):
                return
            writer.transport.set_write_buffer_limits(high=_WRITE_AHEAD)
            connection = Connection(
                reader,
                writer,
                config=self._config,
                counts=self._counts,
                budget=self._requests,
                handlers=self._handlers,
                authentication=Authentication(self._security.mechanisms, self._environment.monotonic_ms),
            )
            self._connections[task] = connection
            await connection.run()
        except asyncio.CancelledError:
            # The server ends, or another connection takes this place. asyncio would log an error otherwise.
            pass
        except Exception:
            _logger.exception("a request failed, and its connection is closed")
        finally:
            self._counts.strangers += self._is_of_stranger(task)
            del self._connections[task]
            writer.transport.abort()

    def _has_room(self) -> bool:
        """Return True if one more connection is allowed, in the place of a stranger if need be."""
        if len(self._connections) < self._config.max_connections:
            return True
        # Strangers cannot keep clients out: a client is authenticated before strangers take all places after its own.
        oldest = next(self._strangers(), None)
        if oldest is not None:
            oldest.cancel()
        return oldest is not None

    def _strangers(self) -> Iterator[asyncio.Task[None]]:
        """Return the connections of clients that are not authenticated yet, the oldest one first."""
        for task in self._connections:
            # A task that is canceled ends soon.
            if self._is_of_stranger(task) and not task.cancelling():
                yield task

    def _is_of_stranger(self, task: asyncio.Task[None]) -> bool:
        connection = self._connections[task]
        return connection is None or connection.is_of_stranger


async def _versions(request: Request) -> Any:
    return supported_versions(request)


def listening_socket(address: Address, security: Security = OPEN) -> socket.socket:
    """Return a socket that listens at an address of this machine.

    Raises:
        InvalidOption: other machines could connect to the address, without the security that this needs.
        OSError: the address is in use, or it is not an address of this machine.
    """
    secured = {"has_tls": security.tls is not None, "has_sasl": bool(security.mechanisms)}
    check_address(address, **secured)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    try:
        # The system decides what localhost is.
        check_address(Address(*listening.getsockname()[:2]), **secured)
    except BaseException:
        listening.close()
        raise
    return listening
