"""A verification takes no change by another process for a fault, and reports no object that it deleted or named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from eoslog import Store, TopicConfig
from eoslog.log.slots import slot_path
from eoslog.maintenance.sealing import seal_segments
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectInfo, StoredObject
from tests.unit.support.world import ManualEnvironment, World

DAY_MS = 24 * 3600 * 1000


class Interrupted(MemoryStore):
    """Others do something once, before the last page of a LIST of ``prefix`` or before its first."""

    prefix = "none"
    before_the_first = False
    meanwhile: Callable[[], None]

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        is_now = prefix == self.prefix
        if is_now:
            self.prefix = "none any more"
        if is_now and self.before_the_first:
            self.meanwhile()
        found = list(super().list(prefix, start_after=start_after, limit=limit))
        if is_now and not self.before_the_first:
            self.meanwhile()
        yield from found


class HalfRead(MemoryStore):
    """A directory that is read while slots are put may show a slot, and not those that were put before it."""

    unlisted: frozenset[str] = frozenset()

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        listed = super().list(prefix, start_after=start_after, limit=limit)
        return (info for info in listed if info.path not in self.unlisted)


class DeniedOnce(MemoryStore):
    """One answer says of an object that it is not there, though it is."""

    denied: str | None = None

    def get_many(self, paths: Sequence[str]) -> Sequence[StoredObject | None]:
        found = list(super().get_many(paths))
        if self.denied in paths:
            found[list(paths).index(self.denied)] = None
            self.denied = None
        return found


@pytest.fixture
def world() -> World:
    return World()


def verified(
    world: World, prefix: str, meanwhile: Callable[[Store], object], *, before_the_first: bool = False
) -> list[str]:
    """Kinds and problems that a verification tells, during one of whose LISTs another process does something."""
    environment = ManualEnvironment(world)
    interrupted = Interrupted(environment, world.name, wall_clock=lambda: world.time_ms)
    interrupted.prefix, interrupted.before_the_first = prefix, before_the_first
    interrupted.meanwhile = lambda: meanwhile(world.process()) and None
    found = list(Store(interrupted, environment).admin.verify(data=True))
    assert interrupted.prefix == "none any more"
    return [f"{each.kind}: {each.problem}" for each in found]


def send(store: Store, count: int = 3) -> None:
    producer = store.producer()
    for _ in range(count):
        producer.send("t", b"x")
        producer.flush()


def delete_and_vacuum(world: World, store: Store) -> None:
    store.admin.delete_topic("t")
    world.pass_time(2 * DAY_MS)
    store.admin.create_topic("other")
    assert store.admin.vacuum().paths


@pytest.mark.usefixtures("files_are_objects")
def test_a_topic_deleted_and_vacuumed_during_the_listing_leaves_no_files(world: World) -> None:
    store = world.process()
    store.admin.create_topic("t")
    send(store)

    assert verified(world, "", lambda other: delete_and_vacuum(world, other)) == []


@pytest.mark.usefixtures("files_are_objects")
def test_the_rest_of_a_deleted_topic_is_told_as_it_stands(world: World) -> None:
    store = world.process()
    store.admin.create_topic("t")
    send(store)
    (topic,) = store.object_store.list_directories("t/")
    delete_and_vacuum(world, store)
    for name in ("a", "b"):
        store.object_store.put(f"t/{topic}/0/{name}.parquet", b"of a writer that slept")

    [told] = verified(world, "", lambda other: other.object_store.delete([f"t/{topic}/0/a.parquet"]))

    assert told.startswith("files-unreferenced: files that no entry names: 1, 22 bytes")


def test_a_partition_written_and_sealed_during_its_listing_has_no_orphan(
    world: World,
) -> None:
    store = world.process()
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2))
    send(store)
    prefix = store.read(lambda state, slot: next(iter(state.topics.values())).prefix)

    def write_and_seal(other: Store) -> None:
        send(other, 4)
        seal_segments(other)

    assert verified(world, f"{prefix}0/", write_and_seal, before_the_first=True) == []


@pytest.mark.parametrize("passed_over", [[4], [2, 3, 5], list(range(1, 30)), list(range(20, 38))])
def test_slots_left_out_of_a_list_are_not_missing(world: World, passed_over: list[int]) -> None:
    store = world.process()
    store.admin.create_topic("t")
    send(store, 40)
    environment = ManualEnvironment(world)
    half_read = HalfRead(environment, world.name, wall_clock=lambda: world.time_ms)
    half_read.unlisted = frozenset(slot_path(slot) for slot in passed_over)

    assert list(Store(half_read, environment).admin.verify()) == []


def test_a_slot_lost_among_those_left_out_is_missing(world: World) -> None:
    store = world.process()
    store.admin.create_topic("t")
    send(store, 10)
    environment = ManualEnvironment(world)
    half_read = HalfRead(environment, world.name, wall_clock=lambda: world.time_ms)
    half_read.unlisted = frozenset(slot_path(slot) for slot in (4, 6))
    half_read.delete([slot_path(5)])

    found = list(Store(half_read, environment).admin.verify())

    assert [(each.kind, each.slot) for each in found] == [("slot-missing", 5)]


def test_a_listed_slot_is_asked_for_again_before_it_is_missing(world: World) -> None:
    store = world.process()
    store.admin.create_topic("t")
    older = store.log.checkpoint().slot
    send(store)
    store.log.checkpoint()
    send(store, 1)
    environment = ManualEnvironment(world)
    denying = DeniedOnce(environment, world.name, wall_clock=lambda: world.time_ms)
    denying.denied = slot_path(older + 1)

    assert list(Store(denying, environment).admin.verify()) == []
    assert denying.denied is None
