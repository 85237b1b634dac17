"""The examples of ``docs/format.md`` are records that this version reads, and they say what the page says of them."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from eoslog.format.checked_files import crc32c
from eoslog.format.kafka_files import decode_producer_snapshot, decode_transaction_index
from eoslog.gateway.classic_members import subscribed_topics
from eoslog.gateway.handed_over_group import decode_last_heartbeat
from eoslog.gateway.live_gateways import GatewayRecord
from eoslog.log.checkpoint import CheckpointPart
from eoslog.log.slots import CHECKPOINT_ENTRY, CheckpointReference, SlotRecord
from eoslog.session.description import StoreDescription
from eoslog.session.store_machine import StoreMachine
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import AbortedTransaction
from eoslog.state.state_machine import decode_entry, encode_entry
from eoslog.state.store_state import ApplicationVersionKey, LastVersion, StoreState

PAGE = (Path(__file__).resolve().parents[3] / "docs/format.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


EXAMPLES: list[dict[str, Any]] = [json.loads(text) for text in blocks("json")]
RECORDS = sorted((example for example in EXAMPLES if "prev" in example), key=lambda record: int(record["slot"]))


def example_with(key: str) -> dict[str, Any]:
    (found,) = [example for example in EXAMPLES if key in example]
    return found


def assert_understood(written: Any, read: Any, where: str) -> None:
    """Everything that is written was read: no field of an example is unknown."""
    if isinstance(written, dict):
        for key, value in written.items():
            assert key in read, f"{where}: field {key!r} is unknown"
            assert_understood(value, read[key], f"{where}.{key}")
    elif isinstance(written, list):
        assert len(written) == len(read), where
        for index, value in enumerate(written):
            assert_understood(value, read[index], f"{where}[{index}]")
    else:
        assert written == read, where


def entries_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in record["entries"] if entry["type"] != CHECKPOINT_ENTRY]


@pytest.fixture
def folded() -> StoreState:
    machine = StoreMachine()
    state = machine.initial()
    for record in RECORDS:
        assert machine.fold(state, record["slot"], entries_of(record)) is None
    return state


def topic_id() -> str:
    (created,) = [entry for record in RECORDS for entry in entries_of(record) if entry["type"] == "topic"]
    return str(created["topic_id"])


def test_the_records_are_the_slots_of_one_log_from_0_on() -> None:
    assert [record["slot"] for record in RECORDS] == list(range(len(RECORDS)))
    assert [record["prev"] for record in RECORDS] == ["", *(record["append_id"] for record in RECORDS[:-1])]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"slot-{record['slot']}")
def test_every_field_of_a_record_is_one_that_this_version_knows(record: dict[str, Any]) -> None:
    read = SlotRecord.model_validate(record).model_dump(mode="json", exclude_none=True)

    assert_understood(record, read, f"slot {record['slot']}")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"slot-{record['slot']}")
def test_every_field_of_an_entry_is_one_that_this_version_knows(record: dict[str, Any]) -> None:
    for entry in entries_of(record):
        assert_understood(entry, encode_entry(decode_entry(entry)), entry["type"])


def test_every_example_is_a_record_or_one_of_the_four_other_documents() -> None:
    assert len(EXAMPLES) == len(RECORDS) + 4


def test_the_object_of_a_gateway_is_one_that_this_version_knows() -> None:
    example = example_with("address")

    assert_understood(example, GatewayRecord.model_validate(example).model_dump(mode="json"), "gateway")


def test_the_last_heartbeat_of_a_gateway_is_one_that_this_version_knows() -> None:
    example = example_with("generation_in_log")

    read = decode_last_heartbeat(json.dumps(example).encode())

    assert read is not None
    assert_understood(example, read.model_dump(mode="json"), "heartbeat")
    (member,) = read.group.members
    assert subscribed_topics(dict(member.protocols)["range"]) == {"payments"}


def test_the_description_is_one_that_this_version_knows() -> None:
    example = example_with("format_version")

    assert_understood(example, StoreDescription.model_validate(example).model_dump(mode="json"), "eoslog.json")
    assert example["store_id"] == RECORDS[0]["entries"][0]["store_id"]


def test_the_part_of_the_checkpoint_is_what_its_length_and_checksum_say() -> None:
    part = CheckpointPart.model_validate(example_with("body"))

    body = base64.b64decode(part.body or "", validate=True)

    assert (len(body), crc32c(body)) == (part.length, part.crc32c)
    assert [group["offsets"][0][0] for group in json.loads(body)["groups"]] == [topic_id()]


def test_the_checkpoint_is_named_by_the_record_after_its_entry() -> None:
    (entry,) = [each for record in RECORDS for each in record["entries"] if each["type"] == CHECKPOINT_ENTRY]

    reference = CheckpointReference.model_validate(entry["reference"])

    assert RECORDS[-1]["checkpoint"] == reference.model_dump()


def test_folding_the_records_gives_the_offsets_and_states_of_the_page(folded: StoreState) -> None:
    partition = folded.partitions[PartitionId(topic_id(), 0)]

    assert (partition.log_start_offset, partition.last_stable_offset, partition.high_watermark) == (0, 8, 8)
    assert [(segment.base_offset, segment.end_offset) for segment in partition.sealed] == [(0, 4), (4, 7)]
    assert {name: txn.state.name for name, txn in folded.transactions.items()} == {
        "etl-1": "COMPLETE_COMMIT",
        "spark-5c1d0a9be7f24a63": "COMPLETE_COMMIT",
    }
    assert folded.groups["billing"].offsets[PartitionId(topic_id(), 0)].slot == 4
    assert folded.groups["refunds"].offsets[PartitionId(topic_id(), 0)].slot == 12
    assert [member.address for member in folded.groups["refunds"].members.values()] == ["10.0.0.7:9092"]


def test_folding_the_records_gives_the_application_version_of_the_job(folded: StoreState) -> None:
    key = ApplicationVersionKey("spark-5c1d0a9be7f24a63", "spark-5c1d0a9be7f24a63", f"payments:{topic_id()}")

    assert folded.application_versions == {key: LastVersion(17, "3f2b6c1e-8a57-4f0e-9d53-6c0a6f1f7d10")}


def test_the_bytes_of_the_transaction_index_are_what_the_seal_names(folded: StoreState) -> None:
    (text,) = blocks("hex txnindex")
    named = folded.partitions[PartitionId(topic_id(), 0)].sealed[1].txnindex
    body = bytes.fromhex(text)

    assert named is not None
    assert (len(body), crc32c(body)) == (named.length, named.crc32c)
    assert decode_transaction_index(body, "example") == [AbortedTransaction(2097152, 3, 4, 5)]


def test_the_bytes_of_the_producer_snapshot_are_what_the_seal_names(folded: StoreState) -> None:
    (text,) = blocks("hex snapshot")
    named = folded.partitions[PartitionId(topic_id(), 0)].sealed[1].snapshot
    body = bytes.fromhex(text)

    (entry,) = decode_producer_snapshot(body, "example")

    assert (len(body), crc32c(body)) == (named.length, named.crc32c)
    assert (entry.producer_id, entry.last_offset, entry.current_txn_first_offset) == (2097152, 3, 3)
