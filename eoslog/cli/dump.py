"""``eoslog dump-log``: the stored objects, as they are stored (``kafka-dump-log.sh``).

Nothing stored is trusted. Each slot, checkpoint or file is a section, and a damaged section hides no other.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

import eoslog
from eoslog.admin.transaction_descriptions import COORDINATOR_EPOCH
from eoslog.cli.options import NATURAL, Command, Invocation, parsed, pass_invocation, topic_option
from eoslog.cli.rendering import Line, OptionalLong, print_error, print_line
from eoslog.cli.tables import terminal_width
from eoslog.errors import CorruptRecord, EosLogError, InvalidRequest, OffsetOutOfRange
from eoslog.format.checked_files import read_end, read_file
from eoslog.format.data_file import corrupt_if_unreadable, open_data_file
from eoslog.format.kafka_files import ProducerSnapshotEntry, decode_producer_snapshot, iterate_transaction_index
from eoslog.format.segment_index import iterate_segment_index
from eoslog.log.checkpoint import CheckpointPart, CheckpointRoot, decode_root, inline_body, read_root
from eoslog.log.slots import (
    CHECKPOINT_ENTRY,
    SLOTS,
    CheckpointReference,
    SlotRecord,
    decode_checkpoint_entry,
    decode_line,
    first_line,
    slot_of,
    slot_path,
)
from eoslog.session.session import partition_named
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import AbortedTransaction, Batch, Partition
from eoslog.storage.object_store import ObjectStore

_RANGE = re.compile(r"(\d*)\.\.(\d*)|(\d+)")
_SLOTS_AT_ONCE = 32
_PARTITIONS_AT_ONCE = 16
_SEQUENCES = 1 << 31
_FILE_REFERENCE = {"path", "length", "crc32c"}
_OPTIONAL_IN_FILE = {"footer_crc32c", "in_record", "shared"}
_KNOWN = ".txnindex, .snapshot, .index.parquet, .parquet, .json (a slot or a checkpoint) and .part<n> of a checkpoint"


class _Bounds(NamedTuple):
    """A range of slots or offsets, both ends inclusive; None leaves an end open."""

    first: int | None = None
    last: int | None = None


def _bounds(text: str) -> _Bounds:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError
    first, last, one = (int(number) if number else None for number in found.groups())
    if first is not None and last is not None and last < first:
        raise click.BadParameter(f"{text!r} ends before it begins")
    return _Bounds(first, last) if one is None else _Bounds(one, one)


_BOUNDS = parsed(_bounds, "FIRST..LAST, FIRST.., ..LAST or one number")


class _Section(NamedTuple):
    """A part of a dump that may be damaged alone."""

    name: str
    lines: Iterator[Line]


@click.command(
    cls=Command,
    examples=[
        "",
        "--slots 10..20",
        "--checkpoints --json",
        "--topic payments --partition 0 --offsets 100..200 --footers",
        "eoslog dump-log 00000000000000000000.txnindex 00000000000000000000.snapshot",
    ],
)
@click.argument("files", type=click.Path(path_type=Path), metavar="[FILE]...", nargs=-1)
@click.option("--slots", type=_BOUNDS, metavar="RANGE", help="These slots, such as 10..20, 10.. or 10.")
@click.option("--checkpoints", is_flag=True, help="The two checkpoints that the log names, with all their content.")
@topic_option(help="The batches and index files of --partition of TOPIC.")
@click.option("--partition", type=NATURAL, help="The partition of --topic.")
@click.option("--offsets", type=_BOUNDS, metavar="RANGE", help="Only these offsets, such as 100..200.")
@click.option("--footers", is_flag=True, help="The footers of the data files too.")
@pass_invocation
def dump_log(
    invocation: Invocation,
    files: tuple[Path, ...],
    slots: _Bounds | None,
    checkpoints: bool,
    topic: str | None,
    partition: int | None,
    offsets: _Bounds | None,
    footers: bool,
) -> None:
    """Print slots, checkpoints, batches and index files as they are stored.

    By default all slots of the log are printed. FILEs are on this host. The name of a file gives its kind: slots and
    checkpoints (.json), .index.parquet, .txnindex, .snapshot and data files. Kafka's index files are printed as
    Kafka's tool prints them.

    Damage is reported on standard error, the rest is printed, and the exit status is 1.
    """
    if sum((bool(files), slots is not None, checkpoints, topic is not None)) > 1:
        raise click.UsageError("Choose one: FILEs, --slots, --checkpoints, or --topic with --partition.")
    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition go together.")
    if topic is None and (offsets is not None or footers):
        raise click.UsageError("--offsets and --footers need --topic and --partition.")
    sections: Iterator[_Section]
    if files:
        sections = (_Section(str(path), _local_lines(path)) for path in files)
    elif checkpoints:
        sections = _checkpoints(invocation.store())
    elif topic is not None and partition is not None:
        chosen = eoslog.TopicPartition(topic, partition)
        sections = _partition_files(invocation.store(), chosen, offsets or _Bounds(), footers=footers)
    else:
        sections = _slots(invocation.store(), slots or _Bounds())
    with_names = bool(files) or checkpoints or topic is not None
    damaged, section = False, None
    for section in sections:
        damaged |= not _print(section, invocation, with_names=with_names)
    if checkpoints and section is None:
        click.echo("the log names no checkpoint yet; `eoslog checkpoint` writes one", err=True)
    if damaged:
        raise click.exceptions.Exit(1)


def _print(section: _Section, invocation: Invocation, *, with_names: bool) -> bool:
    """Print a section line by line. Return False if it is damaged."""
    width = None if invocation.wide else terminal_width()
    if with_names and not invocation.as_json:
        print_line(f"Dumping {section.name}")
    try:
        for line in section.lines:
            if invocation.as_json:
                click.echo(line.json(**{"file": section.name} if with_names else {}))
            else:
                text = line.text()
                if width is not None:
                    # No name is broken.
                    text = textwrap.fill(
                        text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
                    )
                click.echo(text)
    except EosLogError as error:
        print_error(str(error))
        return False
    except OSError as error:
        print_error(f"{section.name}: {error.strerror or error}")
        return False
    return True


def _local_lines(path: Path) -> Iterator[Line]:
    """Yield the content of a file on this host. Raises: OSError, CorruptRecord, InvalidRequest"""
    name = str(path)
    if name.endswith(".parquet") and not name.endswith(".index.parquet"):
        with path.open("rb") as opened:
            yield from _footer_lines(open_data_file(opened, name))
    elif name.endswith(".json"):
        yield from _json_lines(path.read_bytes(), name)
    elif path.suffix.startswith(".part"):
        yield from part_lines(name, path.read_bytes())
    elif name.endswith((".index.parquet", ".txnindex", ".snapshot")):
        yield from _index_lines(name, path.read_bytes())
    else:
        raise InvalidRequest(f"{name}: no file of a store has such a name. Known are {_KNOWN}")


def _json_lines(body: bytes, name: str) -> Iterator[Line]:
    line = first_line(body)
    try:
        value = from_json(line)
    except ValueError as error:
        raise CorruptRecord(f"{name} is not JSON: {error}") from None
    if isinstance(value, dict) and "parts" in value:
        root = decode_root(body, name)
        yield from _root_lines(root)
        for part in root.parts:
            if part.path is None:
                yield from part_lines(part.name, inline_body(part))
    elif isinstance(value, dict) and isinstance(value.get("slot"), int):
        yield from _slot_lines(decode_line(line, value["slot"]), {})
    else:
        raise CorruptRecord(f"{name} is neither a slot record nor the root of a checkpoint")


def _slots(store: eoslog.Store, bounds: _Bounds) -> Iterator[_Section]:
    """Yield a section for each slot. The log is not folded, so that a damaged slot hides no other.

    Raises:
        NotAStore
        InvalidRequest: the log ends before.
    """
    store.describe()
    newest = store.log.replica.reader.newest_slot()
    first = _oldest_slot(store.object_store, newest) if bounds.first is None else bounds.first
    last = newest if bounds.last is None else min(newest, bounds.last)
    if first > newest:
        raise InvalidRequest(f"there is no slot {first}: the newest one is {newest}")
    try:
        topics = store.read(lambda state, slot: {each.topic_id: each.topic for each in state.topics.values()})
    except EosLogError:
        # The log cannot be folded. A dump shows ids instead of names then.
        topics = {}
    for begin in range(first, last + 1, _SLOTS_AT_ONCE):
        wanted = range(begin, min(begin + _SLOTS_AT_ONCE, last + 1))
        found = store.object_store.get_many([slot_path(slot) for slot in wanted])
        for slot, stored in zip(wanted, found, strict=True):
            yield _Section(slot_path(slot), _stored_slot(slot, stored.body if stored is not None else None, topics))


def _oldest_slot(objects: ObjectStore, newest: int) -> int:
    groups = objects.list_directories(SLOTS)
    listed = objects.list(f"{SLOTS}{max(groups)}/") if groups else iter(())
    return min((slot for slot in (slot_of(info.path) for info in listed) if slot is not None), default=newest)


def _stored_slot(slot: int, body: bytes | None, topics: Mapping[str, str]) -> Iterator[Line]:
    if body is None:
        raise CorruptRecord(f"slot {slot} is not there: it was deleted, or the log is damaged")
    yield from _slot_lines(decode_line(first_line(body), slot), topics)


def _checkpoints(store: eoslog.Store) -> Iterator[_Section]:
    """Yield the checkpoints that the newest slot names, the newest first: each root, then its parts.

    Raises:
        NotAStore, CorruptRecord
    """
    store.describe()
    objects, newest = store.object_store, store.log.replica.reader.newest_slot()
    for reference in _references(decode_line(first_line(objects.get(slot_path(newest)).body), newest)):
        parts: list[CheckpointPart] = []
        yield _Section(reference.path, _stored_root(objects, reference, parts))
        for part in parts:
            yield _Section(f"{part.path or reference.path} ({part.name})", _stored_part(objects, part))


def _references(record: SlotRecord) -> list[CheckpointReference]:
    own = [
        decode_checkpoint_entry(entry).reference for entry in record.entries if entry.get("type") == CHECKPOINT_ENTRY
    ]
    named = [*own, record.checkpoint, record.previous_checkpoint]
    return [reference for reference in dict.fromkeys(named) if reference is not None][:2]


def _stored_root(objects: ObjectStore, reference: CheckpointReference, parts: list[CheckpointPart]) -> Iterator[Line]:
    root = read_root(objects, reference)
    parts += root.parts
    yield from _root_lines(root)


def _stored_part(objects: ObjectStore, part: CheckpointPart) -> Iterator[Line]:
    if part.path is None:
        body = inline_body(part)
    else:
        # Without the checks of a reference: a length that no reference has is a damage that read_file reports.
        file = FileReference.model_construct(path=part.path, length=part.length, crc32c=part.crc32c)
        body = read_file(objects, file)
    yield from part_lines(part.name, body)


def _partition_files(
    store: eoslog.Store, chosen: eoslog.TopicPartition, bounds: _Bounds, *, footers: bool
) -> Iterator[_Section]:
    """Yield the batches, aborted transactions and producers of a partition: the sealed segments' files, then the state.

    Raises:
        UnknownTopicOrPartition, OffsetOutOfRange
    """
    partition: Partition = store.read(lambda state, slot: partition_named(state, chosen)[1].copy())
    first = partition.log_start_offset if bounds.first is None else bounds.first
    last = partition.high_watermark - 1 if bounds.last is None else bounds.last
    if partition.high_watermark and not 0 <= first < partition.high_watermark:
        raise OffsetOutOfRange(
            f"partition {chosen.topic}-{chosen.partition} has no offset {first}: it holds {partition.log_start_offset} "
            f"to {partition.high_watermark - 1}"
        )

    def within(batch: Batch) -> bool:
        return batch.end_offset > first and batch.base_offset <= last

    objects = store.object_store
    for segment in partition.sealed:
        if segment.end_offset <= first or segment.base_offset > last:
            continue
        for file in filter(None, (segment.index, segment.txnindex, segment.snapshot)):
            yield _Section(file.path, _stored_index(objects, file, within))
        if footers:
            try:
                batches = iterate_segment_index(read_file(objects, segment.index), segment.index.path)
                yield from _footers(objects, filter(within, batches))
            except CorruptRecord:
                # The section of the index has reported it.
                continue
    active = list(filter(within, partition.active))
    name = f"{chosen.topic}-{chosen.partition}, in the state from offset {partition.segment_base_offset}"
    yield _Section(f"batches of {name}", map(_batch_line, active))
    if partition.aborted:
        yield _Section(f"aborted transactions of {name}", map(_aborted_line, partition.aborted))
    if footers:
        yield from _footers(objects, active)


def _stored_index(objects: ObjectStore, file: FileReference, wanted: Callable[[Batch], bool]) -> Iterator[Line]:
    yield from _index_lines(file.path, read_file(objects, file), wanted)


def _index_lines(name: str, body: bytes, wanted: Callable[[Batch], bool] | None = None) -> Iterator[Line]:
    """Yield the content of an index file of a segment. The lines before damage are printed."""
    if name.endswith(".index.parquet"):
        yield from (_batch_line(batch) for batch in iterate_segment_index(body, name) if not wanted or wanted(batch))
    elif name.endswith(".txnindex"):
        yield from map(_aborted_line, iterate_transaction_index(body, name))
    else:
        yield from map(_producer_line, decode_producer_snapshot(body, name))


def _footers(objects: ObjectStore, batches: Iterable[Batch]) -> Iterator[_Section]:
    before: str | None = None
    for batch in batches:
        if batch.file is not None and batch.file.path != before:
            before = batch.file.path
            yield _Section(batch.file.path, _stored_footer(objects, batch.file, batch.slot))


def _stored_footer(objects: ObjectStore, file: FileReference, slot: int) -> Iterator[Line]:
    yield from _footer_lines(open_data_file(pa.BufferReader(read_end(objects, file, slot)), file.path))


def _slot_lines(record: SlotRecord, topics: Mapping[str, str]) -> Iterator[Line]:
    """Yield a line per entry of a slot. ``topics`` has the names of topic ids; an id without one is shown itself."""
    position = {"slot": record.slot, "append_id": record.append_id}
    if not record.entries:
        yield Line(position | {"entries": 0}, position | {"prev": record.prev, "entry": None})
    for entry in record.entries:
        rest = dict(entry)
        head = position | {"time_ms": rest.pop("time_ms", None), "type": rest.pop("type", None)}
        yield Line(head | _readable(rest, topics), position | {"prev": record.prev, "entry": entry})


def _aborted_line(entry: AbortedTransaction) -> Line:
    """Return an aborted transaction as Kafka prints one of a ``.txnindex``."""
    return Line({"version": 0} | _fields(entry, "producer_id", "first_offset", "last_offset", "last_stable_offset"))


def _producer_line(entry: ProducerSnapshotEntry) -> Line:
    """Return a producer as Kafka prints one of a ``.snapshot``."""
    first_offset = entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None
    fields: dict[str, Any] = {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.epoch,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_first_offset": OptionalLong(first_offset),
        "last_timestamp": entry.timestamp,
    }
    if entry.last_sequence >= 0:
        fields["first_sequence"] = (entry.last_sequence - entry.offset_delta) % _SEQUENCES
        fields |= _fields(entry, "last_sequence", "last_offset", "offset_delta", "timestamp")
    return Line(fields, fields | {"current_txn_first_offset": first_offset})


def _batch_line(batch: Batch) -> Line:
    """Return a batch or a control row in the words of Kafka's dump of a ``.log``."""
    first, file, control = batch.base_sequence, batch.file, batch.control
    return Line(
        {
            "base_offset": batch.base_offset,
            "last_offset": batch.end_offset - 1,
            "count": batch.record_count,
            "base_sequence": first,
            "last_sequence": first if first < 0 else (first + batch.last_offset_delta) % _SEQUENCES,
            **_fields(batch, "producer_id", "producer_epoch"),
            "is_transactional": batch.transactional,
            "is_control": control is not None,
            "end_txn_marker": control.name if control is not None else None,
            "coordinator_epoch": COORDINATOR_EPOCH if control is not None else None,
            **_fields(batch, "min_timestamp", "max_timestamp"),
            "delete_horizon_ms": batch.delete_horizon_ms if batch.delete_horizon_ms >= 0 else None,
            "outcome": batch.outcome.value,
            **_fields(batch, "slot", "end_slot", "transactional_id"),
            "file": file.path if file is not None else None,
            "in_record": bool(file.in_record) if file is not None else None,
            "shared_object": file.shared.path if file is not None and file.shared is not None else None,
            "position": file.shared.position if file is not None and file.shared is not None else None,
            "first_row": batch.first_row if file is not None else None,
            "size": file.length if file is not None else None,
            "crc32c": file.crc32c if file is not None else None,
            "footer_crc32c": file.footer_crc32c if file is not None else None,
        }
    )


def _footer_lines(file: pq.ParquetFile) -> Iterator[Line]:
    """Yield a line for the footer of a data file, then one per row group."""
    footer = file.metadata
    columns = [f"{field.name} {field.type}" for field in file.schema_arrow]
    head = {"rows": footer.num_rows, "row_groups": footer.num_row_groups, "columns": columns}
    yield Line(head | {"created_by": footer.created_by, "footer_bytes": footer.serialized_size})
    first_row = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        position = {"row_group": number, "first_row": first_row}
        yield Line(position | {"rows": group.num_rows, "bytes": group.total_byte_size})
        first_row += group.num_rows


def _root_lines(root: CheckpointRoot) -> Iterator[Line]:
    """Yield a line for the root of a checkpoint, then one per part."""
    yield Line(_fields(root, "format", "slot", "append_id") | {"parts": len(root.parts)})
    for part in root.parts:
        fields = {"part": part.name} | _fields(part, "changed_slot", "length", "crc32c")
        yield Line(fields | {"path": part.path or "in the root"})


def _fields(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def part_lines(name: str, body: bytes) -> Iterator[Line]:
    """Yield a line per row of a checkpoint's part, and a line per element of its lists.

    Raises:
        CorruptRecord: the part is neither JSON nor Parquet.
    """
    with corrupt_if_unreadable(name):
        rows = iter([json.loads(body)]) if body.lstrip().startswith(b"{") else _rows(body)
    while True:
        with corrupt_if_unreadable(name):
            row = next(rows, None)
        if row is None:
            return
        lists = {key: each for key, each in row.items() if _is_list_of_objects(each)}
        plain = {key: each for key, each in row.items() if key not in lists}
        yield Line({"part": name} | plain | {key: len(each) for key, each in lists.items()})
        # Partitions of several topics share a part, so each line says its partition.
        owner = {}
        if "topic_id" in row and "partition" in row:
            owner = {"topic_partition": f"{row['topic_id']}-{row['partition']}"}
        for key, each in lists.items():
            head = {"part": name, "of": key} | owner
            for element in each:
                yield Line(head | _readable(element, {}), head | element)


def _rows(body: bytes) -> Iterator[dict[str, Any]]:
    for batch in pq.ParquetFile(pa.BufferReader(body)).iter_batches(batch_size=_PARTITIONS_AT_ONCE):
        yield from batch.to_pylist()


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(each, dict) for each in value)


def _readable(value: Mapping[str, Any], topics: Mapping[str, str]) -> dict[str, Any]:
    """Return an entry, or part of one, in short: partitions with the names of topics, files as paths."""
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
        return value["path"] if value.keys() - _OPTIONAL_IN_FILE == _FILE_REFERENCE else _readable(value, topics)
    if isinstance(value, list | tuple):
        return [_short(each, topics) for each in value]
    return value
