"""A checkpoint is not believed: what no fold can have made is a corrupt record, also where every checksum is right."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog.errors import CorruptRecord
from eoslog.format.checkpoint_codec import parts, restore
from eoslog.format.partition_rows import PARTITIONS_SCHEMA
from tests.unit.state.histories import TOPIC_ID, History, offsets_of
from tests.unit.state.parts import partitions_part

Row = dict[str, Any]


@pytest.fixture
def bodies() -> dict[str, bytes]:
    history = History()
    for _ in range(2):
        history.send(history.init(None), transactional_id=None)
    return {part.name: part.encode() for part in parts(history.state, history.slot)}


PARTITIONS = partitions_part(History().state)


STORE_LIES: dict[str, tuple[Callable[[Row], object], str]] = {
    "a deletion of the log": (
        lambda store: store["pending_deletions"].append(
            {"slot": 1, "prefix": "__transaction_state/slot/", "files": [], "indexes": []}
        ),
        r"pending_deletions\.0\.prefix",
    ),
    "a deletion of a file outside of the store": (
        lambda store: store["pending_deletions"].append(
            {"slot": 1, "prefix": "", "files": [{"path": "../x", "length": 1, "crc32c": 1}], "indexes": []}
        ),
        r"pending_deletions\.0\.files\.0\.path",
    ),
    "a time that is none": (lambda store: store.update(time_ms="yesterday"), "time_ms"),
    "a horizon beyond all time": (lambda store: store.update(horizon_ms=2**62), "horizon_ms"),
    "a group's offset below zero": (
        lambda store: store["groups"].append(
            {
                "group": "g",
                "generation": 0,
                "empty_since_ms": -1,
                "members": {},
                "offsets": [[TOPIC_ID, 0, -5, "", -1, 0, 0]],
                "created_slot": 0,
                "subscribed": {},
            }
        ),
        r"groups\.0\.offsets\.0\.2",
    ),
    "a group's offset of no partition": (
        lambda store: store["groups"].append(
            {
                "group": "g",
                "generation": 0,
                "empty_since_ms": -1,
                "members": {},
                "offsets": [[TOPIC_ID, 2995, 5, "", -1, 0, 0]],
                "created_slot": 0,
                "subscribed": {},
            }
        ),
        "group g has an offset of a partition that no topic has",
    ),
    "a group created beyond all slots": (
        lambda store: store["groups"].append(
            {
                "group": "g",
                "generation": 0,
                "empty_since_ms": -1,
                "members": {},
                "offsets": [],
                "created_slot": 2**50,
                "subscribed": {},
            }
        ),
        r"groups\.0\.created_slot",
    ),
}

TOPIC_LIES: dict[str, tuple[Callable[[list[Row]], object], str]] = {
    "ten million partitions": (lambda topics: topics[0].update(partitions=10**7), "malformed: partitions"),
    "no partitions": (lambda topics: topics[0].update(partitions=0), "malformed: partitions"),
    "no id": (lambda topics: topics[0].update(topic_id="../x"), "malformed: topic_id"),
    "a topic outside of the store": (lambda topics: topics[0].update(topic=".."), "impossible topic"),
    "a topic in the log's place": (
        lambda topics: topics[0].update(topic="__transaction_state"),
        "impossible topic",
    ),
    "one topic twice": (lambda topics: topics.append(topics[0]), "two topics of the name"),
    "settings that are none": (lambda topics: topics[0].update(config='{"segment_bytes": 0}'), "segment_bytes"),
    "a schema that is none": (lambda topics: topics[0].update(topic_schema="{}"), "kind"),
    "no schema version": (lambda topics: topics[0].update(schema_versions=[]), "malformed: schema_versions"),
}

PARTITION_LIES: dict[str, tuple[Callable[[Row], object], str]] = {
    "an end before the rows": (lambda row: row.update(next_offset=1), "offsets"),
    "an end beyond all offsets": (lambda row: row.update(next_offset=-(2**62)), "the log's end"),
    "a start behind the end": (lambda row: row.update(log_start_offset=2**62), "log_start_offset"),
    "more rows than offsets": (lambda row: row["active"][0].update(record_count=2**62), "has 4611686018427387904 rows"),
    "rows below zero": (lambda row: row["active"][0].update(record_count=-1), "has -1 rows"),
    "batches one over the other": (
        lambda row: row["active"][1].update(base_offset=row["active"][0]["base_offset"]),
        "does not lie within",
    ),
    "a file of another topic": (
        lambda row: row["active"][0]["file"].update(path=f"other/{TOPIC_ID}/0/x.parquet"),
        "lies outside partition",
    ),
    "a file outside of the store": (lambda row: row["active"][0]["file"].update(path="../x"), "path"),
    "a file at an absolute path": (lambda row: row["active"][0]["file"].update(path="/etc/passwd"), "path"),
    "a file in another store": (lambda row: row["active"][0]["file"].update(path="s3://b/x"), "path"),
    "a file named on two lines": (
        lambda row: row["active"][0]["file"].update(path=row["active"][0]["file"]["path"] + "\n"),
        "path",
    ),
    "rows without a file": (lambda row: row["active"][0].update(file=None), "rows without a file"),
    "no slot": (lambda row: row["active"][0].update(slot=None), r"column active\[\]\.slot holds a null"),
    "an open transaction beyond the end": (
        lambda row: row["open_transactions"].append({"producer_id": 1, "first_offset": 2**40}),
        "open transactions",
    ),
    "a change beyond all slots": (lambda row: row.update(changed_slot=2**50), "changed_slot"),
    "a partition of no topic": (lambda row: row.update(topic_id="f" * 32, active=[]), "lacks one of the partitions"),
    "another number": (lambda row: row.update(partition=1, active=[]), "lacks one of the partitions"),
}


PENDING_OFFSET_LIES: dict[str, tuple[Row, str]] = {
    "an offset below zero": ({"offset": -1}, "offset"),
    "a partition below zero": ({"partition": -1}, "partition"),
    "a topic outside of the store": ({"topic_id": "../x"}, "topic_id"),
    "no group": ({"group": ""}, "group"),
    "an epoch below every epoch": ({"leader_epoch": -2}, "leader_epoch"),
    "a slot before the first one": ({"slot": -1}, "slot"),
    "a slot beyond all slots": ({"slot": 2**50}, "slot"),
}


@pytest.mark.parametrize("lie", PENDING_OFFSET_LIES)
def test_a_pending_offset_that_lies_is_refused(lie: str) -> None:
    history = History()
    history.add(history.init(), 0, offsets=(offsets_of("g", 5),))
    bodies = {part.name: part.encode() for part in parts(history.state, history.slot)}
    table = pq.read_table(io.BytesIO(bodies["transactions"]))
    rows = table.to_pylist()
    change, reason = PENDING_OFFSET_LIES[lie]
    rows[0]["added_offsets"][0].update(change)

    with pytest.raises(CorruptRecord, match=reason):
        restore(bodies | {"transactions": parquet(rows, table.schema)})


@pytest.mark.parametrize("lie", STORE_LIES)
def test_a_store_part_that_lies_is_refused(lie: str, bodies: dict[str, bytes]) -> None:
    tell, reason = STORE_LIES[lie]
    store = json.loads(bodies["store"])
    tell(store)

    with pytest.raises(CorruptRecord, match=reason):
        restore(bodies | {"store": json.dumps(store).encode()})


@pytest.mark.parametrize("lie", TOPIC_LIES)
def test_topics_that_lie_are_refused(lie: str, bodies: dict[str, bytes]) -> None:
    tell, reason = TOPIC_LIES[lie]
    table = pq.read_table(io.BytesIO(bodies["topics"]))
    rows = table.to_pylist()
    tell(rows)

    with pytest.raises(CorruptRecord, match=reason):
        restore(bodies | {"topics": parquet(rows, table.schema)})


@pytest.mark.parametrize("lie", PARTITION_LIES)
def test_a_topics_part_that_lies_is_refused(lie: str, bodies: dict[str, bytes]) -> None:
    tell, reason = PARTITION_LIES[lie]
    name = PARTITIONS
    rows = pq.read_table(io.BytesIO(bodies[name])).to_pylist()
    tell(rows[0])

    with pytest.raises(CorruptRecord, match=reason):
        restore(bodies | {name: parquet(rows)})


def test_a_partition_more_than_the_topic_has_is_refused(bodies: dict[str, bytes]) -> None:
    name = PARTITIONS
    rows = pq.read_table(io.BytesIO(bodies[name])).to_pylist()

    with pytest.raises(CorruptRecord, match="more partitions"):
        restore(bodies | {name: parquet([*rows, rows[0] | {"partition": 7, "active": []}])})


def parquet(rows: list[Row], schema: pa.Schema = PARTITIONS_SCHEMA) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return sink.getvalue()


@pytest.mark.parametrize("name", ["-", "_x", "a.b", "Z-9", "0"])
def test_a_deleted_topic_of_any_name_stays_pending_deletion(name: str, bodies: dict[str, bytes]) -> None:
    store = json.loads(bodies["store"])
    store["pending_deletions"].append({"slot": 1, "prefix": f"{name}/{TOPIC_ID}/", "files": [], "indexes": []})

    (deletion,) = restore(bodies | {"store": json.dumps(store).encode()}).pending_deletions

    assert deletion.prefix == f"{name}/{TOPIC_ID}/"
