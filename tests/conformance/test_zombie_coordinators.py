"""A coordinator that was paused changes nothing wrongly: each of its steps is validated at the tail of the log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog.errors import InvalidEntry, OffsetOutOfRange
from eoslog.log.slot_deletion import delete_old_slots
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.entries import Entry, HorizonMoved, LogStartMoved
from eoslog.state.expiry import TRANSACTIONAL_ID_EXPIRATION_MS
from eoslog.state.group_entries import GroupChanged, GroupMember, OffsetsCommitted
from eoslog.state.group_members import plan_group_change
from eoslog.state.state_machine import encode_entry
from eoslog.state.store_state import StoreState, TransactionState
from eoslog.state.transaction_requests import AbortOverdueTransactions, end_request
from eoslog.store import Store
from tests.unit.state.answers import is_inert, reloaded
from tests.unit.state.histories import TOPIC_ID, History, new_draft, offsets_of, planned_expiry
from tests.unit.support.partitions import partition_of, read, topic_of_small_segments, write
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.world import World

DAY_MS = 24 * 3600 * 1000


def prepared_by_a_zombie(history: History) -> Entry:
    """What a coordinator makes of an open transaction, before it falls asleep."""
    identity = history.init()
    history.send(identity)
    request = end_request("tx", identity, "abort", reason="timeout", time_ms=history.now_ms)
    return new_draft(history.state, history.slot + 1).append(request)


def is_inert_in(state: StoreState, history: History, entry: Entry) -> bool:
    return is_inert(state, history.slot + 1, [encode_entry(entry)])


@pytest.mark.scenario(33, 51)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_late_end_changes_nothing_after_the_transaction_was_ended(history: History, outcome: str) -> None:
    late = prepared_by_a_zombie(history)
    identity = history.transaction()
    history.end(identity, outcome)  # type: ignore[arg-type]

    assert is_inert_in(history.state, history, late)
    assert is_inert_in(reloaded(history), history, late)


@pytest.mark.scenario(33, 51)
def test_a_late_end_changes_nothing_after_the_next_transaction_began(history: History) -> None:
    late = prepared_by_a_zombie(history)
    first = history.transaction()
    second = history.commit(first)  # type: ignore[arg-type]
    history.send(second)

    assert is_inert_in(history.state, history, late)
    assert history.transaction().state is TransactionState.ONGOING


@pytest.mark.scenario(51)
def test_a_late_end_of_a_transaction_without_rows_changes_nothing(history: History) -> None:
    identity = history.init()
    request = end_request("tx", identity, "abort", time_ms=history.now_ms)
    late = new_draft(history.state, history.slot + 1).append(request)
    history.init()

    assert is_inert_in(history.state, history, late)


@pytest.mark.scenario(33, 114)
def test_of_two_coordinators_that_meet_the_same_time_out_one_aborts(store: Store, world: World) -> None:
    write(store, "t", "open", transaction_timeout_ms=1_000)
    one, other = Coordinator(world.process()), Coordinator(world.process())
    other.abort_timed_out_transactions()
    world.pass_time(2_000)

    assert [one.abort_timed_out_transactions(), other.abort_timed_out_transactions()] == [["tx"], []]

    assert store.admin.offsets("t")[0].high_watermark == 2


@pytest.mark.scenario(33, 114)
def test_a_late_abort_by_time_out_loses_to_the_commit(history: History) -> None:
    identity = history.init(timeout_ms=1_000)
    history.send(identity)
    history.now_ms += 2_000
    draft = new_draft(history.state, history.slot + 1)
    assert AbortOverdueTransactions(history.now_ms).apply(draft) == ["tx"]
    history.commit(identity)

    assert is_inert_in(history.state, history, draft.entries[0])


@pytest.mark.scenario(33)
@pytest.mark.parametrize("use", ["init", "send", "abort"])
def test_a_late_expiry_changes_nothing_after_the_id_was_used(history: History, use: str) -> None:
    identity = history.init()
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    late = planned_expiry(history.state, history.now_ms)
    assert late is not None
    if use == "init":
        history.init()
    elif use == "send":
        history.send(identity)
    else:
        history.abort(identity)

    assert is_inert_in(history.state, history, late)


@pytest.mark.scenario(33)
def test_a_late_seal_changes_nothing_after_the_segment_was_sealed(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.commit(identity)
    late = history.seal_entry(2)
    history.seal(2)

    assert is_inert_in(history.state, history, late)
    assert isinstance(history.refused(lambda draft: draft.append(late)), OffsetOutOfRange)


@pytest.mark.scenario(33)
def test_a_late_eviction_changes_nothing_after_the_group_moved_on(history: History) -> None:
    def planned(*, joined: str = "", left: str = "") -> GroupChanged:
        members = [GroupMember(member_id=joined, topics=("t",))] if joined else []
        entry = plan_group_change(history.state, "g", joined=members, left=[left] if left else (), time_ms=0)
        assert entry is not None
        return entry

    history.append(lambda draft: draft.append(planned(joined="m")))
    late = planned(left="m")
    history.append(lambda draft: draft.append(planned(joined="n")))

    assert is_inert_in(history.state, history, late)
    assert history.state.groups["g"].members.keys() == {"m", "n"}


def with_sealed_segments(history: History) -> None:
    """Two sealed segments, each of one transaction of one row."""
    identity = history.init()
    for _ in range(2):
        history.send(identity)
        identity = history.commit(identity)
        history.seal(history.partition().high_watermark)


@pytest.mark.scenario(33)
def test_a_late_compaction_changes_nothing_after_the_segments_were_compacted_or_dropped(history: History) -> None:
    with_sealed_segments(history)
    late = history.replace_entry(0, 1)
    compacted = history.replace_entry(0, 1)
    history.append(lambda draft: draft.append(compacted))
    assert is_inert_in(history.state, history, late)

    again = history.replace_entry(0, 0)
    history.append(lambda draft: draft.append(log_start(4)))
    assert is_inert_in(history.state, history, again)


@pytest.mark.scenario(33)
@pytest.mark.parametrize("offset", [2, 4])
def test_a_late_retention_changes_nothing_after_the_log_start_moved_as_far(history: History, offset: int) -> None:
    with_sealed_segments(history)
    history.append(lambda draft: draft.append(log_start(4)))

    assert is_inert_in(history.state, history, log_start(offset))


def log_start(offset: int) -> LogStartMoved:
    return LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=offset, reason="retention")


@pytest.mark.scenario(33)
def test_a_late_expiry_of_offsets_changes_nothing_after_they_were_committed_again(history: History) -> None:
    def commit() -> None:
        entry = OffsetsCommitted(committed=offsets_of("g", 5), time_ms=history.now_ms)
        history.append(lambda draft: draft.append(entry))

    commit()
    history.now_ms += 30 * DAY_MS
    late = planned_expiry(history.state, history.now_ms)
    assert late is not None
    assert late.groups
    commit()

    assert is_inert_in(history.state, history, late)


@pytest.mark.scenario(33)
def test_a_late_horizon_changes_nothing_after_it_moved_on(history: History) -> None:
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=20)))

    assert isinstance(history.refused(lambda draft: draft.append(HorizonMoved(horizon_ms=10))), InvalidEntry)


def asleep_during(world: World, step: Callable[[Store], object], meanwhile: Callable[[], object], at: str) -> None:
    """A process that begins a step, sleeps at a point of it while others work, and goes on."""
    zombie = world.process()
    slept = asleep_at(zombie, at, meanwhile)
    step(zombie)
    assert slept == [at]


@pytest.mark.scenario(33)
def test_a_sealer_that_slept_over_its_files_finds_the_segment_sealed(store: Store, world: World) -> None:
    topic_of_small_segments(store, "s")
    write(store, "s", "commit", "abort")

    def seal(process: Store) -> None:
        seal_segments(process)

    asleep_during(world, seal, lambda: seal(store), at="segment.seal.files_written")

    assert [segment.base_offset for segment in partition_of(store, "s").sealed] == [0, 2]
    assert read(store, "s") == [(0, b"0")]


@pytest.mark.scenario(33)
def test_a_checkpoint_that_slept_does_not_lead_the_log_back(store: Store, world: World) -> None:
    write(store, "t", "commit")

    def others_go_on() -> None:
        write(store, "t", "commit", "abort", transactional_id="other")
        store.log.checkpoint()
        store.log.checkpoint()

    def write_checkpoint(zombie: Store) -> None:
        zombie.read(lambda state, slot: None)
        assert zombie.log.checkpoint() == store.log.replica.checkpoint

    asleep_during(world, write_checkpoint, others_go_on, at="log.checkpoint.root_written")

    cold = world.process()
    assert read(cold, "t") == read(store, "t") == [(0, b"0"), (2, b"0")]
    assert cold.read(lambda state, slot: state) == store.read(lambda state, slot: state)


@pytest.mark.scenario(33)
def test_a_vacuum_that_slept_deletes_nothing_that_was_named_meanwhile(store: Store, world: World) -> None:
    topic_of_small_segments(store, "s")
    world.pass_time(30 * DAY_MS)

    def others_write() -> None:
        write(store, "s", "commit")
        seal_segments(store)
        world.pass_time(30 * DAY_MS)

    asleep_during(
        world,
        lambda zombie: vacuum(zombie),
        others_write,
        at="segment.vacuum.horizon_moved",
    )

    assert read(world.process(), "s") == [(0, b"0")]


@pytest.mark.scenario(33)
def test_slots_that_a_paused_process_needs_are_read_anew_after_their_deletion(store: Store, world: World) -> None:
    zombie = world.process()
    zombie.read(lambda state, slot: None)
    write(store, "t", "commit")
    for _ in range(2):
        store.log.checkpoint()
    world.pass_time(30 * DAY_MS)
    delete_old_slots(store.log)

    assert Coordinator(zombie).abort_timed_out_transactions() == []

    assert read(zombie, "t") == [(0, b"0")]
