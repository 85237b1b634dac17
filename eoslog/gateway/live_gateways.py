"""The gateways of a store that are alive, which clients see as the brokers of one cluster.

Each gateway overwrites a small object of its own, and lists those of the others when clients ask for brokers. The
objects decide nothing: any gateway serves any request, and the log fences groups and transactions. So a gateway with an
old list costs its clients a detour at most.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError

from eoslog.arguments import LONGEST_SESSION_TIMEOUT_MS, SHORTEST_SESSION_TIMEOUT_MS
from eoslog.errors import EosLogError
from eoslog.gateway.addresses import Address, is_loopback, parsed_address
from eoslog.session.heartbeats import HeartbeatDirectory, host_name
from eoslog.session.session import Session
from eoslog.state import group_entries
from eoslog.state.entry_fields import Model
from eoslog.state.store_state import Member
from eoslog.storage.library_threads import LibraryExecutor
from eoslog.storage.object_store import ObjectStore

_DIRECTORY = "__gateways/"
_NAME = re.compile("[0-9a-f]{32}")
_HEARTBEAT_MS = 5_000
_SESSION_TIMEOUT_MS = 3 * _HEARTBEAT_MS
_PERIOD_MS = 1_000
"""The list of gateways is read at most once in this time (ms). Clients move within this time when a gateway ends."""
_PATIENCE_S = 5.0
"""Clients wait at most this long for a new list (s). Then they get the old one."""
_MOST_GATEWAYS = 1_000
_GRACE_S = 5.0
"""The time that a gateway has to delete its object when it ends (s)."""
_LARGEST_ID = (1 << 30) - 1
"""Java's client uses 2^31 - 1 - id for a second connection to a coordinator. Below 2^30 no other broker has this id."""
_logger = logging.getLogger(__name__)
T = TypeVar("T")


class GatewayRecord(Model):
    """The object of a gateway in the store."""

    address: group_entries.Address
    """The address at which clients reach the gateway."""
    host: group_entries.Host
    """The name of the gateway's host."""
    rack: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    protocol: Annotated[str, Field(max_length=32)] = "PLAINTEXT"
    """The protocol of the connections of clients, by Kafka's names."""
    session_timeout_ms: Annotated[
        int, Field(strict=True, ge=SHORTEST_SESSION_TIMEOUT_MS, le=LONGEST_SESSION_TIMEOUT_MS)
    ]
    """The gateway has ended if its object is older than this."""

    def is_known_to(self, other: GatewayRecord) -> bool:
        """Return whether clients of another gateway can use this one, too.

        Only processes of a host reach its loopback addresses. Each host has the same ones.
        """
        is_local = is_loopback(parsed_address(self.address).host)
        if self.protocol != other.protocol or is_local != is_loopback(parsed_address(other.address).host):
            return False
        return self.host == other.host or not is_local


@dataclass(frozen=True)
class Broker:
    """A gateway as clients see it. Gateways with the same address are one broker."""

    node_id: int
    address: Address
    rack: str | None


def decode_gateway(body: bytes) -> GatewayRecord | None:
    """Return the content of a gateway's object; None if it is invalid."""
    try:
        found = GatewayRecord.model_validate(json.loads(body))
        parsed_address(found.address)
    except (ValidationError, ValueError, RecursionError):
        return None
    return found


class GatewayDirectory:
    """The objects of the gateways of a store. The methods wait for the store, and run one at a time."""

    def __init__(self, store: ObjectStore, own_name: str = "") -> None:
        self._objects = HeartbeatDirectory(store, _DIRECTORY)
        self._own_name = own_name
        self._records: dict[str, GatewayRecord | None] = {}
        """The content of each object. It never changes."""

    def put(self, own: GatewayRecord) -> None:
        """Write the object of this gateway."""
        self._objects.put(self._own_name, own.model_dump(mode="json"))

    def delete(self) -> None:
        """Delete the object of this gateway."""
        self._objects.delete([self._own_name])

    def live(self) -> list[GatewayRecord]:
        """Return the gateways whose objects are not silent, and delete the objects of others. This costs one LIST."""
        ages = {name: age for name, age in self._objects.ages_ms().items() if _NAME.fullmatch(name)}
        ages = dict(islice(ages.items(), _MOST_GATEWAYS))
        new = [name for name in ages if name not in self._records]
        # An object that another gateway has deleted meanwhile may come again.
        read = {name: body for name, body in zip(new, self._objects.bodies(new), strict=True) if body is not None}
        self._records |= {name: decode_gateway(body) for name, body in read.items()}
        self._records = {name: record for name, record in self._records.items() if name in ages}
        silent = {name for name, record in self._records.items() if ages[name] > _timeout_ms(record)}
        try:
            self._objects.delete(silent - {self._own_name})
        except EosLogError as error:
            _logger.warning("heartbeats of gateways that have ended are not deleted: %s", error)
        return [record for name, record in self._records.items() if record is not None and name not in silent]


def _timeout_ms(record: GatewayRecord | None) -> int:
    return LONGEST_SESSION_TIMEOUT_MS if record is None else record.session_timeout_ms


class LiveGateways:
    """The gateways of a store as one of them sees them.

    Its methods run in the event loop, unless their docstrings say otherwise.
    """

    def __init__(self, store: Session, advertised: Address, *, rack: str | None, protocol: str = "PLAINTEXT") -> None:
        """
        Args:
            advertised: the address at which clients reach this gateway.
            protocol: the protocol of the connections of clients, by Kafka's names.
        """
        self._url = store.url
        self._environment = store.environment
        self._record = GatewayRecord(
            address=str(advertised),
            host=host_name(),
            rack=rack,
            protocol=protocol,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
        )
        self._directory = GatewayDirectory(store.object_store, store.environment.new_id())
        # Heartbeats do not wait for threads that read rows, and not for a LIST.
        self._executor = LibraryExecutor(2, "eoslog-gateway-heartbeat")
        self._putting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        """The newest LIST."""
        self._read_ms: float | None = None
        """The begin of the last LIST that has ended, by the clock of the event loop (ms)."""
        self._is_ending = False
        self._live: Sequence[GatewayRecord] = ()
        self._is_known = False
        """True if the store has answered the last LIST."""
        self.own = _broker_of(self._record)
        self.brokers: tuple[Broker, ...] = (self.own,)
        """The live gateways that clients of this one can use, in the order of their addresses. One at least."""

    async def register(self) -> None:
        """Write the object of this gateway for the first time, and read those of the others."""
        await self._put()
        self._environment.reached("gateway.registered")
        await self.refresh()

    async def run(self) -> None:
        """Write heartbeats until the task is canceled."""
        while True:
            await asyncio.sleep(_HEARTBEAT_MS / 1000)
            await self._put()

    async def _put(self) -> None:
        async with self._putting:
            if self._is_ending:
                return
            try:
                await self._run(lambda: self._directory.put(self._record))
            except EosLogError as error:
                _logger.warning("%s: this gateway has no new heartbeat: %s", self._url, error)

    async def deregister(self) -> None:
        """Delete the object of this gateway, and read those of the others, so that clients find the others only."""
        self._is_ending = True
        try:
            # A heartbeat that is on its way would write the object again.
            async with asyncio.timeout(_GRACE_S), self._putting:
                await self._run(self._directory.delete)
                self._environment.reached("gateway.deregistered")
        except (EosLogError, TimeoutError) as error:
            _logger.warning("%s: the heartbeat of this gateway is not deleted: %s", self._url, error)
        else:
            if self._reading is not None:
                # A LIST from before the deletion may name this gateway.
                await asyncio.wait([self._reading], timeout=_PATIENCE_S)
            self._read_ms = None
            await self.refresh()

    @property
    def sends_away(self) -> bool:
        """Return whether clients must move to other gateways: this one ends, and there are others."""
        return self._is_ending and self.own not in self.brokers

    def close(self) -> None:
        """End the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def refresh(self, max_age_ms: int = 0) -> None:
        """Read the list of live gateways, unless it is younger than ``_PERIOD_MS`` or than this.

        If the store does not answer, the list stays as it is.
        """
        now_ms = asyncio.get_running_loop().time() * 1000
        if self._read_ms is not None and now_ms - self._read_ms < max(max_age_ms, _PERIOD_MS):
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(now_ms))
        # All callers wait for one LIST. With a LIST for each caller, the last of many would wait long.
        done, _ = await asyncio.wait([self._reading], timeout=_PATIENCE_S)
        for each in done:
            each.result()
        if not done:
            # From a list that is too old, a gateway that has started since would seem to have ended.
            self._is_known = False

    async def _read(self, begin_ms: float) -> None:
        try:
            live = await self._run(self._directory.live)
        except EosLogError as error:
            self._is_known = False
            _logger.warning("%s: the list of gateways cannot be read: %s", self._url, error)
        else:
            self._is_known = True
            self._take(live)
        finally:
            self._read_ms = begin_ms

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _take(self, live: Sequence[GatewayRecord]) -> None:
        self._live = live
        known = [record for record in live if record.is_known_to(self._record)]
        # The own heartbeat may be late. A gateway that ends names only the others, if there are any.
        if not self._is_ending or not known:
            known.append(self._record)
        self.brokers = brokers_of(known)

    def broker_of(self, gateway: Member) -> Broker | None:
        """Return the broker of a gateway that is a member of a group in the log; None if clients cannot reach it.

        It may run in any thread.
        """
        live = (each for each in self._live if (each.host, each.address) == (gateway.host, gateway.address))
        record = next((each for each in live if each.is_known_to(self._record)), None)
        return next((each for each in self.brokers if record is not None and str(each.address) == record.address), None)

    def has_ended(self, gateway: Member) -> bool:
        """Return whether a gateway that is a member of a group in the log seems to have ended.

        It may run in any thread.
        """
        live = {(each.host, each.address) for each in self._live}
        return self._is_known and (gateway.host, gateway.address) not in live

    def leader_of(self, topic_id: str, partition: int) -> Broker:
        """Return the broker to which clients send requests for a partition. Any other one answers them, too."""
        return self.chosen_for(f"{topic_id} {partition}")

    def nearer(self, topic_id: str, partition: int, rack: str) -> Broker | None:
        """Return the broker in the rack of a consumer that fetches here, if it should fetch there (KIP-392).

        Only the leader of a partition says so, as in Kafka.
        """
        if not rack or rack == self.own.rack or self.leader_of(topic_id, partition).address != self.own.address:
            return None
        found = self.chosen_for(f"{topic_id} {partition}", rack=rack)
        return found if found.rack == rack else None

    def chosen_for(self, key: str, *, rack: str | None = None) -> Broker:
        """Return the broker for a key. All gateways that have the same list choose the same one.

        If a broker comes or goes, only its own keys move (rendezvous hashing).

        Args:
            rack: the brokers of this rack are preferred.
        """
        found = [each for each in self.brokers if rack is not None and each.rack == rack] or self.brokers
        return found[0] if len(found) == 1 else max(found, key=partial(_weight, key))


def _broker_of(record: GatewayRecord) -> Broker:
    digest = hashlib.sha256(record.address.encode()).digest()
    return Broker(1 + int.from_bytes(digest[:4]) % _LARGEST_ID, parsed_address(record.address), record.rack)


def brokers_of(records: Iterable[GatewayRecord]) -> tuple[Broker, ...]:
    """Return the brokers of gateways, in the order of their addresses.

    If two addresses have one id, only the first one is a broker: a client would take them for one.
    """
    found: dict[int, Broker] = {}
    for record in sorted(records, key=lambda each: (each.address, each.rack or "")):
        broker = _broker_of(record)
        found.setdefault(broker.node_id, broker)
    return tuple(found.values())


def _weight(key: str, broker: Broker) -> bytes:
    return hashlib.sha256(f"{broker.address} {key}".encode()).digest()
