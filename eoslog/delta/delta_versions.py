"""The next version of a Delta table: the actions of a change, and of a table whose topic is not published."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eoslog.delta.actions import (
    BASE_OFFSET_COLUMN,
    END_OFFSET_TAG,
    Action,
    AddFile,
    DeltaTable,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    encode_version,
)
from eoslog.delta.delta_schema import delta_schema, has_local_timestamps
from eoslog.delta.delta_statistics import columns_with_bounds, encode_statistics
from eoslog.format.topic_schemas import stored_schema
from eoslog.publication.changes import Change
from eoslog.publication.published_file import PublishedFile
from eoslog.publication.table_paths import DELTA_PARTITION_COLUMN
from eoslog.publication.topic_snapshot import TopicSnapshot, table_id, writer_of
from eoslog.state.partition_state import NO_SLOT

_FEATURES = ["appendOnly", "invariants", "eoslog"]
"""The table's writer features. ``appendOnly`` is for the table property, ``invariants`` for columns without nulls. Only
eoslog supports ``eoslog``, so other writers refuse the table. All readers may read it.
"""

_APPEND_ONLY = "delta.appendOnly"
_PUBLISH = "eoslog.publish"
"""The table property that is ``none`` if the topic is not published any more, and vacuum needs to delete files."""

_COLUMNS_WITH_BOUNDS = "delta.dataSkippingStatsColumns"
"""The table property that lists the columns with bounds. Some readers skip a file without a bound of a listed column.
If a table lacks the property, they expect bounds of the first 32 columns.
"""

_NEVER = "interval 36500 days"
"""Delta's VACUUM deletes old files that the Delta log does not name. Such files may belong to open transactions."""

_MOST_COMMITS = 100
_OPERATIONS = {"append": "WRITE", "delete": "DELETE", "replace": "OPTIMIZE", "describe": "SET TBLPROPERTIES"}


@dataclass(frozen=True, slots=True)
class DeltaVersion:
    """The next version of a table."""

    actions: Sequence[Action]
    commit_info: Mapping[str, Any]

    def body(self, txn_id: str) -> bytes:
        """Return the content of the version.

        Args:
            txn_id: a random name of the version, by which its publisher recognizes it. Two publishers may put equal
                actions.
        """
        return encode_version(self.actions, {**self.commit_info, "txnId": txn_id})


def changed_version(change: Change, table: DeltaTable) -> DeltaVersion:
    """Return the version that makes a change of a table."""
    snapshot, time_ms = change.snapshot, change.snapshot.time_ms
    becomes_empty = not change.added and len(change.removed) == len(table.files)
    columns = _listed_columns(snapshot, table, is_empty=becomes_empty)
    actions = [
        *_changed_heads(snapshot, table, columns),
        *(_removed(table.files[path], time_ms, data_change=path not in change.moved) for path in change.removed),
        *(_added(file, change, columns) for file in change.added),
        SetTransaction(app_id=snapshot.store_id, version=change.slot, last_updated=time_ms),
    ]
    commits = _commits(snapshot, change.new_files)
    return DeltaVersion(actions, _commit_info(time_ms, change.slot, _OPERATIONS[change.operation], commits))


def withdrawn_version(store_id: str, time_ms: int, table: DeltaTable) -> DeltaVersion:
    """Return the next version of a table whose topic is not published (``TableLog.put_withdrawal``)."""
    metadata = table.metadata
    if metadata is not None and metadata.configuration.get(_PUBLISH) != "none":
        properties = metadata.configuration | {_APPEND_ONLY: "false", _PUBLISH: "none"}
        operation = "SET TBLPROPERTIES"
        changes: list[Action] = [metadata.model_copy(update={"configuration": properties})]
    else:
        operation = "DELETE"
        changes = [_removed(file, time_ms, data_change=True) for file in table.files.values()]
    # The table shows the slot of the version before, less the removed rows.
    last = table.published(store_id)
    slot = NO_SLOT if last is None else last.slot
    return DeltaVersion([*changes, *table.transactions.values()], _commit_info(time_ms, slot, operation, []))


def is_described(snapshot: TopicSnapshot, table: DeltaTable) -> bool:
    """Return True if a table has the protocol and the metadata that it should have."""
    return not _changed_heads(snapshot, table, _listed_columns(snapshot, table, is_empty=not table.files))


def _changed_heads(snapshot: TopicSnapshot, table: DeltaTable, columns: Iterable[str]) -> list[Action]:
    """Return the protocol and the metadata that a table should have, as far as its own differ."""
    protocol, metadata = _protocol(snapshot), _metadata(snapshot, columns)
    heads: list[Action] = [protocol] if protocol != table.protocol else []
    return heads if metadata == table.metadata else [*heads, metadata]


def _listed_columns(snapshot: TopicSnapshot, table: DeltaTable, *, is_empty: bool) -> list[str]:
    """Return the columns for which all files of a table can have bounds.

    Existing files have no bounds of columns that were added later. So a column may be removed from the list at any
    time, but it is added only if the table has no files.

    Args:
        is_empty: True if the version with this list has no files.
    """
    topic = snapshot.topic
    found = columns_with_bounds(stored_schema(topic), topic.config.statistics_columns, has_records=snapshot.has_records)
    if is_empty or not table.files or table.metadata is None or not table.is_of(topic):
        return found
    listed = table.metadata.configuration.get(_COLUMNS_WITH_BOUNDS, "").split(",")
    return [name for name in found if _quoted(name) in listed]


def _quoted(name: str) -> str:
    """Return the name of a column as Delta parses it in a list. Names of a table have no comma."""
    return f"`{name.replace('`', '``')}`"


def _protocol(snapshot: TopicSnapshot) -> Protocol:
    if has_local_timestamps(stored_schema(snapshot.topic)):
        return Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=["timestampNtz"],
            writer_features=[*_FEATURES, "timestampNtz"],
        )
    return Protocol(min_reader_version=1, min_writer_version=7, writer_features=_FEATURES)


def _metadata(snapshot: TopicSnapshot, columns: Iterable[str]) -> Metadata:
    topic = snapshot.topic
    return Metadata(
        id=table_id(topic),
        name=topic.topic,
        schema_string=delta_schema(topic.topic, stored_schema(topic)),
        configuration={
            _APPEND_ONLY: "true" if snapshot.only_grows else "false",
            _COLUMNS_WITH_BOUNDS: ",".join(map(_quoted, columns)),
            "delta.deletedFileRetentionDuration": _NEVER,
        },
        created_time=topic.schema_versions[0].time_ms,
    )


def _added(file: PublishedFile, change: Change, columns: Collection[str]) -> AddFile:
    return AddFile(
        path=file.path,
        partition_values={
            DELTA_PARTITION_COLUMN: str(file.range.partition),
            BASE_OFFSET_COLUMN: str(file.range.base_offset),
        },
        size=file.size,
        modification_time=max(0, file.end_time_ms),
        data_change=file.path not in change.moved,
        stats=encode_statistics(file.statistics, stored_schema(change.snapshot.topic), columns),
        tags={END_OFFSET_TAG: str(file.range.end_offset)},
    )


def _removed(file: AddFile, time_ms: int, *, data_change: bool) -> RemoveFile:
    return RemoveFile(
        path=file.path,
        deletion_timestamp=time_ms,
        data_change=data_change,
        partition_values=file.partition_values,
        size=file.size,
    )


def _commit_info(time_ms: int, slot: int, operation: str, commits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "timestamp": time_ms,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": "eoslog",
        "slot": slot,
        "commits": list(commits),
    }


def _commits(snapshot: TopicSnapshot, files: Iterable[PublishedFile]) -> list[dict[str, Any]]:
    """Return the commits that wrote these files, at most the newest 100."""
    found = sorted({(file.end_slot, writer_of(file.transactional_id)) for file in files})[-_MOST_COMMITS:]
    described = []
    for slot, writer in found:
        commit: dict[str, Any] = {"slot": slot}
        if writer:
            commit["transactionalId"] = writer
        last = snapshot.last_commits.get(writer)
        if last is not None and last.slot == slot and last.application_version is not None:
            commit["applicationId"] = last.application_version.application_id
            commit["applicationVersion"] = last.application_version.version
        described.append(commit)
    return described
