"""A published topic with a history, for engines that read its versions: each must have exactly these rows."""

from __future__ import annotations

import pyarrow as pa

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.maintenance.sealing import seal_segments
from tests.unit.support.delta_tables import Row, rows_of_snapshot

COLUMNS = pa.schema([("key", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC"))])


def published_versions(store: Store) -> dict[int, list[Row]]:
    """Write, compact, truncate and publish the topic ``t``.

    Return partition, offset and columns of the rows of each version, as the snapshot at its slot had them.
    """
    config = TopicConfig(publish="delta", segment_batches=2)
    store.admin.create_topic("t", partitions=2, schema=COLUMNS, key="key", config=config)
    found: dict[int, list[Row]] = {}

    def publish() -> None:
        (published,) = store.admin.publish("t")
        assert published.version == len(found)
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
