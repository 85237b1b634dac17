"""Requests that change topics: creation and deletion, more partitions, and deletion of records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from eoslog.admin.admin import Admin, check_partition_count
from eoslog.admin.topic_admin import changed_config, settings_given
from eoslog.errors import EosLogError, InvalidRequest, InvalidTopic, OffsetOutOfRange, UnknownTopicOrPartition
from eoslog.gateway.error_codes import error_code
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.protocol import Request
from eoslog.gateway.topic_settings import settings_of_topics
from eoslog.session.session import Session
from eoslog.session.store_machine import answer_without_record
from eoslog.state.entries import TopicConfig, TopicCreated, TopicSchema
from eoslog.state.names import TopicPartition, check_topic_name
from eoslog.state.store_state import StoreState
from eoslog.state.topics import CreatePartitions, CreateTopic, topic_named
from eoslog.wording import counted

T = TypeVar("T")
_NewStarts: TypeAlias = dict[TopicPartition, int | EosLogError]
"""The log start of each partition after a deletion of records, or its error."""


class TopicChanges:
    """Answers requests that change topics."""

    def __init__(self, store: Session, config: GatewayConfig, topics: KnownTopics, executor: Executor) -> None:
        self._store = store
        self._admin = Admin(store)
        self._config = config
        self._topics = topics
        self._executor = executor

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def create(self, request: Request) -> Any:
        """Answer CreateTopics."""
        found = [await self._creation(request, each) for each in request.message.topics]
        return request.api.response(topics=tuple(found))

    async def _creation(self, request: Request, wanted: Any) -> Any:
        partitions = len(wanted.assignments) or wanted.num_partitions
        if partitions == -1:
            partitions = self._config.default_partitions
        settings = settings_of_topics(wanted.configs)
        code, message, topic = ErrorCode.none, None, None
        try:
            if request.message.validate_only:
                await self._run(lambda: self._check_creation(wanted.name, partitions, settings))
            else:
                topic = await self._run(
                    lambda: self._admin.create_topic(wanted.name, partitions=partitions, config=settings or None)
                )
        except EosLogError as error:
            code, message = error_code(error), str(error)
            if isinstance(error, InvalidTopic):
                code = _code_of_creation(wanted.name, partitions, settings)
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

    def _check_creation(self, name: str, partitions: int, settings: Mapping[str, Any]) -> None:
        """Raises: InvalidTopic"""
        check_topic_name(name)
        check_partition_count(name, partitions)
        entry = TopicCreated(
            topic=name,
            topic_id=self._store.environment.new_id(),
            partitions=partitions,
            topic_schema=TopicSchema(kind="records"),
            config=_new_config(name, settings),
            time_ms=0,
        )
        self._store.read(partial(answer_without_record, request=CreateTopic(entry)))

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
            topic = None if topic_id is None else self._topics.with_id(topic_id.hex)
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

    async def create_partitions(self, request: Request) -> Any:
        """Answer CreatePartitions."""
        found = [await self._growth(request, each) for each in request.message.topics]
        return request.api.response(results=tuple(found))

    async def _growth(self, request: Request, wanted: Any) -> Any:
        code, message = ErrorCode.none, None
        try:
            await self._run(lambda: self._grow(wanted, validate_only=request.message.validate_only))
        except InvalidRequest as error:
            code, message = ErrorCode.invalid_replica_assignment, str(error)
        except EosLogError as error:
            code, message = error_code(error), str(error)
            if isinstance(error, InvalidTopic):
                code = ErrorCode.invalid_partitions
        return request.api.part("CreatePartitionsTopicResult", name=wanted.name, error_code=code, error_message=message)

    def _grow(self, wanted: Any, *, validate_only: bool) -> None:
        """
        Raises:
            UnknownTopicOrPartition, InvalidTopic
            InvalidRequest: the assignments are not those of the new partitions.
        """
        request = CreatePartitions(wanted.name, wanted.count)

        def checked(state: StoreState, slot: int) -> int:
            before = topic_named(state, wanted.name).partitions
            check_partition_count(wanted.name, wanted.count)
            return answer_without_record(state, slot, request).partitions - before

        added = self._store.read(checked)
        # The gateway leads all partitions, whatever brokers a client assigns them to.
        if wanted.assignments is not None and len(wanted.assignments) != added:
            raise InvalidRequest(
                f"topic {wanted.name} gets {counted(added, 'partition')}, but the request assigns brokers to "
                f"{counted(len(wanted.assignments), 'partition')}"
            )
        if not validate_only:
            self._store.append(request)

    async def delete_records(self, request: Request) -> Any:
        """Answer DeleteRecords."""
        message = request.message
        wanted = {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in message.topics
            for each in topic.partitions
        }
        found = await self._new_starts(wanted) if wanted else {}
        return request.api.response(
            topics=tuple(
                request.api.part(
                    "DeleteRecordsTopicResult",
                    name=topic.name,
                    partitions=tuple(
                        self._new_start(request, topic.name, each.partition_index, found) for each in topic.partitions
                    ),
                )
                for topic in message.topics
            )
        )

    async def _new_starts(self, wanted: Mapping[TopicPartition, int]) -> _NewStarts:
        """Delete records, and return the log start of each partition, or its error."""
        try:
            return dict(await self._run(lambda: self._admin.delete_records(wanted)))
        except (UnknownTopicOrPartition, OffsetOutOfRange, InvalidRequest) as error:
            if len(wanted) == 1:
                return dict.fromkeys(wanted, error)
        except EosLogError as error:
            return dict.fromkeys(wanted, error)
        # The log has deleted nothing, and Kafka deletes the records of the other partitions.
        found: _NewStarts = {}
        for each, offset in wanted.items():
            found |= await self._new_starts({each: offset})
        return found

    @staticmethod
    def _new_start(request: Request, topic: str, partition: int, found: _NewStarts) -> Any:
        code, low_watermark = ErrorCode.none, -1
        outcome = found[TopicPartition(topic, partition)]
        if isinstance(outcome, InvalidRequest):
            # The topic is compacted, and does not delete.
            code = ErrorCode.policy_violation
        elif isinstance(outcome, EosLogError):
            code = error_code(outcome)
        else:
            low_watermark = outcome
        return request.api.part(
            "DeleteRecordsPartitionResult", partition_index=partition, low_watermark=low_watermark, error_code=code
        )


def _new_config(topic: str, settings: Mapping[str, Any]) -> TopicConfig:
    """Raises: InvalidTopic"""
    return changed_config(topic, TopicConfig(), settings_given(topic, settings))


def _code_of_creation(topic: str, partitions: int, settings: Mapping[str, Any]) -> ErrorCode:
    """Return the code for a topic that cannot be created: what is wrong first."""
    checks: tuple[tuple[Callable[[], object], ErrorCode], ...] = (
        (partial(check_topic_name, topic), ErrorCode.invalid_topic_exception),
        (partial(check_partition_count, topic, partitions), ErrorCode.invalid_partitions),
        (partial(_new_config, topic, settings), ErrorCode.invalid_config),
    )
    for check, code in checks:
        try:
            check()
        except InvalidTopic:
            return code
    # Its name is too much like that of another topic.
    return ErrorCode.invalid_topic_exception
