"""The parts of a state: what is written again, and what damage is."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog.errors import CorruptRecord, UnsupportedFormat
from eoslog.format.checkpoint_codec import parts, restore
from eoslog.format.partition_rows import PARTITIONS_PREFIX, PARTITIONS_SCHEMA
from eoslog.session.store_machine import StoreMachine
from eoslog.state.names import PartitionId
from eoslog.state.store_state import StoreState
from tests.unit.state.histories import OTHER_TOPIC_ID, TOPIC_ID, History, topic_created
from tests.unit.state.parts import partitions_part, parts_of


def encoded(history: History) -> dict[str, bytes]:
    return {part.name: part.encode() for part in parts(history.state, history.slot)}


def test_an_empty_state_is_restored() -> None:
    bodies = {part.name: part.encode() for part in parts(StoreState(), 0)}

    assert restore(bodies) == StoreState()


def test_a_topic_that_did_not_change_keeps_its_changed_slot() -> None:
    history = History()
    history.append(lambda draft: draft.append(topic_created("other", OTHER_TOPIC_ID)))
    created = history.slot
    history.send(history.init(None), transactional_id=None)

    with parts_of(3):
        changed = {part.name: part.changed_slot for part in parts(history.state, history.slot)}
        other = partitions_part(history.state, OTHER_TOPIC_ID)

    assert changed.pop(other) == created
    assert set(changed.values()) == {history.slot, created - 1}


def test_a_store_without_topics_has_no_part_of_partitions() -> None:
    history = History()
    history.delete_topic()

    assert not any(name.startswith(PARTITIONS_PREFIX) for name in encoded(history))


@pytest.mark.parametrize("name", encoded(History()))
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise"])
def test_a_damaged_part_is_a_corrupt_record(name: str, damage: str) -> None:
    bodies = encoded(History())
    body = bodies.pop(name)
    if damage != "missing":
        bodies[name] = {"empty": b"", "cut": body[: len(body) // 2], "noise": b"noise" * 9}[damage]

    with pytest.raises(CorruptRecord):
        restore(bodies)


def test_a_state_that_needs_an_unknown_feature_is_of_a_newer_version() -> None:
    bodies = encoded(History())
    bodies["store"] = bodies["store"].replace(b'"reader_features": []', b'"reader_features": ["time-travel"]')

    with pytest.raises(UnsupportedFormat, match="time-travel"):
        StoreMachine().restore(bodies)


def with_batches(body: bytes, schema: Any, batches: Any) -> bytes:
    """A topic's part with what another version holds of its active batches."""
    rows = pq.read_table(io.BytesIO(body)).to_pylist()
    fields = [
        pa.field("active", pa.list_(pa.struct(schema))) if field.name == "active" else field
        for field in PARTITIONS_SCHEMA
    ]
    table = pa.Table.from_pylist([row | {"active": batches(row["active"])} for row in rows], schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def batch_fields() -> list[pa.Field[Any]]:
    return list(PARTITIONS_SCHEMA.field("active").type.value_type)


def test_a_checkpoint_from_before_there_were_statistics_is_restored_without_them() -> None:
    history = History()
    history.send(history.init(None), transactional_id=None)
    bodies = encoded(history)
    fields = [field for field in batch_fields() if field.name != "statistics"]
    name = partitions_part(history.state)

    bodies[name] = with_batches(bodies[name], fields, lambda batches: batches)

    (batch,) = restore(bodies).partitions[PartitionId(TOPIC_ID, 0)].active
    (before,) = history.partition().active
    assert batch == before._replace(statistics=None)


def test_a_field_that_a_later_version_adds_to_a_batch_is_ignored() -> None:
    history = History()
    history.send(history.init(None), transactional_id=None)
    bodies = encoded(history)
    name = partitions_part(history.state)

    bodies[name] = with_batches(
        bodies[name],
        [*batch_fields(), pa.field("mood", pa.string())],
        lambda batches: [batch | {"mood": "good"} for batch in batches],
    )

    assert restore(bodies) == history.state


def test_a_checkpoint_from_before_application_versions_had_their_query_is_read() -> None:
    history = History()
    history.job("run", history.staged(task=0), version=7)
    bodies = encoded(history)
    application_versions = pq.read_table(pa.BufferReader(bodies["application_versions"])).drop_columns(
        ["query_id", "starts_anew_after"]
    )
    sink = pa.BufferOutputStream()
    pq.write_table(application_versions, sink)

    assert (
        restore(bodies | {"application_versions": bytes(sink.getvalue())}).application_versions
        == history.state.application_versions
    )


def test_fields_that_a_later_version_adds_to_a_checkpoint_are_passed_over() -> None:
    history = History()
    identity = history.init()
    history.send(identity, 0, 2)
    history.abort(identity)
    history.send(history.init(None), transactional_id=None)
    bodies = encoded(history)
    later: dict[str, bytes] = {}
    for name, body in bodies.items():
        if name == "store":
            later[name] = json.dumps(json.loads(body) | {"later": 1}).encode()
            continue
        rows = pq.read_table(pa.BufferReader(body)).to_pylist()
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist([with_more(row) for row in rows]), sink)
        later[name] = bytes(sink.getvalue())

    assert restore(later) == history.state


def with_more(value: Any) -> Any:
    """A row with a field more, and so each row within it."""
    if isinstance(value, list):
        return [with_more(each) for each in value]
    if isinstance(value, dict):
        return {name: with_more(each) for name, each in value.items()} | {"later": 1}
    return value
