"""Fetch requests: visible rows as record batches, and the wait for more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from kio.schema.errors import ErrorCode

from eoslog.errors import EosLogError, OffsetOutOfRange
from eoslog.format.topic_schemas import RECORDS_SCHEMA, stored_schema
from eoslog.gateway.batch_cache import BatchCache, EncodedBatch, PartitionVersion
from eoslog.gateway.error_codes import fetch_code
from eoslog.gateway.gateway_counts import GatewayCounts
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.live_gateways import LiveGateways
from eoslog.gateway.log_follower import LogFollower
from eoslog.gateway.memory_budget import Lease, MemoryBudget
from eoslog.gateway.protocol import Request
from eoslog.gateway.record_batches import control_batch, encode, row_count
from eoslog.read.columns import RECORD_COLUMNS
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.read.planner import ReadPlanner
from eoslog.read.row_reader import PartitionRead, read_rows
from eoslog.session.session import Session
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Topic

_logger = logging.getLogger(__name__)
_LONGEST_WAIT_S = 60.0
_SHORTEST_WAIT_S = 0.01
"""A consumer that asks for no wait waits this long for new rows. Only a fetch that waits makes the gateway follow the
log, so rows of other processes would stay hidden from such a consumer."""
_OLDEST_RACKS_MS = 5_000
"""The list of gateways is at most this old when a consumer of another rack fetches (ms)."""
_NO_BROKER = -1
_LARGEST_ANSWER = 16 << 20
_LEAST_ANSWER = 256 << 10
"""An answer may have this much without a wait for memory, so clients that read slowly do not hold others up."""
_BATCH_BYTES = 1 << 20
_READ_AHEAD = 8 << 20
"""After this many bytes, no further rows are encoded for the cache."""
_WINDOW = 64 << 10
"""The number of offsets that are planned at once. It is the number of rows that are decoded at once."""
_WINDOW_GROWTH = 16
_LARGEST_WINDOW = 1 << 31
"""The rows of a window may be in one batch, whose offset deltas have 32 bits."""
_WANTED = pa.schema([*RECORDS_SCHEMA, RECORD_COLUMNS.field("offset")])
"""The columns of a batch. The timestamps are those in the file, in ms."""


def isolation_of(level: int) -> IsolationLevel:
    """Return the isolation level of Kafka's number."""
    return IsolationLevel.READ_COMMITTED if level == 1 else IsolationLevel.READ_UNCOMMITTED


class BatchReader:
    """Reads rows of partitions as record batches."""

    def __init__(self, store: Session, cache: BatchCache) -> None:
        self._store = store
        self._cache = cache

    def read(
        self, topic: Topic, partition: Partition, offset: int, *, isolation: IsolationLevel, most_bytes: int
    ) -> list[bytes]:
        """Return batches from an offset on, up to ``most_bytes``, but one at least if the visible rows end later.

        Raises:
            CorruptRecord, RetriableError
        """
        found: list[bytes] = []
        left = most_bytes
        end = visible_end(partition, isolation)
        while offset < end and left > 0:
            batch = self._cache.get(_version(partition), isolation, offset)
            if batch is None:
                batch = self._encode_from(topic, partition, offset, isolation=isolation, batch_bytes=most_bytes)
            if found and len(batch.data) > left:
                break
            found.append(batch.data)
            left -= len(batch.data)
            offset = batch.end_offset
        return found

    def _encode_from(
        self, topic: Topic, partition: Partition, offset: int, *, isolation: IsolationLevel, batch_bytes: int
    ) -> EncodedBatch:
        """Encode rows from an offset on, and return the first batch. The others are in the cache for the next calls."""
        first: EncodedBatch | None = None
        size = 0
        rows = self._rows_from(topic, partition, offset, isolation)
        for part in _regrouped(rows, min(_BATCH_BYTES, batch_bytes)):
            offsets = part.column("offset").to_numpy()
            timestamps = part.column("timestamp").cast(pa.int64()).to_numpy()
            data = encode(part, base_offset=int(offsets[0]), offsets=offsets, timestamps=timestamps)
            batch = EncodedBatch(data, int(offsets[-1]) + 1)
            self._cache.put(_version(partition), isolation, offset, batch)
            first = first or batch
            offset = batch.end_offset
            size += len(data)
            if size >= _READ_AHEAD:
                break
        if first is None:
            # The last offsets belong to markers or aborted rows. A control batch moves the consumer past them.
            end = visible_end(partition, isolation)
            first = EncodedBatch(control_batch(end - 1, -1, -1, True), end)
            self._cache.put(_version(partition), isolation, offset, first)
        return first

    def _rows_from(
        self, topic: Topic, partition: Partition, offset: int, isolation: IsolationLevel
    ) -> Iterator[pa.RecordBatch]:
        """Yield the visible rows of a partition from an offset on, until some were found."""
        planner = ReadPlanner(self._store.indexes, topic.topic, isolation)
        end = visible_end(partition, isolation)
        window, is_found = _WINDOW, False
        # A plan of all rows would cost each fetch as much as the rest of the partition has batches.
        while offset < end and not is_found:
            plan = planner.plan(partition, offset, min(end, offset + window))
            read = PartitionRead(
                store=self._store.object_store,
                topic=topic.topic,
                partition=partition.id.partition,
                files=plan.rows,
                stored=stored_schema(topic),
                wanted=_WANTED,
                threads=1,
            )
            for rows in read_rows(read):
                is_found = True
                yield rows
            offset += window
            # Compaction may have left few rows in many offsets.
            window = min(window * _WINDOW_GROWTH, _LARGEST_WINDOW)


def _version(partition: Partition) -> PartitionVersion:
    return PartitionVersion(partition.id, partition.snapshot_floor)


def _regrouped(rows: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join small parts of rows, and divide large ones, into parts of about ``most_bytes``."""
    joined: list[pa.RecordBatch] = []
    size = 0
    for part in rows:
        if size + part.nbytes > most_bytes and joined:
            yield from _divided(_joined(joined), most_bytes)
            joined, size = [], 0
        joined.append(part)
        size += part.nbytes
    if joined:
        yield from _divided(_joined(joined), most_bytes)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _divided(rows: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    each = max(1, rows.num_rows * most_bytes // max(1, rows.nbytes))
    for first in range(0, rows.num_rows, each):
        yield rows.slice(first, each)


@dataclass(frozen=True)
class _Fetched:
    """The answer for one partition."""

    index: int
    code: ErrorCode
    partition: Partition | None = None
    batches: Sequence[bytes] = ()
    preferred: int = _NO_BROKER
    """The broker from which the consumer should fetch instead."""


class Fetch:
    """Answers fetch requests."""

    def __init__(
        self,
        store: Session,
        topics: KnownTopics,
        gateways: LiveGateways,
        *,
        counts: GatewayCounts,
        cache: BatchCache,
        follower: LogFollower,
        answers: MemoryBudget,
        executor: Executor,
    ) -> None:
        """
        Args:
            cache: the batches that are encoded here, and those that producers have sent.
            answers: the memory for the rows in answers.
        """
        self._store = store
        self._topics = topics
        self._counts = counts
        self._gateways = gateways
        self._follower = follower
        self._answers = answers
        self._executor = executor
        self._reader = BatchReader(store, cache)

    async def answer(self, request: Request) -> tuple[bytes, Lease]:
        """Return the answer, and the memory of its rows."""
        message = request.message
        isolation = isolation_of(message.isolation_level)
        loop = asyncio.get_running_loop()
        # Kafka answers at once if the client asks for no bytes at all.
        wait_s = message.max_wait.total_seconds() if message.min_bytes > 0 else 0.0
        deadline = loop.time() + min(max(_SHORTEST_WAIT_S, wait_s), _LONGEST_WAIT_S)
        # Another gateway may have deleted a topic, and created it again.
        await self._topics.keep_recent()
        for topic in message.topics:
            await self._topics.find(topic.topic)
        wanted = [
            (topic.topic, each.partition, each.fetch_offset) for topic in message.topics for each in topic.partitions
        ]
        failure = None
        if any(self._topics.is_beyond_end(*each) for each in wanted):
            # The client may have read these rows through another gateway.
            failure = await self._topics.refresh()
        rack = getattr(message, "rack_id", "")
        if rack and rack != self._gateways.own.rack:
            await self._gateways.refresh(_OLDEST_RACKS_MS)
        seen: tuple[Any, ...] | None = None
        while True:
            change = self._follower.next_change()
            ends = self._ends(message, isolation)
            if ends != seen or self._follower.is_closed:
                seen = ends
                lease = self._answers.take_some(min(max(1, message.max_bytes), _LARGEST_ANSWER), _LEAST_ANSWER)
                try:
                    fetched = await loop.run_in_executor(
                        self._executor, self._fetched, message, isolation, lease.size, failure
                    )
                except BaseException:
                    lease.release()
                    raise
                size = sum(len(batch) for parts in fetched for each in parts for batch in each.batches)
                is_due = any(
                    each.code is not ErrorCode.none or each.preferred != _NO_BROKER
                    for parts in fetched
                    for each in parts
                )
                is_over = loop.time() >= deadline or self._follower.is_closed
                if is_due or is_over or size >= max(message.min_bytes, 1):
                    self._count(fetched)
                    await lease.resize(size)
                    return self._encoded(request, fetched), lease
                lease.release()
            left = deadline - loop.time()
            if left <= 0:
                seen = None
                continue
            await self._follower.wait(change, left, held_back=any(each is not None and each[1] for each in ends))

    def _count(self, fetched: list[list[_Fetched]]) -> None:
        rows = [row_count(batch) for parts in fetched for each in parts for batch in each.batches]
        self._counts.batches_out += len(rows)
        self._counts.rows_out += sum(rows)

    def _ends(self, message: Any, isolation: IsolationLevel) -> tuple[Any, ...]:
        """Return for each partition the end of its visible rows, and True if an open transaction hides rows."""
        known = (
            self._topics.partition(topic.topic, each.partition) for topic in message.topics for each in topic.partitions
        )
        return tuple(
            None
            if each is None
            else (visible_end(each, isolation), isolation is IsolationLevel.READ_COMMITTED and each.is_held_back)
            for each in known
        )

    def _fetched(
        self, message: Any, isolation: IsolationLevel, most_bytes: int, failure: EosLogError | None
    ) -> list[list[_Fetched]]:
        """Return the answer for each partition.

        Args:
            failure: the error if the store does not give the newest ends of the partitions.
        """
        found: list[list[_Fetched]] = []
        left = most_bytes
        for topic in message.topics:
            parts = []
            for each in topic.partitions:
                part = self._redirected(message, topic.topic, each)
                if failure is not None and self._topics.is_beyond_end(topic.topic, each.partition, each.fetch_offset):
                    # After the code of an offset out of range a consumer would begin anew.
                    part = _Fetched(each.partition, fetch_code(failure))
                part = part or self._fetched_of(topic.topic, each, isolation, left)
                size = sum(map(len, part.batches))
                is_first = left == most_bytes
                if size > left and not is_first:
                    # Only the first rows of an answer may exceed the limit, so that a client gets on (KIP-74).
                    part, size = replace(part, batches=()), left
                left -= size
                parts.append(part)
            found.append(parts)
        return found

    def _redirected(self, message: Any, name: str, wanted: Any) -> _Fetched | None:
        """Return an answer without rows if the consumer must fetch from another gateway; None if it fetches here.

        This gateway ends, or another one is in the rack of the consumer.
        """
        if self._gateways.sends_away:
            return _Fetched(wanted.partition, ErrorCode.not_leader_or_follower)
        topic, partition = self._topics.known(name), self._topics.partition(name, wanted.partition)
        if topic is None or partition is None:
            return None
        broker = self._gateways.nearer(topic.topic_id, wanted.partition, getattr(message, "rack_id", ""))
        if broker is None:
            return None
        return _Fetched(wanted.partition, ErrorCode.none, partition, preferred=broker.node_id)

    def _fetched_of(self, name: str, wanted: Any, isolation: IsolationLevel, most_bytes: int) -> _Fetched:
        topic = self._topics.known(name)
        partition = self._topics.partition(name, wanted.partition)
        if topic is None or partition is None:
            return _Fetched(wanted.partition, ErrorCode.unknown_topic_or_partition)
        if topic.topic_schema.kind != "records":
            return _Fetched(wanted.partition, ErrorCode.invalid_topic_exception)
        if not partition.log_start_offset <= wanted.fetch_offset <= partition.high_watermark:
            return _Fetched(wanted.partition, ErrorCode.offset_out_of_range, partition)
        if most_bytes <= 0:
            return _Fetched(wanted.partition, ErrorCode.none, partition)
        try:
            batches = self._reader.read(
                topic,
                partition,
                wanted.fetch_offset,
                isolation=isolation,
                most_bytes=min(most_bytes, max(1, wanted.partition_max_bytes)),
            )
        except OffsetOutOfRange:
            return _Fetched(wanted.partition, ErrorCode.offset_out_of_range, partition)
        except EosLogError as error:
            _logger.warning("%s: %s-%d was not fetched: %s", self._store.url, name, wanted.partition, error)
            return _Fetched(wanted.partition, fetch_code(error), partition)
        return _Fetched(wanted.partition, ErrorCode.none, partition, batches)

    def _encoded(self, request: Request, fetched: list[list[_Fetched]]) -> bytes:
        return request.encoded(
            request.api.response(
                error_code=ErrorCode.none,
                session_id=0,
                responses=tuple(
                    request.api.part(
                        "FetchableTopicResponse",
                        topic=topic.topic,
                        partitions=tuple(self._part(request, each) for each in parts),
                    )
                    for topic, parts in zip(request.message.topics, fetched, strict=True)
                ),
            )
        )

    def _part(self, request: Request, fetched: _Fetched) -> Any:
        partition = fetched.partition
        return request.api.part(
            "PartitionData",
            partition_index=fetched.index,
            error_code=fetched.code,
            high_watermark=-1 if partition is None else partition.high_watermark,
            last_stable_offset=-1 if partition is None else partition.last_stable_offset,
            log_start_offset=-1 if partition is None else partition.log_start_offset,
            # The rows of aborted transactions are left out already.
            aborted_transactions=None,
            preferred_read_replica=fetched.preferred,
            records=b"".join(fetched.batches),
        )
