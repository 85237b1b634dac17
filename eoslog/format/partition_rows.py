"""Rows of partitions, batches and sealed segments, for checkpoints and segment indexes.

A checkpoint divides the partitions into parts, so that a later checkpoint shares the parts that did not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa

from eoslog.format.stored_columns import Decode, columns_of, each_of, lists, objects, optional, plain
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import (
    AbortedTransaction,
    Batch,
    Control,
    Outcome,
    Partition,
    ProducerState,
    SealedSegment,
    SequenceRange,
    SkippedRows,
)
from eoslog.state.store_state import StoreState

ROWS_OF_A_PART = 8192
"""The largest number of rows (partitions, batches, segments and producers) of a part. One partition may exceed it."""

PARTITIONS_PREFIX = "partitions/"
"""The names of parts with partitions begin with it."""

_I64, _I32, _I16, _STR = pa.int64(), pa.int32(), pa.int16(), pa.string()
_FILE: Any = pa.struct([("path", _STR), ("length", _I64), ("crc32c", _I64)])
_SHARED: Any = pa.struct([("path", _STR), ("position", _I64)])
_DATA_FILE: Any = pa.struct([*_FILE, ("footer_crc32c", _I64), ("in_record", pa.bool_()), ("shared", _SHARED)])
_BATCH: Any = pa.struct(
    [
        ("base_offset", _I64),
        ("record_count", _I64),
        ("last_offset_delta", _I64),
        ("file", _DATA_FILE),
        ("first_row", _I64),
        ("control", _I16),
        ("slot", _I64),
        ("end_slot", _I64),
        ("end_time_ms", _I64),
        ("outcome", _STR),
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
_SKIPPED: Any = pa.struct([("base_offset", _I64), ("end_offset", _I64), ("rows", _I64), ("slot", _I64)])
_OPEN: Any = pa.struct([("producer_id", _I64), ("first_offset", _I64)])

PARTITIONS_SCHEMA: pa.Schema = pa.schema(
    [  # type: ignore[arg-type]
        ("topic_id", _STR),
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
        ("created_slot", _I64),
        ("skipped", pa.list_(_SKIPPED)),
    ]
)
"""The columns of partitions in a checkpoint."""

BATCHES_SCHEMA = pa.schema(list(_BATCH))
"""The columns of batches in a checkpoint's partitions and in a segment index."""

_CONTROLS = {None: None} | {control.value: control for control in Control}
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
NULLABLE_IN_BATCHES = frozenset(
    {"file", "file.footer_crc32c", "file.in_record", "file.shared", "control", "transactional_id", "statistics"}
)
NULLABLE_IN_PARTITIONS = frozenset({"sealed[].txnindex", *(f"active[].{name}" for name in NULLABLE_IN_BATCHES)})


def partition_row(partition: Partition) -> dict[str, Any]:
    """Return the row of a partition. It has more fields than there are columns."""
    return (
        fields_of(partition)
        | partition.id._asdict()
        | {
            "sealed": [
                fields_of(segment)
                | {name: file_row(getattr(segment, name)) for name in ("index", "txnindex", "snapshot")}
                for segment in partition.sealed
            ],
            "active": [batch_row(batch) for batch in partition.active],
            "open_transactions": [
                {"producer_id": producer_id, "first_offset": first}
                for producer_id, first in partition.open_transactions.items()
            ],
            "aborted": [fields_of(transaction) for transaction in partition.aborted],
            "producers": [_producer_row(producer) for producer in partition.producers.values()],
            "start_producers": [_producer_row(producer) for producer in partition.start_producers.values()],
            "skipped": [rows._asdict() for rows in partition.skipped],
        }
    )


def partitions_from_columns(rows: pa.RecordBatch) -> list[Partition]:
    """Decode partitions from rows of a checkpoint's part."""
    columns = columns_of(rows)
    values: dict[str, Any] = {name: _DECODERS.get(name, plain)(columns[name]) for name in PARTITIONS_SCHEMA.names}
    values["id"] = map(PartitionId, values["topic_id"], values["partition"])
    values["active_bytes"] = [
        sum(batch.file.length for batch in active if batch.file is not None) for active in values["active"]
    ]
    return list(each_of(Partition, **values))


class _OpenTransaction(NamedTuple):
    producer_id: int
    first_offset: int


def _producer_row(producer: ProducerState) -> dict[str, Any]:
    return producer._asdict() | {"batches": [batch._asdict() for batch in producer.batches]}


def _producers(rows: Any) -> list[Any]:
    return objects(ProducerState, rows, batches=lambda column: lists(column, partial(objects, SequenceRange), tuple))


def _by_id(producers: list[ProducerState]) -> dict[int, ProducerState]:
    return {producer.producer_id: producer for producer in producers}


def _sealed(rows: Any) -> list[Any]:
    return objects(
        SealedSegment,
        rows,
        index=files_from_column,
        txnindex=lambda column: optional(column, files_from_column),
        snapshot=files_from_column,
    )


_DECODERS: dict[str, Decode] = {
    "sealed": lambda column: lists(column, _sealed, tuple),
    "active": lambda column: lists(column, batches_from_columns),
    "open_transactions": lambda column: map(dict, lists(column, partial(objects, _OpenTransaction))),
    "aborted": lambda column: lists(column, partial(objects, AbortedTransaction)),
    "producers": lambda column: lists(column, _producers, _by_id),
    "start_producers": lambda column: lists(column, _producers, _by_id),
    "skipped": lambda column: lists(column, partial(objects, SkippedRows), tuple),
}
"""The decoders of columns that hold lists."""


def batch_row(batch: Batch) -> dict[str, Any]:
    return batch._asdict() | {
        "file": file_row(batch.file),
        "control": None if batch.control is None else batch.control.value,
        "outcome": batch.outcome.value,
    }


def batches_from_columns(rows: Any) -> list[Batch]:
    """Decode batches from rows of a segment index, or from an array of structs."""
    return objects(
        Batch,
        rows,
        file=lambda column: optional(column, files_from_column),
        control=lambda column: map(_CONTROLS.__getitem__, plain(column)),
        outcome=lambda column: map(_OUTCOMES.__getitem__, plain(column)),
    )


def file_row(file: FileReference | None) -> dict[str, Any] | None:
    return None if file is None else file.model_dump()


def files_from_column(column: Any) -> list[FileReference]:
    """Decode file references from an array of structs without nulls."""
    if not len(column):
        return []
    columns = columns_of(column)
    names = [name for name in FileReference.model_fields if name in columns]
    rows = zip(*(plain(columns[name]) for name in names), strict=True)
    return [FileReference(**dict(zip(names, row, strict=True))) for row in rows]


def fields_of(value: Any) -> dict[str, Any]:
    """Return a dataclass as a row: its field values by name, without conversion."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def shared_parts(state: StoreState) -> Iterator[Sequence[Partition]]:
    """Yield the partitions of each part. A topic with more rows than the limit has parts of its own."""
    together: list[Partition] = []
    for topic in state.topics.values():
        partitions = [state.partitions[partition_id] for partition_id in topic.partition_ids()]
        if sum(map(_rows, partitions)) > ROWS_OF_A_PART:
            yield from _divided(partitions, lambda partition: partition.id.partition)
        else:
            together += partitions
    # Topic ids are random, so their bits divide the partitions evenly.
    yield from _divided(together, lambda partition: int(partition.id.topic_id, 16))


def part_name(partitions: Iterable[Partition]) -> str:
    """Return the name of the part with exactly these partitions.

    If the name and the changed slot equal those of an earlier checkpoint, so does the content. A removed partition
    changes the name, and an added partition changes both.
    """
    names = ",".join(f"{partition.id.topic_id}-{partition.id.partition}" for partition in partitions)
    return f"{PARTITIONS_PREFIX}{sha256(names.encode()).hexdigest()[:32]}"


def _rows(partition: Partition) -> int:
    return (
        1
        + len(partition.sealed)
        + len(partition.active)
        + len(partition.aborted)
        + len(partition.producers)
        + len(partition.start_producers)
        + len(partition.skipped)
    )


def _divided(partitions: list[Partition], number: Callable[[Partition], int]) -> Iterator[Sequence[Partition]]:
    """Divide the partitions by the bits of their numbers, lowest bit first, until each part is small enough."""
    undivided = [(0, [(number(each), _rows(each), each) for each in partitions])] if partitions else []
    while undivided:
        bit, part = undivided.pop()
        if part[0][0] == part[-1][0] or sum(rows for _, rows, _ in part) <= ROWS_OF_A_PART:
            yield [partition for _, _, partition in part]
            continue
        halves = [[each for each in part if each[0] >> bit & 1 == half] for half in (1, 0)]
        undivided += [(bit + 1, half) for half in halves if half]
