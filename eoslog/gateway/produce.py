"""Produce requests: their batches go into the queue in the order of their arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from kio.schema.errors import ErrorCode

from eoslog.errors import EosLogError, InvalidTxnState, ProducerFenced
from eoslog.gateway.batch_cache import BatchCache, EncodedBatch, PartitionVersion
from eoslog.gateway.batch_errors import BatchError
from eoslog.gateway.batch_queue import BatchQueue
from eoslog.gateway.error_codes import BATCH_CODES, error_code
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.live_gateways import LiveGateways
from eoslog.gateway.memory_budget import MemoryBudget
from eoslog.gateway.protocol import Request
from eoslog.gateway.record_batches import DecodedBatch, decode, most_decoded_bytes
from eoslog.producer.producer_batches import ProducerBatch
from eoslog.state.append_requests import AppendedRows, DuplicateRows
from eoslog.state.partition_state import NO_SLOT
from eoslog.wording import quoted

_NO_ANSWER, _ALL = 0, -1
_FIRST_THAT_ADDS = 12
"""From this version on a batch adds its partition to the transaction (KIP-890)."""
_FIRST_ABORTABLE = 11
"""The first version with ``TRANSACTION_ABORTABLE``."""
_FIRST_WITH_RECORD_ERRORS = 8
"""The first version whose answers name the wrong records of a batch."""
_MOST_WRONG_RECORDS = 1_000
"""The answer names at most this many wrong records of a batch. This bounds its size."""
_DECODED_AT_ONCE = 16 << 10
"""Smaller batches are decoded in the event loop: another thread would cost more."""


class _Refusal(Exception):
    """The error of one batch, which never entered the queue."""

    def __init__(self, code: ErrorCode, message: str, wrong_records: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.wrong_records = wrong_records
        """The positions of the wrong records in the batch, if only some of its records are wrong."""


class _BatchAnswer(NamedTuple):
    """The answer for one batch."""

    code: ErrorCode
    message: str | None = None
    offset: int = -1
    wrong_records: Sequence[int] = ()


def _code(request: Request, error: EosLogError) -> ErrorCode:
    """Return the code of a batch that the log refused."""
    if isinstance(error, ProducerFenced):
        # Only coordinators answer that a producer is fenced. The client asks one whether it may continue.
        return ErrorCode.invalid_producer_epoch
    if isinstance(error, InvalidTxnState) and request.api.version >= _FIRST_ABORTABLE:
        return ErrorCode.transaction_abortable
    return error_code(error)


def _check_keys(topic: str, batch: DecodedBatch) -> None:
    """Raises: _Refusal: the topic is compacted, and a record has no key."""
    lacking = np.flatnonzero(batch.rows["key"].is_null().to_numpy())
    if lacking.size:
        reason = f"topic {topic} is compacted, and the record has no key"
        raise _Refusal(ErrorCode.invalid_record, reason, lacking[:_MOST_WRONG_RECORDS].tolist())


_Appended: TypeAlias = "asyncio.Future[AppendedRows | EosLogError]"


class Produce:
    """Answers produce requests."""

    def __init__(
        self,
        config: GatewayConfig,
        topics: KnownTopics,
        queue: BatchQueue,
        gateways: LiveGateways,
        *,
        cache: BatchCache,
        rows: MemoryBudget,
        executor: Executor,
    ) -> None:
        """
        Args:
            cache: gets the appended batches, so that consumers fetch them without a read of the store.
            rows: the memory for the rows of batches that wait.
        """
        self._config = config
        self._topics = topics
        self._queue = queue
        self._gateways = gateways
        self._cache = cache
        self._rows = rows
        self._executor = executor

    async def begin(self, request: Request) -> Awaitable[bytes | None]:
        """Put the batches of a request into the queue.

        Returns:
            The wait for the answer; for a request with ``acks=0`` the answer is None.
        """
        message = request.message
        found = [
            await self._added(request, topic.name, each)
            for topic in message.topic_data
            for each in topic.partition_data
        ]
        waiting = {each for each in found if isinstance(each, asyncio.Future)}
        return self._answer(request, waiting, found)

    async def _added(self, request: Request, topic: str, data: Any) -> _Appended | _Refusal:
        try:
            return await self._add(request, topic, data)
        except _Refusal as refusal:
            return refusal.with_traceback(None)

    async def _add(self, request: Request, topic: str, data: Any) -> _Appended:
        """Put a batch into the queue, and return the future of its offsets.

        Raises:
            _Refusal
        """
        message = request.message
        if message.acks not in (_NO_ANSWER, 1, _ALL):
            raise _Refusal(ErrorCode.invalid_required_acks, f"acks must be 0, 1 or all, not {message.acks}")
        # A client that asks for no answer would lose its batch.
        if self._gateways.sends_away and message.acks != _NO_ANSWER:
            raise _Refusal(ErrorCode.not_leader_or_follower, "this gateway is ending. Send the batch to another one")
        found = await self._topics.find(topic)
        if found is None:
            raise _Refusal(ErrorCode.unknown_topic_or_partition, f"there is no topic {quoted(topic)}")
        if found.topic_schema.kind != "records":
            reason = f"topic {topic} has columns of its own. Write it with eoslog or Spark"
            raise _Refusal(ErrorCode.invalid_record, reason)
        if not data.records:
            raise _Refusal(ErrorCode.invalid_record, "the request has no batch for the partition")
        limit = found.config.max_message_bytes
        if limit is not None and len(data.records) > limit:
            reason = f"the batch has {len(data.records)} bytes, and max.message.bytes of topic {topic} is {limit}"
            raise _Refusal(ErrorCode.message_too_large, reason)
        # A request that waits for this memory holds none that others wait for: its earlier batches are in the queue.
        lease = await self._rows.take(most_decoded_bytes(data.records, max_bytes=self._config.max_batch_bytes))
        try:
            decoded = await self._decoded(data.records)
            if decoded.is_control:
                raise _Refusal(ErrorCode.invalid_record, "a client writes no control batches")
            if decoded.is_transactional and (not message.transactional_id or decoded.producer_id < 0):
                reason = "a batch of a transaction needs a transactional id and a producer id"
                raise _Refusal(ErrorCode.invalid_record, reason)
            if found.config.is_compacted:
                _check_keys(topic, decoded)
        except BaseException:
            lease.release()
            raise
        size = decoded.rows.nbytes + len(decoded.records)
        lease.shrink(size)
        is_own = decoded.producer_id < 0
        batch = ProducerBatch(
            topic=topic,
            partition=data.index,
            rows=decoded.rows,
            producer_id=0 if is_own else decoded.producer_id,
            producer_epoch=0 if is_own else decoded.producer_epoch,
            base_sequence=0 if is_own else decoded.base_sequence,
            transactional_id=message.transactional_id if decoded.is_transactional else None,
            needs_added_partition=request.api.version < _FIRST_THAT_ADDS,
        )
        answer = self._queue.add(batch, size, is_own=is_own)
        answer.add_done_callback(lambda _: lease.release())
        if not decoded.is_transactional:
            # The rows look the same at each isolation level. Those of a transaction may be aborted.
            known = self._topics.partition(topic, data.index)
            # Compaction may follow before the callback does. Then the batch is kept for a version that nobody reads.
            answer.add_done_callback(partial(self._keep, decoded, NO_SLOT if known is None else known.snapshot_floor))
        return answer

    def _keep(self, decoded: DecodedBatch, snapshot_floor: int, answer: _Appended) -> None:
        """Put an appended batch into the cache.

        Args:
            snapshot_floor: that of the partition before the append.
        """
        appended = None if answer.cancelled() else answer.result()
        # The rows of a duplicate are those of the earlier batch, whatever the client sends now.
        if isinstance(appended, AppendedRows) and not isinstance(appended, DuplicateRows):
            begin, end = appended.base_offset, appended.base_offset + appended.record_count
            version = PartitionVersion(appended.partition_id, snapshot_floor)
            self._cache.put(version, None, begin, EncodedBatch(decoded.at_offset(begin), end))

    async def _decoded(self, records: memoryview) -> DecodedBatch:
        def decoded() -> DecodedBatch:
            try:
                return decode(records, max_bytes=self._config.max_batch_bytes)
            except BatchError as error:
                raise _Refusal(BATCH_CODES[type(error)], str(error)) from None

        if len(records) <= _DECODED_AT_ONCE:
            return decoded()
        return await asyncio.get_running_loop().run_in_executor(self._executor, decoded)

    async def _answer(
        self, request: Request, waiting: set[_Appended], found: Sequence[_Appended | _Refusal]
    ) -> bytes | None:
        message = request.message
        if waiting:
            # The batches stay in the queue after this time. The client repeats them, and no row is appended twice.
            timeout_s = None if message.acks == _NO_ANSWER else max(0.0, message.timeout.total_seconds())
            await asyncio.wait(waiting, timeout=timeout_s)
        answers = [self._batch_answer(request, each) for each in found]
        if message.acks == _NO_ANSWER:
            refused = next((each for each in answers if each.code is not ErrorCode.none), None)
            if refused is not None:
                request.outcome = refused.code
                # The client waits for no answer. It only learns of an error if its connection ends, as from a broker.
                raise ConnectionAbortedError(refused.message)
            return None
        left = iter(answers)
        return request.encoded(
            request.api.response(
                responses=tuple(
                    request.api.part(
                        "TopicProduceResponse",
                        name=topic.name,
                        partition_responses=tuple(
                            self._part(request, topic.name, each.index, next(left)) for each in topic.partition_data
                        ),
                    )
                    for topic in message.topic_data
                )
            )
        )

    @staticmethod
    def _batch_answer(request: Request, found: _Appended | _Refusal) -> _BatchAnswer:
        if isinstance(found, _Refusal):
            return _BatchAnswer(found.code, str(found), wrong_records=found.wrong_records)
        if not found.done():
            return _BatchAnswer(ErrorCode.request_timed_out, "the store has not answered in time")
        answer = found.result()
        if isinstance(answer, EosLogError):
            return _BatchAnswer(_code(request, answer), str(answer))
        return _BatchAnswer(ErrorCode.none, offset=answer.base_offset)

    def _part(self, request: Request, topic: str, partition: int, answer: _BatchAnswer) -> Any:
        known = self._topics.partition(topic, partition)
        return request.api.part(
            "PartitionProduceResponse",
            index=partition,
            error_code=answer.code,
            base_offset=answer.offset,
            log_append_time=None,
            log_start_offset=-1 if known is None else known.log_start_offset,
            record_errors=tuple(
                request.api.part(
                    "BatchIndexAndErrorMessage", batch_index=each, batch_index_error_message=answer.message
                )
                for each in (answer.wrong_records if request.api.version >= _FIRST_WITH_RECORD_ERRORS else ())
            ),
            error_message=answer.message,
        )
