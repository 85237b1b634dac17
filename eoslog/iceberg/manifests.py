"""Manifests and manifest lists: Avro files that name a table's data files (Iceberg's table spec, versions 2 and 3).

Only files that eoslog wrote are read: the schema in the file must be the one that eoslog writes, and its blocks must
not be compressed. So a decoded file takes little more memory than the file has bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from eoslog.errors import InvalidRequest
from eoslog.iceberg.iceberg_bounds import encode_int, encode_long
from eoslog.iceberg.iceberg_schema import (
    BASE_OFFSET_COLUMN,
    BASE_OFFSET_FIELD_ID,
    PARTITION_COLUMN,
    PARTITION_FIELD_ID,
    partition_fields,
)

EXISTING, ADDED, DELETED = 0, 1, 2
"""The status of an entry: the file was there before, or the manifest's snapshot added or removed it."""

Long = Annotated[int, Field(ge=0, lt=2**63)]
Int = Annotated[int, Field(ge=0, lt=2**31)]


def _optional(name: str, kind: Any, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


def _map(name: str, field_id: int, key_id: int, value_id: int, value: str) -> dict[str, Any]:
    item = {
        "type": "record",
        "name": f"k{key_id}_v{value_id}",
        "fields": [
            {"name": "key", "type": "int", "field-id": key_id},
            {"name": "value", "type": value, "field-id": value_id},
        ],
    }
    return _optional(name, {"type": "array", "logicalType": "map", "items": item}, field_id)


_DATA_FILE_FIELDS: list[Any] = [
    {"name": "content", "type": "int", "field-id": 134},
    {"name": "file_path", "type": "string", "field-id": 100},
    {"name": "file_format", "type": "string", "field-id": 101},
    {
        "name": "partition",
        "type": {
            "type": "record",
            "name": "r102",
            "fields": [
                _optional(PARTITION_COLUMN, "int", PARTITION_FIELD_ID),
                _optional(BASE_OFFSET_COLUMN, "long", BASE_OFFSET_FIELD_ID),
            ],
        },
        "field-id": 102,
    },
    {"name": "record_count", "type": "long", "field-id": 103},
    {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
    _map("null_value_counts", 110, 121, 122, "long"),
    _map("lower_bounds", 125, 126, 127, "bytes"),
    _map("upper_bounds", 128, 129, 130, "bytes"),
    _optional("sort_order_id", "int", 140),
]


def _entry(data_file_fields: list[Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            {"name": "status", "type": "int", "field-id": 0},
            _optional("snapshot_id", "long", 1),
            _optional("sequence_number", "long", 3),
            _optional("file_sequence_number", "long", 4),
            {
                "name": "data_file",
                "type": {"type": "record", "name": "r2", "fields": data_file_fields},
                "field-id": 2,
            },
        ],
    }


_ENTRIES = {2: _entry(_DATA_FILE_FIELDS), 3: _entry([*_DATA_FILE_FIELDS, _optional("first_row_id", "long", 142)])}
"""The schema of a manifest, by format version."""
_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        {"name": "contains_null", "type": "boolean", "field-id": 509},
        _optional("contains_nan", "boolean", 518),
        _optional("lower_bound", "bytes", 510),
        _optional("upper_bound", "bytes", 511),
    ],
}
_MANIFEST_FILE_FIELDS: list[Any] = [
    *(
        {"name": name, "type": kind, "field-id": field_id}
        for name, kind, field_id in (
            ("manifest_path", "string", 500),
            ("manifest_length", "long", 501),
            ("partition_spec_id", "int", 502),
            ("content", "int", 517),
            ("sequence_number", "long", 515),
            ("min_sequence_number", "long", 516),
            ("added_snapshot_id", "long", 503),
            ("added_files_count", "int", 504),
            ("existing_files_count", "int", 505),
            ("deleted_files_count", "int", 506),
            ("added_rows_count", "long", 512),
            ("existing_rows_count", "long", 513),
            ("deleted_rows_count", "long", 514),
        )
    ),
    _optional("partitions", {"type": "array", "items": _SUMMARY, "element-id": 508}, 507),
]


def _manifest_file(fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": "manifest_file", "fields": fields}


_MANIFEST_FILES = {
    2: _manifest_file(_MANIFEST_FILE_FIELDS),
    3: _manifest_file([*_MANIFEST_FILE_FIELDS, _optional("first_row_id", "long", 520)]),
}
"""The schema of a manifest list, by format version."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class Place(_Row):
    """The values of the partition columns for one file."""

    topic_partition: Int = Field(alias=PARTITION_COLUMN)
    base_offset: Long = Field(alias=BASE_OFFSET_COLUMN)


class _Count(_Row):
    key: Int
    value: Long


class _Bound(_Row):
    key: Int
    value: bytes


class DataFile(_Row):
    """A data file of the table."""

    content: Annotated[int, Field(ge=0, le=0)] = 0
    file_path: str
    """The path or URL of the file."""
    file_format: str = "PARQUET"
    partition: Place
    record_count: Long
    file_size_in_bytes: Long
    null_value_counts: list[_Count] | None
    lower_bounds: list[_Bound] | None
    upper_bounds: list[_Bound] | None
    sort_order_id: Annotated[int, Field(ge=0, le=0)] | None = None
    first_row_id: Long | None = None
    """The id of the file's first row (version 3); None for the next one of the manifest."""

    @classmethod
    def of(
        cls,
        *,
        path: str,
        place: tuple[int, int],
        rows: int,
        size: int,
        nulls: Mapping[int, int],
        lower: Mapping[int, bytes],
        upper: Mapping[int, bytes],
    ) -> DataFile:
        """Return a data file.

        Args:
            place: the number of the topic-partition, and the base offset.
            nulls, lower, upper: numbers of nulls and bounds, by column id.
        """
        return cls(
            file_path=path,
            partition=Place(**{PARTITION_COLUMN: place[0], BASE_OFFSET_COLUMN: place[1]}),
            record_count=rows,
            file_size_in_bytes=size,
            null_value_counts=[_Count(key=key, value=value) for key, value in nulls.items()],
            lower_bounds=[_Bound(key=key, value=value) for key, value in lower.items()],
            upper_bounds=[_Bound(key=key, value=value) for key, value in upper.items()],
        )

    def upper(self) -> dict[int, bytes]:
        """Return the upper bounds by column id."""
        return {each.key: each.value for each in self.upper_bounds or ()}


class Entry(_Row):
    """The entry of a data file in a manifest."""

    status: Annotated[int, Field(ge=EXISTING, le=DELETED)]
    snapshot_id: Long | None
    """The snapshot that added the file, or removed it; None for that of the manifest."""
    sequence_number: Long | None
    """When the file was added; None for the sequence number of the manifest."""
    file_sequence_number: Long | None
    data_file: DataFile


class PartitionSummary(_Row):
    """The bounds of a partition column over the files of a manifest."""

    contains_null: bool = False
    contains_nan: bool | None = False
    lower_bound: bytes | None
    upper_bound: bytes | None


class ManifestFile(_Row):
    """The entry of a manifest in a manifest list."""

    manifest_path: str
    manifest_length: Long
    """The length of the manifest (bytes)."""
    partition_spec_id: Annotated[int, Field(ge=0, le=0)] = 0
    content: Annotated[int, Field(ge=0, le=0)] = 0
    sequence_number: Long
    """The sequence number of the snapshot that wrote the manifest."""
    min_sequence_number: Long
    added_snapshot_id: Long
    added_files_count: Int
    existing_files_count: Int
    deleted_files_count: Int
    added_rows_count: Long
    existing_rows_count: Long
    deleted_rows_count: Long
    partitions: list[PartitionSummary] | None
    first_row_id: Long | None = None
    """The id of the first row of the first file without an id of its own; None in version 2."""

    @property
    def live_files_count(self) -> int:
        """The number of files of the table that the manifest names."""
        return self.added_files_count + self.existing_files_count

    @property
    def live_rows_count(self) -> int:
        """The number of rows of these files."""
        return self.added_rows_count + self.existing_rows_count

    @classmethod
    def of(
        cls, path: str, length: int, entries: Sequence[Entry], snapshot_id: int, sequence_number: int
    ) -> ManifestFile:
        """Describe a new manifest.

        Args:
            path: the path or URL of the manifest.
            length: the length of the manifest (bytes).
            snapshot_id, sequence_number: those of the snapshot that writes it.
        """
        by_status = {
            status: [each.data_file for each in entries if each.status == status]
            for status in (ADDED, EXISTING, DELETED)
        }
        files = {status: len(found) for status, found in by_status.items()}
        rows = {status: sum(each.record_count for each in found) for status, found in by_status.items()}
        live = [each.sequence_number or sequence_number for each in entries if each.status != DELETED]
        places = [each.data_file.partition for each in entries]
        partitions = [each.topic_partition for each in places]
        offsets = [each.base_offset for each in places]
        return cls(
            manifest_path=path,
            manifest_length=length,
            sequence_number=sequence_number,
            min_sequence_number=min(live, default=sequence_number),
            added_snapshot_id=snapshot_id,
            added_files_count=files[ADDED],
            existing_files_count=files[EXISTING],
            deleted_files_count=files[DELETED],
            added_rows_count=rows[ADDED],
            existing_rows_count=rows[EXISTING],
            deleted_rows_count=rows[DELETED],
            partitions=[
                PartitionSummary(lower_bound=encode_int(min(partitions)), upper_bound=encode_int(max(partitions))),
                PartitionSummary(lower_bound=encode_long(min(offsets)), upper_bound=encode_long(max(offsets))),
            ],
        )


def encode_manifest(entries: Iterable[Entry], schema: Mapping[str, Any], format_version: int) -> bytes:
    """Encode a manifest.

    Args:
        schema: the schema of the table.
        format_version: 2 or 3.
    """
    described = {
        "schema": json.dumps(schema),
        "schema-id": str(schema["schema-id"]),
        "partition-spec": json.dumps(partition_fields()),
        "partition-spec-id": "0",
        "format-version": str(format_version),
        "content": "data",
    }
    return _encode(_ENTRIES[format_version], entries, described)


def encode_manifest_list(
    manifests: Iterable[ManifestFile], *, snapshot_id: int, sequence_number: int, format_version: int
) -> bytes:
    """Encode the manifest list of a snapshot."""
    described = {
        "snapshot-id": str(snapshot_id),
        "sequence-number": str(sequence_number),
        "format-version": str(format_version),
    }
    return _encode(_MANIFEST_FILES[format_version], manifests, described)


def decode_manifest(body: bytes) -> list[Entry]:
    """Decode a manifest that eoslog wrote.

    Raises:
        DECODING_ERRORS: eoslog did not write it, or it is damaged.
    """
    return [Entry.model_validate(row) for row in _decode(_ENTRIES, body)]


def decode_manifest_list(body: bytes) -> list[ManifestFile]:
    """Decode a manifest list that eoslog wrote.

    Raises:
        DECODING_ERRORS: eoslog did not write it, or it is damaged.
    """
    return [ManifestFile.model_validate(row) for row in _decode(_MANIFEST_FILES, body)]


def check_avro() -> None:
    """Raise ``InvalidRequest`` if the library for Avro, of the extra ``iceberg``, is not installed."""
    _avro()


def _avro() -> Any:
    try:
        # Only publishers of Iceberg tables need the library.
        import fastavro
    except ImportError:
        raise InvalidRequest(
            "Iceberg tables need the package fastavro, which is not installed. Run: pip install 'eoslog[iceberg]'"
        ) from None
    return fastavro


def _encode(schema: Mapping[str, Any], rows: Iterable[_Row], described: Mapping[str, str]) -> bytes:
    sink = io.BytesIO()
    # A copy, because the library marks a schema that it has parsed.
    parsed = json.loads(json.dumps(schema))
    dumped = (row.model_dump(by_alias=True) for row in rows)
    _avro().writer(sink, parsed, dumped, codec="null", metadata=dict(described))
    return sink.getvalue()


def _decode(schemas: Mapping[int, Mapping[str, Any]], body: bytes) -> list[Any]:
    avro = _avro()
    try:
        reader = avro.reader(io.BytesIO(body))
        if reader.codec != "null" or json.loads(reader.metadata["avro.schema"]) not in schemas.values():
            raise ValueError("it has another schema, or is compressed")
        return list(reader)
    except (EOFError, avro.schema.SchemaParseException) as error:
        raise ValueError(str(error)) from error
