"""Real stores with a bit of everything in them, for verifications to look at."""

from __future__ import annotations

import uuid
from functools import cache

import pyarrow as pa

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.format.file_writer import DataFileWriter, TopicTarget
from eoslog.log.log import Log
from eoslog.log.replica import LogConfig
from eoslog.log.slots import CheckpointReference
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.end_requests import TransactionContent
from eoslog.state.jobs import CommitJob
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import StoreState
from eoslog.state.topics import topic_named
from eoslog.state.transaction_entries import ApplicationVersion, CommitSummary
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.verification.findings import Finding
from tests.requests import Applying

COLUMNS = pa.schema(
    [
        ("name", pa.string()),
        ("miles", pa.int64()),
        ("share", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("is_late", pa.bool_()),
    ]
)

FILES_ARE_OBJECTS = LogConfig(inline_limit_bytes=0, shared_limit_bytes=0)


def small_history(store: Store) -> Store:
    """Two topics with sealed and active segments, aborted and committed transactions, groups, and two checkpoints."""
    store.admin.create_topic("t", config=TopicConfig(segment_batches=3))
    store.admin.create_topic("c", schema=COLUMNS, key="name", config=TopicConfig(segment_batches=3))
    alone, producer = store.producer(), store.producer("etl")
    producer.init_transactions()
    for number, outcome in enumerate("acacca"):
        producer.begin_transaction()
        producer.send("t", b"%d" % number, key=b"k%d" % (number % 2))
        producer.send_table("c", rows(number))
        producer.flush()
        if outcome == "a":
            producer.abort_transaction()
        else:
            producer.send_offsets_to_transaction({TopicPartition("t", 0): number}, "g")
            producer.commit_transaction()
        alone.send("t", b"alone", key=b"a")
        alone.flush()
        if number == 2:
            seal_segments(store)
            store.log.checkpoint()
    producer.begin_transaction()
    producer.send("t", b"last")
    producer.commit_transaction()
    store.log.checkpoint()
    alone.send("t", b"behind the checkpoint")
    alone.flush()
    return store


def copy_of_small_history(store: Store) -> Store:
    """Fill a store with the objects of a small history.

    All stores of a process have the same objects, because it takes long to make them.
    """
    store.object_store.put_many(list(small_objects(store.log.config).items()))
    return store


@cache
def small_objects(config: LogConfig) -> dict[str, bytes]:
    """The objects of a small history that was made with these settings, by path."""
    environment = Environment()
    objects = MemoryStore(environment)
    small_history(Store(objects, environment, config))
    return {info.path: objects.get(info.path).body for info in objects.list("")}


def rows(number: int, count: int = 4) -> pa.Table:
    """Rows of ``COLUMNS``, some of them null."""
    return pa.Table.from_pylist(
        [
            {
                "name": f"n{number}-{each}",
                "miles": number * 100 + each,
                "share": float(each) / 7,
                "price": None,
                "day": None if each == 1 else each,
                "at": number * 1_000_000 + each,
                "is_late": each % 2 == 0,
            }
            for each in range(count)
        ],
        schema=COLUMNS,
    )


def commit_staged(store: Store, topic: str, version: int) -> None:
    """A micro-batch, as Spark's driver commits it: the files of two tasks, in one slot."""
    found = store.read(lambda state, slot: topic_named(state, topic))
    target = store.read(lambda state, slot: TopicTarget.of(state, found))
    upload_ms = store.object_store.clock.last_date_ms
    writers = [DataFileWriter(store.object_store, store.environment.new_id) for _ in range(2)]
    batches = []
    for task, writer in enumerate(writers):
        writer.add(target, 0, rows(version * 10 + task))
        batches += [file.staged(task) for file in writer.flush(upload_ms)]
    application_version = ApplicationVersion(application_id="query", sink=f"{topic}:{found.topic_id}", version=version)
    store.append(
        Applying(
            lambda draft: CommitJob(
                job_id="job",
                owner="owner",
                take_over=True,
                content=TransactionContent(
                    batches=batches,
                    upload_ms=upload_ms,
                    application_version=application_version,
                    task_count=2,
                    summary=CommitSummary(rows=8),
                ),
                time_ms=store.now_ms(),
            ).apply(draft)
        )
    )


def seal(store: Store) -> None:
    Coordinator(store).seal()


def partition(store: Store, topic: str = "t", number: int = 0) -> Partition:
    """The state of a partition, now."""

    def look(state: StoreState, slot: int) -> Partition:
        return state.partitions[topic_named(state, topic).partition_ids()[number]].copy()

    return fresh(store).read(look)


def fresh(store: Store) -> Log[StoreState]:
    """The log as another process opens it."""
    return Log(store.object_store, store.log.machine, store.environment, store.log.config)


def references(store: Store) -> list[CheckpointReference]:
    """The checkpoints that the log names, the newest first."""
    log = fresh(store)
    named = log.read(lambda state, slot: (log.replica.checkpoint, log.replica.previous_checkpoint))
    return [each for each in named if each is not None]


def newest(store: Store) -> int:
    return fresh(store).read(lambda state, slot: slot)


def faults(store: Store, *, data: bool = True, topic: str | None = None) -> list[Finding]:
    """What a verification finds, without what a healthy store may show too."""
    return [each for each in store.admin.verify(topic, data=data) if each.severity.value != "info"]


def name() -> str:
    return uuid.uuid4().hex
