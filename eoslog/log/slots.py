"""The slots of a log: the paths of the log's objects, and the records in the slots.

A slot has a predictable name; all other objects have random names. Slots are grouped by thousands, and the groups are
numbered downwards. So where an object store lists in order, the first page of a LIST shows the newest slots. Finding
the newest slot costs one request, however long the log is.

The first line of a record holds its own entries. The second line repeats the log's tail for processes that open the
log. Processes that already follow the log read only the first line. The tail is copied as text, which costs no CPU.
The last line holds the files whose content travels in the record. No other record repeats it.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from eoslog.errors import CorruptRecord, InvalidEntry, UnsupportedFormat
from eoslog.storage.object_store import ObjectStore
from eoslog.wording import first_problem

FORMAT_VERSION = 1
LARGEST_RECORD_BYTES = 64 << 20
ROOT = "__transaction_state/"
SLOTS = ROOT + "slot/"
CHECKPOINTS = ROOT + "checkpoint/"
CHECKPOINT_ENTRY = "checkpoint"
"""The type of the log's own entries."""
LONGEST_LEASE_MS = 3_600_000
"""The longest time for which a record may announce an append service (ms)."""
GROUP_SIZE = 1000
_SLOTS_AT_ONCE = 32
"""How many slots ``records_backwards`` reads in parallel."""
_LARGEST_GROUP = 9_999_999_999
_FILES = b'{"files":{'
_END_OF_FILES = b'"}}\n'
_NO_FILES: Mapping[str, bytes] = {}
_SLOT = re.compile(r"__transaction_state/slot/\d{10}/(\d{20})\.json")


def slot_group(slot: int) -> str:
    """Return the directory of a slot. In lexical order the directory of the newest slots comes first."""
    return f"{SLOTS}{_LARGEST_GROUP - slot // GROUP_SIZE:010d}/"


def slot_path(slot: int) -> str:
    return f"{slot_group(slot)}{slot:020d}.json"


def slot_of(path: str) -> int | None:
    """Return the slot of a path; None if it is not the path of a slot."""
    match = _SLOT.fullmatch(path)
    slot = int(match.group(1)) if match else None
    return slot if slot is not None and slot_path(slot) == path else None


def checkpoint_path(slot: int, name: str) -> str:
    return f"{CHECKPOINTS}{slot:020d}-{name}"


class CheckpointReference(BaseModel):
    """The path and checksum of a checkpoint, and the slot whose state it holds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    slot: Annotated[int, Field(strict=True, ge=0, lt=2**43)]
    path: Annotated[str, Field(pattern=r"^__transaction_state/checkpoint/[0-9a-zA-Z._-]+$")]
    length: Annotated[int, Field(strict=True, ge=0)]
    """The length of its root in bytes."""
    crc32c: Annotated[int, Field(strict=True, ge=0, lt=2**32)]
    """CRC-32C of its root."""


class CheckpointEntry(BaseModel):
    """The log's own entry: a checkpoint was written, and a process that opens the log may start from it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["checkpoint"] = "checkpoint"
    reference: CheckpointReference
    upload_ms: Annotated[int, Field(strict=True, ge=0, lt=2**53)]
    """A lower bound of the time at which its first object was written (ms by the store's clock)."""
    shares_with: Annotated[int, Field(strict=True, ge=0, lt=2**43)] | None = None
    """The slot of the earlier checkpoint whose parts this checkpoint shares; None if it shares none."""


def decode_checkpoint_entry(value: Any) -> CheckpointEntry:
    """Decode a checkpoint entry. Raises: InvalidEntry: the entry is malformed."""
    try:
        return CheckpointEntry.model_validate(value)
    except ValidationError as error:
        raise InvalidEntry(f"malformed checkpoint entry: {first_problem(error)}") from None


class IncludedRequest(BaseModel):
    """A request that was sent to another process, and whose entries are in this record."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    request_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}-[0-9]{1,4}$")]
    """The name of its message and its index there, from 0."""
    first_entry: Annotated[int, Field(strict=True, ge=0, lt=2**31)]
    """The index of its first entry in the record, from 0."""
    entry_count: Annotated[int, Field(strict=True, ge=0, lt=2**31)]


class AppendServiceAnnouncement(BaseModel):
    """The address of the service that appends for the processes of all hosts. Each record repeats it until it expires.

    The service is a hint: a writer that cannot reach it appends by itself.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    service_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """A random name of this run of the service. The service proves that it has this name."""
    address: Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:.]{2,45}\]|[0-9A-Za-z._-]{1,253}):[0-9]{1,5}$")]
    """The host name or IP address, and the TCP port."""
    expires_ms: Annotated[int, Field(strict=True, ge=0, lt=2**53)]
    """The time at which writers stop using the service (ms by the store's clock)."""
    certificate_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """The SHA-256 of the service's TLS certificate (DER); None: the service does not use TLS."""

    def is_current(self, now_ms: int) -> bool:
        """Return True if it has not expired at ``now_ms`` (ms by the store's clock).

        No service announces itself for longer than ``LONGEST_LEASE_MS``. Otherwise a forged announcement would stay for
        ever.
        """
        return now_ms < self.expires_ms <= now_ms + LONGEST_LEASE_MS


class SlotRecord(BaseModel):
    """The first line of a slot record."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Annotated[int, Field(strict=True, ge=1)] = FORMAT_VERSION
    slot: Annotated[int, Field(strict=True, ge=0, lt=2**43)]
    append_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """A random name of this record, by which its writer recognizes it. At most one slot of the log has it."""
    prev: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]
    """The append id of the record before."""
    checkpoint: CheckpointReference | None = None
    """The newest checkpoint before this record."""
    previous_checkpoint: CheckpointReference | None = None
    """The checkpoint before that one."""
    entries: tuple[dict[str, Any], ...] = ()
    """The changes of the state, in order."""
    append_service: AppendServiceAnnouncement | None = None
    """The service that appends for the processes of all hosts; None if there is none."""
    requests: tuple[IncludedRequest, ...] | None = None
    """The requests that were sent to another process and whose entries are in this record."""


def entries_of(record: SlotRecord, request: IncludedRequest) -> Sequence[dict[str, Any]]:
    """Return the entries of a request in the record that includes it."""
    return record.entries[request.first_entry : request.first_entry + request.entry_count]


def encode_line(record: SlotRecord) -> bytes:
    return to_json(record, exclude_none=True)


def slot_body(line: bytes, tail: Sequence[bytes] = (), files: Mapping[str, bytes] = _NO_FILES) -> bytes:
    """Return the bytes of a slot.

    Args:
        line: the record's own line.
        tail: the lines of the records before it.
        files: the contents of the files in the record, by path.
    """
    lines = [line]
    if tail:
        lines.append(b'{"tail":[' + b",".join(tail) + b"]}")
    if files:
        found = (to_json(path) + b':"' + b64encode(content) + b'"' for path, content in files.items())
        lines.append(_FILES + b",".join(found) + b"}}")
    return b"\n".join([*lines, b""])


def first_line(body: bytes) -> bytes:
    end = body.find(b"\n")
    return body if end < 0 else body[:end]


def files_line(body: bytes) -> bytes:
    """Return the line of a slot's body that holds files; empty if it holds none, or not the whole line."""
    start = body.rfind(b"\n" + _FILES) if body.endswith(_END_OF_FILES) else -1
    return body[start + 1 :] if start >= 0 else b""


def file_in(line: bytes, path: str) -> bytes | None:
    """Return the content of a file in a line of files; None if it is not there.

    The line is not parsed as a whole: a record may hold many files, and a caller may want each of them.

    Raises:
        CorruptRecord: the content is not base64.
    """
    # The text of a path in JSON cannot occur within base64, nor within another path, because of its quotes.
    name = to_json(path) + b':"'
    start = line.find(name)
    if start < 0:
        return None
    start += len(name)
    try:
        return b64decode(line[start : line.find(b'"', start)], validate=True)
    except ValueError as error:
        raise CorruptRecord(f"{path}: its content in the record is not base64: {error}") from None


def decode_line(line: bytes, slot: int) -> SlotRecord:
    """Return the record in a line.

    Raises:
        CorruptRecord: the line is not the record of ``slot``.
        UnsupportedFormat: a newer version of eoslog wrote the record.
    """
    try:
        return _checked(from_json(line), slot)
    except ValueError as error:
        raise CorruptRecord(f"the record of slot {slot} is not a JSON object: {error}") from None


def decode_tail(body: bytes, slot: int) -> list[tuple[bytes, SlotRecord]]:
    """Return the records that the second line repeats, the oldest first, each with its line.

    A line keeps every field, including fields of a later version that this version does not know.
    """
    rest = first_line(body[len(first_line(body)) + 1 :]).strip()
    if not rest or rest.startswith(_FILES):
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
        raise CorruptRecord(f"the record in slot {slot} states slot {record.slot} as its own")
    return record


def records_backwards(store: ObjectStore, newest: int, oldest: int = 0) -> Iterator[SlotRecord]:
    """Yield the records from slot ``newest`` down to ``oldest``, or to the oldest one that was not deleted yet.

    Each round reads several slots in parallel, or one slot whose record repeats many lines of the log's tail.

    Raises:
        CorruptRecord, UnsupportedFormat, StoreUnavailable
    """
    slot = newest
    above: SlotRecord | None = None
    at_once = 1 if store.tail_bytes > 0 else _SLOTS_AT_ONCE
    while slot >= oldest:
        wanted = range(slot, max(oldest - 1, slot - at_once), -1)
        for stored in store.get_many([slot_path(each) for each in wanted]):
            # A paused process may have put a record under a deleted name. The check of `prev` below leaves it out.
            if stored is None:
                return
            repeated = decode_tail(stored.body, slot) if store.tail_bytes > 0 else []
            for record in (decode_line(first_line(stored.body), slot), *(each for _, each in reversed(repeated))):
                if record.slot < oldest or (above is not None and record.append_id != above.prev):
                    return
                yield record
                above = record
            slot -= 1 + len(repeated)
