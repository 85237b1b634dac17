"""Partitions, their batches and their sealed segments as rows, in checkpoints and in the indexes of segments."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from eoslog.rules.aborted import AbortedTransaction
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import Batch, Control, Partition, ProducerState, SealedSegment, SequenceRange, Verdict

_I64, _I32, _I16, _STR = pa.int64(), pa.int32(), pa.int16(), pa.string()
_FILE: Any = pa.struct([("path", _STR), ("length", _I64), ("crc32c", _I64)])
_BATCH: Any = pa.struct(
    [
        ("base_offset", _I64),
        ("record_count", _I64),
        ("last_offset_delta", _I64),
        ("file", _FILE),
        ("first_row", _I64),
        ("control", _I16),
        ("slot", _I64),
        ("end_slot", _I64),
        ("end_time_ms", _I64),
        ("verdict", _STR),
        ("transactional_id", _STR),
        ("producer_id", _I64),
        ("producer_epoch", _I16),
        ("base_sequence", _I32),
        ("min_timestamp", _I64),
        ("max_timestamp", _I64),
        ("transactional", pa.bool_()),
        ("delete_horizon_ms", _I64),
        ("statistics", _STR),
    ]
)
_SEALED: Any = pa.struct(
    [
        ("base_offset", _I64),
        ("end_offset", _I64),
        ("batch_count", _I64),
        ("bytes", _I64),
        ("min_timestamp", _I64),
        ("max_timestamp", _I64),
        ("max_end_slot", _I64),
        ("index", _FILE),
        ("txnindex", _FILE),
        ("snapshot", _FILE),
        ("slot", _I64),
        ("file_count", _I64),
    ]
)
_RANGE: Any = pa.struct(
    [
        ("base_sequence", _I32),
        ("last_sequence", _I32),
        ("base_offset", _I64),
        ("last_offset", _I64),
        ("timestamp", _I64),
    ]
)
_PRODUCER: Any = pa.struct(
    [
        ("producer_id", _I64),
        ("producer_epoch", _I16),
        ("batches", pa.list_(_RANGE)),
        ("last_timestamp", _I64),
        ("current_txn_first_offset", _I64),
    ]
)
_ABORTED: Any = pa.struct(
    [("producer_id", _I64), ("first_offset", _I64), ("last_offset", _I64), ("last_stable_offset", _I64)]
)
_OPEN: Any = pa.struct([("producer_id", _I64), ("first_offset", _I64)])

PARTITIONS_SCHEMA: pa.Schema = pa.schema(
    [
        ("partition", _I32),
        ("log_start_offset", _I64),
        ("next_offset", _I64),
        ("segment_base_offset", _I64),
        ("changed_slot", _I64),
        ("snapshot_floor", _I64),
        ("snapshot_floor_ms", _I64),
        ("removed_end_slot", _I64),
        ("cleaned_offset", _I64),
        ("sealed", pa.list_(_SEALED)),
        ("active", pa.list_(_BATCH)),
        ("open_transactions", pa.list_(_OPEN)),
        ("aborted", pa.list_(_ABORTED)),
        ("producers", pa.list_(_PRODUCER)),
        ("start_producers", pa.list_(_PRODUCER)),
    ]
)
"""The columns of partitions, in a checkpoint's part of a topic."""

BATCHES_SCHEMA = pa.schema(list(_BATCH))
"""The columns of batches, in a checkpoint's part of a topic and in a sealed segment's index."""

NULLABLE_IN_BATCHES = frozenset({"file", "control", "transactional_id", "statistics"})
NULLABLE_IN_PARTITIONS = frozenset({"sealed[].txnindex", *(f"active[].{name}" for name in NULLABLE_IN_BATCHES)})


def partition_row(partition: Partition) -> dict[str, Any]:
    return {
        "partition": partition.id.partition,
        "log_start_offset": partition.log_start_offset,
        "next_offset": partition.next_offset,
        "segment_base_offset": partition.segment_base_offset,
        "changed_slot": partition.changed_slot,
        "snapshot_floor": partition.snapshot_floor,
        "snapshot_floor_ms": partition.snapshot_floor_ms,
        "removed_end_slot": partition.removed_end_slot,
        "cleaned_offset": partition.cleaned_offset,
        "sealed": [
            fields_of(segment) | {name: file_row(getattr(segment, name)) for name in ("index", "txnindex", "snapshot")}
            for segment in partition.sealed
        ],
        "active": [batch_row(batch) for batch in partition.active],
        "open_transactions": [
            {"producer_id": producer_id, "first_offset": first}
            for producer_id, first in partition.open_transactions.items()
        ],
        "aborted": [
            {name: getattr(txn, name) for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")}
            for txn in partition.aborted
        ],
        "producers": [_producer_row(producer) for producer in partition.producers.values()],
        "start_producers": [_producer_row(producer) for producer in partition.start_producers.values()],
    }


def partition_from_row(topic_id: str, row: dict[str, Any]) -> Partition:
    active = [batch_from_row(each) for each in row["active"]]
    return Partition(
        PartitionId(topic_id, row["partition"]),
        row["log_start_offset"],
        row["next_offset"],
        row["segment_base_offset"],
        tuple(
            SealedSegment(
                **known_fields(SealedSegment, each)
                | {name: file_from_row(each[name]) for name in ("index", "txnindex", "snapshot")}
            )
            for each in row["sealed"]
        ),
        active,
        sum(batch.file.length for batch in active if batch.file is not None),
        {each["producer_id"]: each["first_offset"] for each in row["open_transactions"]},
        [AbortedTransaction(**known_fields(AbortedTransaction, each)) for each in row["aborted"]],
        _producers(row["producers"]),
        row["changed_slot"],
        row["snapshot_floor"],
        row["snapshot_floor_ms"],
        row["removed_end_slot"],
        row["cleaned_offset"],
        start_producers=_producers(row["start_producers"]),
    )


def _producer_row(producer: ProducerState) -> dict[str, Any]:
    return producer._asdict() | {"batches": [batch._asdict() for batch in producer.batches]}


def _producers(rows: list[dict[str, Any]]) -> dict[int, ProducerState]:
    return {
        each["producer_id"]: ProducerState(
            **known_fields(ProducerState, each)
            | {"batches": tuple(SequenceRange(**known_fields(SequenceRange, batch)) for batch in each["batches"])}
        )
        for each in rows
    }


def batch_row(batch: Batch) -> dict[str, Any]:
    return batch._asdict() | {
        "file": file_row(batch.file),
        "control": None if batch.control is None else batch.control.value,
        "verdict": batch.verdict.value,
    }


def batch_from_row(row: dict[str, Any]) -> Batch:
    return Batch(
        **known_fields(Batch, row)
        | {
            "file": file_from_row(row["file"]),
            "control": None if row["control"] is None else Control(row["control"]),
            "verdict": Verdict(row["verdict"]),
        }
    )


def file_row(file: FileReference | None) -> dict[str, Any] | None:
    return None if file is None else {"path": file.path, "length": file.length, "crc32c": file.crc32c}


def file_from_row(row: dict[str, Any] | None) -> Any:
    return None if row is None else FileReference(**row)


def fields_of(value: Any) -> dict[str, Any]:
    """A dataclass as a row: its fields by name, each as it is."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def known_fields(kind: Any, row: dict[str, Any]) -> dict[str, Any]:
    """What of a row is a field of this kind: a later version may have written more."""
    return {name: row[name] for name in kind.__annotations__ if name in row}
