"""Copies while threads write, compact, vacuum and delete slots."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import eoslog
from eoslog import Store, TopicConfig
from eoslog.errors import EosLogError
from eoslog.maintenance.coordinator import Coordinator

COPIES = 1


def test_each_copy_is_a_slot_of_a_store_in_use(tmp_path: Path) -> None:
    url = tmp_path / "store"
    store = eoslog.connect(url, fsync=False)
    for topic in ("a", "b"):
        store.admin.create_topic(topic, partitions=2, config=TopicConfig(segment_batches=2))
    stop = threading.Event()

    def write(name: str) -> None:
        number = 0
        # A copy has the transaction that was open. On a slow machine it is checked more than a minute later.
        with eoslog.connect(url, fsync=False).producer(name, transaction_timeout_ms=900_000) as producer:
            producer.init_transactions()
            while not stop.is_set():
                producer.begin_transaction()
                for topic in ("a", "b"):
                    producer.send(topic, b"%s %d" % (name.encode(), number), key=name.encode())
                producer.commit_transaction()
                number += 1

    def maintain(step: Callable[[Store], object]) -> None:
        own = eoslog.connect(url, fsync=False)
        while not stop.is_set():
            with contextlib.suppress(EosLogError):
                step(own)

    threads = [
        *(threading.Thread(target=write, args=(f"writer {number}",)) for number in range(2)),
        threading.Thread(target=maintain, args=(lambda own: own.admin.compact_files(now=True),)),
        threading.Thread(target=maintain, args=(lambda own: list(Coordinator(own).run_once()),)),
        threading.Thread(
            target=maintain, args=(lambda own: own.admin.vacuum(deleted_file_retention_ms=0, staged_max_age_ms=5_000),)
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        targets = [eoslog.connect(tmp_path / f"copy {number}", fsync=False) for number in range(COPIES)]
        reports = []
        for number, target in enumerate(targets, start=1):
            while sum(each.last_stable_offset for each in store.admin.offsets("a")) < 20 * number:
                stop.wait(0.01)
            reports.append(store.admin.copy(target))
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    for target, report in zip(targets, reports, strict=True):
        assert not [each for each in target.admin.verify(data=True) if each.severity.value != "info"]
        found = []
        for topic in ("a", "b"):
            copied = target.scan(topic, isolation_level="snapshot").to_table()
            assert copied.equals(store.scan(topic, slot=report.slot).to_table())
            found.append(sorted(copied["value"].to_pylist()))
        # Each transaction wrote to both topics.
        assert found[0] == found[1]
        assert found[0]
