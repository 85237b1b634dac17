"""Random histories of a published topic: each version of its tables is the snapshot at one slot."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from eoslog import ConcurrentTransactions, OffsetOutOfRange, Store, TopicConfig, TopicPartition
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.key_compaction import compact_keys
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from eoslog.producer.producer import Producer
from tests.delta_logs import check_versions, rows_by_stream, slot_of, versions
from tests.depth import examples
from tests.iceberg_tables import check_iceberg_versions, iceberg_versions, newest_version
from tests.unit.support.delta_tables import copy_to, rows_by_delta, rows_of_snapshot
from tests.unit.support.overwriting import overwrite
from tests.unit.support.world import World

PARTITIONS = 2
PRODUCERS = ("p1", "p2", "p3")
COLUMNS = pa.schema([("key", pa.int64()), ("text", pa.string())])
KEYS = st.lists(st.integers(0, 5), min_size=1, max_size=5)
steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(PRODUCERS), KEYS),
    st.tuples(st.just("send"), st.sampled_from(PRODUCERS), KEYS),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    st.tuples(st.sampled_from(["seal", "compact files", "compact keys", "publish", "publish", "add a column"])),
    st.tuples(st.just("delete"), st.integers(0, PARTITIONS - 1), st.floats(0, 1)),
    st.tuples(st.just("overwrite"), st.integers(0, PARTITIONS - 1), st.one_of(st.just([]), KEYS)),
    st.tuples(st.just("publish later"), st.booleans()),
)


rounds = st.tuples(
    st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.sampled_from(PRODUCERS), KEYS),
            st.tuples(st.just("write"), st.sampled_from(PRODUCERS), KEYS),
            st.tuples(st.just("delete"), st.integers(0, PARTITIONS - 1), st.floats(0, 1)),
            st.tuples(st.just("overwrite"), st.integers(0, PARTITIONS - 1), st.one_of(st.just([]), KEYS)),
            st.tuples(st.sampled_from(["seal", "compact files", "compact keys", "add a column"])),
        ),
        min_size=1,
        max_size=4,
    ),
    st.just([("publish",)]),
).map(lambda parts: [*parts[0], *parts[1]])
"""Changes of a topic, and a publication of all of them."""


class History:
    """A topic, its writers, and the snapshots that its table should show."""

    def __init__(self, config: TopicConfig) -> None:
        self.world = World()
        self.store = self.world.process()
        self.store.admin.create_topic("t", partitions=PARTITIONS, schema=COLUMNS, key="key", config=config)
        self.producers: dict[str, Producer] = {}
        self.open: set[str] = set()
        self.shown: dict[int, list[Any]] = {}
        """The rows that each version of the Delta table should have."""
        self.shown_by_iceberg: dict[int, list[Any]] = {}
        """The rows that each version of the Iceberg table should have."""
        self.overwrites: set[int] = set()
        """The slots that replaced all rows by others."""
        self.has_mixed_files = False
        """Whether files with rows of the table were compacted while the topic was not published."""

    def process(self) -> Store:
        return self.world.process()

    def take(self, step: tuple[Any, ...]) -> None:
        store = self.store
        match step:
            case ("send", name, keys):
                producer = self.producers.get(name)
                if producer is None:
                    producer = self.producers[name] = store.producer(name)
                    producer.init_transactions()
                if name not in self.open:
                    producer.begin_transaction()
                    self.open.add(name)
                rows = pa.table({"key": keys, "text": [f"{name} {key}" for key in keys]}, schema=COLUMNS)
                producer.send_table("t", rows)
                producer.flush()
            case ("write", name, keys):
                self.take(("send", name, keys))
                self.take(("end", name, True))
            case ("end", name, commits) if name in self.open:
                producer = self.producers[name]
                (producer.commit_transaction if commits else producer.abort_transaction)()
                self.open.remove(name)
            case ("seal",):
                seal_segments(store)
            case ("compact files" | "compact keys" as step,):
                is_published = store.admin.describe_topic("t").config.is_published
                self.has_mixed_files |= bool(self.shown) and not is_published
                if step == "compact files":
                    compact_files(store)
                else:
                    compact_keys(store, force=True)
            case ("overwrite", partition, keys):
                columns = {"key": keys, "text": [f"overwritten {key}" for key in keys]}
                names = store.scan("t").schema.names[2:]
                rows = pa.table(columns, schema=COLUMNS)
                for name in names:
                    rows = rows.append_column(name, pa.nulls(len(keys), pa.int32()))
                with suppress(ConcurrentTransactions):
                    slot = overwrite(store, "t", rows, partition)
                    if keys:
                        self.overwrites.add(slot)
            case ("add a column",):
                names = store.scan("t").schema.names
                store.admin.add_columns("t", pa.schema([(f"more{len(names)}", pa.int32())]))
            case ("delete", partition, fraction):
                end = store.admin.offsets("t")[partition]
                offset = end.earliest + int(fraction * (end.last_stable_offset - end.earliest))
                store.admin.delete_records({TopicPartition("t", partition): offset})
            case ("publish",):
                self.publish(self.process())
            case ("publish later", is_published):
                store.admin.alter_topic("t", publish="delta,iceberg" if is_published else "none")

    def publish(self, store: Store) -> None:
        if not store.admin.describe_topic("t").config.is_published:
            return
        delta, iceberg = store.admin.publish("t")
        rows = rows_of_snapshot(store, "t", self.store.read(lambda state, slot: slot))
        assert self.shown.setdefault(delta.version, rows) == rows
        assert self.shown_by_iceberg.setdefault(iceberg.version, rows) == rows

    def check(self) -> None:
        objects = self.store.object_store
        slots = [slot_of(actions) for actions in versions(objects, "t")]
        assert slots == sorted(slots)
        with tempfile.TemporaryDirectory() as directory:
            root = copy_to(Path(directory), objects, "t")
            for version, rows in self.shown.items():
                assert version == 0 or slots[version] > slots[version - 1]
                names = len(rows[0]) if rows else 0
                assert [row[:names] for row in rows_by_delta(root, version)] == rows
                try:
                    now = rows_of_snapshot(self.store, "t", slots[version])
                except OffsetOutOfRange:
                    continue  # Rows of this snapshot were removed since.
                assert [row[:names] for row in now] == rows
        if not self.has_mixed_files:
            check_versions(objects, "t", overwrites=self.overwrites)
            check_iceberg_versions(objects, "t", overwrites=self.overwrites)
        for table in iceberg_versions(objects, "t"):
            if table.version in self.shown_by_iceberg:
                rows = self.shown_by_iceberg[table.version]
                assert table.rows("key") == [row[:3] for row in rows]
                assert table.rows("text") == [(*row[:2], row[3]) for row in rows]
        taken = rows_by_stream(objects, "t")
        if taken is not None and self.shown:
            assert taken == [row[:2] for row in self.shown[max(self.shown)]]


configs = st.builds(
    TopicConfig,
    publish=st.sampled_from(["delta,iceberg", "delta,iceberg", "none"]),
    segment_batches=st.sampled_from([1, 2, 5]),
    cleanup_policy=st.sampled_from(["delete", "delete", "compact,delete"]),
)


@examples(25)
@given(configs, st.lists(steps, max_size=40))
def test_each_version_shows_the_snapshot_at_its_slot(config: TopicConfig, history: list[tuple[Any, ...]]) -> None:
    topic = History(config)
    for step in history:
        topic.take(step)
    topic.take(("publish later", True))
    topic.publish(topic.process())
    topic.check()


@examples(10)
@given(configs, st.lists(rounds, min_size=2, max_size=8))
def test_a_stream_that_skips_removals_gets_each_row_of_the_other_versions_once(
    config: TopicConfig, history: list[list[tuple[Any, ...]]]
) -> None:
    topic = History(config.model_copy(update={"publish": "delta,iceberg"}))
    for step in chain.from_iterable(history):
        topic.take(step)
    topic.check()


@examples(8)
@given(configs, st.lists(steps, max_size=40))
def test_the_newest_version_outlives_vacuum(config: TopicConfig, history: list[tuple[Any, ...]]) -> None:
    topic = History(config)
    for step in history:
        topic.take(step)
        vacuum(topic.store, deleted_file_retention_ms=0)

        if topic.shown:
            with tempfile.TemporaryDirectory() as directory:
                rows_by_delta(copy_to(Path(directory), topic.store.object_store, "t"))
            assert newest_version(topic.store.object_store, "t").has_all_files
