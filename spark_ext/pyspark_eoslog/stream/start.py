"""The start of a stream without a checkpoint, and the check of its options."""

from __future__ import annotations

from eoslog import Store
from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.read.consistent_ends import transaction_consistent_ends
from eoslog.read.isolation import IsolationLevel
from eoslog.read.topics_snapshot import TopicsSnapshot
from pyspark_eoslog.options import Options
from pyspark_eoslog.options.offset_options import EARLIEST, LATEST
from pyspark_eoslog.read.read_plan import predicate_of, resolve_offsets
from pyspark_eoslog.stream.next_end import visible_offsets
from pyspark_eoslog.stream.stream_offsets import BEFORE_ALL_SLOTS, StreamOffsets

_OF_BATCHES = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_OF_OFFSETS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "assign")


def check_stream_options(options: Options) -> None:
    """Raises: InvalidOption: an option is not for streams, or not for this isolation level."""
    options.refuse(_OF_BATCHES, "is for batch reads; end a stream with trigger(availableNow=True)")
    options.refuse(
        ("slot", "versionAsOf", "timestampAsOf"), "is for batch reads; a stream keeps its slot in the checkpoint"
    )
    options.check_consistent_end()
    if options.isolation is IsolationLevel.SNAPSHOT:
        options.refuse(
            _OF_OFFSETS, "counts offsets, but isolation level 'snapshot' counts slots; use 'read_committed' with it"
        )
        if options.starting_offsets not in (None, EARLIEST, LATEST):
            raise InvalidOption("with isolation level 'snapshot' option 'startingOffsets' is 'earliest' or 'latest'")


def first_offsets(store: Store, snapshot: TopicsSnapshot, options: Options) -> StreamOffsets:
    """Return the first offsets of a stream by its options, marked as initial.

    Raises:
        InvalidOption: the options name partitions that are not read, or the predicate does not fit a topic.
        OffsetOutOfRange: a first offset lies beyond the end of its partition.
    """
    for view in snapshot.topics:
        predicate_of(view.topic, options.predicate)  # Report an error before the first micro-batch.
    newest = visible_offsets(snapshot, options.isolation)
    option = options.starting_offsets or LATEST
    if options.isolation is IsolationLevel.SNAPSHOT:
        slot = newest.slot if option == LATEST else BEFORE_ALL_SLOTS
        return StreamOffsets(newest.store_id, newest.topic_ids, {}, slot, is_initial=True)
    partitions = snapshot.partitions()
    offsets = resolve_offsets(store, option, snapshot, options.isolation, "startingOffsets")
    if options.transaction_consistent and option == LATEST:
        starts = {key: partition.log_start_offset for key, partition in partitions.items()}
        offsets = transaction_consistent_ends(store.indexes, partitions, starts, offsets)
    for key, partition in partitions.items():
        if offsets[key] > partition.high_watermark:
            raise OffsetOutOfRange(
                f"option 'startingOffsets' begins partition {key.topic}-{key.partition} at offset "
                f"{offsets[key]}, but it ends at {partition.high_watermark}"
            )
    return StreamOffsets(newest.store_id, newest.topic_ids, offsets, is_initial=True)
