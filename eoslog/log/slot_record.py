"""A slot record: one line with its own entries, one line that repeats the log's tail for cold readers.

Followers read the first line only. The tail is spliced in as text, so that it costs nothing to repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from eoslog.errors import CorruptRecord, UnsupportedFormat, first_problem

FORMAT_VERSION = 1
LARGEST_RECORD_BYTES = 64 << 20


class CheckpointReference(BaseModel):
    """The path and checksum of a checkpoint, and the slot whose state it holds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    slot: Annotated[int, Field(strict=True, ge=0, lt=2**43)]
    path: Annotated[str, Field(pattern=r"^__transaction_state/checkpoint/[0-9a-zA-Z._-]+$")]
    length: Annotated[int, Field(strict=True, ge=0)]
    """Bytes of its root."""
    crc32c: Annotated[int, Field(strict=True, ge=0, lt=2**32)]
    """CRC-32C of its root."""


class CheckpointEntry(BaseModel):
    """The one entry that is the log's own: a checkpoint was written, and cold readers may begin there."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["checkpoint"] = "checkpoint"
    reference: CheckpointReference
    upload_ms: Annotated[int, Field(strict=True, ge=0, lt=2**53)]
    """A lower bound of the time at which its first object was written."""
    shares_with: Annotated[int, Field(strict=True, ge=0, lt=2**43)] | None = None
    """The slot of the earlier checkpoint whose parts this checkpoint shares; None if it shares none."""


class IncludedRequest(BaseModel):
    """A published request whose entries are in this record."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    request_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}-[0-9]{1,4}$")]
    """The name of its publication and its index there, from 0."""
    first_entry: Annotated[int, Field(strict=True, ge=0, lt=2**31)]
    """The index of its first entry in the record, from 0."""
    entry_count: Annotated[int, Field(strict=True, ge=0, lt=2**31)]


class SlotRecord(BaseModel):
    """The first line of a slot record."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Annotated[int, Field(strict=True, ge=1)] = FORMAT_VERSION
    slot: Annotated[int, Field(strict=True, ge=0, lt=2**43)]
    append_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """The append id: a random name of this record. At most one slot of the log has it."""
    prev: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]
    """The append id of the record before."""
    checkpoint: CheckpointReference | None = None
    """The newest checkpoint before this record."""
    previous_checkpoint: CheckpointReference | None = None
    """The checkpoint before that one."""
    entries: tuple[dict[str, Any], ...] = ()
    """What the record changes, in order."""
    requests: tuple[IncludedRequest, ...] | None = None
    """The published requests whose entries are in this record."""
    contended: bool | None = None
    """True if another process published some of these requests. Then every writer publishes at once."""


def entries_of(record: SlotRecord, request: IncludedRequest) -> Sequence[dict[str, Any]]:
    """The entries of a published request in the record that includes it."""
    return record.entries[request.first_entry : request.first_entry + request.entry_count]


def encode_line(record: SlotRecord) -> bytes:
    return to_json(record, exclude_none=True)


def with_tail(line: bytes, tail: Sequence[bytes]) -> bytes:
    """A whole record: its own line, and the lines of the records before it."""
    if not tail:
        return line + b"\n"
    return line + b'\n{"tail":[' + b",".join(tail) + b"]}\n"


def first_line(body: bytes) -> bytes:
    end = body.find(b"\n")
    return body if end < 0 else body[:end]


def decode_line(line: bytes, slot: int) -> SlotRecord:
    """The record in a line.

    Raises:
        CorruptRecord: it is not the record of ``slot``.
        UnsupportedFormat: a newer version wrote it.
    """
    try:
        return _checked(from_json(line), slot)
    except ValueError as error:
        raise CorruptRecord(f"the record of slot {slot} is no JSON object: {error}") from None


def decode_tail(body: bytes, slot: int) -> list[tuple[bytes, SlotRecord]]:
    """The records that the second line repeats, the oldest first, each with its line.

    A line keeps every field, including fields of a later version that this version does not know.
    """
    end = body.find(b"\n")
    rest = body[end + 1 :].strip() if end >= 0 else b""
    if not rest:
        return []
    try:
        values = from_json(rest)["tail"]
        records = [_checked(value, slot - len(values) + index) for index, value in enumerate(values)]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecord(f"the tail in the record of slot {slot} cannot be read: {error}") from None
    return [(to_json(value), record) for value, record in zip(values, records, strict=True)]


def _checked(value: Any, slot: int) -> SlotRecord:
    if isinstance(value, dict) and isinstance(value.get("format"), int) and value["format"] > FORMAT_VERSION:
        raise UnsupportedFormat(
            f"slot {slot} has format version {value['format']}; this version of eoslog knows {FORMAT_VERSION}: upgrade"
        )
    try:
        record = SlotRecord.model_validate(value)
    except ValidationError as error:
        raise CorruptRecord(f"the record of slot {slot} is malformed: {first_problem(error)}") from None
    if record.slot != slot:
        raise CorruptRecord(f"the record of slot {slot} says that it is of slot {record.slot}")
    return record
