"""The log of one Delta table: its versions, put if absent, and its checkpoints."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.delta.actions import (
    Action,
    AddFile,
    DeltaTable,
    Metadata,
    Protocol,
    SetTransaction,
    damaged,
    decode_action,
    decode_version,
)
from eoslog.delta.delta_versions import DeltaVersion, changed_version, is_described, withdrawn_version
from eoslog.errors import CorruptRecord, EosLogError
from eoslog.format.data_file import DECODING_ERRORS
from eoslog.publication.changes import Change
from eoslog.publication.table_log import TableLog
from eoslog.publication.table_paths import DELTA_LOG
from eoslog.publication.topic_snapshot import TopicSnapshot
from eoslog.storage.conditional_put import Lost, Unknown, put_next
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectInfo, ObjectNotFound, ObjectStore, PutOutcome, StoredObject

_logger = logging.getLogger(__name__)
LOG_RETENTION_MS = 30 * 24 * 3600 * 1000
"""Old versions of a Delta log are kept for this long (ms). It is Delta's default."""
_REOPEN_AFTER_MS = 24 * 3600 * 1000
"""A process reads the log from its checkpoint again after this time (ms), long before versions are deleted."""
CHECKPOINT_VERSIONS = 100
"""A checkpoint is written after this many versions."""

_VERSION = re.compile(r"([0-9]{20})\.json")
_NUMBERED = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
_TEXTS: Any = pa.map_(pa.string(), pa.string())
_LIST: Any = pa.list_(pa.string())
_CHECKPOINT: dict[str, dict[str, Any]] = {
    "txn": {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()},
    "add": {
        "path": pa.string(),
        "partitionValues": _TEXTS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "stats": pa.string(),
        "tags": _TEXTS,
    },
    "remove": {"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()},
    "metaData": {
        "id": pa.string(),
        "name": pa.string(),
        "format": pa.struct([("provider", pa.string()), ("options", _TEXTS)]),
        "schemaString": pa.string(),
        "partitionColumns": _LIST,
        "configuration": _TEXTS,
        "createdTime": pa.int64(),
    },
    "protocol": {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": _LIST,
        "writerFeatures": _LIST,
    },
}
"""The columns of a checkpoint. Its ``remove`` is empty, but some engines expect the column."""
_CHECKPOINT_SCHEMA = pa.schema([(name, pa.struct(list(fields.items()))) for name, fields in _CHECKPOINT.items()])
_NAMES: dict[type[Action], str] = {SetTransaction: "txn", AddFile: "add", Metadata: "metaData", Protocol: "protocol"}


class DeltaLog(TableLog):
    """The log of one Delta table as one process sees it. Only one thread at a time may use it."""

    def __init__(self, store: ObjectStore, environment: Environment, topic: str) -> None:
        """Set up the log of a topic's table, whose root is the directory of the topic."""
        self._store = store
        self._environment = environment
        self.directory = f"{topic}/{DELTA_LOG}/"
        self.table: DeltaTable = DeltaTable()
        self._checkpoint_version = -1
        self._opened_ms = 0
        self._newest: bytes | None = None
        """The digest of the newest known version; None if only its checkpoint was read."""
        self._checked: tuple[int, bytes | None] = (-1, None)
        """The newest version that was compared with the log, and its digest. Later ones may be of another log."""

    def _path(self, version: int, suffix: str = "json") -> str:
        return f"{self.directory}{version:020d}.{suffix}"

    @property
    def _last_checkpoint_path(self) -> str:
        return f"{self.directory}_last_checkpoint"

    def refresh(self, *, check: bool = False) -> DeltaTable:
        if self.table.version < 0 or self._store.clock.now_ms() > self._opened_ms + _REOPEN_AFTER_MS:
            # The version after the newest known one may be gone if this process was paused for long.
            self._open()
            check = False
        known = [self._path(self._checked[0])] if check else []
        *checked, found = self._store.get_many([*known, self._path(self.table.version + 1)])
        # If the version that was compared last is missing or differs, the log was deleted or restored.
        if check and not self._is_checked(checked[0]):
            self._open()
            found = self._next()
        while found is not None:
            self._apply(self.table.version + 1, found.body)
            found = self._next()
        if check:
            self._checked = self.table.version, self._newest
        return self.table

    def _next(self) -> StoredObject | None:
        return self._store.get_many([self._path(self.table.version + 1)])[0]

    def _is_checked(self, found: StoredObject | None) -> bool:
        """Return True if this is the version that was compared before."""
        if found is None:
            return False
        version, digest = self._checked
        if digest is None and self.table.version == version:
            self._newest = _digest(found.body)
        return digest is None or digest == _digest(found.body)

    def _apply(self, version: int, body: bytes) -> None:
        self.table.apply(version, decode_version(body, self._path(version)))
        self._newest = _digest(body)

    def _open(self) -> None:
        """Read the last checkpoint. Then list the log and read all later versions."""
        # After an error the log is opened again: a table that was read in part must not get a next version.
        self.table = DeltaTable()
        table, newest = self._read_checkpoint(), None
        checkpoint_version = table.version
        listed = self._store.list(self.directory, start_after=self._path(table.version + 1, ""))
        names = (_VERSION.fullmatch(info.path[len(self.directory) :]) for info in listed)
        versions = sorted(int(name[1]) for name in names if name is not None)
        # Vacuum deletes only the oldest versions. A gap after the first listed version is therefore damage.
        paths = [self._path(version) for version in versions]
        for version, path, found in zip(versions, paths, self._store.get_many(paths), strict=True):
            if version != table.version + 1 or found is None:
                raise CorruptRecord(
                    f"{self._path(table.version + 1)} is missing from the Delta log. The topic itself is not "
                    "affected. Delete the directory _delta_log and publish the topic again"
                )
            table.apply(version, decode_version(found.body, path))
            newest = _digest(found.body)
        self.table, self._newest, self._checkpoint_version = table, newest, checkpoint_version
        self._checked = table.version, newest
        self._opened_ms = self._store.clock.now_ms()

    def _read_checkpoint(self) -> DeltaTable:
        table = DeltaTable()
        version = _last_checkpoint(self._store, self._last_checkpoint_path)
        if version is None:
            return table
        path = self._path(version, "checkpoint.parquet")
        try:
            body = self._store.get(path).body
        except ObjectNotFound as error:
            raise damaged(self._last_checkpoint_path, error) from None
        try:
            rows = pq.read_table(pa.BufferReader(body))
            found = [
                decode_action(name, {key: value for key, value in fields.items() if value is not None})
                for name in _NAMES.values()
                for fields in rows.column(name).to_pylist(maps_as_pydicts="strict")
                if fields is not None
            ]
        except DECODING_ERRORS as error:
            raise damaged(path, error) from None
        table.apply(version, found)
        return table

    def describes(self, snapshot: TopicSnapshot) -> bool:
        return is_described(snapshot, self.table)

    def unneeded_objects(self, objects: Sequence[ObjectInfo], now_ms: int) -> list[str]:
        # Everything before the newest checkpoint that is old enough. A process that was paused while it wrote a
        # checkpoint may make an older one the place where readers start. Then everything from there on is kept.
        found = [
            (int(name[1]), info) for info in objects if (name := _NUMBERED.fullmatch(info.path.rpartition("/")[2]))
        ]
        old_ms = now_ms - LOG_RETENTION_MS
        old = [version for version, info in found if info.path.endswith(".parquet") and info.last_modified_ms < old_ms]
        if not old:
            return []
        start = _last_checkpoint(self._store, self._last_checkpoint_path)
        first = max(old) if start is None else min(start, max(old))
        return [info.path for version, info in found if version < first]

    def put_change(self, change: Change) -> bool:
        return self._put(changed_version(change, self.table))

    def put_withdrawal(self, store_id: str, time_ms: int) -> bool:
        return self._put(withdrawn_version(store_id, time_ms, self.table))

    def _put(self, version: DeltaVersion) -> bool:
        self._environment.reached("delta.version.planned")
        if not self.put(version.actions, version.body(self._environment.new_id())):
            return False
        self._environment.reached("delta.version.put")
        if self.checkpoint_is_due:
            self._write_due_checkpoint()
        return True

    def _write_due_checkpoint(self) -> None:
        """Write a checkpoint. The version is published in any case, so a failure is only logged."""
        try:
            self.write_checkpoint()
        except EosLogError as error:
            _logger.warning("%s: no checkpoint of %s was written: %s", self._store.url, self.directory, error)
        else:
            self._environment.reached("delta.checkpoint.written")

    def put(self, actions: Sequence[Action], body: bytes) -> bool:
        """Put the next version, as ``put_change`` does.

        Args:
            actions: the actions of the version.
            body: the version's content. No other process puts the same bytes.
        """
        version = self.table.version + 1
        match put_next(self._store, self._environment, self._path(version), body):
            case Lost():
                return False
            case Unknown(error):
                raise error
        self.table.apply(version, actions)
        self._newest = _digest(body)
        self._checked = version, self._newest
        return True

    @property
    def checkpoint_is_due(self) -> bool:
        """True if the newest version needs a checkpoint."""
        return self.table.version >= max(self._checkpoint_version, 0) + CHECKPOINT_VERSIONS

    def write_checkpoint(self) -> None:
        """Write a checkpoint of the newest known version.

        Several processes may write checkpoints in any order. Each checkpoint is complete, and ``_last_checkpoint`` is
        only the place where a reader starts.
        """
        rows: dict[str, list[Any]] = {name: [] for name in _CHECKPOINT_SCHEMA.names}
        actions = self.table.actions()
        for action in actions:
            own = _NAMES[type(action)]
            for name, column in rows.items():
                column.append(action.model_dump(by_alias=True) if name == own else None)
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(rows, schema=_CHECKPOINT_SCHEMA), sink)
        path = self._path(self.table.version, "checkpoint.parquet")
        # If the checkpoint exists, another process has written the same.
        if self._store.put_if_absent(path, bytes(sink.getvalue())) is PutOutcome.CONFLICT:
            # Another process is putting it now, and may fail. A later version gets a checkpoint then.
            return
        last = {"version": self.table.version, "size": len(actions)}
        self._store.put(self._last_checkpoint_path, json.dumps(last).encode())
        self._checkpoint_version = self.table.version


def _last_checkpoint(store: ObjectStore, path: str) -> int | None:
    """Return the version of the checkpoint at which readers start; None if there is none.

    Raises:
        CorruptRecord: the object cannot be read.
    """
    try:
        body = store.get(path).body
    except ObjectNotFound:
        return None
    try:
        version = int(json.loads(body)["version"])
        if not 0 <= version < 2**63:
            raise ValueError(f"there is no version {version}")
        return version
    except DECODING_ERRORS as error:
        raise damaged(path, error) from None


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
