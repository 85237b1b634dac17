"""The stream reader: micro-batches end where the log ends now, at a limit, or where ``availableNow`` froze it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from eoslog.client.store import Store
from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.read.consistent_ends import limited_consistent_ends, transaction_consistent_ends
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.read.planner import PartitionPlan, plan_partition
from eoslog.rules.names import TopicPartition
from eoslog.rules.partition_state import NO_SLOT, Partition
from pyspark_eoslog.offset_options import EARLIEST, LATEST
from pyspark_eoslog.options import Options
from pyspark_eoslog.packing import Piece
from pyspark_eoslog.read_plan import Look, end_timed_out, look_at_topics, piece_of, resolve_offsets
from pyspark_eoslog.reader import read_partitions, read_task
from pyspark_eoslog.stores import ENVIRONMENT, patiently, plain_errors, store_with_id, verified_store
from pyspark_eoslog.stream_offsets import StreamOffsets, check_origin, limit_offsets

_logger = logging.getLogger(__name__)
_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 1_000
_NOT_SUPPORTED = (
    "subscribePattern",
    "assign",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "predicate",
)


class EosLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of topics. Spark makes several, so none asks the store for anything before a call."""

    def __init__(self, options: Options, schema: StructType) -> None:
        with plain_errors():
            options.refuse(_NOT_SUPPORTED, "is not supported for streams")
        self._options = options
        self._schema = schema
        self._initial: StreamOffsets | None = None
        self._frozen: StreamOffsets | None = None
        self._newest: StreamOffsets | None = None
        self._pause_ms = 0
        self._polled_ms = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a stream without checkpoint begins. The answer stays the same: Spark asks twice."""
        with plain_errors():
            if self._initial is None:
                _check_options(self._options)
                self._initial = patiently(self._first_offsets)
            return self._initial.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with plain_errors():
            _check_options(self._options)
            self._frozen = self._newest = patiently(lambda: self._offsets_of(self._look()))

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; ``start`` itself if there is nothing new.

        Spark asks again at once when nothing is new, so an idle stream waits here, a second at most.
        """
        with plain_errors():
            begin = StreamOffsets.of(start)
            self._pause()
            end = patiently(lambda: self._next_end(begin, limit))
            if end == begin:
                self._pause_ms = min(_LONGEST_PAUSE_MS, max(_FIRST_PAUSE_MS, 2 * self._pause_ms))
                answer: dict[str, Any] = start
                return answer
            self._pause_ms = 0
            return end.as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._newest is None else self._newest.as_json()

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        with plain_errors():
            return patiently(lambda: self._plan(StreamOffsets.of(start), StreamOffsets.of(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options.location, partition)

    def commit(self, end: Any) -> None:
        """Nothing to do: the checkpoint alone says how far the stream is."""

    def stop(self) -> None:
        """Nothing to do: nothing is held."""

    def _pause(self) -> None:
        if self._frozen is None and self._pause_ms > 0:
            ENVIRONMENT.sleep_ms(max(0, self._polled_ms + self._pause_ms - ENVIRONMENT.monotonic_ms()))
        self._polled_ms = ENVIRONMENT.monotonic_ms()

    def _store(self) -> Store:
        return verified_store(self._options.location)

    def _look(self, store: Store | None = None, *, refresh: bool = True) -> Look:
        return look_at_topics(store or self._store(), self._options.topics_to_read(), refresh=refresh)

    def _offsets_of(self, look: Look) -> StreamOffsets:
        """The end of what is visible at a look."""
        topic_ids = {view.topic.topic: view.topic.topic_id for view in look.topics}
        if self._options.isolation is IsolationLevel.SNAPSHOT:
            return StreamOffsets(look.store_id, topic_ids, {}, look.slot)
        ends = {place: visible_end(each, self._options.isolation) for place, each in look.partitions().items()}
        return StreamOffsets(look.store_id, topic_ids, ends)

    def _first_offsets(self) -> StreamOffsets:
        store = self._store()
        look = self._look(store)
        newest = self._offsets_of(look)
        option = self._options.starting_offsets or LATEST
        if self._options.isolation is IsolationLevel.SNAPSHOT:
            return newest if option == LATEST else StreamOffsets(newest.store_id, newest.topic_ids, {}, NO_SLOT)
        offsets = resolve_offsets(store, option, look, self._options.isolation, "startingOffsets")
        if self._options.transaction_consistent and option == LATEST:
            partitions = look.partitions()
            starts = {place: partition.log_start_offset for place, partition in partitions.items()}
            offsets = transaction_consistent_ends(self._held_store().indexes, partitions, starts, offsets)
        for place, partition in look.partitions().items():
            if offsets[place] > partition.high_watermark:
                raise OffsetOutOfRange(
                    f"option 'startingOffsets' begins partition {place.topic}-{place.partition} at offset "
                    f"{offsets[place]}, but it ends at {partition.high_watermark}"
                )
        return StreamOffsets(newest.store_id, newest.topic_ids, offsets)

    def _next_end(self, begin: StreamOffsets, limit: ReadLimit) -> StreamOffsets:
        store, end = self._held_store(), self._frozen
        if end is None or not self._newest:
            look = self._look(store)
            if self._options.isolation is IsolationLevel.READ_COMMITTED and end_timed_out(store, look):
                look = self._look(store, refresh=False)
            self._newest = self._offsets_of(look)
            end = end or self._newest
        check_origin(begin, end)
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if begin.slot is not None and end.slot is not None:
            slot = self._last_slot(store, begin.slot, end.slot, max_rows)
            return StreamOffsets(begin.store_id, begin.topic_ids, {}, slot)
        known = self._with_new_partitions(store, begin, end)
        ends = {place: max(offset, known[place]) for place, offset in end.offsets.items()}
        if self._options.transaction_consistent:
            ends = self._consistent_ends(store, end.topic_ids, known, ends, max_rows)
        elif max_rows is not None:
            ends = limit_offsets(known, ends, max_rows)
        if ends == dict(begin.offsets):
            return begin
        return StreamOffsets(end.store_id, end.topic_ids, ends)

    def _consistent_ends(
        self,
        store: Store,
        topic_ids: Mapping[str, str],
        known: Mapping[TopicPartition, int],
        ends: dict[TopicPartition, int],
        max_rows: int | None,
    ) -> dict[TopicPartition, int]:
        """Ends that split no committed transaction: one whole transaction at least, if there is any."""
        look = self._look(store, refresh=False)
        check_origin(StreamOffsets(look.store_id, topic_ids, ends), self._offsets_of(look))
        partitions = look.partitions()
        starts = {place: max(known[place], partitions[place].log_start_offset) for place in ends}
        read = {place: partitions[place] for place in ends}
        if max_rows is None:
            found = transaction_consistent_ends(store.indexes, read, starts, ends)
        else:
            found = limited_consistent_ends(
                store.indexes, read, starts, ends, lambda most: limit_offsets(starts, ends, most), max_rows
            )
        # Where nothing moves the offset stays as it was: Spark compares their text.
        return {place: found[place] if found[place] > starts[place] else known[place] for place in ends}

    def _held_store(self) -> Store:
        """The store without a request that verifies it: the offsets of a run name theirs."""
        if self._newest is None:
            return self._store()
        return store_with_id(self._options.location, self._newest.store_id)

    def _with_new_partitions(self, store: Store, begin: StreamOffsets, end: StreamOffsets) -> dict[TopicPartition, int]:
        """The start of every partition that is read now; those that were not before are read from their log start."""
        vanished = begin.offsets.keys() - end.offsets.keys()
        if vanished and self._options.fail_on_data_loss:
            place = min(vanished)
            raise InvalidOption(
                f"partition {place.topic}-{place.partition} is in the checkpoint but no longer read; subscribe to its "
                "topic, or accept the loss with option failOnDataLoss=false"
            )
        known = {place: begin.offsets.get(place, 0) for place in end.offsets}
        if known.keys() - begin.offsets.keys():
            for place, partition in self._look(store, refresh=False).partitions().items():
                if place in known and place not in begin.offsets:
                    known[place] = partition.log_start_offset
        return known

    def _last_slot(self, store: Store, after: int, newest: int, max_rows: int | None) -> int:
        """The slot that ends a micro-batch of whole transactions: about ``max_rows`` rows, one transaction at least."""
        look = self._look(store, refresh=False)

        def rows(slot: int) -> int:
            return sum(plan.record_count for _, plan in self._snapshot_plans(store, look, after, slot))

        if newest <= after or rows(newest) == 0:
            return after
        if max_rows is None:
            return newest
        # The answer is the last slot within the limit, or the first that has rows at all.
        low, high = after, newest
        while high - low > 1:
            middle = (low + high) // 2
            within = rows(middle) <= max_rows
            low, high = (middle, high) if within else (low, middle)
        if rows(high) <= max_rows or rows(low) == 0:
            return high
        return low

    def _snapshot_plans(self, store: Store, look: Look, after: int, slot: int) -> list[tuple[int, PartitionPlan]]:
        return [
            (
                index,
                plan_partition(
                    store.indexes,
                    view.topic.topic,
                    partition,
                    IsolationLevel.SNAPSHOT,
                    after_slot=after,
                    slot=slot,
                    control_rows=self._options.include_control_rows,
                ),
            )
            for index, view in enumerate(look.topics)
            for partition in view.partitions
        ]

    def _plan(self, begin: StreamOffsets, end: StreamOffsets) -> list[InputPartition]:
        store = self._held_store()
        look = self._look(store, refresh=not self._covers(end))
        current = self._offsets_of(look)
        check_origin(begin, current)
        check_origin(end, current)
        pieces: list[Piece] = []
        if begin.slot is not None and end.slot is not None:
            _check_slot(look, end.slot)
            self._check_removed(look, begin.slot)
            for index, plan in self._snapshot_plans(store, look, begin.slot, end.slot):
                pieces.append(piece_of(look.topics[index].topic, plan))
        else:
            for view in look.topics:
                for partition in view.partitions:
                    place = TopicPartition(view.topic.topic, partition.id.partition)
                    if place not in end.offsets:
                        continue
                    first = begin.offsets.get(place, partition.log_start_offset)
                    start = self._start(place, partition, first, end.offsets[place])
                    plan = plan_partition(
                        store.indexes,
                        place.topic,
                        partition,
                        self._options.isolation,
                        start_offset=start,
                        end_offset=end.offsets[place],
                        control_rows=self._options.include_control_rows,
                    )
                    pieces.append(piece_of(view.topic, plan))
        return read_partitions(look, self._schema, pieces, self._options)

    def _check_removed(self, look: Look, after: int) -> None:
        """A stream that has read up to a slot needs the rows of all transactions that ended later.

        Raises:
            OffsetOutOfRange: some of them are gone.
        """
        for view in look.topics:
            for partition in view.partitions:
                if NO_SLOT < after < partition.removed_end_slot:
                    self._lost(
                        f"partition {view.topic.topic}-{partition.id.partition}: rows of transactions that ended after "
                        f"slot {after}, up to slot {partition.removed_end_slot}, were deleted before they were read"
                    )

    def _lost(self, message: str) -> None:
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRange(f"{message}; go on without them with option failOnDataLoss=false")
        _logger.warning("%s", message)

    def _covers(self, end: StreamOffsets) -> bool:
        """Whether what is known already reaches to the end of a planned micro-batch."""
        known = self._newest
        if known is None or known.store_id != end.store_id:
            return False
        if end.slot is not None:
            return known.slot is not None and end.slot <= known.slot
        return all(place in known.offsets and offset <= known.offsets[place] for place, offset in end.offsets.items())

    def _start(self, place: TopicPartition, partition: Partition, start: int, end: int) -> int:
        """The first offset to read.

        Raises:
            OffsetOutOfRange: rows between the start and the end are gone.
        """
        if end > partition.high_watermark:
            raise OffsetOutOfRange(
                f"partition {place.topic}-{place.partition} ends at offset {partition.high_watermark}, before the "
                f"checkpoint's {end}: the store has lost what it had"
            )
        if start >= partition.log_start_offset:
            return start
        lost = min(end, partition.log_start_offset) - start
        message = (
            f"partition {place.topic}-{place.partition} begins at offset {partition.log_start_offset}: {lost} offsets "
            f"from {start} on were deleted before they were read"
        )
        self._lost(message)
        return partition.log_start_offset


def _check_slot(look: Look, slot: int) -> None:
    if slot > look.slot:
        raise OffsetOutOfRange(
            f"the log ends at slot {look.slot}, before the checkpoint's {slot}: the store has lost what it had"
        )


def _check_options(options: Options) -> None:
    options.check_consistent_end()
    options.refuse(
        ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
        "is for batch reads; end a stream with trigger(availableNow=True)",
    )
    if options.slot is not None or options.timestamp_ms is not None:
        raise InvalidOption(
            "options 'slot', 'versionAsOf' and 'timestampAsOf' are for batch reads; a stream keeps its slot in the "
            "checkpoint"
        )
    if options.isolation is IsolationLevel.SNAPSHOT and options.starting_offsets not in (None, EARLIEST, LATEST):
        raise InvalidOption("with isolation level 'snapshot' option 'startingOffsets' is 'earliest' or 'latest'")
