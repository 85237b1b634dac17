"""Where the next micro-batch ends: at what there is, at the limits, or not yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eoslog.format.segment_index_cache import SegmentIndexes
from eoslog.read.consistent_ends import limited_consistent_ends, transaction_consistent_ends
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.state.names import TopicPartition
from eoslog.state.partition_state import NO_SLOT, Partition
from pyspark_eoslog.options import Options
from pyspark_eoslog.read.read_plan import Look
from pyspark_eoslog.stream.admission import Admission
from pyspark_eoslog.stream.data_loss import DataLoss, carried_over
from pyspark_eoslog.stream.limits import Limits
from pyspark_eoslog.stream.stream_offsets import Began, StreamOffsets, check_joined, check_origin
from pyspark_eoslog.stream.trigger_delay import TriggerDelay


def visible_offsets(look: Look, isolation: IsolationLevel) -> StreamOffsets:
    """The end of all that is visible at a look."""
    if isolation is IsolationLevel.SNAPSHOT:
        return StreamOffsets(look.store_id, look.topic_ids(), {}, look.slot)
    ends = {place: visible_end(partition, isolation) for place, partition in look.partitions().items()}
    return StreamOffsets(look.store_id, look.topic_ids(), ends)


class NextEnd:
    """Decides where the micro-batches of one stream end."""

    def __init__(self, options: Options, loss: DataLoss) -> None:
        self._transaction_consistent = options.transaction_consistent
        self._loss = loss
        self._admission = Admission(options.isolation, control_rows=options.include_control_rows)
        self._delay = TriggerDelay(options.max_trigger_delay_ms)

    def after(
        self,
        begin: StreamOffsets,
        newest: StreamOffsets,
        look: Look,
        indexes: SegmentIndexes,
        limits: Limits,
        exists: Callable[[str], bool],
    ) -> StreamOffsets:
        """The end of the micro-batch that follows ``begin``; ``begin`` itself if there is none.

        Args:
            newest: where to end at the latest.
            look: what is known of the topics, at ``newest`` or later.
            exists: whether the store has a topic of this name.

        Raises:
            UnknownTopicOrPartition, InvalidOption: the offsets are not of these topics.
        """
        check_origin(begin, newest.store_id, counts_slots=newest.slot is not None)
        topic_ids = dict(newest.topic_ids.items() & look.topic_ids().items())
        carried = carried_over(begin, topic_ids, newest.offsets.keys(), exists, self._loss)
        partitions = {place: each for place, each in look.partitions().items() if place.topic in topic_ids}
        if carried.slot is not None and newest.slot is not None:
            check_joined(
                carried,
                {
                    replica.topic.topic: replica.topic.created_slot
                    for replica in look.topics
                    if replica.topic.topic in topic_ids
                },
            )
            end = self._next_slot(carried, newest.slot, topic_ids, partitions, indexes, limits)
        else:
            end = self._next_offsets(carried, newest.offsets, topic_ids, partitions, indexes, limits)
        if end is None or end == begin:
            return begin
        self._delay.triggered()
        return end

    def _next_slot(
        self,
        begin: StreamOffsets,
        newest_slot: int,
        topic_ids: Mapping[str, str],
        partitions: Mapping[TopicPartition, Partition],
        indexes: SegmentIndexes,
        limits: Limits,
    ) -> StreamOffsets | None:
        assert begin.slot is not None
        after = begin.slot
        read = list(partitions.values())
        if self._holds_back(
            limits, lambda enough: self._admission.committed_rows(indexes, read, after, newest_slot, enough)
        ):
            return None
        slot = self._admission.last_slot(indexes, read, after, newest_slot, limits)
        gone = {place: each.removed_end_slot for place, each in partitions.items()} if after == NO_SLOT else {}
        began = Began(gone, after) if begin.is_initial else Began()
        # What was created later stays out until there is anything to read.
        return StreamOffsets(begin.store_id, topic_ids if slot > after else begin.topic_ids, {}, slot, began=began)

    def _next_offsets(
        self,
        begin: StreamOffsets,
        newest: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str],
        partitions: Mapping[TopicPartition, Partition],
        indexes: SegmentIndexes,
        limits: Limits,
    ) -> StreamOffsets | None:
        read = {place: each for place, each in partitions.items() if place in newest}
        starts = {place: self._start(begin, place, partition) for place, partition in read.items()}
        ends = {place: max(newest[place], starts[place]) for place in read}
        if self._holds_back(limits, lambda enough: sum(ends[place] - starts[place] for place in ends)):
            return None
        if self._transaction_consistent:
            ends = self._consistent_ends(indexes, read, starts, ends, limits)
        else:
            ends = self._admission.ends(indexes, read, starts, ends, limits)
        began = {place: starts[place] for place in ends if begin.is_initial or place not in begin.offsets}
        return StreamOffsets(begin.store_id, topic_ids, ends, began=Began(began))

    def _start(self, begin: StreamOffsets, place: TopicPartition, partition: Partition) -> int:
        """Where a partition is read from: one that is new from offset 0, as the Kafka connector has it.

        Rows that are gone are passed over here, if they may be lost, so that no limit is spent on them.
        """
        start = begin.offsets.get(place, 0)
        return start if self._loss.fails else max(start, partition.log_start_offset)

    def _holds_back(self, limits: Limits, available: Callable[[int], int]) -> bool:
        return limits.min_offsets is not None and self._delay.holds_back(limits.min_offsets, available)

    def _consistent_ends(
        self,
        indexes: SegmentIndexes,
        partitions: Mapping[TopicPartition, Partition],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        limits: Limits,
    ) -> dict[TopicPartition, int]:
        """Ends that split no committed transaction: one whole transaction at least, if there is any."""
        firsts = {place: max(starts[place], each.log_start_offset) for place, each in partitions.items()}
        if limits.are_none:
            found = transaction_consistent_ends(indexes, partitions, firsts, ends)
        else:

            def limited(times: int) -> dict[TopicPartition, int]:
                return self._admission.ends(indexes, partitions, firsts, ends, limits.times(times))

            found = limited_consistent_ends(indexes, partitions, firsts, ends, limited, 1)
        # Where nothing moves the offset stays as it was: Spark compares their text.
        return {place: found[place] if found[place] > firsts[place] else starts[place] for place in found}
