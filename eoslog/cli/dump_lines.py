"""What is stored, a line each: `name: value name: value` for people, as Kafka's dump tool prints it, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.cli.output import json_text, shown
from eoslog.log.checkpoint import CheckpointPart, CheckpointRoot
from eoslog.log.record import SlotRecord
from eoslog.rules.aborted import AbortedTransaction
from eoslog.rules.partition_state import Batch
from eoslog.segment.data_file import corrupt_if_unreadable
from eoslog.segment.producer_snapshot import ProducerSnapshotEntry

_MOST_ITEMS = 8
_LONGEST_TEXT = 200
_SEQUENCES = 1 << 31
_PARTITIONS_AT_ONCE = 16
_FILE_REFERENCE = {"path", "length", "crc32c"}
_COORDINATOR_EPOCH = 0


class Line(NamedTuple):
    """One line of a dump."""

    fields: Mapping[str, Any]
    """What people read: names in snake case, None is left out."""
    value: Mapping[str, Any] | None = None
    """What programs read, if it is more than ``fields``."""

    def text(self) -> str:
        return " ".join(f"{_camel(name)}: {_text(each)}" for name, each in self.fields.items() if each is not None)

    def json(self, **more: Any) -> str:
        value = more | dict(self.fields if self.value is None else self.value)
        return json_text(value, default=_plain, separators=(",", ":"))


class OptionalLong(NamedTuple):
    """An offset that may be missing, which Kafka prints as Java does."""

    value: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


def slot_lines(record: SlotRecord, topics: Mapping[str, str]) -> Iterator[Line]:
    """A line per entry of a slot record. ``topics`` gives names to topic ids; an id that it lacks is shown as it is."""
    place = {"slot": record.slot, "token": record.token}
    if not record.entries:
        yield Line(place | {"entries": 0}, place | {"prev": record.prev, "entry": None})
    for entry in record.entries:
        rest = dict(entry)
        head = place | {"time_ms": rest.pop("time_ms", None), "type": rest.pop("type", None)}
        readable = _readable(rest, topics)
        yield Line(head | readable, place | {"prev": record.prev, "entry": entry})


def aborted_lines(entries: Iterable[AbortedTransaction]) -> Iterator[Line]:
    """A line per aborted transaction, as Kafka prints a ``.txnindex``."""
    for entry in entries:
        yield Line(
            {
                "version": 0,
                "producer_id": entry.producer_id,
                "first_offset": entry.first_offset,
                "last_offset": entry.last_offset,
                "last_stable_offset": entry.last_stable_offset,
            }
        )


def producer_lines(entries: Iterable[ProducerSnapshotEntry]) -> Iterator[Line]:
    """A line per producer, as Kafka prints a ``.snapshot``."""
    for entry in entries:
        first_offset = entry.current_txn_first_offset
        fields: dict[str, Any] = {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": OptionalLong(first_offset if first_offset >= 0 else None),
            "last_timestamp": entry.timestamp,
        }
        if entry.last_sequence >= 0:
            fields |= {
                "first_sequence": (entry.last_sequence - entry.offset_delta) % _SEQUENCES,
                "last_sequence": entry.last_sequence,
                "last_offset": entry.last_offset,
                "offset_delta": entry.offset_delta,
                "timestamp": entry.timestamp,
            }
        yield Line(fields, fields | {"current_txn_first_offset": first_offset if first_offset >= 0 else None})


def batch_line(batch: Batch) -> Line:
    """A batch or a control row, in the words in which Kafka prints a ``.log``."""
    first, file = batch.base_sequence, batch.file
    return Line(
        {
            "base_offset": batch.base_offset,
            "last_offset": batch.end_offset - 1,
            "count": batch.record_count,
            "base_sequence": first,
            "last_sequence": first if first < 0 else (first + batch.last_offset_delta) % _SEQUENCES,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "is_transactional": batch.transactional,
            "is_control": batch.control is not None,
            "end_txn_marker": batch.control.name if batch.control is not None else None,
            "coordinator_epoch": _COORDINATOR_EPOCH if batch.control is not None else None,
            "min_timestamp": batch.min_timestamp,
            "max_timestamp": batch.max_timestamp,
            "delete_horizon_ms": batch.delete_horizon_ms if batch.delete_horizon_ms >= 0 else None,
            "verdict": batch.verdict.value,
            "slot": batch.slot,
            "end_slot": batch.end_slot,
            "transactional_id": batch.transactional_id,
            "file": file.path if file is not None else None,
            "first_row": batch.first_row if file is not None else None,
            "size": file.length if file is not None else None,
            "crc32c": file.crc32c if file is not None else None,
        }
    )


def footer_lines(file: pq.ParquetFile) -> Iterator[Line]:
    """The footer of a data file: what it holds as a whole, then a line per row group."""
    footer = file.metadata
    columns = [f"{field.name} {field.type}" for field in file.schema_arrow]
    yield Line(
        {
            "rows": footer.num_rows,
            "row_groups": footer.num_row_groups,
            "columns": columns,
            "created_by": footer.created_by,
            "footer_bytes": footer.serialized_size,
        }
    )
    first_row = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        yield Line(
            {"row_group": number, "first_row": first_row, "rows": group.num_rows, "bytes": group.total_byte_size}
        )
        first_row += group.num_rows


def root_line(root: CheckpointRoot) -> Line:
    return Line({"format": root.format, "slot": root.slot, "token": root.token, "parts": len(root.parts)})


def part_line(part: CheckpointPart) -> Line:
    return Line(
        {
            "part": part.name,
            "changed_slot": part.changed_slot,
            "length": part.length,
            "crc32c": part.crc32c,
            "path": part.path or "in the root",
        }
    )


def part_lines(name: str, body: bytes) -> Iterator[Line]:
    """What a part of a checkpoint holds: a line per row, or per element of the ``store`` part's lists.

    Raises:
        CorruptRecord: it is neither JSON nor Parquet.
    """
    with corrupt_if_unreadable(name):
        rows = iter([json.loads(body)]) if body.lstrip().startswith(b"{") else _rows(body)
    while True:
        with corrupt_if_unreadable(name):
            row = next(rows, None)
        if row is None:
            return
        lists = {key: each for key, each in row.items() if _is_list_of_things(each)}
        plain = {key: each for key, each in row.items() if key not in lists}
        yield Line({"part": name} | plain | {key: len(each) for key, each in lists.items()})
        for key, each in lists.items():
            # Partitions of several topics share a part, so each line says whose it is.
            of = {"part": name, "of": key} | _topic_partition(row)
            for thing in each:
                yield Line(of | _readable(thing, {}), of | thing)


def _topic_partition(row: Mapping[str, Any]) -> dict[str, str]:
    if "topic_id" in row and "partition" in row:
        return {"topic_partition": f"{row['topic_id']}-{row['partition']}"}
    return {}


def _rows(body: bytes) -> Iterator[dict[str, Any]]:
    for batch in pq.ParquetFile(pa.BufferReader(body)).iter_batches(batch_size=_PARTITIONS_AT_ONCE):
        yield from batch.to_pylist()


def _is_list_of_things(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(each, dict) for each in value)


def _readable(value: Mapping[str, Any], topics: Mapping[str, str]) -> dict[str, Any]:
    """An entry, or part of one, in short: partitions by their topics' names, files by their paths."""
    short: dict[str, Any] = {}
    topic_id = value.get("topic_id")
    if isinstance(topic_id, str) and isinstance(value.get("partition"), int):
        short["topic_partition"] = f"{topics.get(topic_id, topic_id)}-{value['partition']}"
    for name, each in value.items():
        if "topic_partition" not in short or name not in ("topic_id", "partition"):
            short[name] = _short(each, topics)
    return short


def _short(value: Any, topics: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return value["path"] if value.keys() == _FILE_REFERENCE else _readable(value, topics)
    if isinstance(value, list | tuple):
        return [_short(each, topics) for each in value]
    return value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case OptionalLong():
            return str(value)
        case Mapping():
            inner = ", ".join(f"{_camel(str(name))}: {_text(each)}" for name, each in value.items() if each is not None)
            return f"{{{inner}}}"
        case list() | tuple():
            rest = [f"{len(value) - _MOST_ITEMS} more"] if len(value) > _MOST_ITEMS else []
            return f"[{', '.join([*map(_text, value[:_MOST_ITEMS]), *rest])}]"
        case None:
            return "null"
    text = shown(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)
