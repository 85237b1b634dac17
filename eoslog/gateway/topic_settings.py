"""Requests for settings: those of topics, which clients may change, and the few of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from eoslog.admin.topic_admin import AlterTopic, kafka_spelling, setting_named, settings_given
from eoslog.errors import EosLogError, InvalidRequest, InvalidTopic, UnsupportedSchema
from eoslog.gateway.error_codes import error_code
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.live_gateways import Broker
from eoslog.gateway.protocol import Request
from eoslog.session.session import Session
from eoslog.session.store_machine import answer_without_record
from eoslog.state.draft import Draft
from eoslog.state.entries import TopicConfig
from eoslog.state.store_state import Topic
from eoslog.state.topics import topic_named
from eoslog.wording import quoted

T = TypeVar("T")
_TOPIC, _BROKER = 2, 4
"""The types of resources, by Kafka's numbers."""
_OF_TOPIC, _OF_BROKER, _DEFAULT = 1, 4, 5
"""The sources of the values of settings, by Kafka's numbers."""
_TYPES = {bool: 1, int: 5, float: 6, str: 7}
"""The types of settings, by Kafka's numbers: booleans, longs, doubles and lists. Each text is a list."""
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
"""The kinds of incremental changes of a setting, by Kafka's numbers."""
_EMPTY_LISTS = {"cleanup_policy": "", "publish": "none"}
"""The settings that are lists, and their values without an element."""
_OF_EOSLOG = frozenset({"segment_batches", "statistics_columns", "iceberg_format_version", "publish"})
"""The settings of topics that Kafka does not know."""
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
_TIMESTAMP_TYPE, _OF_PRODUCERS = "message.timestamp.type", "CreateTime"
"""Kafka's setting for the times of rows, and the only value that topics have. Clients such as Kafka Streams give it."""


class _Described(NamedTuple):
    """A setting as a client sees it."""

    name: str
    value: object
    source: int


@dataclass(frozen=True)
class _ListChange:
    """A change of one list of a topic's settings."""

    field: str
    elements: frozenset[str]
    is_added: bool

    def apply(self, config: TopicConfig) -> str:
        """Return the changed list."""
        before = frozenset(getattr(config, self.field).split(",")) - {_EMPTY_LISTS[self.field]}
        after = before | self.elements if self.is_added else before - self.elements
        return ",".join(sorted(after)) or _EMPTY_LISTS[self.field]


@dataclass(frozen=True)
class _ChangeSettings:
    """Change settings of a topic. The new value of a list may follow from the present one."""

    topic: str
    settings: Mapping[str, Any]
    lists: tuple[_ListChange, ...] = ()

    def apply(self, draft: Draft) -> Topic:
        """Raises: UnknownTopicOrPartition, InvalidTopic, UnsupportedSchema"""
        config = topic_named(draft, self.topic).config
        lists = {each.field: each.apply(config) for each in self.lists}
        return AlterTopic(self.topic, {**self.settings, **lists}).apply(draft)


class TopicSettings:
    """Answers requests for settings."""

    def __init__(
        self,
        store: Session,
        config: GatewayConfig,
        topics: KnownTopics,
        *,
        executor: Executor,
        own: Broker,
        protocol: str,
    ) -> None:
        """
        Args:
            own: the gateway.
            protocol: the protocol of the connections of clients, by Kafka's names.
        """
        self._store = store
        self._config = config
        self._topics = topics
        self._executor = executor
        self._own = own
        self._protocol = protocol

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def describe(self, request: Request) -> Any:
        """Answer DescribeConfigs: the settings of topics, and the few of the gateway."""
        # Other processes may have changed the settings.
        await self._topics.refresh()
        return request.api.response(results=tuple(self._result(request, each) for each in request.message.resources))

    def _result(self, request: Request, wanted: Any) -> Any:
        code, message = ErrorCode.none, None
        found: Iterable[_Described] = ()
        if wanted.resource_type == _TOPIC:
            topic = self._topics.known(wanted.resource_name)
            if topic is None:
                code, message = (
                    ErrorCode.unknown_topic_or_partition,
                    f"there is no topic {quoted(wanted.resource_name)}",
                )
            else:
                found = self._of_topic(topic.config)
        elif wanted.resource_type == _BROKER and wanted.resource_name in ("", str(self._own.node_id)):
            found = self._of_broker()
        elif wanted.resource_type == _BROKER:
            code, message = ErrorCode.invalid_request, f"the gateway is broker {self._own.node_id}"
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
                    name=each.name,
                    value=_text(each.value),
                    read_only=wanted.resource_type == _BROKER,
                    config_source=each.source,
                    is_sensitive=False,
                    synonyms=(),
                    config_type=_TYPES[type(each.value)],
                    documentation=None,
                )
                for each in found
                if names is None or each.name in names
            ),
        )

    def _of_topic(self, config: TopicConfig) -> Iterable[_Described]:
        defaults = TopicConfig()
        for field, value in config:
            source = _DEFAULT if value == getattr(defaults, field) else _OF_TOPIC
            # Without a limit of its own a topic has that of the gateway.
            yield _Described(kafka_spelling(field), self._config.max_batch_bytes if value is None else value, source)

    def _of_broker(self) -> Iterable[_Described]:
        values = {
            "advertised.listeners": f"{self._protocol}://{self._own.address}",
            "auto.create.topics.enable": self._config.auto_create_topics,
            "num.partitions": self._config.default_partitions,
            "default.replication.factor": 1,
            "socket.request.max.bytes": self._config.max_frame_bytes,
            "message.max.bytes": self._config.max_batch_bytes,
        }
        return [_Described(name, value, _OF_BROKER) for name, value in values.items()]

    async def alter(self, request: Request) -> Any:
        """Answer AlterConfigs: the settings that the client does not give get their defaults."""
        return await self._altered(request, _replacement)

    async def alter_incrementally(self, request: Request) -> Any:
        """Answer IncrementalAlterConfigs."""
        return await self._altered(request, _increment)

    async def _altered(self, request: Request, change_of: Callable[[Any], _ChangeSettings]) -> Any:
        found = [await self._alteration(request, each, change_of) for each in request.message.resources]
        return request.api.response(responses=tuple(found))

    async def _alteration(self, request: Request, wanted: Any, change_of: Callable[[Any], _ChangeSettings]) -> Any:
        code, message = ErrorCode.none, None
        try:
            _check_alterable(wanted)
            change = change_of(wanted)
            if request.message.validate_only:
                await self._run(lambda: self._store.read(partial(answer_without_record, request=change)))
            else:
                await self._run(lambda: self._store.append(change))
        except (InvalidTopic, UnsupportedSchema) as error:
            code, message = ErrorCode.invalid_config, str(error)
        except EosLogError as error:
            code, message = error_code(error), str(error)
        return request.api.part(
            "AlterConfigsResourceResponse",
            error_code=code,
            error_message=message,
            resource_type=wanted.resource_type,
            resource_name=wanted.resource_name,
        )


def settings_of_topics(given: Iterable[Any]) -> dict[str, Any]:
    """Return the values that a client gives to settings, without those that change nothing."""
    return {each.name: each.value for each in given if not _is_ignored(each.name, each.value)}


def _is_ignored(name: str, value: str | None) -> bool:
    return name in _OF_BROKERS or (name == _TIMESTAMP_TYPE and value in (_OF_PRODUCERS, None))


def _check_alterable(wanted: Any) -> None:
    """Raises: InvalidRequest"""
    if wanted.resource_type == _BROKER:
        raise InvalidRequest("the settings of a gateway are the options of its command. Start it with others")
    if wanted.resource_type != _TOPIC:
        raise InvalidRequest(f"resources of the type {wanted.resource_type} have no settings")
    names = [each.name for each in wanted.configs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequest(f"setting {quoted(twice)} is given twice")


def _replacement(wanted: Any) -> _ChangeSettings:
    """Return the change of AlterConfigs.

    Raises:
        InvalidRequest, InvalidTopic
    """
    _check_values(wanted.configs)
    defaults: dict[str, Any] = {name: None for name in TopicConfig.model_fields if name not in _OF_EOSLOG}
    topic = wanted.resource_name
    return _ChangeSettings(topic, defaults | settings_given(topic, settings_of_topics(wanted.configs)))


def _increment(wanted: Any) -> _ChangeSettings:
    """Return the change of IncrementalAlterConfigs.

    Raises:
        InvalidRequest, InvalidTopic
    """
    topic = wanted.resource_name
    settings: dict[str, Any] = {}
    lists = []
    _check_values(each for each in wanted.configs if each.config_operation != _DELETE)
    for each in wanted.configs:
        operation = each.config_operation
        if operation not in (_SET, _DELETE, _APPEND, _SUBTRACT):
            raise InvalidRequest(f"setting {quoted(each.name)}: operation {operation} is unknown")
        if _is_ignored(each.name, None if operation == _DELETE else each.value):
            continue
        field = setting_named(topic, each.name)
        if operation == _SET:
            settings |= settings_given(topic, {each.name: each.value})
        elif operation == _DELETE:
            settings[field] = None
        elif field in _EMPTY_LISTS:
            lists.append(_ListChange(field, frozenset(each.value.split(",")), operation == _APPEND))
        else:
            raise InvalidTopic(f"topic {topic}: setting {each.name} is no list. Set its whole value")
    return _ChangeSettings(topic, settings, tuple(lists))


def _check_values(configs: Iterable[Any]) -> None:
    """Raises: InvalidRequest"""
    missing = next((each.name for each in configs if each.value is None), None)
    if missing is not None:
        raise InvalidRequest(f"setting {quoted(missing)} has no value")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
