"""What opening a store costs, and what its checkpoints write: by history, topics and transactional ids.

``python -m benchmarks.opening [slots of history] [topics] [transactional ids]``. Each store is opened right after a
checkpoint. Requests and bytes are exact for any object store. The objects are in memory, so opening costs no more
than the seconds of CPU.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import track
from rich.table import Table

from eoslog import Store, TopicConfig
from eoslog.log.replica import LogConfig
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.draft import Draft
from eoslog.state.end_requests import end_request
from eoslog.state.entries import Entry, TopicCreated, TopicSchema
from eoslog.state.entry_fields import FileReference
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.transaction_entries import BatchAppended
from eoslog.state.transaction_requests import InitProducerId
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import PutOutcome, StoredObject

PARTITIONS = 10
ROUNDS = 5
_AT_ONCE = 100
_NO_CHECKPOINTS = LogConfig(checkpoint_slots=1 << 40)


class CountedStore(MemoryStore):
    """Objects in memory, and how many bytes were read and written."""

    def __init__(self, name: str) -> None:
        super().__init__(Environment(), name)
        self.bytes_read = 0
        self.bytes_written = 0

    def get(self, path: str) -> StoredObject:
        found = super().get(path)
        self.bytes_read += len(found.body)
        return found

    def put(self, path: str, body: bytes) -> None:
        self.bytes_written += len(body)
        super().put(path, body)

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        self.bytes_written += len(body)
        return super().put_if_absent(path, body)


def main(history: int, topics: int, ids: int) -> None:
    table = Table(
        "store",
        "requests",
        "kB read",
        "CPU s",
        "peak MB",
        "kB planned",
        "kB written",
        title="Opening a store; planning a topic (kB read); and the next checkpoint after one transaction (kB written)",
    )
    for name, store in (
        (f"{history:,} transactions", _with_history(history)),
        (f"{topics:,} topics of {PARTITIONS}", _with_topics(topics)),
        (f"{ids:,} ids", _with_ids(ids)),
    ):
        table.add_row(name, *_measured(store))
    Console().print(table)


@dataclass(frozen=True)
class AppendAll:
    """Append entries in one record."""

    entries: Sequence[Entry]

    def apply(self, draft: Draft) -> None:
        for entry in self.entries:
            draft.append(entry)


def _measured(store: Store) -> Sequence[str]:
    name = store.object_store.url.removeprefix("memory://")
    store.log.checkpoint()
    # The record after a checkpoint's entry is the first that names the checkpoint.
    store.append(InitProducerId("etl", timeout_ms=60_000, time_ms=store.now_ms()))
    seconds = []
    for _ in range(ROUNDS):
        objects = CountedStore(name)
        opened = Store(objects, Environment(), _NO_CHECKPOINTS)
        started = time.process_time()
        opened.read(lambda state, slot: None)
        seconds.append(time.process_time() - started)
    requests, read = objects.requests.total(), objects.bytes_read
    opened.scan("t0")
    planned = objects.bytes_read - read
    _transaction(opened, "etl")
    before = objects.bytes_written
    opened.log.checkpoint()
    written = objects.bytes_written - before
    tracemalloc.start()
    Store(CountedStore(name), Environment(), _NO_CHECKPOINTS).read(lambda state, slot: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return [
        f"{requests}",
        f"{read / 1000:,.0f}",
        f"{min(seconds):.3f}",
        f"{peak / 1e6:.1f}",
        f"{planned / 1000:,.0f}",
        f"{written / 1000:,.0f}",
    ]


def _new_store(topics: int = 1, partitions: int = 1, config: TopicConfig | None = None) -> Store:
    store = Store(CountedStore(uuid.uuid4().hex), Environment(), _NO_CHECKPOINTS)
    store.admin.create_topic("t0", partitions=partitions, config=config)
    create_topics(store, topics, partitions)
    return store


def create_topics(store: Store, topics: int, partitions: int) -> None:
    """Create the topics ``t1``, ``t2``, …, and so have ``topics`` of them with ``t0``."""
    for first in range(1, topics, _AT_ONCE):
        created = [
            TopicCreated(
                topic=f"t{number}",
                topic_id=uuid.uuid4().hex,
                partitions=partitions,
                topic_schema=TopicSchema(kind="records"),
                time_ms=store.object_store.clock.now_ms(),
            )
            for number in range(first, min(first + _AT_ONCE, topics))
        ]
        store.append(AppendAll(created))


def _transaction(store: Store, transactional_id: str) -> None:
    with store.producer(transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t0", b"value", partition=0)
        producer.commit_transaction()


def _with_history(slots: int) -> Store:
    store = _new_store()
    with store.producer("benchmark", staged=True) as producer:
        producer.init_transactions()
        for _ in track(range(slots), "history"):
            producer.begin_transaction()
            producer.send("t0", b"value")
            producer.commit_transaction()
    return store


def _with_topics(topics: int) -> Store:
    return _new_store(topics, PARTITIONS)


def _with_ids(ids: int) -> Store:
    """Each id has committed one batch. Their data files are not there: nothing here reads rows."""
    store = _new_store(config=TopicConfig(segment_batches=1000))
    topic_id = store.admin.describe_topic("t0").topic_id
    now_ms = store.object_store.clock.now_ms()
    for first in track(range(0, ids, _AT_ONCE), "transactional ids"):
        names = [f"id-{number}" for number in range(first, min(first + _AT_ONCE, ids))]
        identities = {
            name: store.append(InitProducerId(name, timeout_ms=60_000, time_ms=now_ms)).identity for name in names
        }
        committed = [
            (
                synthetic_batch(name, identity, "t0", topic_id, now_ms),
                end_request(name, identity, "commit", time_ms=now_ms),
            )
            for name, identity in identities.items()
        ]
        store.append(AppendAll([entry for entries in committed for entry in entries]))
    seal_segments(store)
    return store


def synthetic_batch(
    transactional_id: str, identity: ProducerIdentity, topic: str, topic_id: str, now_ms: int, partition: int = 0
) -> BatchAppended:
    """A row of a transaction. Its data file is not there."""
    path = f"{topic}/{topic_id}/{partition}/{0:020d}/{uuid.uuid4().hex}.parquet"
    return BatchAppended(
        topic_id=topic_id,
        partition=partition,
        base_offset=0,
        record_count=1,
        file=FileReference(path=path, length=100, crc32c=7),
        upload_ms=now_ms,
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        min_timestamp=now_ms,
        max_timestamp=now_ms,
        time_ms=now_ms,
    )


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*given, *(1000, 1000, 4000)[len(given) :])
