"""Stores that break S3's promises: which of them are refused when a store is made, and what the others cost.

The probe sees only whether put-if-absent holds. A store whose lists or whose 404s are stale passes it. Stale lists are
harmless but for the first read, which is as old as the list: from any slot on, reads find the tail. A stale 404 hides
what others wrote, so that reads are old and appends are refused; but nothing is lost and nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eoslog.errors import EosLogError, PutIfAbsentUnsupported
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectInfo, ObjectNotFound, PutOutcome, StoredObject
from eoslog.store import Store


class WithoutConditions(MemoryStore):
    """Ignores If-None-Match, as many stores do."""

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        self.put(path, body)
        return PutOutcome.CREATED


class StaleLists(MemoryStore):
    """Once ``freeze`` was called, lists show what was there then."""

    frozen: list[ObjectInfo] | None = None

    def freeze(self) -> None:
        self.frozen = list(super().list(""))

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        if self.frozen is None:
            yield from super().list(prefix, start_after=start_after, limit=limit)
        else:
            found = [info for info in self.frozen if info.path.startswith(prefix) and info.path > start_after]
            yield from found[:limit]


class StaleMisses(MemoryStore):
    """Where nothing was found, nothing is found again until ``expire`` is called."""

    def __init__(self, environment: Environment, name: str) -> None:
        super().__init__(environment, name)
        self.missed: set[str] = set()

    def get(self, path: str) -> StoredObject:
        if path in self.missed:
            raise ObjectNotFound(path)
        try:
            return super().get(path)
        except ObjectNotFound:
            self.missed.add(path)
            raise

    def expire(self) -> None:
        self.missed.clear()


def topics_of(store: Store) -> set[str]:
    return store.read(lambda state, slot: set(state.topic_ids))


def opened(objects: MemoryStore) -> Store:
    return Store(objects, objects.clock._environment)


def test_a_store_without_conditional_puts_is_refused_when_a_store_is_made() -> None:
    with pytest.raises(PutIfAbsentUnsupported):
        opened(WithoutConditions(Environment())).create()


def test_after_a_stale_list_only_the_first_read_is_old(
    request: pytest.FixtureRequest,
) -> None:
    name = request.node.name
    writer = opened(StaleLists(Environment(), name))
    writer.create()
    behind = StaleLists(Environment(), name)
    behind.freeze()
    writer.admin.create_topic("a")
    reader = opened(behind)

    assert topics_of(reader) == set()
    assert topics_of(reader) == {"a"}

    reader.admin.create_topic("b")

    assert topics_of(writer) == {"a", "b"}


def test_behind_a_stale_404_reads_are_old_and_appends_refused(
    request: pytest.FixtureRequest,
) -> None:
    name = request.node.name
    writer = opened(MemoryStore(Environment(), name))
    writer.create()
    stale = StaleMisses(Environment(), name)
    behind = opened(stale)
    assert topics_of(behind) == set()
    assert topics_of(behind) == set()
    writer.admin.create_topic("a")

    assert topics_of(behind) == set()
    with pytest.raises(EosLogError):
        behind.admin.create_topic("b")
    assert topics_of(writer) == {"a"}

    stale.expire()
    behind.admin.create_topic("b")

    assert topics_of(writer) == {"a", "b"}
    assert topics_of(behind) == {"a", "b"}
