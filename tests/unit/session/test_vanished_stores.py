"""A local store is removed, or replaced by another, under an open client: the client is told, and writes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import eoslog
from eoslog.errors import NotAStore, StoreVanished
from eoslog.producer.producer import Producer
from eoslog.storage.local_store import LocalStore
from eoslog.store import Store
from tests.unit.support.world import values


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return made(tmp_path / "store")


def made(place: Path) -> Store:
    """A store with the topic ``t`` and a row."""
    store = eoslog.connect(place, fsync=False)
    store.admin.create_topic("t")
    with store.producer() as producer:
        producer.send("t", b"v")
    return store


def produce(store: Store, value: bytes) -> None:
    with store.producer() as producer:
        producer.send("t", value)


def opened(store: Store) -> Producer:
    producer = store.producer()
    producer.send("t", b"first")
    producer.flush()
    producer.send("t", b"second")
    return producer


def files(place: str) -> list[str]:
    return sorted(str(path) for path in Path(place).rglob("*") if path.is_file())


def test_a_flush_into_a_removed_directory_fails_and_brings_nothing_back(store: Store) -> None:
    producer = opened(store)
    shutil.rmtree(store.url)

    with pytest.raises(StoreVanished, match="has been removed"):
        producer.flush()

    assert not os.path.exists(store.url)


def test_a_flush_fails_and_leaves_a_replacing_store_unchanged(store: Store) -> None:
    producer = opened(store)
    shutil.rmtree(store.url)
    another = made(Path(store.url))
    before = files(store.url)

    with pytest.raises(StoreVanished, match="has been replaced by another"):
        producer.flush()

    assert files(store.url) == before
    assert values(another) == [b"v"]


def test_a_directory_emptied_and_refilled_is_another_store(store: Store) -> None:
    producer = opened(store)
    for path in Path(store.url).iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    made(Path(store.url))

    with pytest.raises(StoreVanished):
        producer.flush()


def poll(store: Store) -> object:
    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        return consumer.poll(timeout=0)


READS: dict[str, Callable[[Store], object]] = {
    "scan": lambda store: store.scan("t"),
    "poll": poll,
    "offsets": lambda store: store.admin.offsets("t"),
    "commits": lambda store: list(store.commits("t")),
    "list_topics": lambda store: store.admin.list_topics(),
    "create_topic": lambda store: store.admin.create_topic("u"),
}


@pytest.mark.parametrize("read", READS)
def test_reads_and_writes_of_a_removed_store_raise(store: Store, read: str) -> None:
    READS[read](store) if read != "create_topic" else None
    shutil.rmtree(store.url)

    with pytest.raises(StoreVanished):
        READS[read](store)


def test_store_vanished_is_a_not_a_store(store: Store) -> None:
    shutil.rmtree(store.url)

    with pytest.raises(NotAStore):
        store.scan("t")


def test_a_store_that_is_moved_away_and_back_goes_on(store: Store) -> None:
    producer = opened(store)
    os.rename(store.url, f"{store.url}-aside")
    with pytest.raises(StoreVanished):
        store.scan("t")
    os.rename(f"{store.url}-aside", store.url)

    producer.flush()

    assert values(store) == [b"first", b"second", b"v"]


def test_a_store_that_is_restored_from_a_copy_goes_on(store: Store) -> None:
    producer = opened(store)
    shutil.copytree(store.url, f"{store.url}-copy")
    shutil.rmtree(store.url)
    os.rename(f"{store.url}-copy", store.url)

    producer.flush()

    assert values(store) == [b"first", b"second", b"v"]


def test_a_description_that_is_not_a_regular_file_counts_as_gone(store: Store) -> None:
    os.unlink(Path(store.url, "eoslog.json"))
    os.mkfifo(Path(store.url, "eoslog.json"))

    with pytest.raises(StoreVanished):
        store.scan("t")


def test_a_store_set_back_under_an_open_client_is_not_written(store: Store) -> None:
    """A record after those that are missing would make it unreadable."""
    producer = opened(store)
    shutil.copytree(store.url, f"{store.url}-copy")
    for number in range(3):
        produce(store, b"later %d" % number)
    shutil.rmtree(store.url)
    os.rename(f"{store.url}-copy", store.url)

    with pytest.raises(StoreVanished, match="an earlier state"):
        producer.flush()

    assert values(eoslog.connect(store.url)) == [b"first", b"v"]


@pytest.mark.usefixtures("files_are_objects")
def test_a_store_replaced_during_a_temporary_write_is_left_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = opened(store)
    another = made(tmp_path / "another")
    before = files(another.url)
    create = LocalStore._create

    def replaced(self: LocalStore, temporary: str) -> int:
        descriptor = create(self, temporary)
        monkeypatch.undo()
        os.rename(store.url, f"{store.url}-aside")
        os.rename(another.url, store.url)
        return descriptor

    monkeypatch.setattr(LocalStore, "_create", replaced)

    with pytest.raises(StoreVanished):
        producer.flush()

    assert [path.removeprefix(store.url) for path in files(store.url)] == [
        path.removeprefix(another.url) for path in before
    ]


def test_watching_costs_no_request(store: Store) -> None:
    values(store)
    before = store.requests.total()

    store.read(lambda state, slot: None)

    assert store.requests.total() == before + 1
