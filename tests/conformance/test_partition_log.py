"""Offsets of a partition, its last stable offset, and what a fetch below it shows."""

from __future__ import annotations

import pytest

from eoslog.errors import CommitStateUnknown, InvalidEntry, OffsetOutOfRange, StoreAccessDenied
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.draft import Draft
from eoslog.state.segment_entries import LogStartMoved
from eoslog.state.sequences import DuplicateBatch
from eoslog.state.state_machine import encode_entry
from eoslog.state.store_state import StoreState
from eoslog.store import Store
from tests.unit.state.answers import is_inert, reloaded
from tests.unit.state.histories import TOPIC_ID, History
from tests.unit.support.partitions import partition_of, read, topic_of_small_segments, write
from tests.unit.support.world import World


def log_start(offset: int) -> LogStartMoved:
    return LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=offset, reason="delete_records")


@pytest.mark.scenario(41)
def test_idempotent_rows_are_stable_at_once(history: History) -> None:
    identity = history.init(None)
    history.send(identity, 0, 3, transactional_id=None)
    history.send(identity, 3, 2, transactional_id=None)

    assert history.partition().open_transactions == {}
    assert history.partition().last_stable_offset == 5


@pytest.mark.scenario(42)
def test_the_first_row_of_an_open_transaction_is_unstable_until_its_marker_is_durable(history: History) -> None:
    plain = history.init(None)
    history.send(plain, 0, 2, transactional_id=None)
    identity = history.init()
    history.send(identity, 0, 3)
    assert history.partition().last_stable_offset == 2
    history.send(identity, 3, 2)
    assert history.partition().last_stable_offset == 2

    history.commit(identity)

    assert history.partition().last_stable_offset == history.partition().high_watermark == 8


@pytest.mark.scenario(42)
def test_a_marker_that_did_not_reach_the_store_leaves_the_row_unstable(store: Store, world: World) -> None:
    producer = write(store, "t", "open")
    store.object_store.lose_answers("__transaction_state/slot/", lands=False)  # type: ignore[attr-defined]
    with pytest.raises(CommitStateUnknown):
        store.admin.abort_transaction("tx")
    store.object_store.heal()  # type: ignore[attr-defined]
    reader = world.process()

    assert reader.admin.offsets("t")[0].last_stable_offset == 0
    producer.commit_transaction()
    assert reader.admin.offsets("t")[0].last_stable_offset == 2


@pytest.mark.scenario(43)
def test_a_fetch_from_any_offset_ends_at_the_last_stable_offset(store: Store) -> None:
    first, second = (store.producer(name) for name in ("first", "second"))
    plain = store.producer()
    for producer in (first, second):
        producer.init_transactions()
        producer.begin_transaction()
    for producer, count in ((first, 5), (plain, 3), (second, 2), (first, 4), (plain, 2), (first, 10)):
        for _ in range(count):
            producer.send("t", b"v", partition=0)
        producer.flush()

    def check(last_stable_offset: int) -> None:
        offsets = store.admin.offsets("t")[0]
        assert offsets.last_stable_offset == last_stable_offset
        for batch in partition_of(store, "t").active:
            start = batch.base_offset
            shown = store.scan("t", columns=["offset"], partitions=[0], starting_offsets={0: start}).to_table()
            assert all(start <= offset < last_stable_offset for offset in shown["offset"].to_pylist())

    check(0)
    first.commit_transaction()
    check(8)
    second.abort_transaction()
    check(28)
    assert len(read(store, "t")) == 24


@pytest.mark.scenario(48)
def test_batches_of_several_producers_in_one_record_are_judged_each_for_itself(history: History) -> None:
    one, other = history.init(None), history.init(None)

    def propose(draft: Draft) -> list[int]:
        answers = []
        for identity, base_sequence in ((one, 0), (other, 0), (one, 1), (other, 0), (other, 1), (one, 1)):
            batch = history.batch(identity, base_sequence, transactional_id=None)
            try:
                answers.append(draft.append(batch).base_offset)
            except DuplicateBatch as duplicate:
                answers.append(duplicate.base_offset)
        return answers

    assert history.append(propose) == [0, 1, 2, 1, 3, 2]

    assert history.partition().high_watermark == 4
    assert history.follower == history.state


@pytest.mark.scenario(48)
def test_a_duplicate_that_stands_in_the_log_is_inert_for_those_who_follow(history: History) -> None:
    identity = history.init(None)
    batch = history.batch(identity, transactional_id=None)
    history.append(lambda draft: draft.append(batch).base_offset)

    assert is_inert(history.follower, history.slot + 1, [encode_entry(batch)])


@pytest.mark.scenario(52)
def test_the_log_start_stops_at_the_last_stable_offset(history: History) -> None:
    """Kafka moves the log start into an open transaction and the stable offset with it; here no open row is lost."""
    plain, identity = history.init(None), history.init()
    history.send(plain, 0, 5, transactional_id=None)
    history.send(identity, 0, 3)

    assert isinstance(history.refused(lambda draft: draft.append(log_start(6))), OffsetOutOfRange)
    history.append(lambda draft: draft.append(log_start(5)))

    partition = history.partition()
    assert (partition.log_start_offset, partition.last_stable_offset) == (5, 5)


@pytest.mark.scenario(52)
@pytest.mark.parametrize("offset", [3, 4, 6])
def test_the_stable_offset_is_at_or_above_the_log_start_amid_a_segment_and_after_one(
    history: History, offset: int
) -> None:
    identity = history.init()
    for _ in range(2):
        history.send(identity, 0, 2)
        identity = history.commit(identity)
    history.send(identity)
    history.seal(3)

    history.append(lambda draft: draft.append(log_start(offset)))

    partition = history.partition()
    assert partition.log_start_offset == offset <= partition.last_stable_offset == 6


@pytest.mark.scenario(53)
def test_an_abort_is_decided_though_its_index_cannot_be_written(store: Store, world: World) -> None:
    """The index is derived: the abort is decided without it, and it is written when the store takes it again."""
    topic_of_small_segments(store, "s")
    producer = write(store, "s", "abort")
    store.object_store.deny("s/")  # type: ignore[attr-defined]
    with pytest.raises(StoreAccessDenied):
        seal_segments(store.log, store.object_store, store.environment)
    assert partition_of(store, "s").last_stable_offset == 2
    assert partition_of(world.process(), "s").aborted == partition_of(store, "s").aborted != []
    store.object_store.heal()  # type: ignore[attr-defined]

    producer.begin_transaction()
    producer.send("s", b"next")
    producer.commit_transaction()
    seal_segments(store.log, store.object_store, store.environment)

    assert [segment.txnindex is not None for segment in partition_of(store, "s").sealed] == [True, False]
    assert read(store, "s") == [(2, b"next")]


@pytest.mark.scenario(55)
def test_a_transaction_that_is_aborted_is_gone_from_all_its_segments(store: Store) -> None:
    topic_of_small_segments(store, "s")
    producer = write(store, "s", "open")
    for value in (b"1", b"2", b"3"):
        producer.send("s", value)
        producer.flush()
    producer.abort_transaction()
    write(store, "s", "commit", transactional_id="other")

    seal_segments(store.log, store.object_store, store.environment)

    assert [segment.base_offset for segment in partition_of(store, "s").sealed] == [0, 2, 4]
    for start in range(6):
        shown = store.scan("s", columns=["offset"], starting_offsets={0: start}).to_table()
        assert shown["offset"].to_pylist() == ([5] if start <= 5 else [])
    assert len(read(store, "s", "read_uncommitted")) == 5


@pytest.mark.scenario(56)
def test_an_open_transaction_stays_when_the_log_start_moves_up_to_it(history: History) -> None:
    identity = history.init()
    history.send(identity, 0, 2)
    identity = history.commit(identity)
    history.send(identity, 0, 2)

    history.append(lambda draft: draft.append(log_start(3)))

    assert history.partition().open_transactions == {identity.producer_id: 3}
    history.abort(identity)
    assert history.partition().last_stable_offset == 6


@pytest.mark.scenario(57)
def test_read_committed_shows_no_row_while_transactions_abort_one_after_the_other(store: Store, world: World) -> None:
    """Another process reads between any two requests of the writer's."""
    reader = world.process()
    put_if_absent = store.object_store.put_if_absent
    reads = 0

    def read_around(path: str, body: bytes) -> object:
        nonlocal reads
        assert read(reader, "t") == []
        outcome = put_if_absent(path, body)
        assert read(reader, "t") == []
        reads += 2
        return outcome

    store.object_store.put_if_absent = read_around  # type: ignore[method-assign, assignment]
    write(store, "t", *["abort"] * 10)

    assert reads >= 40
    assert store.admin.offsets("t")[0].last_stable_offset == 20


@pytest.mark.scenario(58)
def test_producer_state_outlives_the_rows_that_made_it(history: History) -> None:
    identity = history.init(None)
    history.send(identity, 0, 3, transactional_id=None)
    history.append(lambda draft: draft.append(log_start(3)))

    assert reloaded(history) == history.state
    repeat = history.batch(identity, 0, 3, transactional_id=None)
    with pytest.raises(DuplicateBatch) as duplicate:
        history.append(lambda draft: draft.append(repeat).base_offset)
    assert duplicate.value.base_offset == 0
    assert history.send(identity, 3, transactional_id=None) == 3


@pytest.mark.further("Partition log and last stable offset")
def test_a_transaction_holds_the_stable_offset_only_in_the_partitions_that_it_touched(history: History) -> None:
    identity = history.init()
    history.send(identity, partition=1)
    history.send(history.init(None), transactional_id=None)

    assert [history.partition(p).last_stable_offset for p in (0, 1)] == [1, 0]


@pytest.mark.further("Partition log and last stable offset")
def test_the_last_stable_offset_never_moves_back(history: History) -> None:
    first, second = history.init("first"), history.init("second")
    seen = []
    for step in (
        lambda: history.send(first, transactional_id="first"),
        lambda: history.send(second, transactional_id="second"),
        lambda: history.abort(first, "first"),
        lambda: history.send(first._replace(producer_epoch=1), transactional_id="first"),
        lambda: history.commit(second, "second"),
    ):
        step()
        seen.append(history.partition().last_stable_offset)

    assert seen == sorted(seen) == [0, 0, 1, 1, 3]


@pytest.mark.further("Partition log and last stable offset")
def test_an_empty_state_has_no_unstable_offset() -> None:
    assert StoreState().partitions == {}
    assert History().partition().last_stable_offset == 0


@pytest.mark.further("Partition log and last stable offset")
def test_nothing_at_or_above_the_last_stable_offset_is_sealed(store: Store, history: History) -> None:
    identity = history.init()
    history.send(identity, 0, 2)
    identity = history.commit(identity)
    history.send(identity)
    assert isinstance(history.refused(lambda draft: draft.append(history.seal_entry(4))), InvalidEntry)
    history.seal(3)

    topic_of_small_segments(store, "s")
    write(store, "s", "commit", "open")
    write(store, "s", "commit", "commit", transactional_id="other")
    seal_segments(store.log, store.object_store, store.environment)
    assert [segment.end_offset for segment in partition_of(store, "s").sealed] == [2]
