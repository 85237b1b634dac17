"""What is particular to a store in memory."""

from __future__ import annotations

import uuid
from collections import Counter

from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import PutOutcome
from tests.unit.support.world import World


def test_stores_of_one_name_share_their_objects_but_not_their_counts(environment: Environment) -> None:
    name = uuid.uuid4().hex
    one, other = MemoryStore(environment, name), MemoryStore(environment, name)

    one.put("a", b"body")

    assert other.get("a").body == b"body"
    assert other.put_if_absent("a", b"") is PutOutcome.EXISTS
    assert (one.requests, other.requests) == (Counter(PUT=1), Counter(GET=1, PUT=1))


def test_stores_without_a_name_are_private(environment: Environment) -> None:
    one, other = MemoryStore(environment), MemoryStore(environment)

    one.put("a", b"body")

    assert list(other.list("")) == []


def test_the_time_of_a_list_is_that_of_the_store_and_not_of_its_caller(world: World) -> None:
    store = world.process().object_store
    store.put_many([("a", b""), ("b", b"")])

    for _ in store.list(""):
        world.pass_time(10_000)

    assert store.request_times.by_verb()["LIST"].total_ns == 0


def test_its_clock_is_the_one_it_was_given(environment: Environment) -> None:
    now_ms = 1_000
    store = MemoryStore(environment, wall_clock=lambda: now_ms, tail_bytes=100)

    store.put("a", b"")
    now_ms = 5_000
    stored = store.get("a")

    assert stored.last_modified_ms == 1_000
    assert store.clock.last_date_ms == 5_000
    assert store.tail_bytes == 100
