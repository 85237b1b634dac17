"""States that the rules made keep every invariant; each way to break one is told by its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.state.invariants import broken_in_partition, broken_in_store, gaps
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, Outcome, Partition
from eoslog.state.store_state import CommittedOffset, Group, Member, StoreState, TransactionState
from tests.unit.state.histories import TOPIC_ID, History

PLACE = PartitionId(TOPIC_ID, 0)


def history() -> History:
    """A sealed segment, an aborted and a committed transaction, an idempotent producer, and an open transaction."""
    log = History()
    first = log.init("first")
    log.send(first, 0, 2, transactional_id="first")
    first = log.abort(first, "first")
    log.seal(log.partition().next_offset)
    alone = log.init(None)
    log.send(alone, 0, 3, transactional_id=None)
    log.send(first, 0, 1, transactional_id="first")
    log.abort(first, "first")
    still_open = log.init("open")
    log.send(still_open, 0, 2, transactional_id="open")
    log.send(still_open, 2, 2, transactional_id="open")
    return log


def kinds(state: StoreState, slot: int) -> set[str]:
    found = {each.kind for each in broken_in_store(state, slot)}
    for place, partition in state.partitions.items():
        topic = state.topics.get(place.topic_id)
        if topic is not None:
            found |= {each.kind for each in broken_in_partition(state, topic, partition, slot)}
    return found


def first_active(partition: Partition, **changed: object) -> None:
    partition.active[0] = partition.active[0]._replace(**changed)  # type: ignore[arg-type]


def a_file_elsewhere(state: StoreState) -> None:
    batch = state.partitions[PLACE].active[0]
    assert batch.file is not None
    first_active(state.partitions[PLACE], file=batch.file.model_copy(update={"path": "t/" + "c" * 32 + "/0/x"}))


def an_addition_at_rest(state: StoreState) -> None:
    state.transactions["first"] = replace(state.transactions["first"], added_partitions=frozenset({PLACE}))


def a_transaction_in_no_partition(state: StoreState) -> None:
    state.transactions["open"] = replace(state.transactions["open"], partitions=frozenset())


def a_passing_state(state: StoreState) -> None:
    state.transactions["first"] = replace(state.transactions["first"], state=TransactionState.PREPARE_COMMIT)


def a_shared_producer_id(state: StoreState) -> None:
    other = state.transactions["open"].producer_id
    state.transactions["first"] = replace(state.transactions["first"], producer_id=other)


def a_producer(state: StoreState, **changed: object) -> None:
    partition = state.partitions[PLACE]
    producer_id, producer = next((key, each) for key, each in partition.producers.items() if each.batches)
    partition.producers[producer_id] = producer._replace(**changed)  # type: ignore[arg-type]


def an_aborted_batch_is_not_listed(state: StoreState) -> None:
    state.partitions[PLACE].aborted.clear()


def a_marker_is_missing(state: StoreState) -> None:
    partition = state.partitions[PLACE]
    partition.aborted[0] = replace(partition.aborted[0], last_offset=partition.aborted[0].last_offset - 1)


def a_segment_moved(state: StoreState) -> None:
    partition = state.partitions[PLACE]
    partition.sealed = (replace(partition.sealed[0], end_offset=partition.sealed[0].end_offset - 1),)


def two_readers(state: StoreState) -> None:
    members = {name: Member(("t",), assigned=(PLACE,), since={PLACE: 1}) for name in ("a", "b")}
    state.groups["g"] = Group(1, members, {})


def a_member_since(state: StoreState, since: dict[PartitionId, int]) -> None:
    state.groups["g"] = Group(1, {"a": Member(("t",), assigned=(PLACE,), since=since)}, {})


def an_offset_of_no_topic(state: StoreState) -> None:
    state.groups["g"] = Group(1, {}, {PartitionId("d" * 32, 0): CommittedOffset(1, "", -1, 1, 1)})


def a_coordinator_and(state: StoreState, **others: Member) -> None:
    state.groups["g"] = Group(1, {"k": Member(("t",), address="host:9092")} | others, {})


BREAKS: dict[str, tuple[Callable[[StoreState], object], str]] = {
    "a name without topic": (lambda state: state.topic_ids.update(other="e" * 32), "topics-inconsistent"),
    "a partition too many": (
        lambda state: state.partitions.update({PartitionId(TOPIC_ID, 9): Partition(PartitionId(TOPIC_ID, 9))}),
        "topics-inconsistent",
    ),
    "a transaction that is not listed as open": (lambda state: state.ongoing.clear(), "transactions-inconsistent"),
    "a hanging transaction": (a_transaction_in_no_partition, "transactions-inconsistent"),
    "an addition to a transaction that is not open": (an_addition_at_rest, "transactions-inconsistent"),
    "a state that is only passed through": (a_passing_state, "transactions-inconsistent"),
    "a producer id of two": (a_shared_producer_id, "transactions-inconsistent"),
    "two members that read a partition": (two_readers, "groups-inconsistent"),
    "a partition since no generation": (lambda state: a_member_since(state, {}), "groups-inconsistent"),
    "a partition since a later generation": (lambda state: a_member_since(state, {PLACE: 2}), "groups-inconsistent"),
    "a coordinator beside a consumer": (
        lambda state: a_coordinator_and(state, a=Member(("t",))),
        "groups-inconsistent",
    ),
    "a coordinator with partitions": (
        lambda state: a_coordinator_and(
            state, k=Member(("t",), assigned=(PLACE,), since={PLACE: 1}, address="host:9092")
        ),
        "groups-inconsistent",
    ),
    "a coordinator with an instance id": (
        lambda state: a_coordinator_and(state, k=Member(("t",), group_instance_id="i", address="host:9092")),
        "groups-inconsistent",
    ),
    "a group from the future": (
        lambda state: state.groups.update(g=Group(1, {}, {}, created_slot=10**6)),
        "groups-inconsistent",
    ),
    "a subscription from the future": (
        lambda state: state.groups.update(g=Group(1, {}, {}, subscribed={"t": 10**6})),
        "groups-inconsistent",
    ),
    "an offset of no topic": (an_offset_of_no_topic, "groups-inconsistent"),
    "a log start beyond the end": (
        lambda state: setattr(state.partitions[PLACE], "log_start_offset", 10**6),
        "offsets-inconsistent",
    ),
    "an end beyond the batches": (
        lambda state: setattr(state.partitions[PLACE], "next_offset", 10**6),
        "offsets-inconsistent",
    ),
    "a gap between batches": (lambda state: state.partitions[PLACE].active.pop(0), "offsets-inconsistent"),
    "a segment that ends early": (a_segment_moved, "offsets-inconsistent"),
    "bytes that are not there": (
        lambda state: setattr(state.partitions[PLACE], "active_bytes", 1),
        "offsets-inconsistent",
    ),
    "rows without a file": (lambda state: first_active(state.partitions[PLACE], file=None), "offsets-inconsistent"),
    "undecided rows of nobody": (
        lambda state: first_active(state.partitions[PLACE], outcome=Outcome.OPEN, end_slot=NO_SLOT),
        "outcomes-inconsistent",
    ),
    "an outcome without a slot": (
        lambda state: first_active(state.partitions[PLACE], end_slot=NO_SLOT),
        "outcomes-inconsistent",
    ),
    "aborted rows that are not listed": (an_aborted_batch_is_not_listed, "aborted-inconsistent"),
    "an aborted transaction without marker": (a_marker_is_missing, "aborted-inconsistent"),
    "an unknown last batch": (lambda state: a_producer(state, batches=()), "producers-inconsistent"),
    "a producer that is in no transaction": (
        lambda state: a_producer(state, current_txn_first_offset=77),
        "producers-inconsistent",
    ),
    "a slot from the future": (lambda state: first_active(state.partitions[PLACE], slot=10**6), "times-inconsistent"),
    "a time from the future": (
        lambda state: first_active(state.partitions[PLACE], end_time_ms=2**50),
        "times-inconsistent",
    ),
    "timestamps the wrong way round": (
        lambda state: first_active(state.partitions[PLACE], min_timestamp=2**50),
        "times-inconsistent",
    ),
    "a file of another topic": (a_file_elsewhere, "file-misplaced"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_broken_invariant_is_told_by_its_kind(name: str) -> None:
    log = history()
    assert kinds(log.state, log.slot) == set()
    do, kind = BREAKS[name]

    do(log.state)

    assert kind in kinds(log.state, log.slot)


@given(st.lists(st.integers(1, 4), max_size=6), st.data())
def test_gaps_are_the_offsets_that_no_batch_takes(counts: list[int], data: st.DataObject) -> None:
    log = History()
    alone = log.init(None)
    sequence = 0
    for count in counts:
        log.send(alone, sequence, count, transactional_id=None)
        sequence += count
    batches = list(log.partition().active)
    kept = data.draw(st.lists(st.sampled_from(batches), unique=True)) if batches else []
    kept.sort(key=lambda batch: batch.base_offset)

    missing = [offset for first, end in gaps(kept, 0, sum(counts)) for offset in range(first, end)]

    taken = {offset for batch in kept for offset in range(batch.base_offset, batch.end_offset)}
    assert missing == [offset for offset in range(sum(counts)) if offset not in taken]
