"""Requests for topics: the metadata that clients begin with, creation and deletion, and settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from eoslog.admin.admin import Admin
from eoslog.admin.topic_admin import kafka_spelling
from eoslog.errors import EosLogError, InvalidTopic, NotCoordinator, TopicAlreadyExists
from eoslog.gateway.addresses import Address
from eoslog.gateway.error_codes import coordinator_code, error_code
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.group_coordinator import GroupCoordinator
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.offsets import LEADER_EPOCH
from eoslog.gateway.protocol import Request
from eoslog.session.session import Session
from eoslog.state.entries import TopicConfig
from eoslog.state.names import check_topic_name
from eoslog.state.store_state import Topic
from eoslog.wording import quoted

T = TypeVar("T")
_logger = logging.getLogger(__name__)
NODE = 1
"""The id of the only broker that clients see: the gateway."""
_TOPIC, _BROKER = 2, 4
_GROUP, _TRANSACTION = 0, 1
"""The types of the keys of coordinators, by Kafka's numbers."""
_OF_TOPIC, _OF_BROKER, _DEFAULT = 1, 4, 5
"""Where the value of a setting comes from, by Kafka's numbers."""
_OF_BROKERS = frozenset(
    {
        "compression.type",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "min.insync.replicas",
        "preallocate",
        "segment.index.bytes",
        "segment.jitter.ms",
        "unclean.leader.election.enable",
    }
)
"""Kafka's settings of topics that only concern a broker's disks and replicas. They are ignored."""


class Topics:
    """Answers requests for topics."""

    def __init__(
        self,
        store: Session,
        config: GatewayConfig,
        topics: KnownTopics,
        *,
        executor: Executor,
        advertised: Address,
        groups: GroupCoordinator,
    ) -> None:
        """
        Args:
            advertised: the address at which clients reach the gateway.
        """
        self._store = store
        self._admin = Admin(store)
        self._config = config
        self._topics = topics
        self._executor = executor
        self._advertised = advertised
        self._groups = groups

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def metadata(self, request: Request) -> Any:
        """Answer Metadata: this gateway is the broker, and leads all partitions."""
        # If the store does not answer, the known topics are better than no answer: without metadata no client can wait.
        await self._topics.refresh()
        api, message = request.api, request.message
        # An empty list means all topics in the first version, and no topic in the later ones.
        if message.topics is None or (api.version == 0 and not message.topics):
            # Topics of columns are left out: a client that subscribes to a pattern could not read them.
            found = [self._described(request, each) for each in self._topics.all() if _has_records(each)]
        else:
            found = [await self._requested(request, each) for each in message.topics]
        broker = api.part(
            "MetadataResponseBroker", node_id=NODE, host=self._advertised.host, port=self._advertised.port, rack=None
        )
        return api.response(
            brokers=(broker,),
            cluster_id=self._store.describe().store_id,
            controller_id=NODE,
            topics=tuple(found),
        )

    async def coordinator(self, request: Request) -> Any:
        """Answer FindCoordinator: this gateway coordinates all groups and transactional ids.

        The exception is a group whose members use another gateway.
        """
        message = request.message
        kind = getattr(message, "key_type", _GROUP)
        keys = getattr(message, "coordinator_keys", None)
        if keys is None:
            return request.api.response(**await self._coordinator_of(kind, message.key))
        return request.api.response(
            coordinators=tuple(
                [request.api.part("Coordinator", key=key, **await self._coordinator_of(kind, key)) for key in keys]
            )
        )

    async def _coordinator_of(self, kind: int, key: str) -> dict[str, Any]:
        code, reason = ErrorCode.none, None
        try:
            if kind == _GROUP:
                await self._groups.check_coordinator(key)
            elif kind != _TRANSACTION:
                code, reason = ErrorCode.invalid_request, "only groups and transactional ids have coordinators"
        except NotCoordinator as error:
            # The client asks again, until it may join here.
            code, reason = ErrorCode.coordinator_not_available, str(error)
        except EosLogError as error:
            code, reason = coordinator_code(error), str(error)
        return {
            "node_id": NODE,
            "host": self._advertised.host,
            "port": self._advertised.port,
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
                request.api.part(
                    "MetadataResponsePartition",
                    error_code=ErrorCode.none,
                    partition_index=partition,
                    leader_id=NODE,
                    leader_epoch=LEADER_EPOCH,
                    replica_nodes=(NODE,),
                    isr_nodes=(NODE,),
                    offline_replicas=(),
                )
                for partition in range(topic.partitions)
            ),
        )

    async def create(self, request: Request) -> Any:
        """Answer CreateTopics."""
        found = [await self._creation(request, each) for each in request.message.topics]
        return request.api.response(topics=tuple(found))

    async def _creation(self, request: Request, wanted: Any) -> Any:
        partitions = len(wanted.assignments) or wanted.num_partitions
        if partitions == -1:
            partitions = self._config.default_partitions
        settings = {each.name: each.value for each in wanted.configs if each.name not in _OF_BROKERS}
        code, message, topic = ErrorCode.none, None, None
        try:
            if request.message.validate_only:
                check_topic_name(wanted.name)
                if self._topics.known(wanted.name) is not None:
                    raise TopicAlreadyExists(f"topic {wanted.name} exists already")
            else:
                topic = await self._run(
                    lambda: self._admin.create_topic(wanted.name, partitions=partitions, config=settings or None)
                )
        except EosLogError as error:
            code, message = error_code(error), str(error)
            if isinstance(error, InvalidTopic) and _code_of_name(wanted.name) is not ErrorCode.invalid_topic_exception:
                code = ErrorCode.invalid_partitions if partitions < 1 else ErrorCode.invalid_config
        return request.api.part(
            "CreatableTopicResult",
            name=wanted.name,
            topic_id=None if topic is None else UUID(hex=topic.topic_id),
            error_code=code,
            error_message=message,
            num_partitions=partitions if topic is not None else -1,
            replication_factor=1 if topic is not None else -1,
            topic_config_error_code=0,
            configs=(),
        )

    async def delete(self, request: Request) -> Any:
        """Answer DeleteTopics."""
        message = request.message
        if hasattr(message, "topics"):
            wanted = [(each.name, each.topic_id) for each in message.topics]
        else:
            wanted = [(name, None) for name in message.topic_names]
        found = [await self._deletion(request, name, topic_id) for name, topic_id in wanted]
        return request.api.response(responses=tuple(found))

    async def _deletion(self, request: Request, name: str | None, topic_id: UUID | None) -> Any:
        code, message = ErrorCode.none, None
        if name is None:
            topic = self._with_id(topic_id)
            name = None if topic is None else topic.topic
        if name is None:
            code = ErrorCode.unknown_topic_id
        else:
            doomed = name
            try:
                await self._run(lambda: self._admin.delete_topic(doomed))
            except EosLogError as error:
                code, message = error_code(error), str(error)
        return request.api.part(
            "DeletableTopicResult", name=name, topic_id=topic_id, error_code=code, error_message=message
        )

    async def configs(self, request: Request) -> Any:
        """Answer DescribeConfigs: the settings of topics, and the few of the gateway."""
        results = [await self._config_of(request, each) for each in request.message.resources]
        return request.api.response(results=tuple(results))

    async def _config_of(self, request: Request, wanted: Any) -> Any:
        code, message, values, changed = ErrorCode.none, None, {}, set[str]()
        source = _OF_TOPIC
        if wanted.resource_type == _TOPIC:
            topic = await self._topics.find(wanted.resource_name)
            if topic is None:
                code, message = ErrorCode.unknown_topic_or_partition, f"no topic {quoted(wanted.resource_name)}"
            else:
                values = {kafka_spelling(name): _text(value) for name, value in topic.config}
                defaults = TopicConfig()
                changed = {kafka_spelling(name) for name, value in topic.config if value != getattr(defaults, name)}
        elif wanted.resource_type == _BROKER:
            source = _OF_BROKER
            values = {
                "auto.create.topics.enable": _text(self._config.auto_create_topics),
                "num.partitions": _text(self._config.default_partitions),
                "default.replication.factor": "1",
                "socket.request.max.bytes": _text(self._config.max_frame_bytes),
                "message.max.bytes": _text(self._config.max_batch_bytes),
            }
            changed = set(values)
        else:
            code, message = ErrorCode.invalid_request, f"resources of the type {wanted.resource_type} have no settings"
        names = wanted.configuration_keys
        return request.api.part(
            "DescribeConfigsResult",
            error_code=code,
            error_message=message,
            resource_type=wanted.resource_type,
            resource_name=wanted.resource_name,
            configs=tuple(
                request.api.part(
                    "DescribeConfigsResourceResult",
                    name=name,
                    value=value,
                    read_only=True,
                    config_source=source if name in changed else _DEFAULT,
                    is_sensitive=False,
                    synonyms=(),
                    documentation=None,
                )
                for name, value in values.items()
                if names is None or name in names
            ),
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _has_records(topic: Topic) -> bool:
    return topic.topic_schema.kind == "records"


def _code_of_name(name: str) -> ErrorCode:
    """Return the error of a topic that does not exist."""
    try:
        check_topic_name(name)
    except EosLogError:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition
