"""Planning a micro-batch: the files between two offsets of a stream, the same ones each time it is planned."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from eoslog.errors import OffsetOutOfRange, UnknownTopicOrPartition
from eoslog.format.segment_index_cache import SegmentIndexes
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import PartitionPlan, plan_partition
from eoslog.read.predicate import Predicate
from eoslog.state.names import TopicPartition
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Topic
from pyspark_eoslog.options import Options
from pyspark_eoslog.read.batch_reader import read_partitions
from pyspark_eoslog.read.packing import Piece
from pyspark_eoslog.read.read_plan import Look, TopicView, piece_of, predicate_of
from pyspark_eoslog.spark_schemas import choose_columns
from pyspark_eoslog.stream.data_loss import DataLoss, check_removed, first_offset
from pyspark_eoslog.stream.stream_offsets import StreamOffsets, check_joined, check_origin


def covers(look: Look, end: StreamOffsets) -> bool:
    """Whether what was looked at reaches to the end of a micro-batch."""
    if look.store_id != end.store_id or not end.topic_ids.items() <= look.topic_ids().items():
        return False
    if end.slot is not None:
        return end.slot <= look.slot
    partitions = look.partitions()
    return all(
        place in partitions and offset <= partitions[place].high_watermark for place, offset in end.offsets.items()
    )


def check_joined_columns(
    look: Look, begin: StreamOffsets, end: StreamOffsets, schema: StructType, options: Options
) -> None:
    """A topic that joins must have the columns of the stream. Told before Spark writes down that it is read.

    Raises:
        SchemaMismatch: it has not.
    """
    for replica in look.topics:
        topic_id = end.topic_ids.get(replica.topic.topic)
        if topic_id == replica.topic.topic_id != begin.topic_ids.get(replica.topic.topic):
            choose_columns(replica.topic, schema, control_rows=options.include_control_rows)


def plan_micro_batch(
    indexes: SegmentIndexes,
    look: Look,
    begin: StreamOffsets,
    end: StreamOffsets,
    schema: StructType,
    options: Options,
    loss: DataLoss,
) -> list[InputPartition]:
    """What the tasks of a micro-batch read.

    Raises:
        UnknownTopicOrPartition, InvalidOption: the offsets are not of these topics.
        OffsetOutOfRange: the store has lost what it had, or rows were deleted, and that is to be an error.
    """
    counts_slots = options.isolation is IsolationLevel.SNAPSHOT
    for offsets in (begin, end):
        check_origin(offsets, look.store_id, counts_slots=counts_slots)
    if end.slot is not None and end.slot > look.slot:
        raise OffsetOutOfRange(
            f"the log ends at slot {look.slot}, before the checkpoint's {end.slot}: the store has lost what it had"
        )
    views = {replica.topic.topic: replica for replica in look.topics}
    check_joined(begin, {topic: views[topic].topic.created_slot for topic in end.topic_ids.keys() & views.keys()})
    read: list[TopicView] = []
    pieces: list[Piece] = []
    for topic, topic_id in end.topic_ids.items():
        replica = views.get(topic)
        if replica is None or replica.topic.topic_id != topic_id:
            loss.report(
                UnknownTopicOrPartition(
                    f"a micro-batch that was begun reads topic {topic} (its id is {topic_id}), which was deleted "
                    "since or is no longer among the topics to read; go on without with option failOnDataLoss=false"
                )
            )
            continue
        predicate = predicate_of(replica.topic, options.predicate)
        plans = [
            _plan(indexes, replica.topic, each, begin, end, options, predicate, loss) for each in replica.partitions
        ]
        of_topic = [piece_of(replica.topic, plan, predicate) for plan in plans if plan is not None and plan.slices]
        if of_topic:
            read.append(replica)
            pieces += of_topic
    return read_partitions(replace(look, topics=tuple(read)), schema, pieces, options)


def _plan(
    indexes: SegmentIndexes,
    topic: Topic,
    partition: Partition,
    begin: StreamOffsets,
    end: StreamOffsets,
    options: Options,
    predicate: Predicate | None,
    loss: DataLoss,
) -> PartitionPlan | None:
    """What a micro-batch reads of a partition; one of a topic that was not read before, from its beginning."""
    place = TopicPartition(topic.topic, partition.id.partition)
    goes_on = begin.topic_ids.get(topic.topic) == topic.topic_id
    if begin.slot is not None:
        after_slot = begin.slot
        if begin.is_initial and end.began.slot is not None:
            after_slot = end.began.slot
        check_removed(place, partition, after_slot, end.began.offsets.get(place), loss)
        if partition.changed_slot <= after_slot:
            return None
        return plan_partition(
            indexes,
            topic.topic,
            partition,
            IsolationLevel.SNAPSHOT,
            after_slot=after_slot,
            slot=end.slot,
            control_rows=options.include_control_rows,
            predicate=predicate,
        )
    if place not in end.offsets:
        return None
    last = end.offsets[place]
    if last > partition.high_watermark:
        raise OffsetOutOfRange(
            f"partition {place.topic}-{place.partition} ends at offset {partition.high_watermark}, before the "
            f"checkpoint's {last}: the store has lost what it had"
        )
    start = begin.offsets.get(place) if goes_on else None
    if start is None or begin.is_initial:
        # Only then: Spark also asks for what lies between an end and itself.
        start = end.began.offsets.get(place, start)
    start = partition.log_start_offset if start is None else first_offset(place, partition, start, last, loss)
    if start >= last:
        return None
    return plan_partition(
        indexes,
        topic.topic,
        partition,
        options.isolation,
        start_offset=start,
        end_offset=last,
        control_rows=options.include_control_rows,
        predicate=predicate,
    )
