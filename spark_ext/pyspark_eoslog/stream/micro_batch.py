"""The planning of a micro-batch: the files between two offsets of a stream. Each planning finds the same files."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from eoslog import TopicPartition
from eoslog.errors import OffsetOutOfRange, UnknownTopicOrPartition
from eoslog.format.segment_index_cache import SegmentIndexes
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import ReadPlanner
from eoslog.read.topics_snapshot import TopicsSnapshot
from pyspark_eoslog.options import Options
from pyspark_eoslog.read.batch_reader import read_partitions
from pyspark_eoslog.read.packing import Piece
from pyspark_eoslog.read.read_plan import piece_of, predicate_of
from pyspark_eoslog.spark_schemas import choose_columns
from pyspark_eoslog.stream.data_loss import DataLoss, check_removed, first_offset
from pyspark_eoslog.stream.stream_offsets import StreamOffsets, check_joined, check_origin


def covers(snapshot: TopicsSnapshot, end: StreamOffsets) -> bool:
    """Return True if the snapshot includes the end of a micro-batch."""
    if snapshot.store_id != end.store_id or not end.topic_ids.items() <= snapshot.topic_ids().items():
        return False
    if end.slot is not None:
        return end.slot <= snapshot.slot
    partitions = snapshot.partitions()
    return all(key in partitions and offset <= partitions[key].high_watermark for key, offset in end.offsets.items())


def check_joined_columns(
    snapshot: TopicsSnapshot, begin: StreamOffsets, end: StreamOffsets, schema: StructType, options: Options
) -> None:
    """Check that a topic that joins has the columns of the stream, before Spark writes its offsets to the checkpoint.

    Raises:
        SchemaMismatch: it lacks a column, or the type differs.
    """
    for view in snapshot.topics:
        topic_id = end.topic_ids.get(view.topic.topic)
        if topic_id == view.topic.topic_id != begin.topic_ids.get(view.topic.topic):
            choose_columns(view.topic, schema, control_rows=options.include_control_rows)


def plan_micro_batch(
    indexes: SegmentIndexes,
    snapshot: TopicsSnapshot,
    begin: StreamOffsets,
    end: StreamOffsets,
    schema: StructType,
    options: Options,
    loss: DataLoss,
) -> list[InputPartition]:
    """Return the input partitions of a micro-batch.

    Raises:
        UnknownTopicOrPartition, InvalidOption: the offsets do not belong to these topics.
        OffsetOutOfRange: the store has lost slots or rows, or rows were deleted and ``failOnDataLoss`` is set.
    """
    counts_slots = options.isolation is IsolationLevel.SNAPSHOT
    for offsets in (begin, end):
        check_origin(offsets, snapshot.store_id, counts_slots=counts_slots)
    if end.slot is not None and end.slot > snapshot.slot:
        raise OffsetOutOfRange(
            f"the log ends at slot {snapshot.slot}, before the checkpoint's slot {end.slot}: the store has lost "
            "slots; restore it, or give a new checkpointLocation"
        )
    views = {view.topic.topic: view for view in snapshot.topics}
    check_joined(begin, {topic: views[topic].topic.created_slot for topic in end.topic_ids.keys() & views.keys()})
    after_slot = begin.slot
    if after_slot is not None and begin.is_initial and end.began.slot is not None:
        after_slot = end.began.slot
    pieces: list[Piece] = []
    for topic, topic_id in end.topic_ids.items():
        view = views.get(topic)
        if view is None or view.topic.topic_id != topic_id:
            loss.report(
                UnknownTopicOrPartition(
                    f"the repeated micro-batch reads topic {topic} (id {topic_id}), which was deleted since or is no "
                    "longer among the topics to read; to continue without it, set failOnDataLoss=false"
                )
            )
            continue
        predicate = predicate_of(view.topic, options.predicate)
        planner = ReadPlanner(
            indexes, topic, options.isolation, control_rows=options.include_control_rows, predicate=predicate
        )
        for key, partition in view.by_place().items():
            if after_slot is not None:
                check_removed(key, partition.removed_end_slot, after_slot, end.began.offsets.get(key), loss)
                if partition.changed_slot <= after_slot:
                    continue
                plan = planner.plan_commits(partition, after_slot, end.slot)
            else:
                held = range(partition.log_start_offset, partition.high_watermark)
                wanted = _range(key, held, topic_id, begin, end, loss)
                if not wanted:
                    continue
                plan = planner.plan(partition, wanted.start, wanted.stop)
            if plan.slices:
                pieces.append(piece_of(view.topic, plan, predicate))
    return read_partitions(snapshot.only({piece.topic for piece in pieces}), schema, pieces, options)


def _range(
    key: TopicPartition, held: range, topic_id: str, begin: StreamOffsets, end: StreamOffsets, loss: DataLoss
) -> range:
    """Return the offsets of a partition to read. A new topic is read from its first offset.

    Args:
        held: the offsets that the partition holds.
    """
    if key not in end.offsets:
        return range(0)
    last = end.offsets[key]
    if last > held.stop:
        raise OffsetOutOfRange(
            f"partition {key.topic}-{key.partition} ends at offset {held.stop}, before the "
            f"checkpoint's offset {last}: the store has lost rows; restore it, or give a new checkpointLocation"
        )
    start = begin.offsets.get(key) if begin.topic_ids.get(key.topic) == topic_id else None
    if start is None or begin.is_initial:
        # Use the recorded start only then: Spark also plans the empty range between an end and itself.
        start = end.began.offsets.get(key, start)
    return range(held.start if start is None else first_offset(key, held.start, start, last, loss), last)
