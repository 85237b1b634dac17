"""Invariants: statements that are true of every state that the state machine can reach.

A state that breaks one is the result of a defect or of damaged files. The state machine checks single entries; this
module checks a whole state. Its functions are pure: they take a state and yield the broken invariants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_OFFSET, NO_SEQUENCE, NO_SLOT, AbortedTransaction, Batch, Outcome, Partition
from eoslog.state.sequences import BATCHES_TO_RETAIN, last_sequence_of
from eoslog.state.store_state import StoreState, Topic, TransactionState


class Broken(NamedTuple):
    """An invariant that does not hold."""

    kind: str
    """A stable name, for example ``offsets-inconsistent``."""
    problem: str
    partition: PartitionId | None = None
    """The partition; None if the problem concerns the whole store."""
    offsets: tuple[int, int] | None = None
    """The first offset and the end (exclusive); None if no offsets are known."""
    path: str | None = None


def broken_in_store(state: StoreState, slot: int) -> Iterator[Broken]:
    """Yield the broken invariants between the parts of a state after ``slot``."""
    yield from _topics(state)
    yield from _transactions(state, slot)
    yield from _groups(state, slot)
    if [each.slot for each in state.pending_deletions] != sorted(each.slot for each in state.pending_deletions):
        yield Broken("times-inconsistent", "the files pending deletion are not in the order of their slots")


def broken_in_partition(state: StoreState, topic: Topic, partition: Partition, slot: int) -> Iterator[Broken]:
    """Yield the broken invariants within a partition of a state after ``slot``.

    Of sealed segments only the offsets and the paths are checked: their batches are in index files.
    """
    for broken in (
        *_offsets(partition, slot),
        *broken_in_batches(partition.active, topic, partition.id.partition, time_ms=state.time_ms, newest_slot=slot),
        *_outcomes(partition),
        *_aborted(partition),
        *_producers(partition),
        *_index_paths(topic, partition),
    ):
        yield broken._replace(partition=partition.id)


def broken_in_batches(
    batches: Iterable[Batch], topic: Topic, partition: int, *, time_ms: int, newest_slot: int
) -> Iterator[Broken]:
    """Yield the broken invariants of batches, which are in the order of their offsets, in the state or in an index."""
    prefix = f"{topic.prefix}{partition}/"
    slot = NO_SLOT
    latest: dict[int, int] = {}
    for batch in batches:
        here = (batch.base_offset, batch.end_offset)
        if batch.last_offset_delta < 0 or not 0 <= batch.record_count <= batch.last_offset_delta + 1:
            yield Broken(
                "offsets-inconsistent", f"a batch of {batch.record_count} rows cannot have these offsets", offsets=here
            )
        if not slot <= batch.slot <= newest_slot:
            problem = f"a batch of slot {batch.slot} follows one of slot {slot}; the log ends at {newest_slot}"
            yield Broken("times-inconsistent", problem, offsets=here)
        slot = max(slot, batch.slot)
        if batch.min_timestamp > batch.max_timestamp:
            problem = f"the smallest timestamp {batch.min_timestamp} is after the largest, {batch.max_timestamp}"
            yield Broken("times-inconsistent", problem, offsets=here)
        if (batch.end_slot == NO_SLOT) != (batch.outcome is Outcome.OPEN):
            yield Broken("outcomes-inconsistent", f"a batch is {batch.outcome.value}, with end slot {batch.end_slot}")
        elif batch.end_slot != NO_SLOT:
            if not batch.slot <= batch.end_slot <= newest_slot or batch.end_time_ms > time_ms:
                problem = f"rows of slot {batch.slot} ended at slot {batch.end_slot}, {batch.end_time_ms} ms"
                yield Broken("times-inconsistent", problem, offsets=here)
            latest[batch.end_slot] = max(latest.get(batch.end_slot, batch.end_time_ms), batch.end_time_ms)
        has_file = batch.file is not None
        if has_file != (batch.control is None and batch.record_count > 0):
            problem = "a control row names a file" if has_file else "a batch with rows names no file"
            yield Broken("offsets-inconsistent", problem, offsets=here)
        if batch.file is not None and not batch.file.path.startswith(prefix):
            problem = f"the file lies outside {prefix}"
            yield Broken("file-misplaced", problem, offsets=here, path=batch.file.path)
    before = -1
    for end_slot in sorted(latest):
        if latest[end_slot] < before:
            yield Broken("times-inconsistent", f"the log's time runs backwards at slot {end_slot}")
        before = latest[end_slot]


def gaps(batches: Iterable[Batch], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets from ``begin`` to ``end`` (exclusive) that no batch has, or several have."""
    for batch in batches:
        if batch.base_offset != begin:
            yield min(begin, batch.base_offset), max(begin, batch.base_offset)
        begin = batch.end_offset
    if begin != end:
        yield min(begin, end), max(begin, end)


def _topics(state: StoreState) -> Iterator[Broken]:
    named = {topic.topic: topic_id for topic_id, topic in state.topics.items()}
    if named != state.topic_ids or any(topic.topic_id != topic_id for topic_id, topic in state.topics.items()):
        yield Broken("topics-inconsistent", "the names and the ids of the topics do not match")
    expected = {partition_id for topic in state.topics.values() for partition_id in topic.partition_ids()}
    for partition_id in sorted(expected ^ state.partitions.keys()):
        problem = "the state lacks the partition" if partition_id in expected else "the partition belongs to no topic"
        yield Broken("topics-inconsistent", problem, partition_id)
    for topic in state.topics.values():
        versions = [each.version for each in topic.schema_versions]
        if versions != list(range(1, len(versions) + 1)):
            yield Broken("topics-inconsistent", f"the schema of topic {topic.topic} has the versions {versions}")


def _transactions(state: StoreState, slot: int) -> Iterator[Broken]:
    kind = "transactions-inconsistent"
    is_open = {
        name: each.start_ms for name, each in state.transactions.items() if each.state is TransactionState.ONGOING
    }
    if is_open != state.ongoing:
        yield Broken(kind, f"the state lists {sorted(state.ongoing)} as open, but the open ones are {sorted(is_open)}")
    holders: dict[int, str] = {}
    for name, each in state.transactions.items():
        if each.state not in (
            TransactionState.EMPTY,
            TransactionState.ONGOING,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        ):
            yield Broken(kind, f"the transaction of {name!r} rests in state {each.state.name}")
        if each.last_slot > slot or each.start_slot > slot:
            yield Broken(kind, f"{name!r} was changed at slot {each.last_slot}, but the log ends at {slot}")
        for producer_id in {each.producer_id, each.open_producer_id}:
            if holders.setdefault(producer_id, name) != name or producer_id in state.producers:
                yield Broken(kind, f"producer id {producer_id} of {name!r} belongs to another transactional id, too")
        if each.state is not TransactionState.ONGOING and (each.added_partitions or each.added_offsets):
            yield Broken(kind, f"{name!r} has partitions or offsets of a transaction, but none is open")
        if each.state is TransactionState.ONGOING:
            for partition_id in sorted(each.partitions):
                partition = state.partitions.get(partition_id)
                if partition is not None and each.open_producer_id not in partition.open_transactions:
                    yield Broken(
                        kind, f"{name!r} is open in the partition, but the partition does not list it", partition_id
                    )
    for partition_id, partition in state.partitions.items():
        for producer_id, first in partition.open_transactions.items():
            holder = state.transactions.get(holders.get(producer_id, ""))
            if (
                holder is None
                or holder.state is not TransactionState.ONGOING
                or holder.open_producer_id != producer_id
                or partition_id not in holder.partitions
            ):
                problem = f"producer {producer_id} has a transaction open here, but no transactional id can end it"
                yield Broken(kind, problem, partition_id, (first, partition.next_offset))


def _groups(state: StoreState, slot: int) -> Iterator[Broken]:
    for name, group in state.groups.items():
        owners: set[PartitionId] = set()
        for member in group.members.values():
            for partition_id in member.held:
                if partition_id in owners:
                    yield Broken(
                        "groups-inconsistent", f"two members of group {name!r} read the partition", partition_id
                    )
                owners.add(partition_id)
            if member.since.keys() != set(member.held) or any(
                each > group.generation for each in member.since.values()
            ):
                problem = f"group {name!r} does not know since which generation a member has its partitions"
                yield Broken("groups-inconsistent", problem)
        for partition_id in sorted(owners | group.offsets.keys()):
            if partition_id not in state.partitions:
                yield Broken(
                    "groups-inconsistent", f"group {name!r} names a partition that does not exist", partition_id
                )
        coordinators = [member for member in group.members.values() if member.is_coordinator]
        if coordinators and len(group.members) > 1:
            yield Broken("groups-inconsistent", f"group {name!r} has a coordinator, and other members, too")
        if any(member.held or member.group_instance_id is not None for member in coordinators):
            problem = f"the coordinator of group {name!r} has partitions or an instance id"
            yield Broken("groups-inconsistent", problem)
        if any(offset.slot > slot for offset in group.offsets.values()):
            yield Broken("groups-inconsistent", f"group {name!r} has an offset from beyond slot {slot}")
        if max(group.created_slot, *group.subscribed.values(), NO_SLOT) > slot:
            yield Broken("groups-inconsistent", f"group {name!r} was created beyond slot {slot}, or subscribed there")


def _offsets(partition: Partition, slot: int) -> Iterator[Broken]:
    kind = "offsets-inconsistent"
    start, stable, end = partition.log_start_offset, partition.last_stable_offset, partition.next_offset
    if not 0 <= start <= stable <= end:
        yield Broken(kind, f"log start {start}, last stable offset {stable} and end {end} are not in this order")
    at = partition.sealed[0].base_offset if partition.sealed else partition.segment_base_offset
    if at > start:
        yield Broken(kind, f"the log starts at {start}, but the first segment begins at {at}", offsets=(start, at))
    for segment in partition.sealed:
        if segment.base_offset != at or segment.end_offset <= max(segment.base_offset, start):
            problem = f"the segment {segment.base_offset} to {segment.end_offset} does not follow offset {at}"
            yield Broken(kind, problem, offsets=(segment.base_offset, segment.end_offset))
        at = segment.end_offset
    if at != partition.segment_base_offset:
        problem = f"the sealed segments end at {at}, the active one begins at {partition.segment_base_offset}"
        yield Broken(kind, problem)
    for gap in gaps(partition.active, partition.segment_base_offset, end):
        yield Broken(kind, "no batch has these offsets, or several batches have them", offsets=gap)
    if partition.active_bytes != sum(batch.file.length for batch in partition.active if batch.file is not None):
        yield Broken(
            kind,
            f"the state counts {partition.active_bytes} bytes in the active segment, but its files have another size",
        )
    if partition.cleaned_offset > partition.segment_base_offset:
        yield Broken(kind, f"compaction has reached {partition.cleaned_offset}, beyond the sealed segments")
    if max(partition.changed_slot, partition.snapshot_floor, partition.removed_end_slot) > slot:
        yield Broken("times-inconsistent", f"the partition was changed after the log's end, slot {slot}")


def _outcomes(partition: Partition) -> Iterator[Broken]:
    kind = "outcomes-inconsistent"
    firsts = list(partition.open_transactions.values())
    if firsts != sorted(firsts):
        yield Broken(kind, "the open transactions are not in the order of their offsets")
    begun = {batch.base_offset: batch for batch in partition.active}
    for producer_id, first in partition.open_transactions.items():
        batch = begun.get(first)
        if batch is None or batch.producer_id != producer_id or batch.outcome is not Outcome.OPEN:
            yield Broken(kind, f"the open transaction of producer {producer_id} has no row at {first}")
    for batch in partition.active:
        here = (batch.base_offset, batch.end_offset)
        first_open = partition.open_transactions.get(batch.producer_id)
        if batch.outcome is Outcome.OPEN and (first_open is None or first_open > batch.base_offset):
            yield Broken(kind, f"rows of producer {batch.producer_id} have no outcome, but its transaction has ended")
        if batch.outcome is Outcome.OPEN and batch.control is not None:
            yield Broken(kind, "a control row has no outcome", offsets=here)


def _aborted(partition: Partition) -> Iterator[Broken]:
    yield from broken_in_aborted(partition.active, partition.aborted)


def broken_in_aborted(batches: Sequence[Batch], aborted: Sequence[AbortedTransaction]) -> Iterator[Broken]:
    """Check batches against the aborted transactions whose markers are among them. Yield the broken invariants.

    Each aborted transaction must have its ABORT marker here, in order. Each aborted batch must lie in one of them.
    """
    kind = "aborted-inconsistent"
    lasts = [each.last_offset for each in aborted]
    if lasts != sorted(set(lasts)):
        yield Broken(kind, "the aborted transactions are not in the order of their markers")
    markers = {batch.base_offset: batch for batch in batches if batch.control is not None}
    listed: dict[int, list[AbortedTransaction]] = {}
    for each in aborted:
        listed.setdefault(each.producer_id, []).append(each)
        marker = markers.get(each.last_offset)
        if marker is None or marker.outcome is not Outcome.ABORTED or marker.producer_id != each.producer_id:
            yield Broken(kind, f"an aborted transaction of producer {each.producer_id} has no ABORT marker")
    ends_here = {(marker.producer_id, marker.end_slot) for marker in markers.values()}
    for batch in batches:
        is_aborted = batch.control is None and batch.outcome is Outcome.ABORTED
        if (
            is_aborted
            and (batch.producer_id, batch.end_slot) in ends_here
            and not any(
                each.first_offset <= batch.base_offset < each.last_offset for each in listed.get(batch.producer_id, ())
            )
        ):
            here = (batch.base_offset, batch.end_offset)
            yield Broken(
                kind,
                f"rows of producer {batch.producer_id} are aborted, but no aborted transaction covers them",
                offsets=here,
            )


def _producers(partition: Partition) -> Iterator[Broken]:
    kind = "producers-inconsistent"
    for producer_id, producer in partition.producers.items():
        ranges = producer.batches
        offsets = [offset for each in ranges for offset in (each.base_offset, each.last_offset)]
        if offsets != sorted(offsets) or len(ranges) > BATCHES_TO_RETAIN or producer.producer_id != producer_id:
            yield Broken(kind, f"the last batches of producer {producer_id} are not in order")
        if offsets and offsets[-1] >= partition.next_offset:
            yield Broken(kind, f"producer {producer_id} wrote offset {offsets[-1]}, beyond the end")
        if any(
            each.last_sequence != last_sequence_of(each.base_sequence, each.last_offset - each.base_offset + 1)
            for each in ranges
        ):
            yield Broken(kind, f"sequences and offsets of producer {producer_id} do not match")
        first = partition.open_transactions.get(producer_id, NO_OFFSET)
        if producer.current_txn_first_offset != first:
            problem = f"producer {producer_id} has a transaction open from {producer.current_txn_first_offset}"
            yield Broken(kind, f"{problem}, the partition from {first}")
    newest = {batch.producer_id: batch for batch in partition.active if batch.producer_id in partition.producers}
    for producer_id, batch in newest.items():
        if batch.control is not None or batch.base_sequence == NO_SEQUENCE:
            continue
        producer = partition.producers[producer_id]
        last = producer.batches[-1] if producer.batches else None
        if (
            last is None
            or producer.producer_epoch != batch.producer_epoch
            or (last.base_sequence, last.base_offset, last.last_offset)
            != (batch.base_sequence, batch.base_offset, batch.end_offset - 1)
        ):
            here = (batch.base_offset, batch.end_offset)
            yield Broken(
                kind, f"the last batch of producer {producer_id} differs from its producer state", offsets=here
            )


def _index_paths(topic: Topic, partition: Partition) -> Iterator[Broken]:
    prefix = f"{topic.prefix}{partition.id.partition}/"
    for segment in partition.sealed:
        for file in segment.files:
            if not file.path.startswith(prefix):
                here = (segment.base_offset, segment.end_offset)
                yield Broken("file-misplaced", f"the file lies outside {prefix}", offsets=here, path=file.path)
