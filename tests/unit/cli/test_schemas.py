"""The JSON Schemas in ``schemas/`` are those of the models, and what a store holds agrees with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

import eoslog
from tests.schemas import write_schemas
from tests.unit.support.transactions import open_transaction

SCHEMAS = Path(__file__).resolve().parents[3] / "schemas"


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a store whose log has entries of most types."""
    root = tmp_path_factory.mktemp("store")
    store = eoslog.connect(str(root), fsync=False)
    store.admin.create_topic("records", partitions=2, config=eoslog.TopicConfig(segment_batches=1))
    store.admin.create_topic("columns", schema=pa.schema([("id", pa.int64())]), key="id")
    with store.producer(transactional_id="etl") as producer:
        producer.init_transactions()
        for ends_in in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send("records", b"value", key=b"key")
            producer.send_table("columns", pa.table({"id": [1, 2]}))
            producer.flush()
            producer.send_offsets_to_transaction({eoslog.TopicPartition("records", 0): 1}, "group")
            ends_in()
    with open_transaction(store, transactional_id="staged", staged=True) as producer:
        producer.send("records", b"value")
        producer.send_offsets_to_transaction({eoslog.TopicPartition("records", 0): 1}, "group")
        producer.complete_transaction(producer.prepare_transaction())
    with store.consumer(group_id="group") as consumer:
        consumer.subscribe("records")
        consumer.poll(timeout=0)
        consumer.commit()
    eoslog.Coordinator(store).run_once()
    store.log.checkpoint()
    store.admin.delete_topic("columns")
    return root


def texts(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*")}


def slot_lines(root: Path) -> list[dict[str, Any]]:
    slots = (root / "__transaction_state" / "slot").rglob("*.json")
    return [json.loads(path.read_bytes().splitlines()[0]) for path in slots]


def test_the_files_are_what_the_models_give_and_no_others(tmp_path: Path) -> None:
    stale = tmp_path / "retired.schema.json"
    stale.write_text("{}")

    written = write_schemas(tmp_path)

    assert sorted(tmp_path.iterdir()) == written
    assert texts(SCHEMAS) == texts(tmp_path), "run `make schemas`"


def test_every_slot_record_agrees_with_its_schema(root: Path) -> None:
    slot_record = validator("slot-record")
    records = slot_lines(root)

    for record in records:
        slot_record.validate(record)

    types = {entry["type"] for record in records for entry in record["entries"]}
    assert types >= {
        "store",
        "topic",
        "init",
        "batch",
        "prepare",
        "end",
        "offsets",
        "group",
        "seal",
        "checkpoint",
        "delete_topic",
    }


def test_the_checkpoint_and_the_description_agree_with_their_schemas(root: Path) -> None:
    (checkpoint,) = (root / "__transaction_state" / "checkpoint").glob("*.json")

    validator("checkpoint-root").validate(json.loads(checkpoint.read_bytes()))
    validator("eoslog-description").validate(json.loads((root / "eoslog.json").read_bytes()))


@pytest.mark.parametrize(
    "spoiled",
    [
        {"slot": -1},
        {"append_id": "no append id"},
        {"entries": [{"type": "unheard_of"}]},
        {"entries": [{"topic": "t", "topic_id": "0" * 32}]},
        {"entries": [{"type": "horizon", "horizon_ms": "soon"}]},
    ],
    ids=str,
)
def test_a_record_that_no_writer_makes_disagrees_with_the_schema(spoiled: dict[str, Any]) -> None:
    record = {"format": 1, "slot": 0, "append_id": "0" * 32, "prev": "", "entries": []} | spoiled

    assert not validator("slot-record").is_valid(record)


def test_every_type_of_entry_and_every_model_is_described() -> None:
    for text in texts(SCHEMAS).values():
        schema = json.loads(text)
        described = [schema, *schema.get("$defs", {}).values()]
        assert [each["title"] for each in described if not each.get("description")] == []
