"""A world for client tests: one object store in memory, any number of processes on it, one clock that tests move."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from eoslog.errors import StoreAccessDenied, StoreUnavailable
from eoslog.log.replica import LogConfig
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.sequences import LAST_USABLE_EPOCH
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import PutOutcome, StoredObject
from eoslog.store import Store

SLOTS = "__transaction_state/slot/"


class World:
    """Time, and the name under which the processes share their objects."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000
        self.name = uuid.uuid4().hex
        self.slept_ms = 0.0
        self.while_asleep: Callable[[], None] = lambda: None

    def process(self, log_config: LogConfig | None = None) -> Store:
        """A store as another process opens it."""
        environment = ManualEnvironment(self)
        return Store(FaultyStore(self, environment), environment, log_config)

    def pass_time(self, duration_ms: float) -> None:
        self.time_ms += int(duration_ms)


class ManualEnvironment(Environment):
    """Elapsed time is the world's; sleep moves it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic_ms(self) -> int:
        return self._world.time_ms

    def monotonic_ns(self) -> int:
        return self._world.time_ms * 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        self._world.slept_ms += duration_ms
        self._world.pass_time(max(1, duration_ms))
        self._world.while_asleep()

    def wait_ms(self, duration_ms: float, wakeups: SimpleQueue[None]) -> None:
        self.sleep_ms(duration_ms)

    def background(self, work: Callable[[], None]) -> None:
        work()


class FaultyStore(MemoryStore):
    """A store whose writes to some paths fail, for as long as a test wants."""

    def __init__(self, world: World, environment: Environment) -> None:
        super().__init__(environment, world.name, wall_clock=lambda: world.time_ms)
        self.gets: list[str] = []
        self._faulty = ""
        self._lands_first = False
        self._outage = False
        self._down = False
        self._one_answer = False
        self._denied: tuple[str, ...] = ()
        self._cut = ""

    def lose_answers(self, to: str, *, lands: bool) -> None:
        """The next write below ``to`` is not answered, and from there on nothing is, until ``heal``."""
        self._faulty, self._lands_first, self._outage = to, lands, True

    def lose_one_answer(self, to: str, *, lands: bool) -> None:
        """The next write below ``to`` is not answered; what follows is."""
        self._faulty, self._lands_first, self._one_answer = to, lands, True

    def cut_one_read(self, path: str) -> None:
        """The next read of ``path`` gives half of its bytes, and no error."""
        self._cut = path

    def go_down(self) -> None:
        """From here on nothing is answered, until ``heal``."""
        self._down = True

    def deny(self, *prefixes: str) -> None:
        """Writes below these are refused."""
        self._denied = prefixes

    def heal(self) -> None:
        self._outage = self._down = False
        self._denied = ()

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        if self._one_answer and path.startswith(self._faulty):
            self._one_answer = False
            if self._lands_first:
                super().put_if_absent(path, body)
            raise StoreUnavailable("no answer")
        if self._goes_down(path):
            super().put_if_absent(path, body)
        self._check(path)
        return super().put_if_absent(path, body)

    def put(self, path: str, body: bytes) -> None:
        if self._goes_down(path):
            super().put(path, body)
        self._check(path)
        super().put(path, body)

    def get(self, path: str) -> StoredObject:
        self._check("")
        self.gets.append(path)
        found = super().get(path)
        if path == self._cut:
            self._cut = ""
            return replace(found, body=found.body[: len(found.body) // 2])
        return found

    def _goes_down(self, path: str) -> bool:
        """Whether this write brings the outage, and lands all the same."""
        if not self._outage or self._down or not path.startswith(self._faulty):
            return False
        self._down = True
        return self._lands_first

    def _check(self, path: str) -> None:
        if self._down:
            raise StoreUnavailable("no answer")
        if path.startswith(self._denied) and path and self._denied:
            raise StoreAccessDenied("not allowed")


def faulty(store: Store) -> FaultyStore:
    """The object store of a process, to break it."""
    assert isinstance(store.object_store, FaultyStore)
    return store.object_store


def values(store: Store, topic: str = "t", isolation_level: str = "read_committed") -> list[bytes]:
    """The values of a topic, in no order that a test may lean on."""
    return sorted(store.scan(topic, isolation_level=isolation_level).to_table()["value"].to_pylist())


def at_last_epoch(store: Store, producer: Producer) -> None:
    """Put a producer that has just been initialised at the last epoch of its id, as 32766 transactions would."""

    def look(state: StoreState, slot: int) -> None:
        transaction = state.transactions[str(producer.transactional_id)]
        state.transactions[transaction.transactional_id] = replace(transaction, producer_epoch=LAST_USABLE_EPOCH)

    store.read(look)
    # So that other processes find it too.
    store.log.checkpoint()
    producer._requests.identity = ProducerIdentity(producer.producer_id, LAST_USABLE_EPOCH)


CALLS: dict[str, Callable[[Producer], Any]] = {
    "init": lambda producer: producer.init_transactions(),
    "begin": lambda producer: producer.begin_transaction(),
    "send": lambda producer: producer.send("t", b"v"),
    "table": lambda producer: producer.send_table("t", pa.table({"value": pa.array([b"v"], pa.binary())})),
    "offsets": lambda producer: producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g"),
    "prepare": lambda producer: producer.prepare_transaction(),
    "complete": lambda producer: producer.complete_transaction(producer.prepared_transaction or ""),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
    "close": lambda producer: producer.close(),
}
"""Calls of a producer, by short names."""
