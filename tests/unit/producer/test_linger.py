"""``linger_ms``: rows are flushed in the background, once, in order, and its errors reach the next call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pyarrow as pa
import pytest

import eoslog
from eoslog import errors
from eoslog.session.positions import RecordMetadata
from eoslog.storage.calls import Call
from eoslog.store import Store
from tests.unit.support.paused_processes import Died
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, ManualEnvironment, World, faulty, values


class Background:
    """The work that a process has handed to the background. A test does it when it likes, and so does who waits."""

    def __init__(self, store: Store) -> None:
        self.waiting: list[Callable[[], None]] = []
        store.environment.background = self.waiting.append  # type: ignore[method-assign]
        store.environment.wait_for = self._wait_for  # type: ignore[method-assign]

    def work(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()

    def _wait_for(self, event: threading.Event, patience_s: float | None = None) -> bool:
        self.work()
        return event.is_set()


@pytest.fixture
def background(store: Store) -> Background:
    return Background(store)


@pytest.fixture
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the tests runs background work in the caller's thread. Let it run steps there, too."""
    monkeypatch.setattr(ManualEnvironment, "uninterrupted", lambda _, step: step())


def began(store: Store, transactional_id: str = "tx", **options: int) -> eoslog.Producer:
    return open_transaction(store, transactional_id, linger_ms=5, **options)


@pytest.mark.usefixtures("files_are_objects")
def test_the_thread_waits_and_writes_the_rows_together(store: Store, world: World, background: Background) -> None:
    producer = store.producer(linger_ms=700)
    futures = [producer.send("t", b"%d" % number, partition=0) for number in range(3)]
    assert values(store) == []
    before = store.requests["PUT"]
    since = world.time_ms

    background.work()

    assert world.time_ms - since >= 700
    assert [future.result().offset for future in futures] == [0, 1, 2]
    assert store.requests["PUT"] - before == 3  # The producer id, the file and the batch.
    assert background.waiting == []


def test_without_linger_nothing_is_written_in_the_background(store: Store, background: Background) -> None:
    store.producer().send("t", b"v")

    assert background.waiting == []


def test_one_thread_at_a_time_writes_and_none_while_no_row_waits(store: Store, background: Background) -> None:
    producer = store.producer(linger_ms=5)
    for _ in range(3):
        producer.send("t", b"v")
    assert len(background.waiting) == 1

    producer.flush()
    background.work()
    producer.send("t", b"w")

    assert len(background.waiting) == 1
    background.work()
    assert values(store) == [b"v", b"v", b"v", b"w"]


def test_rows_that_a_callback_sends_are_written_by_the_same_thread(store: Store, background: Background) -> None:
    producer = store.producer(linger_ms=5)
    producer.send("t", b"1", on_delivery=lambda *_: producer.send("t", b"2") and None)

    background.work()

    assert values(store) == [b"1", b"2"]


@pytest.mark.parametrize(("end", "shown"), [("commit_transaction", [b"1", b"2"]), ("abort_transaction", [])])
def test_rows_of_a_transaction_are_appended_and_end_with_it(
    store: Store, world: World, background: Background, end: str, shown: list[bytes]
) -> None:
    producer = began(store)
    producer.send("t", b"1")
    background.work()
    assert values(world.process(), isolation_level="read_uncommitted") == [b"1"]
    assert values(world.process()) == []
    producer.send("t", b"2")

    getattr(producer, end)()
    background.work()

    assert values(world.process()) == shown
    assert not world.process().admin.list_transactions(states=["Ongoing"])


def test_a_thread_of_an_earlier_transaction_leaves_an_unanswered_commit_alone(
    store: Store, world: World, background: Background
) -> None:
    producer = began(store, max_block_ms=1_000)
    producer.send("t", b"1")
    faulty(store).lose_answers(SLOTS, lands=False)
    with pytest.raises(errors.RequestTimedOut):
        producer.commit_transaction()
    faulty(store).heal()

    background.work()

    assert values(world.process(), isolation_level="read_uncommitted") == []
    producer.commit_transaction()
    assert values(world.process()) == [b"1"]


def test_a_fenced_producer_learns_of_it_at_its_next_call(
    store: Store, world: World, background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    producer = began(store)
    future = producer.send("t", b"zombie")
    other = world.process().producer("tx")
    other.init_transactions()

    with caplog.at_level(logging.WARNING):
        background.work()

    assert isinstance(future.exception(), errors.ProducerFenced)
    assert "the background flush gave rows up" in caplog.text
    for call in (lambda: producer.send("t", b"v"), producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(errors.ProducerFenced):
            call()


def test_a_transaction_that_timed_out_can_only_be_aborted(store: Store, world: World, background: Background) -> None:
    producer = began(store)
    producer.send("t", b"1")
    producer.flush()
    world.pass_time(120_000)
    eoslog.Coordinator(world.process()).abort_timed_out_transactions()
    producer.send("t", b"2")

    background.work()

    with pytest.raises(errors.TransactionAbortable):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"3")
    producer.commit_transaction()
    assert values(world.process()) == [b"3"]


def refused(store: Store, background: Background) -> tuple[eoslog.Producer, Future[RecordMetadata]]:
    """A producer without transactions whose first row was refused in the background."""
    producer = store.producer(linger_ms=5)
    future = producer.send("t", b"lost")
    faulty(store).deny(SLOTS)
    background.work()
    faulty(store).heal()
    return producer, future


CALLS: dict[str, Callable[[eoslog.Producer], object]] = {
    "send": lambda producer: producer.send("t", b"v"),
    "send_table": lambda producer: producer.send_table("t", pa.table({"value": [b"v"]})),
    "flush": lambda producer: producer.flush(),
    "close": lambda producer: producer.close(),
}


@pytest.mark.parametrize("call", CALLS)
def test_rows_that_were_given_up_are_reported_once_by_the_next_call(
    store: Store, background: Background, call: str
) -> None:
    producer, future = refused(store, background)

    with pytest.raises(errors.StoreAccessDenied) as raised:
        CALLS[call](producer)

    assert future.exception() is raised.value
    if call != "close":
        producer.send("t", b"next")
        producer.close()
        assert values(store) == [b"next"]


@pytest.mark.parametrize("call", ["flush", "close"])
def test_rows_that_wait_are_written_before_earlier_ones_are_reported(
    store: Store, background: Background, call: str
) -> None:
    producer = store.producer(linger_ms=5)
    producer.send("t", b"lost", on_delivery=lambda error, _: producer.send("t", b"kept") and None if error else None)
    faulty(store).deny(SLOTS)
    flush = Call("the background flush")
    producer._calls.exclusive.enter(flush)
    producer._flush_in_background(flush)
    producer._calls.exclusive.leave(flush)
    faulty(store).heal()

    with pytest.raises(errors.StoreAccessDenied):
        CALLS[call](producer)

    assert values(store) == [b"kept"]


@pytest.mark.parametrize("lands", [True, False])
def test_a_write_without_an_answer_is_repeated_and_there_once(
    store: Store, world: World, background: Background, lands: bool
) -> None:
    producer = store.producer(linger_ms=5, max_block_ms=1_000)
    future = producer.send("t", b"v")
    faulty(store).lose_answers(SLOTS, lands=lands)
    since = world.time_ms

    def heal() -> None:
        if world.time_ms - since > 3_000:
            faulty(store).heal()

    world.while_asleep = heal
    background.work()

    assert future.result().offset == 0
    assert values(world.process()) == [b"v"]
    producer.close()


def test_rows_without_an_answer_are_given_up_after_the_delivery_timeout(store: Store, background: Background) -> None:
    producer = store.producer(linger_ms=5, max_block_ms=1_000, delivery_timeout_ms=5_000)
    future = producer.send("t", b"v")
    faulty(store).go_down()

    background.work()

    assert isinstance(future.exception(), errors.DeliveryTimedOut)
    with pytest.raises(errors.DeliveryTimedOut):
        producer.flush()


@pytest.mark.usefixtures("without_threads")
def test_a_row_for_which_no_thread_starts_waits_for_the_next(store: Store) -> None:
    background = store.environment.background

    def fail(work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    producer = store.producer(linger_ms=5)
    store.environment.background = fail  # type: ignore[method-assign]
    producer.send("t", b"1")
    assert values(store) == []

    store.environment.background = background  # type: ignore[method-assign]
    producer.send("t", b"2")

    assert values(store) == [b"1", b"2"]


def test_an_error_that_ends_the_producer_reaches_its_close(
    store: Store, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = store.producer(linger_ms=5)
    future = producer.send("t", b"v")

    def fail() -> None:
        raise errors.CorruptRecord("the log is damaged")

    monkeypatch.setattr(producer._sender, "flush", fail)
    background.work()

    with pytest.raises(errors.CorruptRecord) as raised:
        producer.close()

    assert future.exception() is raised.value
    producer.close()


def test_an_error_that_ends_the_producer_is_reported_by_its_flush_and_not_again_by_its_close(
    store: Store, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = store.producer(linger_ms=5)
    producer.send("t", b"v")

    def fail() -> None:
        raise errors.CorruptRecord("the log is damaged")

    monkeypatch.setattr(producer._sender, "flush", fail)
    background.work()

    with pytest.raises(errors.CorruptRecord):
        producer.flush()
    producer.close()


@pytest.mark.usefixtures("without_threads")
@pytest.mark.parametrize(
    ("point", "written"), [("client.producer.lingered", []), ("client.producer.flushed_in_background", [b"1"])]
)
@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_a_process_that_dies_around_the_flush_leaves_no_row_twice_and_none_undecided(
    store: Store,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    transactional_id: str | None,
    point: str,
    written: list[bytes],
) -> None:
    died = False

    def reached(environment: ManualEnvironment, crash_point: str) -> None:
        nonlocal died
        died |= crash_point == point
        if died and environment is store.environment:
            raise Died

    producer = store.producer(linger_ms=5) if transactional_id is None else began(store)
    monkeypatch.setattr(ManualEnvironment, "reached", reached)
    with pytest.raises(Died):
        producer.send("t", b"1")

    fresh = world.process()
    assert values(fresh, isolation_level="read_uncommitted") == written
    with fresh.producer(transactional_id) as again:
        if transactional_id is not None:
            assert values(fresh) == []
            again.init_transactions()
            again.begin_transaction()
        again.send("t", b"2")
        if transactional_id is not None:
            again.commit_transaction()
    assert values(fresh) == ([*written, b"2"] if transactional_id is None else [b"2"])


@pytest.mark.parametrize("wrong", [-1, "5", 0.5, True])
def test_linger_is_a_whole_number(store: Store, wrong: object) -> None:
    with pytest.raises(errors.InvalidOption, match="linger_ms is"):
        store.producer(linger_ms=wrong)  # type: ignore[arg-type]


def test_linger_has_no_use_for_a_staged_producer(store: Store) -> None:
    with pytest.raises(errors.InvalidOption, match="staged producer"):
        store.producer("tx", staged=True, config={"linger.ms": "5"})
