"""Encoding of a store's state for checkpoints.

Topics, partitions, ids and application versions are Parquet. The rest of the state is JSON.

A checkpoint is a pure function of the state. It contains only live objects. Each field that is read is checked against
its bounds before it is used.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, TypeAdapter, ValidationError

from eoslog.errors import CorruptRecord, InvalidTopic
from eoslog.format.partition_rows import (
    NULLABLE_IN_PARTITIONS,
    PARTITIONS_PREFIX,
    PARTITIONS_SCHEMA,
    fields_of,
    file_row,
    part_name,
    partition_row,
    partitions_from_columns,
    shared_parts,
)
from eoslog.format.stored_columns import (
    LEAST_COMPRESSED_BYTES,
    check_column,
    check_number,
    check_partition,
    columns_of,
    lists,
    objects,
    optional,
    plain,
    stored_batches,
)
from eoslog.state.application_versions import keys_by_query
from eoslog.state.entries import TopicConfig, TopicSchema
from eoslog.state.entry_fields import (
    FileReference,
    Hex,
    Identifier,
    Milliseconds,
    Model,
    Offset,
    PartitionIndex,
    Timestamp,
)
from eoslog.state.group_entries import Address, ClientId, GroupOffsets, Host
from eoslog.state.names import PartitionId, check_topic_name
from eoslog.state.partition_state import NO_TIME, Partition
from eoslog.state.store_state import (
    STATE_VALUES,
    ApplicationVersionKey,
    CommittedOffset,
    Group,
    GroupPartition,
    IdempotentProducer,
    LastCommit,
    LastVersion,
    Member,
    PendingDeletion,
    PendingOffset,
    SchemaVersion,
    StoreState,
    Topic,
    TopicRows,
    Transaction,
    TransactionState,
)
from eoslog.state.transaction_entries import ApplicationVersion, QueryVersion, TransactionPrepared
from eoslog.wording import first_problem, without_code

_Slot = Annotated[int, Field(strict=True, ge=0, lt=2**43)]
_Time = Annotated[int, Field(strict=True, ge=NO_TIME, lt=2**53)]
_Generation = Annotated[int, Field(strict=True, ge=-1)]
_LeaderEpoch = Annotated[int, Field(strict=True, ge=-1, lt=2**31)]
_Version = Annotated[int, Field(strict=True, ge=1, lt=2**53)]
_GROUP_OFFSETS: TypeAdapter[tuple[GroupOffsets, ...]] = TypeAdapter(tuple[GroupOffsets, ...])
_StoredPartitionId = tuple[Hex, PartitionIndex]
_GROUP_OFFSET = tuple[Hex, PartitionIndex, Offset, str, _LeaderEpoch, _Slot, _Time]


class _StoredVersion(Model):
    version: _Version
    slot: _Slot
    time_ms: Milliseconds
    added: tuple[tuple[str, ...], ...]


class _StoredTopic(Model):
    topic: str
    topic_id: Hex
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    topic_schema: TopicSchema
    config: TopicConfig
    created_slot: _Slot
    schema_versions: Annotated[tuple[_StoredVersion, ...], Field(min_length=1)]


class _StoredMember(Model):
    topics: tuple[str, ...]
    group_instance_id: Identifier | None
    assigned: tuple[_StoredPartitionId, ...]
    revoking: tuple[_StoredPartitionId, ...]
    since: tuple[tuple[Hex, PartitionIndex, _Generation], ...]
    client_id: ClientId
    host: Host
    address: Address | None = None


class _StoredGroup(Model):
    group: Identifier
    generation: _Generation
    empty_since_ms: _Time
    members: dict[str, _StoredMember]
    offsets: tuple[_GROUP_OFFSET, ...]
    created_slot: _Slot
    subscribed: dict[str, _Slot]


class _StoredPendingDeletion(Model):
    slot: _Slot
    prefix: Annotated[str, Field(pattern=r"^([a-zA-Z0-9_-][a-zA-Z0-9._-]*/[0-9a-f]{32}/)?$")]
    files: tuple[FileReference, ...]
    indexes: tuple[FileReference, ...]
    oldest_record: _Slot | None = None
    oldest_shared_ms: Timestamp | None = None


class _StoredStore(Model):
    store_id: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]
    reader_features: tuple[str, ...]
    writer_features: tuple[str, ...]
    time_ms: Milliseconds
    horizon_ms: Milliseconds
    max_transaction_timeout_ms: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    pending_deletions: tuple[_StoredPendingDeletion, ...]
    groups: tuple[_StoredGroup, ...]


def _decoded_store(body: bytes) -> StoreState:
    """Decode the ``store`` part to a state without the objects of other parts, such as topics and transactions."""
    try:
        stored = _StoredStore.model_validate_json(body)
    except ValidationError as error:
        raise CorruptRecord(f"a checkpoint's store part is malformed: {first_problem(error)}") from None
    values: dict[str, Any] = {name: getattr(stored, name) for name in STATE_VALUES}
    values["pending_deletions"] = tuple(PendingDeletion(**dict(each)) for each in stored.pending_deletions)
    state = StoreState(**values)
    for group in stored.groups:
        offsets = {PartitionId(*each[:2]): CommittedOffset(*each[2:]) for each in group.offsets}
        members = {member_id: _member(each) for member_id, each in group.members.items()}
        state.groups[group.group] = Group(
            generation=group.generation,
            members=members,
            offsets=offsets,
            empty_since_ms=group.empty_since_ms,
            created_slot=group.created_slot,
            subscribed=group.subscribed,
        )
    return state


def _restore_topics(state: StoreState, rows: pa.RecordBatch) -> None:
    for row in rows.to_pylist():
        topic = _topic(row)
        if topic.topic in state.topic_ids or topic.topic_id in state.topics:
            raise CorruptRecord(f"a checkpoint has two topics of the name {topic.topic} or the id {topic.topic_id}")
        state.topics[topic.topic_id] = topic
        state.topic_ids[topic.topic] = topic.topic_id


def _topic(row: dict[str, Any]) -> Topic:
    try:
        stored = _StoredTopic.model_validate(
            row | {"topic_schema": _topic_schema(row["topic_schema"]), "config": _topic_config(row["config"])}
        )
        check_topic_name(stored.topic)
    except ValidationError as error:
        raise CorruptRecord(f"a topic of a checkpoint is malformed: {first_problem(error)}") from None
    except InvalidTopic as error:
        raise CorruptRecord(f"a checkpoint has an impossible topic: {error}") from None
    versions = tuple(SchemaVersion(**dict(each)) for each in stored.schema_versions)
    return Topic(**dict(stored) | {"schema_versions": versions})


# Topics often have the same schema and settings.
_topic_schema = lru_cache(maxsize=128)(TopicSchema.model_validate_json)
_topic_config = lru_cache(maxsize=128)(TopicConfig.model_validate_json)


def _member(stored: _StoredMember) -> Member:
    places = {
        "assigned": tuple(PartitionId(*partition_id) for partition_id in stored.assigned),
        "revoking": tuple(PartitionId(*partition_id) for partition_id in stored.revoking),
        "since": {PartitionId(topic_id, partition): generation for topic_id, partition, generation in stored.since},
    }
    return Member(**dict(stored) | places)


def _member_row(member: Member) -> dict[str, Any]:
    since = [[*partition_id, generation] for partition_id, generation in member.since.items()]
    return fields_of(member) | {"since": since}


class Part(NamedTuple):
    """A part of a state. It need not be written again while ``changed_slot`` stays the same."""

    name: str
    changed_slot: int
    encode: Callable[[], bytes]


def _schema(fields: Any) -> pa.Schema:
    return pa.schema(fields)


_I64, _I32, _I16, _STR = pa.int64(), pa.int32(), pa.int16(), pa.string()
_LAST_COMMIT: Any = pa.struct(
    [
        ("slot", _I64),
        ("time_ms", _I64),
        ("producer_id", _I64),
        ("producer_epoch", _I16),
        ("application_version", _STR),
        ("offsets", _STR),
        ("rows", pa.list_(pa.struct([("topic_id", _STR), ("rows", _I64)]))),
    ]
)
_ADDED_OFFSETS: Any = pa.list_(
    pa.struct(
        [
            ("group", _STR),
            ("topic_id", _STR),
            ("partition", _I32),
            ("offset", _I64),
            ("metadata", _STR),
            ("leader_epoch", _I32),
            ("slot", _I64),
        ]
    )
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
        ("added_partitions", pa.list_(pa.struct([("topic_id", _STR), ("partition", _I32)]))),
        ("added_offsets", _ADDED_OFFSETS),
        ("last_commit", _LAST_COMMIT),
    ]
)
_TOPICS = _schema(
    [
        ("topic", _STR),
        ("topic_id", _STR),
        ("partitions", _I32),
        ("topic_schema", _STR),
        ("config", _STR),
        ("created_slot", _I64),
        (
            "schema_versions",
            pa.list_(
                pa.struct([("version", _I64), ("slot", _I64), ("time_ms", _I64), ("added", pa.list_(pa.list_(_STR)))])
            ),
        ),
    ]
)
_APPLICATION_VERSIONS = _schema(
    [
        ("transactional_id", _STR),
        ("application_id", _STR),
        ("sink", _STR),
        ("version", _I64),
        ("query_id", _STR),
        ("starts_anew_after", pa.struct([("query_id", _STR), ("version", _I64)])),
        ("rows", _I64),
        ("content", _STR),
        ("invocation", _STR),
    ]
)
_PRODUCERS = _schema([("producer_id", _I64), ("last_update_ms", _I64)])
_NULLABLE_IN_TRANSACTIONS = frozenset(
    {"owner", "prepared", "last_commit", "last_commit.application_version", "last_commit.offsets"}
)
_STATES = {state.value: state for state in TransactionState}
_NULLABLE_IN_APPLICATION_VERSIONS = frozenset(
    {"query_id", "starts_anew_after", "starts_anew_after.query_id", "rows", "content", "invocation"}
)


def parts(state: StoreState, slot: int) -> Iterator[Part]:
    """Yield the parts of the state after ``slot``. A part of partitions has the slot that last changed one of them."""
    yield Part("store", slot, lambda: _encode_store(state))
    yield Part("topics", slot, lambda: _parquet(map(_topic_row, state.topics.values()), _TOPICS))
    yield Part(
        "transactions", slot, lambda: _parquet(map(_transaction_row, state.transactions.values()), _TRANSACTIONS)
    )
    yield Part("producers", slot, lambda: _parquet(map(fields_of, state.producers.values()), _PRODUCERS))
    yield Part(
        "application_versions",
        slot,
        lambda: _parquet(
            (_application_version_row(key, last) for key, last in state.application_versions.items()),
            _APPLICATION_VERSIONS,
        ),
    )
    for partitions in shared_parts(state):
        yield Part(
            part_name(partitions),
            max(partition.changed_slot for partition in partitions),
            lambda partitions=partitions: _parquet(map(partition_row, partitions), PARTITIONS_SCHEMA),  # type: ignore[misc]
        )


def restore(encoded: Mapping[str, bytes]) -> StoreState:
    """Decode the state from its parts.

    Raises:
        CorruptRecord: these are not the parts of a state.
    """
    try:
        with _no_garbage_collection():
            return _restored(encoded)
    except CorruptRecord as error:
        raise CorruptRecord(f"a checkpoint cannot be read: {without_code(error)}") from None
    except Exception as error:
        raise CorruptRecord(f"a checkpoint cannot be read: {type(error).__name__}: {error}") from None


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector.

    A state has many objects, and all of them stay. The collector would traverse them again and again during decoding,
    which takes as long as the decoding itself.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _restored(encoded: Mapping[str, bytes]) -> StoreState:
    state = _decoded_store(encoded["store"])
    for rows in stored_batches(encoded["topics"], _TOPICS, frozenset()):
        _restore_topics(state, rows)
    for rows in stored_batches(encoded["transactions"], _TRANSACTIONS, _NULLABLE_IN_TRANSACTIONS):
        _restore_transactions(state, rows)
    for rows in stored_batches(encoded["producers"], _PRODUCERS, frozenset()):
        check_column(rows, "producer_id", 0)
        state.producers |= {each.producer_id: each for each in objects(IdempotentProducer, rows)}
    for rows in stored_batches(
        encoded["application_versions"], _APPLICATION_VERSIONS, _NULLABLE_IN_APPLICATION_VERSIONS
    ):
        check_column(rows, "version", 0)
        state.application_versions |= zip(
            objects(ApplicationVersionKey, rows),
            objects(LastVersion, rows, starts_anew_after=partial(optional, decode=_query_versions)),
            strict=True,
        )
    state.query_versions = keys_by_query(state.application_versions)
    _restore_partitions(state, [body for name, body in encoded.items() if name.startswith(PARTITIONS_PREFIX)])
    for group_id, group in state.groups.items():
        if not group.offsets.keys() <= state.partitions.keys():
            raise CorruptRecord(f"group {group_id} has an offset of a partition that no topic has")
    return state


def _restore_transactions(state: StoreState, rows: pa.RecordBatch) -> None:
    for name in ("producer_id", "timeout_ms", "task_count", "start_slot", "last_slot"):
        check_column(rows, name)
    for transaction in objects(
        Transaction,
        rows,
        state=lambda column: map(_STATES.__getitem__, plain(column)),
        partitions=lambda column: lists(column, partial(objects, PartitionId), frozenset),
        fenced_owners=partial(lists, collect=tuple),
        prepared=partial(optional, decode=lambda column: map(TransactionPrepared.model_validate_json, plain(column))),
        deleted_offsets=lambda column: lists(column, partial(objects, GroupPartition), frozenset),
        added_partitions=lambda column: lists(column, partial(objects, PartitionId), frozenset),
        added_offsets=lambda column: lists(column, _added_offsets, tuple),
        last_commit=partial(optional, decode=_last_commits),
    ):
        state.transactions[transaction.transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            state.ongoing[transaction.transactional_id] = transaction.start_ms


def _added_offsets(column: Any) -> list[PendingOffset]:
    found = objects(PendingOffset, column)
    for each in found:
        check_number("the slot of a pending offset", each.slot, 0, 2**43)
        # The models of entries check the other fields.
        GroupOffsets(group=each.group, offsets=(each.group_offset,))
    return found


def _last_commits(column: Any) -> list[Any]:
    return objects(
        LastCommit,
        column,
        application_version=partial(
            optional, decode=lambda texts: map(ApplicationVersion.model_validate_json, plain(texts))
        ),
        offsets=lambda texts: [() if text is None else _GROUP_OFFSETS.validate_json(text) for text in plain(texts)],
        rows=lambda rows: lists(rows, partial(objects, TopicRows), tuple),
    )


def _query_versions(column: Any) -> list[QueryVersion]:
    columns = columns_of(column)
    return [
        QueryVersion(query_id=query_id, version=version)
        for query_id, version in zip(plain(columns["query_id"]), plain(columns["version"]), strict=True)
    ]


def _restore_partitions(state: StoreState, bodies: list[bytes]) -> None:
    found: dict[PartitionId, Partition] = {}
    count = 0
    for body in bodies:
        for rows in stored_batches(body, PARTITIONS_SCHEMA, NULLABLE_IN_PARTITIONS):
            for name in ("changed_slot", "snapshot_floor", "removed_end_slot", "created_slot"):
                check_column(rows, name, -1, 2**43)
            check_column(rows, "snapshot_floor_ms", -1, 2**53)
            found |= {partition.id: partition for partition in partitions_from_columns(rows)}
            count += len(rows)
    for topic in state.topics.values():
        for partition_id in topic.partition_ids():
            partition = found.get(partition_id)
            if partition is None:
                raise CorruptRecord(f"topic {topic.topic} lacks one of the partitions 0 to {topic.partitions - 1}")
            check_partition(topic, partition)
            state.partitions[partition_id] = partition
    if count != len(state.partitions):
        raise CorruptRecord("there are more partitions than the topics have")


def _parquet(rows: Any, schema: pa.Schema) -> bytes:
    table = pa.Table.from_pylist(list(rows), schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd" if table.nbytes >= LEAST_COMPRESSED_BYTES else "none",
        # Dictionaries and statistics for a hundred columns cost more time and space than they save.
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    return bytes(sink.getvalue())


def _encode_store(state: StoreState) -> bytes:
    parts = {
        "pending_deletions": [_pending_deletion_row(deletion) for deletion in state.pending_deletions],
        "groups": [_group_row(name, group) for name, group in state.groups.items()],
    }
    return json.dumps({name: getattr(state, name) for name in STATE_VALUES} | parts).encode()


def _group_row(name: str, group: Group) -> dict[str, Any]:
    return fields_of(group) | {
        "group": name,
        "members": {member_id: _member_row(member) for member_id, member in group.members.items()},
        "offsets": [[*partition_id, *offset] for partition_id, offset in group.offsets.items()],
    }


def _topic_row(topic: Topic) -> dict[str, Any]:
    return fields_of(topic) | {
        "topic_schema": topic.topic_schema.model_dump_json(),
        "config": topic.config.model_dump_json(exclude_none=True),
        "schema_versions": [version._asdict() for version in topic.schema_versions],
    }


def _pending_deletion_row(deletion: PendingDeletion) -> dict[str, Any]:
    return deletion._asdict() | {
        "files": [file_row(file) for file in deletion.files],
        "indexes": [file_row(file) for file in deletion.indexes],
    }


def _application_version_row(key: ApplicationVersionKey, last: LastVersion) -> dict[str, Any]:
    after = last.starts_anew_after
    return {
        **key._asdict(),
        **last._asdict(),
        "starts_anew_after": None if after is None else {"query_id": after.query_id, "version": after.version},
    }


def _transaction_row(transaction: Transaction) -> dict[str, Any]:
    return fields_of(transaction) | {
        "state": int(transaction.state),
        "partitions": [partition_id._asdict() for partition_id in sorted(transaction.partitions)],
        "fenced_owners": list(transaction.fenced_owners),
        "prepared": None if transaction.prepared is None else transaction.prepared.model_dump_json(),
        "deleted_offsets": [partition_id._asdict() for partition_id in sorted(transaction.deleted_offsets)],
        "added_partitions": [partition_id._asdict() for partition_id in sorted(transaction.added_partitions)],
        "added_offsets": [offset._asdict() for offset in transaction.added_offsets],
        "last_commit": None if transaction.last_commit is None else _last_commit_row(transaction.last_commit),
    }


def _last_commit_row(commit: LastCommit) -> dict[str, Any]:
    work = commit.application_version
    return commit._asdict() | {
        "application_version": None if work is None else work.model_dump_json(),
        "offsets": _GROUP_OFFSETS.dump_json(commit.offsets).decode() if commit.offsets else None,
        "rows": [rows._asdict() for rows in commit.rows],
    }
