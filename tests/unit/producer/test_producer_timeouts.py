"""How long a producer tries, what may follow when the time is up, and that it can always be closed."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from eoslog import errors
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer.producer import Producer
from eoslog.state.draft import AppendEntry
from eoslog.state.names import TopicPartition
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.sequences import MAX_EPOCH
from eoslog.state.transaction_entries import BatchAppended
from eoslog.storage.calls import Call
from eoslog.storage.object_store import PutOutcome
from eoslog.store import Store
from tests.unit.support.held import in_threads
from tests.unit.support.world import CALLS, SLOTS, World, faulty, values

DAY_MS = 24 * 3600 * 1000


def producer_before(call: str, store: Store, **options: Any) -> Producer:
    """A transactional producer whose next call may be ``call``, with an open transaction if it needs one."""
    producer = store.producer("tx", transaction_timeout_ms=900_000, **options)
    if call != "init":
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"flushed", partition=0)
        producer.flush()
        producer.send("t", b"buffered", partition=0)
    return producer


def call_of(producer: Producer, call: str) -> Any:
    return producer.flush() if call == "flush" else CALLS[call](producer)


@pytest.mark.scenario(91, 119, 127)
@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("call", ["init", "flush", "commit", "abort"])
def test_a_call_ends_after_max_block_and_can_be_repeated(store: Store, world: World, call: str, lands: bool) -> None:
    producer = producer_before(call, store, max_block_ms=5000)
    faulty(store).lose_answers(SLOTS, lands=lands)
    began_ms = world.time_ms

    with pytest.raises(errors.RequestTimedOut):
        call_of(producer, call)

    assert 5000 <= world.time_ms - began_ms < 10_000
    if call != "flush":
        for other in set(CALLS) - {call, "close"}:
            with pytest.raises(errors.IllegalState):
                CALLS[other](producer)
    faulty(store).heal()
    call_of(producer, call)
    if call == "flush":
        producer.commit_transaction()
    assert values(store) == ([b"buffered", b"flushed"] if call in ("flush", "commit") else [])


@pytest.mark.parametrize("call", ["init", "flush", "commit", "abort", "close"])
def test_an_outage_shorter_than_max_block_ms_is_not_noticed(store: Store, world: World, call: str) -> None:
    producer = producer_before(call, store)
    faulty(store).lose_answers("", lands=False)
    ends_ms = world.time_ms + 30_000
    world.while_asleep = lambda: faulty(store).heal() if world.time_ms > ends_ms else None

    call_of(producer, call)

    if call == "flush":
        producer.commit_transaction()
    assert world.time_ms > ends_ms
    assert values(store) == ([b"buffered", b"flushed"] if call in ("flush", "commit") else [])


@pytest.mark.usefixtures("files_are_objects")
def test_a_call_that_did_nothing_says_so_and_one_that_may_have_appended_does_not(store: Store) -> None:
    producer = producer_before("commit", store, delivery_timeout_ms=900_000)
    faulty(store).lose_answers("t/", lands=False)
    with pytest.raises(errors.RequestTimedOut) as nothing:
        producer.flush()
    faulty(store).heal()
    faulty(store).lose_answers(SLOTS, lands=False)
    with pytest.raises(errors.CommitStateUnknown) as unknown:
        producer.commit_transaction()
    faulty(store).heal()

    assert not isinstance(nothing.value, errors.CommitStateUnknown)
    assert store.resolve(unknown.value) is False


@pytest.mark.usefixtures("files_are_objects")
def test_a_send_into_a_full_buffer_times_out_and_adds_nothing(store: Store) -> None:
    producer = producer_before("send", store, max_block_ms=1000, buffer_bytes=10)
    faulty(store).lose_answers("t/", lands=False)
    with pytest.raises(errors.RequestTimedOut):
        producer.send("t", b"refused", partition=0)
    faulty(store).heal()

    producer.send("t", b"taken", partition=0)
    producer.commit_transaction()

    assert values(store) == [b"buffered", b"flushed", b"taken"]


def test_offsets_that_time_out_are_not_in_the_transaction_and_can_be_sent_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_before("offsets", store)

    def unanswered(*arguments: object, **options: object) -> None:
        raise errors.StoreUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(store, "read", unanswered)
        with pytest.raises(errors.RequestTimedOut):
            CALLS["offsets"](producer)
    producer.send_offsets_to_transaction({TopicPartition("t", 1): 3}, "g")
    producer.commit_transaction()

    committed = store.consumer("g").committed([TopicPartition("t", 0), TopicPartition("t", 1)])
    assert [each.offset if each else None for each in committed.values()] == [None, 3]


@pytest.mark.parametrize("name", ["max_block_ms", "delivery_timeout_ms"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_time_limit_that_is_none_is_refused(store: Store, name: str, value: Any) -> None:
    with pytest.raises(errors.InvalidOption, match=name):
        store.producer("tx", **{name: value})


@pytest.mark.parametrize("longest", [2**63 - 1, 10**400], ids=["the longest long", "beyond any float"])
def test_limits_that_never_end_are_those_of_the_longest_wait_there_is(store: Store, longest: int) -> None:
    """Kafka's ``Long.MAX_VALUE``, say; another thread has the producer when the call and the close begin."""
    producer = producer_before("commit", store, max_block_ms=longest, delivery_timeout_ms=longest)
    started = threading.Event()

    def hold() -> None:
        call = Call("flush()")
        producer._calls.exclusive.enter(call)
        started.set()
        time.sleep(0.1)
        producer._calls.exclusive.leave(call)

    for call in (producer.commit_transaction, lambda: producer.close(timeout=float("inf"))):
        started.clear()
        holder = threading.Thread(target=hold)
        holder.start()
        started.wait()
        call()
        holder.join()

    assert values(store) == [b"buffered", b"flushed"]


# Delivery


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize(("staged", "lost"), [(False, SLOTS), (False, "t/"), (True, "t/")])
def test_rows_not_delivered_in_time_leave_only_an_abort(store: Store, staged: bool, lost: str, lands: bool) -> None:
    producer = producer_before("commit", store, staged=staged, delivery_timeout_ms=90_000)
    future = producer.send("t", b"late")
    faulty(store).lose_answers(lost, lands=lands)
    with pytest.raises(errors.RequestTimedOut):
        producer.commit_transaction()
    with pytest.raises(errors.DeliveryTimedOut):
        producer.commit_transaction()
    faulty(store).heal()

    with pytest.raises(errors.TransactionAbortable):
        producer.commit_transaction()
    with pytest.raises(errors.TransactionAbortable):
        producer.send("t", b"refused")
    producer.abort_transaction()

    producer.begin_transaction()
    producer.send("t", b"next")
    producer.commit_transaction()
    assert isinstance(future.exception(0), errors.DeliveryTimedOut)
    assert values(store) == [b"next"]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("lost", [SLOTS, "t/"])
@pytest.mark.parametrize("lands", [True, False])
def test_without_transaction_late_rows_fail_and_the_next_ones_are_exact(store: Store, lost: str, lands: bool) -> None:
    producer = store.producer(max_block_ms=1000, delivery_timeout_ms=1500)
    producer.send("t", b"0", partition=0)
    producer.flush()
    before = producer.producer_id
    late = producer.send("t", b"1", partition=0)
    faulty(store).lose_answers(lost, lands=lands)
    with pytest.raises(errors.RequestTimedOut):
        producer.flush()
    with pytest.raises(errors.DeliveryTimedOut):
        producer.flush()
    faulty(store).heal()

    # A row of the same size in the same place, which the sequence of the late one must not hide.
    next_row = producer.send("t", b"2", partition=0)
    producer.flush()

    assert isinstance(late.exception(0), errors.DeliveryTimedOut)
    landed = lands and lost == SLOTS
    assert values(store) == ([b"0", b"1", b"2"] if landed else [b"0", b"2"])
    assert next_row.result(0).offset == (2 if landed else 1)
    # What was never appended has used up no sequence.
    assert (producer.producer_id, producer.producer_epoch) == (before, 0 if lost == "t/" else 1)


def idempotent(store: Store) -> Producer:
    """A producer without a transaction that has written a row."""
    producer = store.producer(delivery_timeout_ms=1000)
    send(producer, b"first")
    return producer


def send(producer: Producer, value: bytes) -> None:
    producer.send("t", value, partition=0)
    producer.flush()


def give_up(producer: Producer, store: Store) -> None:
    """The producer gives up a row that has landed, because it does not learn that."""
    faulty(store).lose_answers(SLOTS, lands=True)
    with pytest.raises(errors.DeliveryTimedOut):
        send(producer, b"given up")
    faulty(store).heal()


def test_a_producer_that_gave_rows_up_goes_on_without_a_request_for_another_id(store: Store) -> None:
    producer = idempotent(store)
    give_up(producer, store)
    store.read(lambda state, slot: None)
    before = store.requests["PUT"]

    send(producer, b"next")

    assert store.requests["PUT"] - before == 1
    assert values(store) == [b"first", b"given up", b"next"]


def test_a_producer_raises_its_epoch_each_time_that_it_gives_rows_up(store: Store) -> None:
    producer = idempotent(store)
    for number in range(3):
        give_up(producer, store)
        send(producer, b"%d" % number)

    assert producer.producer_epoch == 3
    assert values(store) == [b"0", b"1", b"2", b"first", *[b"given up"] * 3]


def test_a_producer_that_has_used_all_epochs_asks_for_another_id(store: Store) -> None:
    producer = idempotent(store)
    exhausted = producer.producer_id
    producer._requests.identity = ProducerIdentity(exhausted, MAX_EPOCH)
    producer._sender._in_flight.reset()
    give_up(producer, store)

    send(producer, b"next")

    assert (producer.producer_id != exhausted, producer.producer_epoch) == (True, 0)
    assert values(store) == [b"first", b"given up", b"next"]


def test_a_producer_whose_id_expired_after_it_gave_rows_up_asks_for_another_id(store: Store, world: World) -> None:
    producer = idempotent(store)
    give_up(producer, store)
    expired = producer.producer_id
    world.pass_time(2 * DAY_MS)
    assert Coordinator(world.process()).expire_producer_ids() == [expired]

    send(producer, b"next")

    assert (producer.producer_id != expired, producer.producer_epoch) == (True, 0)
    assert values(store) == [b"first", b"given up", b"next"]


def test_rows_that_were_given_up_are_fenced_where_the_next_rows_are(store: Store, world: World) -> None:
    """Another process has a copy of the request, and appends it late."""
    producer = idempotent(store)
    sent: list[BatchAppended] = []

    def unanswered(request: Any, **options: Any) -> Any:
        sent.extend(request.batches)
        raise errors.StoreAccessDenied("no answer that helps")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "append", unanswered)
        with pytest.raises(errors.StoreAccessDenied):
            send(producer, b"given up")
    send(producer, b"next")

    with pytest.raises(errors.InvalidProducerEpoch):
        world.process().append(AppendEntry(sent[0]))


def test_a_late_put_of_rows_that_were_given_up_cannot_land_behind_those_that_followed(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = store.producer(max_block_ms=1000, delivery_timeout_ms=1000)
    producer.send("t", b"1", partition=0)
    producer.flush()
    sent: list[tuple[str, bytes]] = []

    def unanswered(path: str, body: bytes) -> PutOutcome:
        if path.startswith(SLOTS):
            sent.append((path, body))
            raise errors.StoreUnavailable("no answer")
        return put(path, body)

    put = store.object_store.put_if_absent
    with monkeypatch.context() as patched:
        patched.setattr(store.object_store, "put_if_absent", unanswered)
        producer.send("t", b"given up", partition=0)
        with pytest.raises(errors.DeliveryTimedOut):
            producer.flush()
    producer.send("t", b"2", partition=0)
    producer.flush()

    assert world.process().object_store.put_if_absent(*sent[-1]) is PutOutcome.EXISTS

    assert values(world.process()) == [b"1", b"2"]


def test_rows_may_wait_for_their_first_flush_for_as_long_as_the_application_likes(store: Store, world: World) -> None:
    producer = store.producer(delivery_timeout_ms=1000)
    producer.send("t", b"1")
    world.pass_time(10_000)
    faulty(store).lose_one_answer(SLOTS, lands=False)

    producer.flush()

    assert values(store) == [b"1"]


def test_the_delivery_of_later_rows_is_not_counted_from_that_of_earlier_ones(store: Store, world: World) -> None:
    producer = producer_before("flush", store, delivery_timeout_ms=10_000)
    for number in range(3):
        producer.flush()
        world.pass_time(9_000)
        producer.send("t", b"%d" % number)
        faulty(store).lose_one_answer(SLOTS, lands=True)

    producer.commit_transaction()

    assert values(store) == [b"0", b"1", b"2", b"buffered", b"flushed"]


# Closing


@pytest.mark.scenario(127)
@pytest.mark.parametrize("call", ["init", "flush", "commit", "abort"])
def test_a_producer_can_be_closed_whatever_timed_out(store: Store, world: World, call: str) -> None:
    producer = producer_before(call, store, max_block_ms=5000)
    faulty(store).lose_answers("", lands=False)
    with pytest.raises(errors.RequestTimedOut):
        call_of(producer, call)
    began_ms = world.time_ms

    if call in ("flush", "abort"):
        with pytest.raises(errors.RequestTimedOut):
            producer.close(timeout=2.0)
        assert 2000 <= world.time_ms - began_ms < 4000
    else:
        producer.close()

    with pytest.raises(errors.IllegalState):
        producer.begin_transaction()
    producer.close()
    faulty(store).heal()
    store.producer("tx").init_transactions()
    assert values(store) == []


def test_rows_that_a_close_cannot_write_are_told_to_be_given_up(store: Store) -> None:
    producer = store.producer(max_block_ms=1000)
    future = producer.send("t", b"v")
    faulty(store).lose_answers("", lands=False)

    with pytest.raises(errors.DeliveryTimedOut):
        producer.close()

    assert isinstance(future.exception(0), errors.DeliveryTimedOut)
    producer.close()


def test_a_close_without_time_sends_nothing(store: Store) -> None:
    producer = store.producer()
    future = producer.send("t", b"v")
    before = store.requests.copy()

    producer.close(timeout=0)

    assert store.requests == before
    assert isinstance(future.exception(0), errors.TransactionAborted)
    with pytest.raises(errors.IllegalState):
        producer.send("t", b"v")


def test_a_close_does_not_wait_for_a_call_that_hangs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = producer_before("commit", store)
    hangs, may_go_on = threading.Event(), threading.Event()
    put = store.object_store.put_if_absent

    def slow(path: str, body: bytes) -> PutOutcome:
        hangs.set()
        assert may_go_on.wait(60)
        return put(path, body)

    monkeypatch.setattr(store.object_store, "put_if_absent", slow)
    commit = threading.Thread(target=producer.commit_transaction)
    commit.start()
    assert hangs.wait(60)

    producer.close(timeout=0.01)

    may_go_on.set()
    commit.join(60)
    assert values(store) == [b"buffered", b"flushed"]
    with pytest.raises(errors.IllegalState):
        producer.begin_transaction()


def test_a_close_that_just_misses_a_calls_end_still_closes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = store.producer()
    future = producer.send("t", b"v")
    exclusive = producer._calls.exclusive
    other = Call("flush()")
    exclusive.enter(other)
    cut_short = producer._limits.cut_short

    def ends_now() -> None:
        """The other call ends just when this thread gives up waiting for it."""
        exclusive.holder = None
        cut_short()

    monkeypatch.setattr(producer._limits, "cut_short", ends_now)

    in_threads(1, lambda: producer.close(timeout=0))

    assert isinstance(future.exception(0), errors.TransactionAborted)
    with pytest.raises(errors.IllegalState):
        producer.send("t", b"w")


def test_a_call_waits_for_that_of_another_thread_no_longer_than_max_block_ms(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_before("commit", store, max_block_ms=50)
    hangs, may_go_on = threading.Event(), threading.Event()
    put = store.object_store.put_if_absent

    def slow(path: str, body: bytes) -> PutOutcome:
        hangs.set()
        assert may_go_on.wait(60)
        return put(path, body)

    monkeypatch.setattr(store.object_store, "put_if_absent", slow)
    flush = threading.Thread(target=producer.flush)
    flush.start()
    assert hangs.wait(60)

    with pytest.raises(errors.RequestTimedOut):
        producer.send("t", b"v")

    may_go_on.set()
    flush.join(60)
    producer.commit_transaction()
    assert values(store) == [b"buffered", b"flushed"]
