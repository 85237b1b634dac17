"""A consumer belongs to one thread at a time, and a poll can be ended from any thread and from a signal handler."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from eoslog.consumer.consumer import Consumer
from eoslog.consumer.consumer_records import ConsumerRecord
from eoslog.errors import ConcurrentAccess, InvalidRequest, Wakeup
from eoslog.state.names import TopicPartition
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.store import Store
from tests.unit.support.held import LONGEST_WAIT_S, held, holding_store, in_threads
from tests.unit.support.reading import T0, assigned, send, taken
from tests.unit.support.world import World

CALLS: dict[str, Callable[[Consumer], Any]] = {
    "assign": lambda consumer: consumer.assign([T0]),
    "assignment": lambda consumer: consumer.assignment(),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([T0]),
    "close": lambda consumer: consumer.close(),
    "commit": lambda consumer: consumer.commit(),
    "committed": lambda consumer: consumer.committed([T0]),
    "end_offsets": lambda consumer: consumer.end_offsets([T0]),
    "group_metadata": lambda consumer: consumer.group_metadata(),
    "lag": lambda consumer: consumer.lag(),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({T0: 0}),
    "pause": lambda consumer: consumer.pause([T0]),
    "paused": lambda consumer: consumer.paused(),
    "poll": lambda consumer: consumer.poll(0),
    "position": lambda consumer: consumer.position(T0),
    "resume": lambda consumer: consumer.resume([T0]),
    "seek": lambda consumer: consumer.seek(T0, 0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_committed": lambda consumer: consumer.seek_to_committed(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "subscribe": lambda consumer: consumer.subscribe("t"),
    "subscription": lambda consumer: consumer.subscription(),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}
"""Every public call but ``wakeup``."""


def test_every_public_call_is_listed() -> None:
    public = {name for name in vars(Consumer) if not name.startswith("_") and hasattr(Consumer, name)}

    assert public == {*CALLS, "wakeup"}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_during_another_threads_poll_is_refused(name: str) -> None:
    store = holding_store()
    store.admin.create_topic("t")
    send(store, b"a", b"b")
    consumer = assigned(store, T0, group_id="g")

    with held(store, lambda: consumer.poll(0)) as polling, pytest.raises(ConcurrentAccess) as refused:
        CALLS[name](consumer)

    assert f"{name}() is not allowed: poll() in thread holder_0 is under way on this consumer." in str(refused.value)
    assert taken(polling.result()) == [b"a", b"b"]
    assert consumer.position(T0) == 2
    assert consumer.committed([T0]) == {T0: None}


def test_leaving_the_context_of_a_consumer_that_another_thread_polls_is_refused() -> None:
    store = holding_store()
    store.admin.create_topic("t")
    send(store, b"a")
    consumer = assigned(store, T0)

    with (
        held(store, lambda: consumer.poll(0)) as polling,
        pytest.raises(ConcurrentAccess, match=r"close\(\)"),
        consumer,
    ):
        pass

    assert taken(polling.result()) == [b"a"]
    consumer.close()


def test_threads_may_use_a_consumer_one_after_the_other(store: Store) -> None:
    send(store, b"a", b"b", b"c")
    consumer = assigned(store, T0, max_poll_records=1)

    polled = [in_threads(1, lambda: taken(consumer.poll(0)))[0] for _ in range(3)]

    assert polled == [[b"a"], [b"b"], [b"c"]]
    consumer.close()


def test_a_call_that_failed_does_not_keep_the_consumer(store: Store) -> None:
    consumer = assigned(store, T0)

    with pytest.raises(Exception, match="it must be 0 or more"):
        consumer.seek(T0, -1)

    assert in_threads(1, lambda: consumer.poll(0)) == [[]]


def test_a_rebalance_listener_calls_the_consumer_that_calls_it(store: Store) -> None:
    send(store, b"a", b"b")
    consumer = store.consumer("g", auto_offset_reset="earliest")
    consumer.subscribe("t", on_assigned=lambda places: [consumer.seek(place, 1) for place in places if place == T0])

    assert taken(consumer.poll(0)) == [b"b"]
    assert in_threads(1, consumer.paused) == [set()]
    consumer.close()


@pytest.mark.usefixtures("hurried_threads")
def test_threads_that_poll_at_once_get_each_record_once_and_in_order() -> None:
    store = Store(MemoryStore(Environment()), Environment())
    store.admin.create_topic("t")
    rows = 2_000
    for begin in range(0, rows, 100):
        send(store, *(b"%d" % number for number in range(begin, begin + 100)))
    consumer = assigned(store, T0, max_poll_records=7)
    polls: list[list[ConsumerRecord]] = []

    def poll() -> int:
        refused = 0
        while sum(map(len, polls)) < rows:
            try:
                records = consumer.poll(0)
            except ConcurrentAccess:
                refused += 1
                continue
            polls.append(records)
        return refused

    in_threads(4, poll)

    in_order = sorted((each for each in polls if each), key=lambda records: records[0].offset)
    assert [each.offset for records in in_order for each in records] == list(range(rows))
    assert [each.value for records in in_order for each in records] == [b"%d" % number for number in range(rows)]


def test_a_wakeup_ends_the_next_poll_and_no_other(store: Store) -> None:
    send(store, b"a")
    consumer = assigned(store, T0)
    consumer.wakeup()
    consumer.wakeup()

    with pytest.raises(Wakeup, match="Nothing is lost"):
        consumer.poll(0)

    assert taken(consumer.poll(0)) == [b"a"]


def test_a_wakeup_during_a_poll_that_reads_lets_it_return_its_records() -> None:
    store = holding_store()
    store.admin.create_topic("t")
    send(store, b"a")
    consumer = assigned(store, T0)

    with held(store, lambda: consumer.poll(0)) as polling:
        consumer.wakeup()

    assert taken(polling.result()) == [b"a"]
    with pytest.raises(Wakeup):
        consumer.poll(0)


def test_a_wakeup_ends_a_pause_before_its_time(world: World) -> None:
    store = world.process()
    store.admin.create_topic("t")
    consumer = assigned(store, TopicPartition("t", 0))
    world.while_asleep = consumer.wakeup
    began_ms = world.time_ms

    with pytest.raises(Wakeup):
        consumer.poll(60)

    assert world.time_ms - began_ms < 60_000
    world.while_asleep = lambda: None
    send(store, b"a")
    assert taken(consumer.poll(0)) == [b"a"]


class Waiting(Environment):
    """Says when a wait for a wakeup begins, and waits for so long that only a wakeup ends it within the test."""

    def __init__(self) -> None:
        self.is_waiting = threading.Event()

    def wait_ms(self, duration_ms: float, wakeups: SimpleQueue[None]) -> None:
        self.is_waiting.set()
        super().wait_ms(100 * LONGEST_WAIT_S * 1000, wakeups)


def test_a_wakeup_of_another_thread_ends_a_poll_that_waits() -> None:
    environment = Waiting()
    store = Store(MemoryStore(environment), environment)
    store.admin.create_topic("t")
    consumer = assigned(store, T0)

    ended: SimpleQueue[Exception] = SimpleQueue()

    def poll() -> None:
        try:
            consumer.poll(LONGEST_WAIT_S)
        except Exception as error:
            ended.put(error)

    threading.Thread(target=poll, daemon=True).start()
    assert environment.is_waiting.wait(LONGEST_WAIT_S)
    consumer.wakeup()

    assert isinstance(ended.get(timeout=LONGEST_WAIT_S), Wakeup)
    consumer.close()


def test_a_wakeup_of_a_signal_handler_ends_a_poll_that_waits() -> None:
    """The handler runs in the thread that polls, in the middle of its wait."""
    environment = Waiting()
    store = Store(MemoryStore(environment), environment)
    store.admin.create_topic("t")
    consumer = assigned(store, T0)
    handled: list[int] = []
    has_ended = threading.Event()

    def wake_once(number: int, frame: object) -> None:
        if not handled:
            handled.append(number)
            consumer.wakeup()

    before = signal.signal(signal.SIGUSR1, wake_once)
    main = threading.get_ident()

    def interrupt() -> None:
        environment.is_waiting.wait(LONGEST_WAIT_S)
        # A signal that comes just before the system call sleeps does not end it. The next one does.
        while not has_ended.wait(0.2):
            signal.pthread_kill(main, signal.SIGUSR1)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(Wakeup):
            consumer.poll(LONGEST_WAIT_S)
    finally:
        has_ended.set()
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
    send(store, b"a")
    assert taken(consumer.poll(0)) == [b"a"]


def test_a_wakeup_may_be_called_on_a_closed_consumer(store: Store) -> None:
    consumer = assigned(store, T0)
    consumer.close()

    consumer.wakeup()


def test_a_poll_without_a_limit_waits_for_rows_or_a_wakeup(store: Store) -> None:
    consumer = assigned(store, T0)
    send(store, b"a")

    assert taken(consumer.poll(math.inf)) == [b"a"]

    consumer.wakeup()
    with pytest.raises(Wakeup):
        consumer.poll(math.inf)


@pytest.mark.parametrize("wrong", [True, None, "1", math.nan, -0.1, -math.inf, [], 1j], ids=str)
def test_a_timeout_of_a_poll_is_a_number_of_seconds(store: Store, wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"timeout is .*; it must be 0 or more, a number of seconds"):
        assigned(store, T0).poll(wrong)
