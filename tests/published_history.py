"""Published topics with a history, for engines that read their versions: each must have exactly these rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import eoslog
from eoslog import OffsetOutOfRange, Store, TopicConfig, TopicPartition
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.entries import TableFormat
from tests.delta_logs import slot_of, versions
from tests.iceberg_tables import iceberg_versions
from tests.unit.support.delta_tables import Row, rows_of_snapshot

COLUMNS = pa.schema([("key", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC"))])


PRODUCERS = ("p1", "p2")


def published_versions(store: Store, table_format: TableFormat = "delta") -> dict[int, list[Row]]:
    """Write, compact, truncate and publish the topic ``t``.

    Return partition, offset and columns of the rows of each version, as the snapshot at its slot had them.
    """
    config = TopicConfig(publish=table_format, segment_batches=2)
    store.admin.create_topic("t", partitions=2, schema=COLUMNS, key="key", config=config)
    found: dict[int, list[Row]] = {}

    def publish() -> None:
        (published,) = store.admin.publish("t")
        assert published.version == len(found) + (table_format == "iceberg")
        found[published.version] = rows_of_snapshot(store, "t", published.slot)

    def write(name: str, *keys: int, end: str = "commit") -> None:
        producer = store.producer(name)
        producer.init_transactions()
        producer.begin_transaction()
        at = pa.array([1_700_000_000_000_000 + key for key in keys], COLUMNS.field("at").type)
        producer.send_table("t", pa.table({"key": keys, "text": [f"{name} {key}" for key in keys], "at": at}))
        producer.flush()
        if end != "none":
            (producer.commit_transaction if end == "commit" else producer.abort_transaction)()

    for number in range(5):
        write("one", *range(10 * number, 10 * number + 8))
        write("two", *range(5), end="abort")
        publish()
    write("open", *range(9), end="none")
    seal_segments(store)
    assert store.admin.compact_files("t").compacted
    publish()
    store.admin.delete_records({TopicPartition("t", 0): 3})
    publish()
    write("one", *range(100, 108))
    publish()
    return found


class History:
    """Writes to a published topic, seals, compacts and publishes it, by chance."""

    def __init__(
        self,
        url: str,
        seed: int,
        cleanup_policy: str = "delete",
        *,
        table_format: TableFormat = "delta",
        iceberg_format_version: int = 2,
        **options: Any,
    ) -> None:
        self.random = random.Random(seed)
        self.store = eoslog.connect(url, **(options or {"fsync": False}))
        self.format = table_format
        config = TopicConfig(
            publish=table_format,
            segment_batches=2,
            cleanup_policy=cleanup_policy,
            iceberg_format_version=iceberg_format_version,
        )
        self.store.admin.create_topic("t", partitions=2, schema=COLUMNS, key="key", config=config)
        self.root = f"{url}/t"
        self.producers = {name: self.store.producer(name) for name in PRODUCERS}
        for producer in self.producers.values():
            producer.init_transactions()
        self.open: set[str] = set()

    def run(self, steps: int, *, removes: bool = True) -> None:
        choices = ["send", "send", "send", "end", "end", "seal", "compact", "publish"]
        for _ in range(steps):
            self.take(self.random.choice([*choices, "delete"] if removes else choices))
        self.store.admin.publish("t")

    def take(self, step: str) -> None:
        store, name = self.store, self.random.choice(PRODUCERS)
        producer = self.producers[name]
        match step:
            case "send":
                if name not in self.open:
                    producer.begin_transaction()
                    self.open.add(name)
                keys = [self.random.randrange(8) for _ in range(self.random.randrange(1, 6))]
                at = pa.array([1_700_000_000_000_000 + key for key in keys], COLUMNS.field("at").type)
                producer.send_table("t", pa.table({"key": keys, "text": [f"{name} {key}" for key in keys], "at": at}))
                producer.flush()
            case "end" if name in self.open:
                self.open.remove(name)
                (producer.commit_transaction if self.random.random() < 0.7 else producer.abort_transaction)()
            case "seal":
                seal_segments(store)
            case "compact":
                store.admin.compact_files("t")
                if store.admin.describe_topic("t").config.is_compacted:
                    store.admin.compact_keys("t")
            case "delete":
                ends = self.random.choice(store.admin.offsets("t"))
                offset = self.random.randint(ends.earliest, ends.last_stable_offset)
                store.admin.delete_records({TopicPartition("t", ends.partition): offset})
            case "publish":
                store.admin.publish("t")

    def snapshots(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield the versions whose snapshot can still be read, with its rows."""
        before = -1
        for version, slot in self._slots():
            if slot == before:
                continue  # This version only lacks rows that were removed since its slot.
            before = slot
            try:
                scan = self.store.scan(
                    "t",
                    isolation_level="snapshot",
                    slot=slot,
                    columns=["_partition", "_offset", *COLUMNS.names],
                )
                yield version, sorted(tuple(row.values()) for row in scan.to_table().to_pylist())
            except OffsetOutOfRange:
                continue

    def _slots(self) -> list[tuple[int, int]]:
        """Return the versions of the table, each with the slot that it shows."""
        objects = self.store.object_store
        if self.format == "iceberg":
            return [(table.version, table.slot) for table in iceberg_versions(objects, "t")]
        return [(version, slot_of(actions)) for version, actions in enumerate(versions(objects, "t"))]
