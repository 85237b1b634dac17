"""Two-phase commit (KIP-939): a transaction is prepared, its verdict is given elsewhere, and no death loses it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import errors
from eoslog.client.consumer import Consumer
from eoslog.client.coordinator import Coordinator
from eoslog.client.producer import Producer
from eoslog.client.store import Store
from eoslog.rules.names import TopicPartition
from eoslog.store.environment import Environment
from eoslog.store.memory import MemoryStore
from tests.unit.client.world import CALLS, SLOTS, World, at_last_epoch, faulty, values

DAY_MS = 24 * 3600 * 1000
PLACE = TopicPartition("t", 0)


def begun(store: Store, *, staged: bool = False, **options: int | None) -> Producer:
    """A producer with an open transaction, with the row ``v`` and an offset of the group ``g`` in it."""
    producer = store.producer("tx", staged=staged, **options)  # type: ignore[arg-type]
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.send_offsets_to_transaction({PLACE: 7}, "g")
    return producer


def restarted(world: World) -> Producer:
    producer = world.process().producer("tx")
    producer.init_transactions(keep_prepared=True)
    return producer


def committed_offset(store: Store) -> int | None:
    found = store.consumer("g").committed([PLACE])[PLACE]
    return found.offset if found else None


# Prepare, then complete


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("end", ["complete", "commit"])
def test_a_prepared_transaction_shows_when_it_is_completed_and_not_before(store: Store, staged: bool, end: str) -> None:
    producer = begun(store, staged=staged)

    prepared = producer.prepare_transaction()

    assert prepared == producer.prepared_transaction == f"{producer.producer_id}:{producer.producer_epoch}"
    assert values(store) == []
    CALLS[end](producer)
    assert values(store) == [b"v"]
    assert committed_offset(store) == 7
    assert producer.prepared_transaction is None


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("other", ["", "1:1", "abort"])
def test_it_is_aborted_if_another_name_or_none_was_decided(store: Store, staged: bool, other: str) -> None:
    producer = begun(store, staged=staged)
    producer.prepare_transaction()

    if other == "abort":
        producer.abort_transaction()
    else:
        producer.complete_transaction(other)

    assert values(store) == []
    assert committed_offset(store) is None
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))


def test_the_producer_goes_on_after_it(store: Store) -> None:
    producer = begun(store)
    for number in range(3):
        producer.complete_transaction(producer.prepare_transaction())
        producer.begin_transaction()
        producer.send("t", b"%d" % number)
    producer.commit_transaction()

    assert values(store) == [b"0", b"1", b"2", b"v"]


def test_an_empty_transaction_that_is_prepared_has_a_name_that_no_later_one_has(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    names = []
    for _ in range(3):
        producer.begin_transaction()
        names.append(producer.prepare_transaction())
        producer.complete_transaction(names[-1])

    assert len(set(names)) == 3


def test_an_eager_one_holds_the_last_stable_offset_and_a_staged_one_holds_nothing(store: Store) -> None:
    begun(store).prepare_transaction()
    other = store.producer("other", staged=True)
    other.init_transactions()
    other.begin_transaction()
    other.send("t", b"staged", partition=1)
    other.prepare_transaction()

    assert store.admin.offsets("t") == [(0, 0, 0, 1), (1, 0, 0, 0)]


# The order of calls


@pytest.mark.parametrize("call", ["init", "begin", "send", "table", "offsets", "prepare"])
def test_while_it_is_prepared_only_its_end_is_allowed_and_an_illegal_call_changes_nothing(
    store: Store, call: str
) -> None:
    producer = begun(store)
    prepared = producer.prepare_transaction()

    with pytest.raises(errors.IllegalState):
        CALLS[call](producer)

    producer.flush()
    producer.complete_transaction(prepared)
    assert values(store) == [b"v"]


@pytest.mark.parametrize(
    "calls",
    [
        "prepare",
        "complete",
        "init prepare",
        "init complete",
        "init begin complete",
        "init begin commit prepare",
        "init begin prepare complete complete",
        "init begin prepare abort complete",
        "init begin prepare commit commit",
        "init close prepare",
    ],
)
def test_the_last_of_these_calls_is_illegal(store: Store, calls: str) -> None:
    producer = store.producer("tx")
    *before, last = calls.split()
    for call in before:
        CALLS[call](producer)

    with pytest.raises(errors.IllegalState):
        CALLS[last](producer)


def test_a_producer_without_transactional_id_prepares_nothing(store: Store) -> None:
    for call in ("prepare", "complete"):
        with pytest.raises(errors.IllegalState):
            CALLS[call](store.producer())


@pytest.mark.parametrize("name", ["12:", "nonsense", "1:2:3", None])
def test_a_name_that_no_prepare_gives_decides_nothing(store: Store, name: str) -> None:
    producer = begun(store)
    prepared = producer.prepare_transaction()

    with pytest.raises(errors.InvalidRequest):
        producer.complete_transaction(name)

    producer.complete_transaction(prepared)
    assert values(store) == [b"v"]


@pytest.mark.parametrize("timeout_ms", [0, -1, "7 days", 2**53])
def test_a_time_out_that_is_none_is_refused(store: Store, timeout_ms: int) -> None:
    with pytest.raises(errors.InvalidTransactionTimeout, match="prepared_timeout_ms"):
        store.producer("tx", prepared_timeout_ms=timeout_ms)


def test_closing_or_leaving_the_context_by_an_exception_leaves_it_prepared(store: Store, world: World) -> None:
    begun(store).prepare_transaction()
    first = restarted(world)
    first.close()

    def interrupted() -> None:
        with restarted(world):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()

    second = restarted(world)
    second.complete_transaction(second.prepared_transaction or "")
    assert values(store) == [b"v"]


# Errors


def test_what_an_append_refused_can_only_be_aborted(store: Store, world: World) -> None:
    producer = begun(store)
    world.process().admin.delete_topic("t")
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.prepare_transaction()

    with pytest.raises(errors.TransactionAbortable):
        producer.prepare_transaction()
    producer.abort_transaction()

    producer.begin_transaction()
    producer.complete_transaction(producer.prepare_transaction())


@pytest.mark.parametrize("staged", [True, False])
def test_a_prepare_that_is_refused_can_only_be_aborted(store: Store, staged: bool) -> None:
    producer = begun(store, staged=staged)
    producer.flush()
    faulty(store).deny(SLOTS)
    with pytest.raises(errors.StoreAccessDenied):
        producer.prepare_transaction()
    faulty(store).heal()

    with pytest.raises(errors.TransactionAbortable):
        producer.commit_transaction()
    producer.abort_transaction()

    assert values(store) == []
    assert not store.admin.list_transactions(states=["Ongoing"])


@pytest.mark.parametrize("call", ["complete", "commit", "abort"])
def test_an_end_that_the_store_refuses_leaves_it_prepared(store: Store, call: str) -> None:
    """The verdict was given elsewhere: it is not for the producer to take it back."""
    producer = begun(store)
    prepared = producer.prepare_transaction()
    faulty(store).deny(SLOTS)
    with pytest.raises(errors.StoreAccessDenied):
        CALLS[call](producer)
    faulty(store).heal()

    assert producer.prepared_transaction == prepared
    CALLS[call](producer)

    assert values(store) == ([] if call == "abort" else [b"v"])


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("staged", [True, False])
def test_a_prepare_without_an_answer_is_repeated_and_nothing_else(store: Store, lands: bool, staged: bool) -> None:
    producer = begun(store, staged=staged)
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.prepare_transaction()
    for call in set(CALLS) - {"prepare", "close"}:
        with pytest.raises(errors.IllegalState):
            CALLS[call](producer)
    faulty(store).heal()

    prepared = producer.prepare_transaction()
    producer.complete_transaction(prepared)

    assert values(store) == [b"v"]
    assert committed_offset(store) == 7


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("name", ["its own", ""])
def test_a_completion_without_an_answer_is_repeated_and_done_once(store: Store, lands: bool, name: str) -> None:
    producer = begun(store)
    prepared = producer.prepare_transaction()
    decided = prepared if name else ""
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.complete_transaction(decided)
    for call in set(CALLS) - {"complete", "commit", "abort", "close"}:
        with pytest.raises(errors.IllegalState):
            CALLS[call](producer)
    with pytest.raises(errors.IllegalState):
        producer.complete_transaction("" if decided else prepared)
    faulty(store).heal()

    producer.complete_transaction(decided)
    producer.begin_transaction()
    producer.send("t", b"next")
    producer.commit_transaction()

    assert values(store) == ([b"next", b"v"] if decided else [b"next"])


@pytest.mark.parametrize("lands", [True, False])
def test_an_init_that_keeps_and_has_no_answer_is_repeated(store: Store, world: World, lands: bool) -> None:
    prepared = begun(store).prepare_transaction()
    process = world.process()
    producer = process.producer("tx")
    process.read(lambda state, slot: None)
    faulty(process).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.init_transactions(keep_prepared=True)
    faulty(process).heal()

    producer.init_transactions(keep_prepared=True)

    assert producer.prepared_transaction == prepared
    producer.complete_transaction(prepared)
    assert values(store) == [b"v"]


# Restarts


@pytest.mark.parametrize("staged", [True, False])
def test_a_restarted_producer_holds_what_was_prepared_and_fences_the_one_before(
    store: Store, world: World, staged: bool
) -> None:
    zombie = begun(store, staged=staged)
    prepared = zombie.prepare_transaction()

    producer = restarted(world)

    assert producer.prepared_transaction == prepared
    assert (producer.producer_id, producer.producer_epoch) == (zombie.producer_id, zombie.producer_epoch + 1)
    with pytest.raises(errors.ProducerFenced):
        zombie.complete_transaction(prepared)
    assert values(store) == []
    producer.complete_transaction(prepared)
    assert values(store) == [b"v"]


def test_a_restart_with_nothing_prepared_is_ready_and_aborts_what_is_open(store: Store, world: World) -> None:
    begun(store).flush()

    producer = restarted(world)

    assert producer.prepared_transaction is None
    assert store.admin.describe_transaction("tx").transaction_state == "EMPTY"
    producer.begin_transaction()
    producer.commit_transaction()


def test_a_restart_that_does_not_keep_it_aborts_it(store: Store, world: World) -> None:
    begun(store).prepare_transaction()

    world.process().producer("tx").init_transactions()

    assert values(store) == []
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))


def test_it_is_completed_under_another_producer_id_when_the_epochs_are_used_up(store: Store, world: World) -> None:
    first = store.producer("tx")
    first.init_transactions()
    at_last_epoch(store, first)
    first.begin_transaction()
    first.send("t", b"v", partition=0)
    prepared = first.prepare_transaction()

    producer = restarted(world)

    assert producer.producer_id != first.producer_id
    assert producer.prepared_transaction == prepared
    (hanging,) = store.admin.find_hanging_transactions(max_transaction_timeout_ms=-1)
    assert (hanging.transactional_id, hanging.producer_id) == ("tx", first.producer_id)
    producer.complete_transaction(prepared)
    producer.begin_transaction()
    producer.send("t", b"w", partition=0)
    producer.commit_transaction()
    assert values(store) == [b"v", b"w"]
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))


# Time-outs and administration


@pytest.mark.parametrize("prepared_timeout_ms", [10 * DAY_MS, None])
def test_it_waits_for_its_own_time_out_and_not_that_of_a_transaction(
    store: Store, world: World, prepared_timeout_ms: int | None
) -> None:
    producer = begun(store, staged=True, transaction_timeout_ms=1_000, prepared_timeout_ms=prepared_timeout_ms)
    prepared = producer.prepare_transaction()
    world.pass_time(9 * DAY_MS)
    assert Coordinator(store).abort_timed_out_transactions() == []

    restarted(world).complete_transaction(prepared)

    assert values(store) == [b"v"]


def test_past_its_time_out_it_is_aborted_and_its_commit_says_so(store: Store, world: World) -> None:
    producer = begun(store, prepared_timeout_ms=5_000)
    prepared = producer.prepare_transaction()
    world.pass_time(5_001)
    assert Coordinator(world.process()).abort_timed_out_transactions() == ["tx"]

    with pytest.raises(errors.TransactionAborted, match="timed out"):
        producer.complete_transaction(prepared)
    producer.abort_transaction()

    assert producer.prepared_transaction is None
    producer.begin_transaction()
    producer.send("t", b"w")
    producer.commit_transaction()
    assert values(store) == [b"w"]


def test_a_prepare_that_is_repeated_past_its_time_out_says_so(store: Store, world: World) -> None:
    """It was prepared at the first attempt; the repetition that finds it ends it, and must not pass for a success."""
    producer = begun(store, prepared_timeout_ms=5_000)
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=True)
    with pytest.raises(errors.CommitStateUnknown):
        producer.prepare_transaction()
    faulty(store).heal()
    world.pass_time(5_001)

    with pytest.raises(errors.InvalidProducerEpoch, match="timed out"):
        producer.prepare_transaction()
    producer.abort_transaction()

    assert values(store) == []
    producer.begin_transaction()
    producer.send("t", b"w")
    producer.complete_transaction(producer.prepare_transaction())
    assert values(store) == [b"w"]


def test_a_producer_that_restarts_past_the_time_out_finds_nothing_prepared(store: Store, world: World) -> None:
    begun(store, prepared_timeout_ms=5_000).prepare_transaction()
    world.pass_time(5_001)

    producer = restarted(world)

    assert producer.prepared_transaction is None
    producer.begin_transaction()
    producer.send("t", b"w")
    producer.commit_transaction()
    assert values(store) == [b"w"]


def test_a_transaction_past_its_time_out_that_nobody_ended_may_still_be_prepared(store: Store, world: World) -> None:
    producer = begun(store, transaction_timeout_ms=300)
    producer.flush()
    world.pass_time(600)

    producer.complete_transaction(producer.prepare_transaction())

    assert values(store) == [b"v"]


def test_the_commit_does_not_ask_for_the_generation_again(store: Store) -> None:
    consumer = Consumer(store, "members")
    consumer.subscribe(["t"])
    consumer.poll(timeout=0)
    producer = begun(store)
    producer.send_offsets_to_transaction({PLACE: 9}, consumer.group_metadata())
    prepared = producer.prepare_transaction()
    consumer.close()

    producer.complete_transaction(prepared)

    assert store.consumer("members").committed([PLACE])[PLACE].offset == 9  # type: ignore[union-attr]


# A group whose offset is prepared


def test_a_consumer_waits_where_its_offset_is_prepared_and_reads_on_from_there(store: Store, world: World) -> None:
    writer = store.producer()
    for partition in (0, 1):
        for number in range(10):
            writer.send("t", b"%d" % number, partition=partition)
    writer.flush()
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({PLACE: 7}, "g")
    prepared = producer.prepare_transaction()
    consumer = world.process().consumer("g", auto_offset_reset="earliest")
    consumer.assign([PLACE, TopicPartition("t", 1)])

    assert {record.partition for record in consumer.poll(timeout=0)} == {1}
    with pytest.raises(errors.UnstableOffsetCommit):
        consumer.position(PLACE)
    assert set(consumer.lag()) == {TopicPartition("t", 1)}
    producer.complete_transaction(prepared)

    assert [record.offset for record in consumer.poll(timeout=0)] == [7, 8, 9]


def test_who_goes_back_to_the_committed_offset_is_told_that_it_may_still_change(store: Store) -> None:
    """Else it would read and commit again what the prepared transaction has read."""
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({PLACE: 7}, "g")
    prepared = producer.prepare_transaction()
    other = TopicPartition("t", 1)

    with pytest.raises(errors.UnstableOffsetCommit, match="t-0"):
        store.consumer("g").committed([other, PLACE])

    assert store.consumer("g").committed([other]) == {other: None}
    assert store.consumer("g", isolation_level="read_uncommitted").committed([PLACE]) == {PLACE: None}
    producer.complete_transaction(prepared)
    assert store.consumer("g").committed([PLACE])[PLACE].offset == 7  # type: ignore[union-attr]


def test_a_consumer_that_seeks_does_not_wait(store: Store, world: World) -> None:
    producer = begun(store, staged=True)
    producer.prepare_transaction()
    consumer = world.process().consumer("g")
    consumer.assign([PLACE])

    consumer.seek_to_beginning()

    assert consumer.position(PLACE) == 0


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_who_waits_for_a_prepared_offset_ends_the_transaction_past_its_time_out(
    store: Store, world: World, isolation_level: str
) -> None:
    producer = begun(store, staged=True, prepared_timeout_ms=5_000)
    producer.prepare_transaction()
    consumer = world.process().consumer("g", auto_offset_reset="earliest", isolation_level=isolation_level)
    consumer.assign([PLACE])
    consumer.poll(timeout=0)
    world.pass_time(5_001)

    consumer.poll(timeout=1)

    assert consumer.position(PLACE) == 0
    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_ABORT"


# An external database


class Database:
    """A database with transactions of its own: rows, and the name of the transaction that was last decided."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.prepared = ""

    def commit(self, row: bytes, prepared: str) -> None:
        self.rows, self.prepared = [*self.rows, row], prepared


class Died(BaseException):
    pass


class Mortal(Environment):
    """Dies when it comes to a crash point for the n-th time."""

    def __init__(self, point: str = "", times: int = 0) -> None:
        self._point = point
        self._left = times

    def reached(self, crash_point: str) -> None:
        if crash_point == self._point:
            self._left -= 1
            if self._left == 0:
                raise Died

    def background(self, work: Callable[[], None]) -> None:
        work()


def run(store: Store, database: Database, environment: Environment, *, staged: bool) -> None:
    """Write each row to both systems, or to none; go on from where an earlier run died."""
    producer = store.producer("tx", staged=staged)
    producer.init_transactions(keep_prepared=True)
    if producer.prepared_transaction is not None:
        producer.complete_transaction(database.prepared)
    while len(database.rows) < 4:
        row = b"%d" % len(database.rows)
        producer.begin_transaction()
        producer.send("t", row)
        prepared = producer.prepare_transaction()
        database.commit(row, prepared)
        environment.reached("database committed")
        producer.complete_transaction(prepared)


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("times", range(1, 12, 2))
@pytest.mark.parametrize(
    "point",
    [
        "log.slot.before_put",
        "log.slot.claimed",
        "client.producer.files_uploaded",
        "client.producer.prepared",
        "database committed",
    ],
)
def test_whenever_a_process_dies_a_row_is_in_both_systems_or_in_none(point: str, times: int, staged: bool) -> None:
    objects, database = MemoryStore(Environment()), Database()
    Store(objects, Mortal()).admin.create_topic("t")
    mortal = Mortal(point, times)
    try:
        run(Store(objects, mortal), database, mortal, staged=staged)
    except Died:
        run(Store(objects, Mortal()), database, Mortal(), staged=staged)

    store = Store(objects, Mortal())
    assert values(store) == database.rows == [b"0", b"1", b"2", b"3"]
    assert store.log.view.invalid is None
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))
