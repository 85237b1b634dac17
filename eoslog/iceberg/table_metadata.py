"""Table metadata: the JSON of one version of an Iceberg table. It is read as untrusted input."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel, ConfigDict

from eoslog.format.column_ids import OFFSET_DELTA_ID
from eoslog.iceberg.iceberg_schema import BASE_OFFSET_FIELD_ID, partition_fields
from eoslog.iceberg.manifests import Long
from eoslog.session.metrics import Published

STORE = "eoslog.store"
SLOT = "eoslog.slot"
"""The entries of a snapshot's summary that name the store, and the slot whose ``snapshot`` it shows."""

_STORE_ID = re.compile(r"[0-9a-f]{32}")
_SLOT = re.compile(r"[0-9]{1,15}", re.ASCII)


class _Part(BaseModel):
    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True, frozen=True, strict=True
    )


class Snapshot(_Part):
    """The files of a table at one version."""

    snapshot_id: Long
    parent_snapshot_id: Long | None = None
    sequence_number: Long = 0
    timestamp_ms: Long
    """When the snapshot was made, by the log's time (ms). Each snapshot has a later time than the one before."""
    manifest_list: str = ""
    """The path or URL of the manifest list."""
    schema_id: int | None = None
    first_row_id: Long | None = None
    """The first row id that the snapshot gave to rows; None if it has version 2."""
    added_rows: Long | None = None
    """How many row ids the snapshot gave; None if it has version 2."""
    summary: dict[str, str] = {}

    @property
    def store_id(self) -> str | None:
        """The id of the store that made the snapshot; None if another program did."""
        found = self.summary.get(STORE, "")
        return found if _STORE_ID.fullmatch(found) and _SLOT.fullmatch(self.summary.get(SLOT, "")) else None

    @property
    def operation(self) -> str | None:
        """The operation that made the snapshot, by Iceberg's names, such as ``append``."""
        return self.summary.get("operation")

    @property
    def published(self) -> Published:
        """The slot that the snapshot shows. The snapshot has a store id."""
        return Published(int(self.summary[SLOT]), self.timestamp_ms)


class _LogEntry(_Part):
    """The snapshot that was current from a time on."""

    timestamp_ms: Long
    snapshot_id: Long


class Reference(_Part):
    """The snapshot of a branch."""

    snapshot_id: Long
    type: str = "branch"


class TableMetadata(_Part):
    """A table at one version, with the snapshots of this and of earlier versions."""

    format_version: int
    table_uuid: str
    location: str
    """The directory of the table."""
    last_sequence_number: Long = 0
    last_updated_ms: Long
    last_column_id: int = OFFSET_DELTA_ID
    """The largest id of a column."""
    schemas: list[dict[str, Any]]
    current_schema_id: int
    partition_specs: list[dict[str, Any]]
    default_spec_id: int
    last_partition_id: int = BASE_OFFSET_FIELD_ID
    sort_orders: list[dict[str, Any]] = [{"order-id": 0, "fields": []}]
    default_sort_order_id: int = 0
    properties: dict[str, str] = {}
    current_snapshot_id: int | None = None
    next_row_id: Long | None = None
    """The row id that the next snapshot gives first; None in version 2."""
    refs: dict[str, Reference] = {}
    snapshots: list[Snapshot] = []
    snapshot_log: list[_LogEntry] = []

    @property
    def description(self) -> Description:
        """The table at this version without its files."""
        current = next((each for each in self.schemas if each.get("schema-id") == self.current_schema_id), {})
        spec = next((each for each in self.partition_specs if each.get("spec-id") == self.default_spec_id), {})
        return Description(
            format_version=self.format_version,
            table_uuid=self.table_uuid,
            location=self.location,
            table_schema=current,
            spec=spec,
            properties=self.properties,
            default_sort_order_id=self.default_sort_order_id,
        )

    def schema_of(self, snapshot: Snapshot) -> dict[str, Any] | None:
        """Return the schema of a snapshot; None if it is not there."""
        return next((each for each in self.schemas if each.get("schema-id") == snapshot.schema_id), None)


class Description(BaseModel):
    """A table without its files: its id, place, schema, partition spec and properties."""

    model_config = ConfigDict(frozen=True)

    format_version: int = 2
    table_uuid: str
    location: str
    table_schema: dict[str, Any]
    spec: dict[str, Any] = {"spec-id": 0, "fields": partition_fields()}
    properties: dict[str, str]
    default_sort_order_id: int = 0


def new_metadata(
    description: Description, snapshots: list[Snapshot], schemas: list[dict[str, Any]], *, sequence_number: int
) -> TableMetadata:
    """Return the metadata of a version whose newest snapshot is the last one.

    Args:
        schemas: the schemas of earlier snapshots.
    """
    newest = snapshots[-1]
    next_row_id = None if newest.first_row_id is None else newest.first_row_id + (newest.added_rows or 0)
    return TableMetadata(
        format_version=description.format_version,
        table_uuid=description.table_uuid,
        location=description.location,
        last_sequence_number=sequence_number,
        last_updated_ms=newest.timestamp_ms,
        schemas=[*schemas, description.table_schema],
        current_schema_id=description.table_schema["schema-id"],
        partition_specs=[description.spec],
        default_spec_id=description.spec["spec-id"],
        properties=description.properties,
        current_snapshot_id=newest.snapshot_id,
        next_row_id=next_row_id,
        refs={"main": Reference(snapshot_id=newest.snapshot_id)},
        snapshots=snapshots,
        snapshot_log=[_LogEntry(timestamp_ms=each.timestamp_ms, snapshot_id=each.snapshot_id) for each in snapshots],
    )


def encode_metadata(metadata: TableMetadata) -> bytes:
    return metadata.model_dump_json(by_alias=True, exclude_none=True).encode()


def decode_metadata(body: bytes) -> TableMetadata:
    """Decode the metadata of a version.

    Raises:
        DECODING_ERRORS: this is no table metadata.
    """
    return TableMetadata.model_validate(json.loads(body))
