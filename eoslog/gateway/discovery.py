"""Requests by which clients discover topics, brokers, and coordinators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from eoslog.admin.admin import Admin
from eoslog.errors import EosLogError, NotCoordinator, TopicAlreadyExists
from eoslog.gateway.error_codes import coordinator_code, error_code
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.group_coordinator import GroupCoordinator
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.live_gateways import LiveGateways
from eoslog.gateway.offsets import LEADER_EPOCH
from eoslog.gateway.protocol import Request
from eoslog.session.session import Session
from eoslog.state.names import check_topic_name
from eoslog.state.store_state import Topic
from eoslog.wording import quoted

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_GROUP, _TRANSACTION = 0, 1
"""The types of the keys of coordinators, by Kafka's numbers."""
_BROKERS, _CONTROLLERS = 1, 2
"""The types of endpoints that clients ask for, by Kafka's numbers."""
_LONGEST_WAIT_S = 5.0
"""Clients wait at most this long for newer metadata (s). Without any, they would give up."""
_UNAVAILABLE_PAUSE_MS = 100
"""How long the answer waits that no coordinator is available. Java's admin client asks again without a pause."""


class Discovery:
    """Answers requests for topics, brokers and coordinators."""

    def __init__(
        self,
        store: Session,
        config: GatewayConfig,
        topics: KnownTopics,
        *,
        executor: Executor,
        gateways: LiveGateways,
        groups: GroupCoordinator,
    ) -> None:
        self._store = store
        self._admin = Admin(store)
        self._config = config
        self._topics = topics
        self._executor = executor
        self._gateways = gateways
        self._groups = groups

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def metadata(self, request: Request) -> Any:
        """Answer Metadata: the live gateways are the brokers, and share the partitions."""
        # If the store does not answer, the known topics are better than no answer: without metadata no client can wait.
        await asyncio.gather(self._topics.refresh(_LONGEST_WAIT_S), self._gateways.refresh())
        api, message = request.api, request.message
        # An empty list means all topics in the first version, and no topic in the later ones.
        if message.topics is None or (api.version == 0 and not message.topics):
            # Topics of columns are left out: a client that subscribes to a pattern could not read them.
            found = [self._described(request, each) for each in self._topics.all() if _has_records(each)]
        else:
            # A topic may have many partitions, and a request may name it many times.
            found = [await self._requested(request, each) for each in dict.fromkeys(message.topics)]
        return api.response(topics=tuple(found), **self._cluster(request, "MetadataResponseBroker"))

    async def cluster(self, request: Request) -> Any:
        """Answer DescribeCluster: the live gateways are the brokers, and there are no controllers."""
        await self._gateways.refresh()
        asked = getattr(request.message, "endpoint_type", _BROKERS)
        code, reason = ErrorCode.none, None
        if asked == _CONTROLLERS:
            code, reason = ErrorCode.mismatched_endpoint_type, "a gateway is a broker, and there are no controllers"
        elif asked != _BROKERS:
            code, reason = ErrorCode.unsupported_endpoint_type, f"endpoints of the type {asked} are unknown"
        return request.api.response(
            error_code=code,
            error_message=reason,
            endpoint_type=_BROKERS,
            **self._cluster(request, "DescribeClusterBroker"),
        )

    def _cluster(self, request: Request, broker: str) -> dict[str, Any]:
        """Return the description of the cluster, with parts of this name for the brokers."""
        own, brokers = self._gateways.own, self._gateways.brokers
        return {
            "brokers": tuple(
                request.api.part(
                    broker,
                    node_id=each.node_id,
                    broker_id=each.node_id,
                    host=each.address.host,
                    port=each.address.port,
                    rack=each.rack,
                    is_fenced=False,
                )
                for each in brokers
            ),
            "cluster_id": self._store.describe().store_id,
            # Any gateway answers requests for the controller.
            "controller_id": (own if own in brokers else brokers[0]).node_id,
        }

    async def coordinator(self, request: Request) -> Any:
        """Answer FindCoordinator.

        The coordinator of a transactional id is the one that the live gateways agree on. That of a group is the gateway
        that the log names.
        """
        message = request.message
        kind = getattr(message, "key_type", _GROUP)
        keys = getattr(message, "coordinator_keys", None)
        await self._gateways.refresh()
        if kind == _GROUP and len(self._gateways.brokers) > 1:
            # Members may have joined another gateway.
            await self._topics.refresh()
        found = [await self._coordinator_of(kind, key) for key in ((message.key,) if keys is None else keys)]
        if any(each["error_code"] is ErrorCode.coordinator_not_available for each in found):
            await asyncio.sleep(_UNAVAILABLE_PAUSE_MS / 1000)
        if keys is None:
            return request.api.response(**found[0])
        return request.api.response(
            coordinators=tuple(
                request.api.part("Coordinator", key=key, **each) for key, each in zip(keys, found, strict=True)
            )
        )

    async def _coordinator_of(self, kind: int, key: str) -> dict[str, Any]:
        broker = self._gateways.own
        code, reason = ErrorCode.none, None
        try:
            if kind == _GROUP:
                broker = await self._groups.coordinator(key)
            elif kind == _TRANSACTION:
                broker = self._gateways.chosen_for(key)
            else:
                code, reason = ErrorCode.invalid_request, "only groups and transactional ids have coordinators"
        except NotCoordinator as error:
            # The client asks again, until it may join here.
            code, reason = ErrorCode.coordinator_not_available, str(error)
        except EosLogError as error:
            code, reason = coordinator_code(error), str(error)
        return {
            "node_id": broker.node_id,
            "host": broker.address.host,
            "port": broker.address.port,
            "error_code": code,
            "error_message": reason,
        }

    async def _requested(self, request: Request, wanted: Any) -> Any:
        name: str | None = wanted.name
        if name is None:
            topic = self._with_id(wanted.topic_id)
            return (
                self._missing(request, None, ErrorCode.unknown_topic_id, wanted.topic_id)
                if topic is None
                else (self._described(request, topic))
            )
        topic = self._topics.known(name)
        if topic is None:
            may_create = self._config.auto_create_topics and getattr(request.message, "allow_auto_topic_creation", True)
            code = await self._created(name) if may_create else _code_of_name(name)
            topic = self._topics.known(name)
            if topic is None:
                return self._missing(request, name, code)
        if not _has_records(topic):
            return self._missing(request, name, ErrorCode.invalid_topic_exception)
        return self._described(request, topic)

    def _with_id(self, topic_id: UUID | None) -> Topic | None:
        return None if topic_id is None else self._topics.with_id(topic_id.hex)

    async def _created(self, name: str) -> ErrorCode:
        partitions = self._config.default_partitions
        try:
            await self._run(lambda: self._admin.create_topic(name, partitions=partitions))
        except TopicAlreadyExists:
            # Another client was faster.
            await self._topics.refresh()
        except EosLogError as error:
            _logger.warning("%s: topic %s was not created: %s", self._store.url, quoted(name), error)
            return error_code(error)
        return ErrorCode.none

    def _missing(self, request: Request, name: str | None, code: ErrorCode, topic_id: UUID | None = None) -> Any:
        return request.api.part(
            "MetadataResponseTopic", error_code=code, name=name, topic_id=topic_id, is_internal=False, partitions=()
        )

    def _described(self, request: Request, topic: Topic) -> Any:
        return request.api.part(
            "MetadataResponseTopic",
            error_code=ErrorCode.none,
            name=topic.topic,
            topic_id=UUID(hex=topic.topic_id),
            is_internal=False,
            partitions=tuple(
                self._partition(request, topic.topic_id, partition) for partition in range(topic.partitions)
            ),
        )

    def _partition(self, request: Request, topic_id: str, partition: int) -> Any:
        leader = self._gateways.leader_of(topic_id, partition).node_id
        return request.api.part(
            "MetadataResponsePartition",
            error_code=ErrorCode.none,
            partition_index=partition,
            leader_id=leader,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=(leader,),
            isr_nodes=(leader,),
            offline_replicas=(),
        )


def _has_records(topic: Topic) -> bool:
    return topic.topic_schema.kind == "records"


def _code_of_name(name: str) -> ErrorCode:
    """Return the error of a topic that does not exist."""
    try:
        check_topic_name(name)
    except EosLogError:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition
