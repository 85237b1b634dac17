"""The state of a store as bytes and back: small things as JSON, ids, tokens and one part per topic as Parquet.

A checkpoint is a pure function of the state and holds only what is live.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.errors import CorruptRecord, without_code
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_rows import (
    NULLABLE_IN_PARTITIONS,
    PARTITIONS_SCHEMA,
    fields_of,
    file_row,
    known_fields,
    partition_from_row,
    partition_row,
)
from eoslog.rules.state import (
    Doomed,
    GroupPartition,
    IdempotentProducer,
    LastCommit,
    LastVersion,
    StoreState,
    TokenKey,
    Transaction,
    TransactionState,
)
from eoslog.rules.stored_rows import check_number, check_partition, stored_rows
from eoslog.rules.stored_state import decode_store
from eoslog.rules.tokens import remember_version
from eoslog.rules.transaction_entries import QueryVersion, TransactionPrepared


class Part(NamedTuple):
    """A piece of a state. It need not be written again while ``changed_slot`` stays the same."""

    name: str
    changed_slot: int
    encode: Callable[[], bytes]


def _schema(fields: Any) -> pa.Schema:
    return pa.schema(fields)


_I64, _I32, _I16, _STR = pa.int64(), pa.int32(), pa.int16(), pa.string()
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
_TOKENS = _schema(
    [
        ("transactional_id", _STR),
        ("application_id", _STR),
        ("sink", _STR),
        ("version", _I64),
        ("query_id", _STR),
        ("starts_anew_after", pa.struct([("query_id", _STR), ("version", _I64)])),
    ]
)
_PRODUCERS = _schema([("producer_id", _I64), ("last_update_ms", _I64)])
_NULLABLE_IN_TRANSACTIONS = frozenset({"owner", "prepared", "last_commit"})
_NULLABLE_IN_TOKENS = frozenset({"query_id", "starts_anew_after", "starts_anew_after.query_id"})


def parts(state: StoreState, slot: int) -> Iterator[Part]:
    """The pieces of a state after ``slot``; those of topics name the slot that changed them last."""
    yield Part("store", slot, lambda: _encode_store(state))
    yield Part(
        "transactions", slot, lambda: _parquet(map(_transaction_row, state.transactions.values()), _TRANSACTIONS)
    )
    yield Part("producers", slot, lambda: _parquet(map(fields_of, state.producers.values()), _PRODUCERS))
    yield Part(
        "tokens",
        slot,
        lambda: _parquet((_token_row(key, last) for key, last in state.tokens.items()), _TOKENS),
    )
    for topic in state.topics.values():
        partitions = [state.partitions[partition_id] for partition_id in topic.partition_ids()]
        yield Part(
            f"topic/{topic.topic_id}",
            max(partition.changed_slot for partition in partitions),
            lambda partitions=partitions: _parquet(map(partition_row, partitions), PARTITIONS_SCHEMA),  # type: ignore[misc]
        )


def restore(encoded: Mapping[str, bytes]) -> StoreState:
    """The state whose parts these are.

    Raises:
        CorruptRecord: they are not the parts of a state.
    """
    try:
        state = decode_store(encoded["store"])
        for row in _rows(encoded["transactions"], _TRANSACTIONS, _NULLABLE_IN_TRANSACTIONS):
            transaction = _transaction(row)
            state.transactions[transaction.transactional_id] = transaction
            if transaction.state is TransactionState.ONGOING:
                state.ongoing[transaction.transactional_id] = transaction.start_ms
        for row in _rows(encoded["producers"], _PRODUCERS, frozenset()):
            check_number("a producer id", row["producer_id"], 0)
            state.producers[row["producer_id"]] = IdempotentProducer(**known_fields(IdempotentProducer, row))
        for row in _rows(encoded["tokens"], _TOKENS, _NULLABLE_IN_TOKENS):
            check_number("a token's version", row["version"], 0)
            key = TokenKey(row["transactional_id"], row["application_id"], row["sink"])
            after = row.get("starts_anew_after")
            last = LastVersion(row["version"], row.get("query_id"), None if after is None else QueryVersion(**after))
            remember_version(state, key, last)
        for topic in state.topics.values():
            for row in _rows(encoded[f"topic/{topic.topic_id}"], PARTITIONS_SCHEMA, NULLABLE_IN_PARTITIONS):
                partition = partition_from_row(topic.topic_id, row)
                check_partition(topic, partition)
                state.partitions[partition.id] = partition
            if not all(place in state.partitions for place in topic.partition_ids()):
                raise CorruptRecord(f"topic {topic.topic} has not the partitions 0 to {topic.partitions - 1}")
        if len(state.partitions) != sum(topic.partitions for topic in state.topics.values()):
            raise CorruptRecord("a topic has more partitions than it should")
    except CorruptRecord as error:
        raise CorruptRecord(f"a checkpoint cannot be read: {without_code(error)}") from None
    except Exception as error:
        raise CorruptRecord(f"a checkpoint cannot be read: {type(error).__name__}: {error}") from None
    return state


def _parquet(rows: Any, schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink, compression="zstd", store_schema=False)
    return bytes(sink.getvalue())


def _rows(body: bytes, schema: pa.Schema, nullable: frozenset[str]) -> Iterator[dict[str, Any]]:
    for rows in stored_rows(body, schema, nullable):
        yield from rows


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
                fields_of(topic)
                | {"topic_schema": topic.topic_schema.model_dump(), "config": topic.config.model_dump()}
                for topic in state.topics.values()
            ],
            "groups": [
                {
                    "group": name,
                    "generation": group.generation,
                    "empty_since_ms": group.empty_since_ms,
                    "members": {member_id: fields_of(member) for member_id, member in group.members.items()},
                    "offsets": [[*place, *offset] for place, offset in group.offsets.items()],
                }
                for name, group in state.groups.items()
            ],
        }
    ).encode()


def _doomed_row(doomed: Doomed) -> dict[str, Any]:
    return doomed._asdict() | {
        "files": [file_row(file) for file in doomed.files],
        "indexes": [file_row(file) for file in doomed.indexes],
    }


def _token_row(key: TokenKey, last: LastVersion) -> dict[str, Any]:
    after = last.starts_anew_after
    return {
        **key._asdict(),
        **last._asdict(),
        "starts_anew_after": None if after is None else {"query_id": after.query_id, "version": after.version},
    }


def _transaction_row(transaction: Transaction) -> dict[str, Any]:
    return fields_of(transaction) | {
        "state": int(transaction.state),
        "partitions": [place._asdict() for place in sorted(transaction.partitions)],
        "fenced_owners": list(transaction.fenced_owners),
        "prepared": None if transaction.prepared is None else transaction.prepared.model_dump_json(),
        "deleted_offsets": [place._asdict() for place in sorted(transaction.deleted_offsets)],
        "last_commit": None if transaction.last_commit is None else transaction.last_commit.model_dump_json(),
    }


def _transaction(row: dict[str, Any]) -> Transaction:
    for name in ("producer_id", "timeout_ms", "task_count", "start_slot", "last_slot"):
        check_number(f"{name} of transactional id {row['transactional_id']!r}", row[name])
    row["state"] = TransactionState(row["state"])
    row["partitions"] = frozenset(PartitionId(**place) for place in row["partitions"])
    row["fenced_owners"] = tuple(row["fenced_owners"])
    if row.get("prepared") is not None:
        row["prepared"] = TransactionPrepared.model_validate_json(row["prepared"])
    row["deleted_offsets"] = frozenset(GroupPartition(**place) for place in row.get("deleted_offsets") or ())
    if row.get("last_commit") is not None:
        row["last_commit"] = LastCommit.model_validate_json(row["last_commit"])
    return Transaction(**known_fields(Transaction, row))
