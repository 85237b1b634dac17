"""Reading planned rows: files are fetched together where they are small, and each is believed only when verified."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eoslog import CorruptRecord, Store
from eoslog.store.environment import Environment
from eoslog.store.memory import MemoryStore
from eoslog.store.object_store import StoredObject


class _Watched(MemoryStore):
    """Notes which data files are asked for together."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.together: list[int] = []

    def get_many(self, paths: Sequence[str]) -> Sequence[StoredObject | None]:
        if paths and paths[0].startswith("t/"):
            self.together.append(len(paths))
        return super().get_many(paths)


@pytest.fixture
def objects(environment: Environment) -> _Watched:
    return _Watched(environment)


@pytest.fixture
def store(objects: _Watched, environment: Environment) -> Store:
    """Twenty files of one row each."""
    store = Store(objects, environment)
    store.admin.create_topic("t")
    producer = store.producer()
    for number in range(20):
        producer.send("t", b"%d" % number)
        producer.flush()
    return store


def test_small_files_are_fetched_together(objects: _Watched, store: Store) -> None:
    rows = store.scan("t").to_table()

    assert rows["value"].to_pylist() == [b"%d" % number for number in range(20)]
    assert objects.together == [16, 4]


def test_the_place_of_rows_is_known_without_their_files(objects: _Watched, store: Store) -> None:
    rows = store.scan("t", columns=["offset", "partition"]).to_table()

    assert rows["offset"].to_pylist() == list(range(20))
    assert objects.together == []


def test_a_damaged_file_is_met_after_the_rows_before_it(objects: _Watched, store: Store) -> None:
    scan = store.scan("t")
    victim = scan.plans[0].slices[3]
    objects.put(victim.path, b"\x00" * victim.length)
    batches = scan.to_batches()

    assert [next(batches).column("value")[0].as_py() for _ in range(3)] == [b"0", b"1", b"2"]
    with pytest.raises(CorruptRecord, match=victim.path):
        next(batches)
