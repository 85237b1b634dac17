"""The state of a store as bytes and back: small things as JSON, ids, tokens and one part per topic as Parquet.

A checkpoint is a pure function of the state and holds only what is live.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.errors import CorruptRecord
from eoslog.rules.aborted import AbortedTransaction
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.names import PartitionId
from eoslog.rules.state import (
    Batch,
    CommittedOffset,
    Control,
    Doomed,
    Group,
    GroupPartition,
    IdempotentProducer,
    LastCommit,
    Member,
    Partition,
    ProducerState,
    SealedSegment,
    SequenceRange,
    StoreState,
    TokenKey,
    Topic,
    Transaction,
    TransactionState,
    Verdict,
)
from eoslog.rules.topic_entries import TopicConfig, TopicSchema
from eoslog.rules.transaction_entries import TransactionPrepared


class Part(NamedTuple):
    """A piece of a state. It need not be written again while ``changed_slot`` stays the same."""

    name: str
    changed_slot: int
    encode: Callable[[], bytes]


def _schema(fields: Any) -> pa.Schema:
    return pa.schema(fields)


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
_PARTITIONS = _schema(
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
_TRANSACTIONS = _schema(
    [
        ("transactional_id", _STR),
        ("kind", _STR),
        ("producer_id", _I64),
        ("producer_epoch", _I16),
        ("previous_producer_id", _I64),
        ("last_producer_epoch", _I16),
        ("timeout_ms", _I32),
        ("state", _I16),
        ("partitions", pa.list_(pa.struct([("topic_id", _STR), ("partition", _I32)]))),
        ("start_ms", _I64),
        ("last_update_ms", _I64),
        ("start_slot", _I64),
        ("last_slot", _I64),
        ("last_end_reason", _STR),
        ("owner", _STR),
        ("fenced_owners", pa.list_(_STR)),
        ("task_count", _I32),
        ("prepared", _STR),
        ("prepared_slot", _I64),
        ("deleted_offsets", pa.list_(pa.struct([("group", _STR), ("topic_id", _STR), ("partition", _I32)]))),
        ("last_commit", _STR),
    ]
)
_TOKENS = _schema([("transactional_id", _STR), ("application_id", _STR), ("sink", _STR), ("version", _I64)])
_PRODUCERS = _schema([("producer_id", _I64), ("last_update_ms", _I64)])


def parts(state: StoreState, slot: int) -> Iterator[Part]:
    """The pieces of a state after ``slot``; those of topics name the slot that changed them last."""
    yield Part("store", slot, lambda: _encode_store(state))
    yield Part(
        "transactions", slot, lambda: _parquet(map(_transaction_row, state.transactions.values()), _TRANSACTIONS)
    )
    yield Part("producers", slot, lambda: _parquet((_row(each) for each in state.producers.values()), _PRODUCERS))
    yield Part(
        "tokens",
        slot,
        lambda: _parquet(({**key._asdict(), "version": version} for key, version in state.tokens.items()), _TOKENS),
    )
    for topic in state.topics.values():
        partitions = [state.partitions[partition_id] for partition_id in topic.partition_ids()]
        yield Part(
            f"topic/{topic.topic_id}",
            max(partition.changed_slot for partition in partitions),
            lambda partitions=partitions: _parquet(map(_partition_row, partitions), _PARTITIONS),  # type: ignore[misc]
        )


def restore(encoded: Mapping[str, bytes]) -> StoreState:
    """The state whose parts these are.

    Raises:
        CorruptRecord: they are not the parts of a state.
    """
    try:
        state = _decode_store(encoded["store"])
        for row in _rows(encoded["transactions"]):
            transaction = _transaction(row)
            state.transactions[transaction.transactional_id] = transaction
            if transaction.state is TransactionState.ONGOING:
                state.ongoing[transaction.transactional_id] = transaction.start_ms
        for row in _rows(encoded["producers"]):
            state.producers[row["producer_id"]] = IdempotentProducer(**row)
        for row in _rows(encoded["tokens"]):
            version = row.pop("version")
            state.tokens[TokenKey(**row)] = version
        for topic_id in state.topics:
            for row in _rows(encoded[f"topic/{topic_id}"]):
                partition = _partition(topic_id, row)
                state.partitions[partition.id] = partition
    except CorruptRecord:
        raise
    except Exception as error:
        raise CorruptRecord(f"a checkpoint cannot be read: {type(error).__name__}: {error}") from None
    return state


def _parquet(rows: Any, schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink, compression="zstd", store_schema=False)
    return bytes(sink.getvalue())


def _rows(body: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(pa.BufferReader(body)).read(use_threads=False).to_pylist()
    return rows


def _row(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _encode_store(state: StoreState) -> bytes:
    return json.dumps(
        {
            "store_id": state.store_id,
            "reader_features": state.reader_features,
            "writer_features": state.writer_features,
            "time_ms": state.time_ms,
            "horizon_ms": state.horizon_ms,
            "doomed": [_doomed_row(doomed) for doomed in state.doomed],
            "topics": [
                _row(topic) | {"topic_schema": topic.topic_schema.model_dump(), "config": topic.config.model_dump()}
                for topic in state.topics.values()
            ],
            "groups": [
                {
                    "group": name,
                    "generation": group.generation,
                    "empty_since_ms": group.empty_since_ms,
                    "members": {member_id: _row(member) for member_id, member in group.members.items()},
                    "offsets": [[*place, *offset] for place, offset in group.offsets.items()],
                }
                for name, group in state.groups.items()
            ],
        }
    ).encode()


def _decode_store(body: bytes) -> StoreState:
    value = json.loads(body)
    state = StoreState(
        value["store_id"],
        tuple(value["reader_features"]),
        tuple(value["writer_features"]),
        value["time_ms"],
        value["horizon_ms"],
        tuple(_doomed(row) for row in value["doomed"]),
    )
    for row in value["topics"]:
        row["topic_schema"] = TopicSchema.model_validate(row["topic_schema"])
        row["config"] = TopicConfig.model_validate(row["config"])
        topic = Topic(**row)
        state.topics[topic.topic_id] = topic
        state.topic_ids[topic.topic] = topic.topic_id
    for row in value["groups"]:
        offsets = {PartitionId(*each[:2]): CommittedOffset(*each[2:]) for each in row["offsets"]}
        members = {member_id: _member(each) for member_id, each in row["members"].items()}
        state.groups[row["group"]] = Group(row["generation"], members, offsets, row["empty_since_ms"])
    return state


def _member(row: dict[str, Any]) -> Member:
    return Member(
        tuple(row["topics"]),
        row["group_instance_id"],
        tuple(PartitionId(*place) for place in row["assigned"]),
        tuple(PartitionId(*place) for place in row["revoking"]),
    )


def _doomed_row(doomed: Doomed) -> dict[str, Any]:
    return doomed._asdict() | {
        "files": [_file_row(file) for file in doomed.files],
        "indexes": [_file_row(file) for file in doomed.indexes],
    }


def _doomed(row: dict[str, Any]) -> Doomed:
    return Doomed(
        row["slot"],
        row["prefix"],
        tuple(_file(file) for file in row["files"]),
        tuple(_file(file) for file in row["indexes"]),
    )


def _transaction_row(transaction: Transaction) -> dict[str, Any]:
    return _row(transaction) | {
        "state": int(transaction.state),
        "partitions": [place._asdict() for place in sorted(transaction.partitions)],
        "fenced_owners": list(transaction.fenced_owners),
        "prepared": None if transaction.prepared is None else transaction.prepared.model_dump_json(),
        "deleted_offsets": [place._asdict() for place in sorted(transaction.deleted_offsets)],
        "last_commit": None if transaction.last_commit is None else transaction.last_commit.model_dump_json(),
    }


def _transaction(row: dict[str, Any]) -> Transaction:
    row["state"] = TransactionState(row["state"])
    row["partitions"] = frozenset(PartitionId(**place) for place in row["partitions"])
    row["fenced_owners"] = tuple(row["fenced_owners"])
    if row.get("prepared") is not None:
        row["prepared"] = TransactionPrepared.model_validate_json(row["prepared"])
    row["deleted_offsets"] = frozenset(GroupPartition(**place) for place in row.get("deleted_offsets") or ())
    if row.get("last_commit") is not None:
        row["last_commit"] = LastCommit.model_validate_json(row["last_commit"])
    return Transaction(**row)


def _partition_row(partition: Partition) -> dict[str, Any]:
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
            _row(segment) | {name: _file_row(getattr(segment, name)) for name in ("index", "txnindex", "snapshot")}
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


def _partition(topic_id: str, row: dict[str, Any]) -> Partition:
    active = [batch_from_row(each) for each in row["active"]]
    return Partition(
        PartitionId(topic_id, row["partition"]),
        row["log_start_offset"],
        row["next_offset"],
        row["segment_base_offset"],
        tuple(
            SealedSegment(**each | {name: _file(each[name]) for name in ("index", "txnindex", "snapshot")})
            for each in row["sealed"]
        ),
        active,
        sum(batch.file.length for batch in active if batch.file is not None),
        {each["producer_id"]: each["first_offset"] for each in row["open_transactions"]},
        [AbortedTransaction(**each) for each in row["aborted"]],
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
            **each | {"batches": tuple(SequenceRange(**batch) for batch in each["batches"])}
        )
        for each in rows
    }


BATCHES_SCHEMA = pa.schema(list(_BATCH))
"""The columns of batches, in a checkpoint's topic part and in a sealed segment's index."""


def batch_row(batch: Batch) -> dict[str, Any]:
    return batch._asdict() | {
        "file": _file_row(batch.file),
        "control": None if batch.control is None else batch.control.value,
        "verdict": batch.verdict.value,
    }


def batch_from_row(row: dict[str, Any]) -> Batch:
    return Batch(
        **row
        | {
            "file": _file(row["file"]),
            "control": None if row["control"] is None else Control(row["control"]),
            "verdict": Verdict(row["verdict"]),
        }
    )


def _file_row(file: FileReference | None) -> dict[str, Any] | None:
    return None if file is None else {"path": file.path, "length": file.length, "crc32c": file.crc32c}


def _file(row: dict[str, Any] | None) -> Any:
    return None if row is None else FileReference(**row)
