"""What a producer promises."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.client.store import Store
from eoslog.rules.names import TopicPartition
from eoslog.rules.state import StoreState
from tests.unit.client.world import SLOTS, FaultyStore, World


def values(store: Store, topic: str = "t", isolation_level: str = "read_committed") -> list[bytes]:
    """The values of a topic, in no order that a test may lean on."""
    return sorted(store.scan(topic, isolation_level=isolation_level).to_table()["value"].to_pylist())


def faulty(store: Store) -> FaultyStore:
    assert isinstance(store.object_store, FaultyStore)
    return store.object_store


# Sending


def test_records_come_back_as_they_were_sent(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", key=b"k", value=b"v", partition=1, headers=[("h", b"x"), ("n", None)], timestamp=1234)
        producer.send("t", key=None, value=None, partition=1)

    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 1)])
        first, second = consumer.poll()

    assert first == ("t", 1, 0, 1234, b"k", b"v", [("h", b"x"), ("n", None)])
    assert (second.key, second.value, second.headers, second.offset) == (None, None, [], 1)


def test_a_record_without_a_timestamp_has_the_stores_time(store: Store, world: World) -> None:
    with store.producer() as producer:
        producer.send("t", b"v")

    (timestamp,) = store.scan("t", columns=["timestamp"]).to_table()["timestamp"].cast(pa.int64()).to_pylist()
    assert timestamp == world.time_ms * 1000


def test_an_idempotent_record_shows_after_the_flush_and_its_future_knows_its_place(store: Store) -> None:
    producer = store.producer()
    futures = [producer.send("t", b"%d" % number, partition=0) for number in range(3)]
    assert not futures[0].done()

    producer.flush()

    assert [future.result(0) for future in futures] == [("t", 0, 0), ("t", 0, 1), ("t", 0, 2)]
    assert values(store) == [b"0", b"1", b"2"]


def test_futures_know_their_offsets_between_the_rows_of_tables(store: Store) -> None:
    producer = store.producer()
    table = pa.table({"value": pa.array([b"a", b"b", b"c"], pa.binary()), "partition": pa.array([0, 0, 0])})
    before = producer.send("t", b"before", partition=0)
    producer.send_table("t", table)
    between = producer.send("t", b"between", partition=0)
    producer.send_table("t", table)
    after = producer.send("t", b"after", partition=0)

    producer.flush()

    assert [future.result(0).offset for future in (before, between, after)] == [0, 4, 8]


def test_one_key_goes_to_one_partition_and_explicit_partitions_are_kept(store: Store) -> None:
    with store.producer() as producer:
        by_key = [producer.send("t", b"v", key=b"same") for _ in range(5)]
        explicit = producer.send("t", b"v", key=b"same", partition=1)

    assert len({future.result(0).partition for future in by_key}) == 1
    assert explicit.result(0).partition == 1


def test_records_without_a_key_move_on_to_another_partition_with_each_flush(store: Store) -> None:
    producer = store.producer()
    partitions = []
    for _ in range(4):
        future = producer.send("t", b"v")
        producer.flush()
        partitions.append(future.result(0).partition)

    assert set(partitions) == {0, 1}


def test_a_table_goes_into_a_topic_of_columns(store: Store) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    store.admin.create_topic("rows", partitions=3, schema=schema, key="id")
    table = pa.table({"id": range(100), "name": [f"n{number}" for number in range(100)]}, schema=schema)

    with store.producer() as producer:
        producer.send_table("rows", table)

    read = store.scan("rows").to_table()
    assert read.sort_by("id") == table
    assert len([plan for plan in store.scan("rows").plans if plan.record_count]) == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "nowhere"}, errors.UnknownTopicOrPartition),
        ({"topic": "t", "partition": 2}, errors.UnknownTopicOrPartition),
        ({"topic": "t", "partition": -1}, errors.UnknownTopicOrPartition),
        ({"topic": "t", "value": "text"}, errors.SchemaMismatch),
        ({"topic": "t", "key": 7}, errors.SchemaMismatch),
        ({"topic": "t", "timestamp": -1}, errors.SchemaMismatch),
        ({"topic": "t", "timestamp": 2**53}, errors.SchemaMismatch),
        ({"topic": "t", "headers": [("h", "text")]}, errors.SchemaMismatch),
        ({"topic": "t", "headers": [("\ud800", b"")]}, errors.SchemaMismatch),
    ],
)
def test_a_wrong_record_is_refused_at_once_and_spoils_nothing(
    store: Store, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with store.producer("tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"good")
        with pytest.raises(error):
            producer.send(**arguments)
        producer.commit_transaction()

    assert values(store) == [b"good"]


def test_a_full_buffer_is_written_before_more_is_taken_in(store: Store) -> None:
    producer = store.producer(buffer_bytes=1000)
    first = producer.send("t", b"x" * 2000)
    assert not first.done()

    producer.send("t", b"y")

    assert first.result(0).offset == 0


def test_a_send_that_fails_for_a_full_buffer_has_not_taken_the_record_in(store: Store) -> None:
    producer = store.producer(buffer_bytes=1000)
    producer.send("t", b"x" * 2000)
    faulty(store).lose_answers("t/", lands=False)
    with pytest.raises(errors.RetriableError):
        producer.send("t", b"y")
    faulty(store).heal()

    producer.send("t", b"y")
    producer.flush()

    assert values(store) == [b"x" * 2000, b"y"]


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("staged", [True, False])
def test_rows_whose_upload_failed_are_not_lost_and_not_written_twice(store: Store, lands: bool, staged: bool) -> None:
    producer = store.producer("tx", staged=staged)
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(10):
        producer.send("t", b"%d" % number, key=b"%d" % number)
    faulty(store).lose_answers("t/", lands=lands)
    with pytest.raises(errors.RetriableError):
        producer.commit_transaction()
    faulty(store).heal()

    producer.commit_transaction()

    assert values(store) == [b"%d" % number for number in range(10)]


def test_a_producer_that_was_idle_for_longer_than_files_may_wait_still_writes(store: Store, world: World) -> None:
    producer = store.producer()
    producer.send("t", b"1")
    producer.flush()
    producer.flush()
    world.pass_time(30 * 24 * 3600 * 1000)
    world.process().append(_move_horizon(world.time_ms - 7 * 24 * 3600 * 1000))

    producer.send("t", b"2")
    producer.flush()

    assert values(store) == [b"1", b"2"]


def _move_horizon(horizon_ms: int) -> Any:
    from eoslog.rules.entries import HorizonMoved

    return lambda draft: draft.append(HorizonMoved(horizon_ms=horizon_ms))


def test_a_process_that_begins_with_a_producer_dates_it_by_the_store(store: Store, world: World) -> None:
    process = world.process()
    process.producer("tx").init_transactions()

    assert process.admin.describe_transaction("tx").last_update_ms == world.time_ms


# Transactions


@pytest.mark.parametrize("staged", [True, False])
def test_a_commit_shows_everything_and_an_abort_nothing(store: Store, staged: bool) -> None:
    with store.producer("tx", staged=staged) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(4):
            producer.send("t", b"kept%d" % number, partition=number % 2)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"dropped")
        producer.flush()
        producer.abort_transaction()

    assert values(store) == [b"kept0", b"kept1", b"kept2", b"kept3"]


def test_uncommitted_rows_show_under_read_uncommitted_if_eager_and_hold_the_lso(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"open", partition=0)
    producer.flush()

    assert values(store) == []
    assert values(store, isolation_level="read_uncommitted") == [b"open"]
    assert store.admin.offsets("t")[0] == (0, 0, 0, 1)


def test_staged_rows_show_nowhere_before_the_commit_and_hold_nothing_back(store: Store) -> None:
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"staged", partition=0)
    producer.flush()
    assert values(store, isolation_level="read_uncommitted") == []
    assert store.admin.offsets("t")[0] == (0, 0, 0, 0)

    producer.commit_transaction()

    assert values(store) == [b"staged"]
    assert future.result(0) == ("t", 0, -1)


def test_each_transaction_raises_the_epoch_and_an_empty_one_does_not_touch_the_log(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    slot = store.read(lambda state, slot: slot)
    producer.begin_transaction()
    producer.commit_transaction()
    producer.begin_transaction()
    producer.abort_transaction()
    assert producer.producer_epoch == 0
    assert store.read(lambda state, slot: slot) == slot

    producer.begin_transaction()
    producer.send("t", b"v")
    producer.commit_transaction()

    assert producer.producer_epoch == 1


def test_offsets_of_a_group_are_committed_with_the_transaction_and_dropped_with_it(store: Store) -> None:
    place = TopicPartition("t", 0)
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({place: 7, TopicPartition("t", 1): 3}, "g")
    producer.send_offsets_to_transaction({place: 9}, "g")
    producer.send_offsets_to_transaction({}, "unheard of")
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.send_offsets_to_transaction({place: 100}, "g")
    producer.abort_transaction()

    committed = store.consumer("g").committed([place, TopicPartition("t", 1)])

    assert [each.offset if each else None for each in committed.values()] == [9, 3]


def test_offsets_without_a_group_or_of_an_unknown_partition_are_refused(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()

    with pytest.raises(errors.InvalidRequest):
        producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, None)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidRequest):
        producer.send_offsets_to_transaction({TopicPartition("t", 0): -1}, "g")
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.send_offsets_to_transaction({TopicPartition("t", 9): 1}, "g")
    producer.commit_transaction()


# The order of calls

CALLS = {
    "init": lambda producer: producer.init_transactions(),
    "begin": lambda producer: producer.begin_transaction(),
    "send": lambda producer: producer.send("t", b"v"),
    "table": lambda producer: producer.send_table("t", pa.table({"value": pa.array([b"v"], pa.binary())})),
    "offsets": lambda producer: producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g"),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
    "close": lambda producer: producer.close(),
}


@pytest.mark.parametrize(
    "calls",
    [
        *(f"{call}" for call in CALLS if call not in ("init", "close")),
        *(f"init {call}" for call in ("init", "send", "table", "offsets", "commit", "abort")),
        *(f"init begin {call}" for call in ("init", "begin")),
        *(f"init begin commit {call}" for call in ("init", "send", "offsets", "commit", "abort")),
        *(f"init begin abort {call}" for call in ("init", "send", "offsets", "commit", "abort")),
        *(f"init close {call}" for call in CALLS if call != "close"),
    ],
)
def test_the_last_of_these_calls_is_illegal(store: Store, calls: str) -> None:
    producer = store.producer("tx")
    *before, last = calls.split()
    for call in before:
        CALLS[call](producer)

    with pytest.raises(errors.IllegalState):
        CALLS[last](producer)


def test_a_producer_that_is_initialised_twice_is_told_that_once_is_enough(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()

    with pytest.raises(errors.IllegalState, match="initialised already"):
        producer.init_transactions()


@pytest.mark.parametrize("call", ["init", "begin", "offsets", "commit", "abort"])
def test_a_producer_without_transactional_id_has_no_transactions(store: Store, call: str) -> None:
    with pytest.raises(errors.IllegalState):
        CALLS[call](store.producer())


def test_a_closed_idempotent_producer_takes_no_records(store: Store) -> None:
    producer = store.producer()
    producer.close()
    with pytest.raises(errors.IllegalState):
        producer.send("t", b"v")


def test_a_staged_producer_needs_a_transactional_id(store: Store) -> None:
    with pytest.raises(errors.InvalidRequest):
        store.producer(staged=True)


@pytest.mark.parametrize("timeout_ms", [0, -1, 10**9])
def test_a_transaction_timeout_out_of_bounds_is_refused(store: Store, timeout_ms: int) -> None:
    with pytest.raises(errors.InvalidTransactionTimeout):
        store.producer("tx", transaction_timeout_ms=timeout_ms)


# Fencing


@pytest.mark.parametrize(
    ("staged", "step"),
    [(False, "flush"), (False, "abort"), (False, "commit"), (False, "offsets"), (True, "commit"), (True, "offsets")],
)
def test_a_second_producer_of_the_same_id_fences_the_first_at_its_next_write(
    store: Store, world: World, step: str, staged: bool
) -> None:
    first = store.producer("tx", staged=staged)
    first.init_transactions()
    first.begin_transaction()
    future = first.send("t", b"zombie")
    if not staged:
        first.flush()
    second = world.process().producer("tx")
    second.init_transactions()
    second.begin_transaction()
    second.send("t", b"winner")
    second.commit_transaction()

    if step == "flush":
        first.send("t", b"zombie again")
    elif step == "offsets":
        first.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")
    next_write = {"flush": first.flush, "abort": first.abort_transaction}.get(step, first.commit_transaction)
    with pytest.raises((errors.ProducerFenced, errors.InvalidProducerEpoch)):
        next_write()

    assert values(store) == [b"winner"]
    assert store.consumer("g").committed([TopicPartition("t", 0)]) == {TopicPartition("t", 0): None}
    for call in ("begin", "send", "offsets", "commit", "abort"):
        with pytest.raises((errors.ProducerFenced, errors.InvalidProducerEpoch)):
            CALLS[call](first)
    first.flush()
    first.close()
    assert future.done()


def test_records_of_a_fenced_producer_end_with_its_error(store: Store, world: World) -> None:
    first = store.producer("tx")
    first.init_transactions()
    first.begin_transaction()
    world.process().producer("tx").init_transactions()
    future = first.send("t", b"zombie")

    with pytest.raises(errors.ProducerFenced):
        first.flush()

    assert isinstance(future.exception(0), errors.ProducerFenced)


def test_a_transaction_past_its_timeout_that_was_ended_refuses_its_producer(store: Store, world: World) -> None:
    slow = store.producer("slow", transaction_timeout_ms=300)
    slow.init_transactions()
    slow.begin_transaction()
    slow.send("t", b"slow")
    slow.flush()
    world.pass_time(600)
    world.process().producer("other").init_transactions()

    slow.send("t", b"late")
    with pytest.raises(errors.InvalidProducerEpoch):
        slow.flush()

    assert values(store) == []
    assert values(store, isolation_level="read_uncommitted") == [b"slow"]


def test_a_transaction_past_its_timeout_that_nobody_ended_may_still_commit(store: Store, world: World) -> None:
    slow = store.producer("slow", transaction_timeout_ms=300)
    slow.init_transactions()
    slow.begin_transaction()
    slow.send("t", b"slow")
    slow.flush()
    world.pass_time(600)

    slow.commit_transaction()

    assert values(store) == [b"slow"]


def test_a_commit_ends_timed_out_transactions_of_others_in_its_own_slot(store: Store, world: World) -> None:
    dead = world.process().producer("dead", transaction_timeout_ms=1000)
    dead.init_transactions()
    dead.begin_transaction()
    dead.send("t", b"dead", partition=0)
    dead.flush()
    alive = store.producer("alive")
    alive.init_transactions()
    alive.begin_transaction()
    alive.send("t", b"alive", partition=0)
    alive.flush()
    world.pass_time(2000)
    before, slot = store.requests.copy(), store.read(lambda state, slot: slot, refresh=False)

    alive.commit_transaction()

    assert store.requests - before == {"PUT": 1}
    assert store.read(lambda state, slot: slot) == slot + 1
    assert values(store) == [b"alive"]
    assert store.admin.describe_transaction("dead").transaction_state == "COMPLETE_ABORT"


def test_a_transaction_that_an_administrator_aborted_cannot_commit(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.flush()
    assert store.admin.abort_transaction("tx")

    with pytest.raises(errors.InvalidTxnState, match="administrator"):
        producer.commit_transaction()

    assert values(store) == []


# Errors of one transaction


def test_a_transaction_with_rows_for_a_topic_deleted_meanwhile_can_only_be_aborted(store: Store, world: World) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"old")
    other = world.process()
    other.admin.delete_topic("t")
    other.admin.create_topic("t")
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.flush()
    with pytest.raises(errors.TransactionAbortable):
        producer.commit_transaction()
    producer.abort_transaction()

    producer.begin_transaction()
    producer.send("t", b"new")
    producer.commit_transaction()

    assert values(store) == [b"new"]
    assert isinstance(future.exception(0), errors.UnknownTopicOrPartition)


def test_a_refused_write_ends_the_transaction_and_not_the_producer(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1")
    faulty(store).deny("t/")
    with pytest.raises(errors.StoreAccessDenied):
        producer.commit_transaction()
    faulty(store).heal()
    producer.abort_transaction()

    producer.begin_transaction()
    producer.send("t", b"2")
    producer.commit_transaction()

    assert values(store) == [b"2"]


def test_an_abort_ends_the_futures_of_records_that_were_not_written(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"v")

    producer.abort_transaction()

    assert isinstance(future.exception(0), errors.TransactionAborted)


# Answers that are lost


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("transactional_id", ["tx", None])
def test_a_flush_without_an_answer_is_repeated_and_writes_once(
    store: Store, lands: bool, transactional_id: str | None
) -> None:
    producer = store.producer(transactional_id)
    if transactional_id:
        producer.init_transactions()
        producer.begin_transaction()
    else:
        producer.send("t", b"0", partition=0)
        producer.flush()
    future = producer.send("t", b"1", partition=0)
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.flush()
    faulty(store).heal()

    producer.flush()
    producer.send("t", b"2", partition=0)
    if transactional_id:
        producer.commit_transaction()
    producer.close()

    assert values(store) == ([b"1", b"2"] if transactional_id else [b"0", b"1", b"2"])
    assert future.result(0).offset == (0 if transactional_id else 1)


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize(("staged", "call"), [(False, "commit"), (False, "abort"), (True, "commit")])
def test_an_end_without_an_answer_is_repeated_and_done_once(store: Store, lands: bool, staged: bool, call: str) -> None:
    producer = store.producer("tx", staged=staged)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"first", partition=0)
    producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        CALLS[call](producer)
    for other in set(CALLS) - {call, "close"}:
        with pytest.raises(errors.IllegalState):
            CALLS[other](producer)
    faulty(store).heal()

    CALLS[call](producer)
    producer.begin_transaction()
    producer.send("t", b"second", partition=0)
    producer.commit_transaction()

    assert values(store) == ([b"first", b"second"] if call == "commit" else [b"second"])
    committed = store.consumer("g").committed([TopicPartition("t", 0)])[TopicPartition("t", 0)]
    assert (committed is not None) == (call == "commit")


@pytest.mark.parametrize("lands", [True, False])
def test_an_abort_after_a_flush_without_an_answer_leaves_nothing_visible(store: Store, lands: bool) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1")
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.flush()
    faulty(store).heal()

    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"2")
    producer.commit_transaction()

    assert values(store) == [b"2"]
    assert not store.admin.list_transactions(states=["Ongoing"])


def test_a_staged_commit_without_an_answer_cannot_land_after_an_abort(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.flush()
    sent: list[tuple[str, bytes]] = []

    def unanswered(path: str, body: bytes) -> None:
        sent.append((path, body))
        raise errors.StoreUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(store.object_store, "put_if_absent", unanswered)
        with pytest.raises(errors.CommitStateUnknown):
            producer.commit_transaction()
    faulty(store).deny(SLOTS)
    with pytest.raises(errors.StoreAccessDenied):
        producer.commit_transaction()
    faulty(store).heal()

    producer.abort_transaction()
    world.process().object_store.put_if_absent(*sent[-1])

    assert values(world.process()) == []


def test_a_flush_of_an_idempotent_producer_that_failed_before_does_not_pass_for_a_success(store: Store) -> None:
    producer = store.producer()
    producer.send_table("t", pa.table({"value": [b"1"]}))
    faulty(store).deny(SLOTS)
    with pytest.raises(errors.StoreAccessDenied):
        producer.flush()
    faulty(store).heal()

    with pytest.raises(errors.StoreAccessDenied):
        producer.flush()

    assert values(store) == []


def test_records_are_written_once_though_their_encoding_was_stopped_half_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eoslog.client import record_accumulator

    producer = store.producer()
    producer.send("t", b"1", partition=0)
    producer.send("t", b"2", partition=1)
    encode = record_accumulator.records_table
    calls: list[object] = []

    def stopped(rows: list[dict[str, Any]]) -> pa.Table:
        calls.append(rows)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encode(rows)

    monkeypatch.setattr(record_accumulator, "records_table", stopped)
    with pytest.raises(KeyboardInterrupt):
        producer.flush()

    producer.flush()

    assert values(store) == [b"1", b"2"]


@pytest.mark.parametrize("lands", [True, False])
def test_an_init_without_an_answer_is_repeated(store: Store, lands: bool) -> None:
    producer = store.producer("tx")
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.init_transactions()
    faulty(store).heal()

    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.commit_transaction()

    assert values(store) == [b"v"]


@pytest.mark.parametrize("lands", [True, False])
def test_the_store_resolves_a_commit_without_an_answer(store: Store, lands: bool) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown) as unknown:
        producer.commit_transaction()
    faulty(store).heal()

    assert store.resolve(unknown.value) is lands
    assert values(store) == ([b"v"] if lands else [])


# Closing


def test_leaving_the_context_by_an_exception_aborts(store: Store) -> None:
    def interrupted() -> None:
        with store.producer("tx") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v")
            producer.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()

    assert values(store) == []
    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_ABORT"


def test_an_exception_that_left_the_context_is_not_hidden_by_one_of_the_abort(store: Store) -> None:
    def interrupted() -> None:
        with store.producer("tx") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v")
            producer.flush()
            faulty(store).lose_answers(SLOTS, lands=False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        interrupted()

    faulty(store).heal()
    assert "could not be closed" in raised.value.__notes__[0]
    assert values(store) == []


def test_closing_writes_what_an_idempotent_producer_holds_and_aborts_an_open_transaction(store: Store) -> None:
    idempotent = store.producer()
    idempotent.send("t", b"kept")
    idempotent.close()
    idempotent.close()
    transactional = store.producer("tx")
    transactional.init_transactions()
    transactional.begin_transaction()
    transactional.send("t", b"dropped")
    transactional.flush()
    transactional.close()

    assert values(store) == [b"kept"]
    assert not store.admin.list_transactions(states=["Ongoing"])


def test_a_warm_commit_of_staged_rows_costs_the_data_files_and_one_slot(store: Store) -> None:
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    for _ in range(2):
        before = store.requests.copy()
        producer.begin_transaction()
        producer.send("t", b"0", partition=0)
        producer.send("t", b"1", partition=1)
        producer.commit_transaction()

    assert store.requests - before == {"PUT": 3}


def test_the_last_identity_stands_in_the_state(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.commit_transaction()

    def identity(state: StoreState, slot: int) -> tuple[int, int]:
        return state.transactions["tx"].producer_id, state.transactions["tx"].producer_epoch

    assert store.read(identity) == (producer.producer_id, producer.producer_epoch)
