"""The actions of a Delta log, and the table that they describe.

Names, types and meanings are those of Delta's transaction log protocol. Only the actions that a published topic needs
are here. A log is read as untrusted input.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from eoslog.errors import CorruptRecord
from eoslog.format.data_file import DECODING_ERRORS
from eoslog.publication.published_file import FileRange
from eoslog.publication.table_paths import DELTA_PARTITION_COLUMN
from eoslog.publication.topic_snapshot import table_id
from eoslog.session.metrics import Published
from eoslog.state.store_state import Topic

BASE_OFFSET_COLUMN = "_base_offset"
PARTITION_COLUMNS = (DELTA_PARTITION_COLUMN, BASE_OFFSET_COLUMN)
"""The partition columns of a published topic: the number of the topic-partition, and the offset from which the file's
stored offset deltas count."""

END_OFFSET_TAG = "eoslog.endOffset"
"""The tag of a file that has the offset after its last row. A publisher finds rewritten files by the offsets."""

Number = Annotated[int, Field(ge=0, lt=2**63)]


class Action(BaseModel):
    """One action. Its fields have Delta's names in the log, such as ``partitionValues``."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, strict=True)


class AddFile(Action):
    """A file belongs to the table from this version on."""

    path: str
    """The path relative to the table's root."""
    partition_values: dict[str, str | None]
    size: Number
    """The size of the file in bytes."""
    modification_time: Number
    """When the file was written (ms since the epoch)."""
    data_change: bool
    """False if the version only moves rows that the table has already. A Delta stream then skips the file."""
    stats: str | None = None
    """The file's statistics as JSON."""
    tags: dict[str, str] | None = None
    """Values of the program that wrote the version."""


class RemoveFile(Action):
    """A file no longer belongs to the table from this version on."""

    path: str
    deletion_timestamp: Number
    """When the file was removed (ms since the epoch)."""
    data_change: bool
    extended_file_metadata: bool = True
    partition_values: dict[str, str | None]
    size: Number


class Format(Action):
    """The format of the table's files."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Metadata(Action):
    """The table's schema, partition columns and properties."""

    id: str
    name: str
    format: Format = Format()
    schema_string: str
    """The schema as JSON."""
    partition_columns: list[str] = list(PARTITION_COLUMNS)
    configuration: dict[str, str]
    created_time: Number
    """When the table was created (ms since the epoch)."""


class Protocol(Action):
    """The versions and features that a program must know before it reads or writes the table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class SetTransaction(Action):
    """The last version of an application. Of a published topic, the id is the store id and the version is the slot."""

    app_id: str
    version: Number
    last_updated: Number = 0
    """When the application reached the version (ms since the epoch)."""


_ACTIONS: dict[str, type[Action]] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "remove": RemoveFile,
    "add": AddFile,
    "txn": SetTransaction,
}
_NAMES = {kind: name for name, kind in _ACTIONS.items()}


def encode_version(actions: Iterable[Action], commit_info: Mapping[str, Any]) -> bytes:
    """Encode a version: one action a line, ``commitInfo`` first."""
    lines: list[dict[str, Any]] = [{"commitInfo": dict(commit_info)}]
    lines += [{_NAMES[type(each)]: each.model_dump(by_alias=True, exclude_none=True)} for each in actions]
    return "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()


def decode_version(body: bytes, path: str) -> list[Action]:
    """Decode the actions of a version. Ignore actions of other kinds.

    Args:
        path: the path of the version, for error messages.

    Raises:
        CorruptRecord: this is no version of a Delta log.
    """
    try:
        lines = [json.loads(line) for line in body.decode().splitlines() if line]
        return [decode_action(name, fields) for line in lines for name, fields in line.items() if name in _ACTIONS]
    except DECODING_ERRORS as error:
        raise damaged(path, error) from None


def decode_action(name: str, fields: Any) -> Action:
    """Decode an action from its name and fields, as they stand in a log.

    Raises:
        ValidationError: a field is missing or wrong.
    """
    return _ACTIONS[name].model_validate(fields)


def damaged(path: str, error: Exception) -> CorruptRecord:
    """Return the error for an object of a Delta log that cannot be read."""
    return CorruptRecord(
        f"{path} is no part of a Delta log that eoslog wrote: {type(error).__name__}: {str(error)[:200]}. The topic "
        "itself is not affected. Delete the directory _delta_log and publish the topic again"
    )


@dataclass(slots=True)
class DeltaTable:
    """A Delta table at one version."""

    version: int = -1
    """The newest version; -1 if the table has none."""
    files: dict[str, AddFile] = field(default_factory=dict)
    """The files by path."""
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    transactions: dict[str, SetTransaction] = field(default_factory=dict)
    """The last transaction of each application id."""

    @property
    def paths(self) -> Collection[str]:
        """The paths of the files, relative to the topic's directory."""
        return self.files

    @property
    def is_foreign(self) -> bool:
        """False: other programs refuse to write a table with the writer feature ``eoslog``."""
        return False

    def published(self, store_id: str) -> Published | None:
        """Return the slot of a store that the version shows; None if the store has published no version."""
        last = self.transactions.get(store_id)
        return None if last is None else Published(last.version, last.last_updated)

    @property
    def newest(self) -> Published | None:
        """The slot that the version shows, of whichever store; None if it names none."""
        found = [Published(last.version, last.last_updated) for last in self.transactions.values()]
        return max(found, default=None)

    def range_of(self, path: str) -> FileRange | None:
        """Return the rows of a file of the table; None if its action does not state them."""
        file = self.files[path]
        try:
            partition = int(file.partition_values[DELTA_PARTITION_COLUMN] or "")
            begin = int(file.partition_values[BASE_OFFSET_COLUMN] or "")
            end = int((file.tags or {})[END_OFFSET_TAG])
            rows = int(json.loads(file.stats or "{}")["numRecords"])
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
        return FileRange(partition, begin, end, rows)

    def is_of(self, topic: Topic) -> bool:
        """Return False if the table shows an earlier topic of this name, or has no version."""
        return self.metadata is not None and self.metadata.id == table_id(topic)

    def apply(self, version: int, actions: Iterable[Action]) -> None:
        """Apply the actions of the next version."""
        self.version = version
        for action in actions:
            match action:
                case AddFile():
                    self.files[action.path] = action
                case RemoveFile():
                    self.files.pop(action.path, None)
                case Metadata():
                    self.metadata = action
                case Protocol():
                    self.protocol = action
                case SetTransaction():
                    self.transactions[action.app_id] = action

    def actions(self) -> list[Action]:
        """Return the actions that describe this version, for a checkpoint.

        Removed files are left out. Delta keeps them only for its VACUUM, which must not run on a published topic.
        """
        heads: list[Action | None] = [self.protocol, self.metadata]
        return [each for each in (*heads, *self.transactions.values(), *self.files.values()) if each is not None]
