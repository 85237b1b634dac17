"""Small commits, one after the other, on local disk."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa

import eoslog
from benchmarks.peers.batch_local import sqlite_catalog
from benchmarks.peers.data import payloads, values
from benchmarks.peers.measurements import Results
from benchmarks.peers.services import Broker, kafka_broker, new_name
from benchmarks.peers.sizes import COMMIT_ROWS, Sizes
from benchmarks.peers.writers import staged_commits

TITLE = "Small commits"
INTRO = """\
One writer commits {commits} times in each round, into a new table or topic. A row is a value of 100 bytes. Kafka's
commit is a transaction of one broker (acks=all, one replica), which answers before its disk does. eoslog waits for
the disk (fsync); `eoslog, fsync=False`, deltalake and pyiceberg do not."""

Commit = Callable[[], object]


def run(results: Results, sizes: Sizes, directory: Path) -> None:
    results.settings |= {"commits": str(sizes.commits)}
    with kafka_broker(directory) as broker:
        for rows in COMMIT_ROWS:
            openers: Mapping[str, Callable[[], Commit]] = {
                "Kafka": partial(_kafka, broker, rows),
                "deltalake": partial(_deltalake, directory, values(rows)),
                "pyiceberg": partial(_pyiceberg, directory, values(rows)),
                "eoslog": partial(_eoslog, directory, values(rows), True),
                "eoslog, fsync=False": partial(_eoslog, directory, values(rows), False),
            }
            works = {system: partial(_commits, opened, sizes.commits) for system, opened in openers.items()}
            results.rounds(f"{rows:,} {'row' if rows == 1 else 'rows'}", works, sizes.rounds, warm=1)


def _commits(opened: Callable[[], Commit], count: int) -> Mapping[str, float]:
    commit = opened()
    commit()
    durations = []
    for _ in range(count):
        began = time.perf_counter()
        commit()
        durations.append((time.perf_counter() - began) * 1000)
    return {"p50 (ms)": statistics.median(durations)}


def _kafka(broker: Broker, rows: int) -> Commit:
    from confluent_kafka import Producer

    topic = new_name("t")
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions()
    records = list(payloads(rows))

    def commit() -> None:
        producer.begin_transaction()
        for record in records:
            producer.produce(topic, record)
        producer.commit_transaction()

    return commit


def _deltalake(directory: Path, rows: pa.Table) -> Commit:
    import deltalake

    path = str(directory / new_name("t"))
    table = deltalake.DeltaTable.create(path, deltalake.Schema.from_arrow(rows.schema))
    return lambda: deltalake.write_deltalake(table, rows, mode="append")


def _pyiceberg(directory: Path, rows: pa.Table) -> Commit:
    table = sqlite_catalog(directory).create_table(f"n.{new_name('t')}", schema=rows.schema)
    return lambda: table.append(rows)


def _eoslog(directory: Path, rows: pa.Table, fsync: bool) -> Commit:
    store = eoslog.connect(directory / new_name("store"), fsync=fsync)
    store.admin.create_topic("t")
    return staged_commits(store, "writer", rows)
