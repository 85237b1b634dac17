"""Producers, sealers and compactors at once, each as a process of its own: no row is lost, none comes back."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

from eoslog import Store, TopicConfig
from eoslog.maintenance.sealing import seal_segments
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import ObjectStore
from tests.unit.maintenance.compacted_log import Row

TRANSACTIONS = 40


def _work_once(store: Store) -> None:
    seal_segments(store)
    store.admin.compact_files()
    store.admin.compact_keys()


def test_compactors_beside_writers_remove_only_rows_with_a_newer_one(tmp_path: Path) -> None:
    def process() -> Store:
        return Store(LocalStore(tmp_path / "store", Environment(), fsync=False), Environment())

    process().admin.create_topic(
        "t", config=TopicConfig(segment_batches=6, cleanup_policy="compact", min_cleanable_dirty_ratio=0.1)
    )
    committed: list[Row] = []
    errors: list[BaseException] = []
    written = threading.Event()

    def write(name: str) -> None:
        producer, chosen = process().producer(name), random.Random(name)
        producer.init_transactions()
        for _ in range(TRANSACTIONS):
            producer.begin_transaction()
            keys = [b"%d" % chosen.randrange(10) for _ in range(chosen.randrange(1, 4))]
            sent = [(key, producer.send("t", name.encode(), key=key)) for key in keys]
            producer.flush()
            if chosen.random() < 0.7:
                producer.commit_transaction()
                committed.extend(Row(future.result().offset, key, name.encode()) for key, future in sent)
            else:
                producer.abort_transaction()

    def work() -> None:
        store = process()
        while not written.is_set():
            _work_once(store)

    def guarded(call: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                call()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    writers = [guarded(lambda name=name: write(name)) for name in ("p1", "p2")]  # type: ignore[misc]
    workers = [guarded(work) for _ in range(3)]
    for thread in writers:
        thread.join()
    written.set()
    for thread in workers:
        thread.join()
    last = process()
    seal_segments(last)
    last.admin.compact_keys("t")

    assert errors == []
    cleaned = last.read(lambda state, slot: next(iter(state.partitions.values())).cleaned_offset)
    newest = {row.key: row for row in sorted(committed) if row.offset < cleaned}
    left = [Row(**row) for row in last.scan("t", columns=["offset", "key", "value"]).to_table().to_pylist()]
    assert left == sorted([*newest.values(), *(row for row in committed if row.offset >= cleaned)])


def test_every_kind_of_store_is_compacted_both_ways(any_store: ObjectStore) -> None:
    store = Store(any_store, Environment())
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2, cleanup_policy="compact"))
    producer = store.producer()
    for number in range(6):
        producer.send("t", b"%d" % number, key=b"%d" % (number % 2))
        producer.flush()
    seal_segments(store)

    merged = store.admin.compact_files("t").compacted
    compacted = store.admin.compact_keys("t").partitions

    assert [(each.segments, each.files_after) for each in merged] == [(3, 1)]
    assert [each.rows_removed for each in compacted] == [4]
    assert store.scan("t", columns=["offset"]).to_table()["offset"].to_pylist() == [4, 5]
