"""Stores that are copied, and a comparison of a copy with its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.copying.file_copy import files_as_objects
from eoslog.log.replica import LogConfig
from eoslog.maintenance.coordinator import Coordinator
from eoslog.read.isolation import IsolationLevel
from eoslog.state.store_state import StoreState
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import StoredObject
from eoslog.verification.findings import Kind
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import FaultyStore, ManualEnvironment, World
from tests.unit.verification.histories import faults


class Place(World):
    """Another place for a store. Its clock is that of a world."""

    def __init__(self, world: World) -> None:
        self._of = world
        super().__init__()

    @property
    def time_ms(self) -> int:  # type: ignore[override]
        return self._of.time_ms

    @time_ms.setter
    def time_ms(self, time_ms: int) -> None:
        self._of.time_ms = max(time_ms, self._of.time_ms)

    def hooked(self, reached: Callable[[str], None]) -> Store:
        """A process that calls a function at each failpoint."""
        environment = HookedEnvironment(self, reached)
        return Store(FaultyStore(self, environment), environment)


class HookedEnvironment(ManualEnvironment):
    """Calls a function at each failpoint."""

    def __init__(self, world: World, reached: Callable[[str], None]) -> None:
        super().__init__(world)
        self.reached = reached  # type: ignore[method-assign]


def state_of(store: Store) -> tuple[StoreState, int]:
    """The newest state as a new process reads it, and its slot."""
    fresh = Store(store.object_store, store.environment)
    return fresh.read(lambda state, slot: (state.frozen_copy(), slot))


def check_copy(target: Store, state: StoreState, slot: int, source: Store | None = None) -> None:
    """Check that a copy is sound and has this state of this slot, with all data files as objects.

    Args:
        source: the source, if it still has the rows of the slot.
    """
    found, newest = state_of(target)
    state = files_as_objects(state)
    for field in fields(StoreState):
        assert getattr(found, field.name) == getattr(state, field.name), field.name
    assert newest == slot + 3
    assert {each.kind for each in faults(target)} <= {Kind.TRANSACTION_OVERDUE, Kind.GROUP_OFFSET_BEYOND_END}
    if source is None:
        return
    for topic in state.topic_ids:
        expected = source.scan(topic, isolation_level=IsolationLevel.SNAPSHOT, slot=slot).to_table()
        assert target.scan(topic, isolation_level=IsolationLevel.SNAPSHOT).to_table().equals(expected), topic
        at_slot = target.scan(topic, isolation_level=IsolationLevel.SNAPSHOT, slot=slot).to_table()
        assert at_slot.equals(expected), topic


def rewrite_everything(store: Store, world: World) -> None:
    """Write, compact all files, and delete at once what was dropped."""
    world.pass_time(1_000)
    producer = store.producer()
    for number in range(4):
        producer.send("t", b"rewritten %d" % number, key=b"k%d" % number, partition=0)
        producer.flush()
    store.admin.compact_files("t", now=True)
    world.pass_time(1_000)
    # A slot after the drop must be older than the vacuum.
    producer.send("t", b"after", key=b"k", partition=0)
    producer.flush()
    world.pass_time(1_000)
    store.admin.vacuum(staged_max_age_ms=0, deleted_file_retention_ms=0)
    world.pass_time(1_000)


def busy_store(world: World) -> Store:
    """A store with sealed, compacted and active segments, groups, and open and prepared transactions.

    The stores of all tests have the same objects, because it takes long to make them.
    """
    time_ms, objects = _made(LogConfig().inline_limit_bytes)
    world.time_ms = max(world.time_ms, time_ms)
    store = world.process()
    assert isinstance(store.object_store, MemoryStore)
    store.object_store._objects.update(objects)
    store.read(lambda state, slot: slot)
    return store


@cache
def _made(inline_limit_bytes: int) -> tuple[int, dict[str, StoredObject]]:
    """The time after a busy store was made with this setting, and its objects."""
    world = World()
    store = another_busy_store(world)
    assert isinstance(store.object_store, MemoryStore)
    return world.time_ms, store.object_store._objects.copy()


def another_busy_store(world: World) -> Store:
    """A busy store with an identity of its own."""
    store = world.process()
    store.admin.create_topic("t", partitions=2, config=TopicConfig(segment_batches=3))
    store.admin.create_topic("k", config=TopicConfig(segment_batches=2, cleanup_policy="compact"))
    alone, etl = store.producer(), store.producer("etl")
    etl.init_transactions()
    for number, outcome in enumerate("cacacc"):
        etl.begin_transaction()
        etl.send("t", b"%d" % number, key=b"k%d" % (number % 2), partition=number % 2)
        etl.send("k", b"%d" % number, key=b"k%d" % (number % 2))
        etl.flush()
        if outcome == "a":
            etl.abort_transaction()
        else:
            etl.send_offsets_to_transaction({TopicPartition("t", 0): number}, "g")
            etl.commit_transaction()
        alone.send("t", b"alone %d" % number, partition=0)
        alone.flush()
        world.pass_time(10)
    Coordinator(store).seal()
    store.admin.compact_keys("k")
    waiting = open_transaction(store, "waiting", transaction_timeout_ms=60_000)
    waiting.send("t", b"open", partition=1)
    waiting.flush()
    prepared = open_transaction(store, "prepared", staged=True)
    prepared.send("t", b"prepared", partition=0)
    prepared.prepare_transaction()
    return store
