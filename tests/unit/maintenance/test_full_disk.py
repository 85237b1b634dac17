"""A full disk: writers get an error of its own, and what may be deleted is deleted without a byte of space."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import eoslog
from eoslog import StorageFull
from eoslog.storage import local_store
from eoslog.storage.local_files import write_fully


class Disk:
    """A disk with a largest number of bytes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.capacity = 1 << 40

    def used(self) -> int:
        return sum(path.stat().st_size for path in self._root.rglob("*") if path.is_file())

    def fill(self) -> None:
        """Leave no space."""
        self.capacity = self.used()

    def write(self, descriptor: int, body: bytes) -> None:
        if self.used() + len(body) > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_fully(descriptor, body)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(tmp_path)
    monkeypatch.setattr(local_store, "write_fully", disk.write)
    return disk


@pytest.fixture
def store(disk: Disk, tmp_path: Path) -> eoslog.Store:
    store = eoslog.connect(tmp_path / "store")
    store.admin.create_topic("t")
    send(store)
    return store


def send(store: eoslog.Store, length: int = 100_000) -> None:
    with store.producer() as producer:
        producer.send("t", os.urandom(length))


def values(store: eoslog.Store) -> list[int]:
    return [len(value) for value in store.scan("t").to_table().column("value").to_pylist()]


def drop_rows(store: eoslog.Store) -> None:
    store.admin.delete_records({eoslog.TopicPartition("t", 0): 1})


@pytest.mark.parametrize(
    "write",
    [send, lambda store: store.admin.create_topic("u"), lambda store: store.log.checkpoint()],
    ids=["send", "create_topic", "checkpoint"],
)
def test_a_write_to_a_full_disk_says_so_and_succeeds_when_there_is_space(
    store: eoslog.Store, disk: Disk, write: Callable[[eoslog.Store], object]
) -> None:
    disk.fill()
    with pytest.raises(StorageFull, match=r"\[EOSLOG_STORAGE_FULL\] .*no space for '.*No space left on device"):
        write(store)
    assert values(store) == [100_000]
    disk.capacity += 1_000_000
    write(store)
    assert list(store.admin.verify(data=True)) == []


def test_a_vacuum_of_a_full_disk_deletes_dropped_files_and_makes_space(store: eoslog.Store, disk: Disk) -> None:
    drop_rows(store)
    disk.fill()

    report = store.admin.vacuum(deleted_file_retention_ms=0)

    assert len(report.paths) == 1
    assert disk.used() < disk.capacity - 90_000
    send(store, 50_000)
    assert values(store) == [50_000]
    assert store.admin.vacuum(deleted_file_retention_ms=0).paths == []
    assert list(store.admin.verify(data=True)) == []


def test_a_vacuum_of_a_full_disk_that_may_delete_nothing_fails(store: eoslog.Store, disk: Disk) -> None:
    drop_rows(store)
    disk.fill()

    with pytest.raises(StorageFull) as full:
        store.admin.vacuum()
    assert "no file that it may delete" in full.value.__notes__[0]
    assert disk.used() == disk.capacity
