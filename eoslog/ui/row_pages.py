"""Rows of one partition by offset, time, key or condition, as of now or an earlier slot; and the page of one row.

Other readers may abort a transaction to see more rows. The console never does. So it reads at ``read_uncommitted`` or
``snapshot``, which do not wait for open transactions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.format.partitioner import partition_for_key, partitions_for_key_columns
from eoslog.format.topic_schemas import stored_schema
from eoslog.read.columns import HEADERS_COLUMN, TRANSACTION_COLUMNS
from eoslog.read.isolation import IsolationLevel
from eoslog.read.offset_lookup import offset_for_time
from eoslog.read.scan import Scan
from eoslog.read.time_travel import timestamp_ms
from eoslog.session.session import check_partition
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.display import CELL_BYTES, VALUE_BYTES, Cell, cell, is_number, pretty
from eoslog.ui.pages import Page, Query, with_zone
from eoslog.wording import quoted

ROWS = 50
_MOST_COLUMNS = 100
_MOST_COLUMNS_OF_A_ROW = 1_000
_LARGEST_FETCH_BYTES = 32 << 20
"""If the files of rows are larger in total, their values are shown only on demand."""
_SEARCHED_BYTES = 64 << 20
"""One search reads files of about this size. The page shows where it stopped."""
_SEARCHED_FILES = 500
_SEARCHED_BY = ("key", "where", "contains", "field")
_VIEWS = {
    "all": "all rows, with their outcome",
    "committed": "committed rows",
    "stable": "rows that read_committed shows",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row with the transaction that wrote it."""

    offset: int
    timestamp_ms: int | None
    cells: Sequence[Cell]
    outcome: str
    """``committed``, ``aborted``, ``open``, or the type of a control row: ``COMMIT`` or ``ABORT``."""
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    sequence: int | None
    slot: int | None
    """The slot that ended the transaction; None while it is open."""
    commit_ms: int | None


class _Place(NamedTuple):
    """The partition of a page, and the state in which it was found."""

    topic: Topic
    partition: Partition
    ends: Sequence[tuple[int, int, int]]
    """The number, the log start and the high watermark of each partition."""
    slot: int
    floor: int
    """The oldest slot for time travel."""


class _Found(NamedTuple):
    """Rows, and the offsets from which older and later rows are read."""

    rows: Sequence[Row]
    before: int | None
    """Older rows end at this offset (exclusive); None if there are none."""
    after: int | None
    """The offset at which later rows begin; None if there are none."""
    skipped_bytes: int = 0
    """The size of the files that were not fetched for their values; 0 if values were fetched."""
    searched_to: int | None = None
    """The offset at which a search stopped before the end; None if it came to the end."""


_NOTHING = _Found((), None, None)


def _place(console: ConsoleStore, query: Query) -> _Place:
    name, is_of_path = query.text("topic"), "partition" in query.parts

    def snapshot(state: StoreState, slot: int) -> _Place:
        topic = topic_named(state, name)
        partitions = [state.partitions[each] for each in topic.partition_ids()]
        chosen = query.partition() if is_of_path else _wanted_partition(query, topic)
        if chosen is None:
            filled = (each for each in partitions if each.high_watermark > each.log_start_offset)
            chosen = next(filled, partitions[0]).id.partition
        check_partition(topic, chosen)
        partition = state.partitions[PartitionId(topic.topic_id, chosen)]
        ends = [(each.id.partition, each.log_start_offset, each.high_watermark) for each in partitions]
        return _Place(topic, partition.copy(), ends, slot, max(topic.created_slot, partition.snapshot_floor))

    return console.store.read(snapshot)


class _Reader:
    """Reads rows of one partition for one page."""

    def __init__(self, console: ConsoleStore, place: _Place, query: Query) -> None:
        self._store = console.store
        self._place = place
        self.view = query.text("view") or "all"
        if self.view not in _VIEWS:
            raise InvalidOption(f"view is {quoted(self.view)}; it must be one of {', '.join(_VIEWS)}")
        self.as_of_slot = query.number("slot")
        date = query.text("date")
        self.as_of_ms = timestamp_ms(with_zone(date)) if date and self.as_of_slot is None else None
        if (self.as_of_slot is not None or self.as_of_ms is not None) and self.view == "all":
            self.view = "committed"
        self._all_values = query.text("values") == "all"
        partition = place.partition
        self.start = partition.log_start_offset
        self.end = partition.last_stable_offset if self.view == "stable" else partition.high_watermark
        self._columns = value_columns(place.topic)

    def scan(self, start: int, end: int, columns: Sequence[str], predicate: str | None = None) -> Scan:
        """Plan a read of the offsets from ``start`` to ``end`` (exclusive)."""
        number = self._place.partition.id.partition
        travels = self.view != "all"
        return self._store.scan(
            self._place.topic.topic,
            isolation_level=IsolationLevel.SNAPSHOT if travels else IsolationLevel.READ_UNCOMMITTED,
            columns=columns,
            partitions=[number],
            starting_offsets={number: start},
            ending_offsets={number: end},
            slot=self.as_of_slot,
            timestamp=self.as_of_ms,
            include_control_rows=not travels,
            predicate=predicate,
        )

    def forward(self, start: int) -> _Found:
        """Return the first rows at or after an offset."""
        start = max(start, self.start)
        rows, skipped = self._read(min(start, self.end), self.end, first=True)
        after = rows[-1].offset + 1 if len(rows) == ROWS and rows[-1].offset + 1 < self.end else None
        return _Found(rows, start if start > self.start else None, after, skipped)

    def backward(self, end: int) -> _Found:
        """Return the last rows before an offset. It widens the range of offsets until there are enough rows."""
        end = max(self.start, min(end, self.end))
        span = ROWS
        while True:
            start = max(self.start, end - span)
            count = self.scan(start, end, [self._columns.offset]).record_count
            if count >= ROWS or start == self.start:
                break
            span *= 4
        rows, skipped = self._read(start, end, first=False)
        first = rows[0].offset if rows else start
        return _Found(rows, first if first > self.start else None, end if end < self.end else None, skipped)

    def search(self, start: int, wanted: _Wanted) -> _Found:
        """Return the first rows at or after an offset that match. It reads a limited amount of bytes."""
        start = min(max(start, self.start), self.end)
        planned = self.scan(start, self.end, [self._columns.offset], wanted.predicate)
        end, taken = self.end, 0
        for number, file in enumerate(planned.planned_files()):
            taken += file.length
            first = file.ranges[0].base_offset
            if number and (taken > _SEARCHED_BYTES or number >= _SEARCHED_FILES) and first is not None:
                end = first
                break
        scan = self.scan(start, end, self._columns.all, wanted.predicate)
        rows: list[Row] = []
        for batch in scan.to_batches():
            table = pa.Table.from_batches([batch])
            rows += self._rows(wanted.chosen(table).slice(0, ROWS - len(rows)))
            if len(rows) == ROWS:
                break
        before = start if start > self.start else None
        if len(rows) == ROWS:
            return _Found(rows, before, rows[-1].offset + 1)
        return _Found(rows, before, end if end < self.end else None, searched_to=end if end < self.end else None)

    def _read(self, start: int, end: int, *, first: bool) -> tuple[list[Row], int]:
        """Return the first or last rows of a range, and how many bytes were not fetched."""
        scan = self.scan(start, end, self._columns.all)
        scan = scan.limit(ROWS) if first else scan
        skipped = 0
        if not self._all_values and sum(file.length for file in scan.planned_files()) > _LARGEST_FETCH_BYTES:
            skipped = sum(file.length for file in scan.planned_files())
            without = self.scan(start, end, self._columns.without_values)
            scan = without.limit(ROWS) if first else without
        kept: list[pa.RecordBatch] = []
        rows = 0
        for batch in scan.to_batches():
            kept.append(batch)
            rows += batch.num_rows
            while not first and kept and rows - kept[0].num_rows >= ROWS:
                rows -= kept.pop(0).num_rows
        table = pa.Table.from_batches(kept, schema=scan.schema)
        return self._rows(table if first else table.slice(max(0, table.num_rows - ROWS))), skipped

    def _rows(self, table: pa.Table) -> list[Row]:
        return list(rows_of(table, self._columns))


class ValueColumns(NamedTuple):
    """The columns of a topic as its page shows them."""

    offset: str
    timestamp: str
    values: Sequence[str]
    more: int
    """The number of further columns that a list leaves out."""
    without_values: Sequence[str]
    """The columns that have no value of a user, so that large values are not fetched."""

    @property
    def all(self) -> list[str]:
        """All columns to read."""
        return [*self.without_values, *self.values]


def value_columns(topic: Topic, *, headers: bool = False, most: int = _MOST_COLUMNS) -> ValueColumns:
    """Return the columns of a topic's page.

    Args:
        headers: include the headers of Kafka records.
        most: how many columns of a user at most.
    """
    transaction = TRANSACTION_COLUMNS.names
    if topic.topic_schema.kind == "records":
        values = ["key", "value", *([HEADERS_COLUMN.name] if headers else [])]
        return ValueColumns("offset", "timestamp", values, 0, ["offset", "timestamp", *transaction])
    names = stored_schema(topic).names
    place = ["_offset", "_timestamp", *transaction]
    return ValueColumns("_offset", "_timestamp", names[:most], max(0, len(names) - most), place)


def rows_of(table: pa.Table, columns: ValueColumns, limit: int = CELL_BYTES) -> Iterator[Row]:
    """Yield the rows of a table, with at most ``limit`` bytes of each value."""
    known: dict[str, list[Any]] = {name: _plain(table.column(name)) for name in columns.without_values}
    shown = [table.column(name) for name in columns.values if name in table.column_names]
    for number in range(table.num_rows):
        of_row = {name: values[number] for name, values in known.items()}
        committed = of_row["_commit_timestamp"]
        outcome = "open" if of_row["_slot"] is None else "committed" if committed is not None else "aborted"
        yield Row(
            offset=of_row[columns.offset],
            timestamp_ms=of_row[columns.timestamp],
            cells=[cell(column[number], limit) for column in shown],
            outcome=of_row["_control"] or outcome,
            transactional_id=of_row["_transactional_id"],
            producer_id=of_row["_producer_id"],
            producer_epoch=of_row["_producer_epoch"],
            sequence=of_row["_sequence"],
            slot=of_row["_slot"],
            commit_ms=committed,
        )


def _plain(column: pa.ChunkedArray[Any]) -> list[Any]:
    """Return the values of a column, and times in ms: a time may be one that Python cannot hold."""
    if pa.types.is_timestamp(column.type):
        microseconds = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        return [None if each is None else each // 1_000 for each in microseconds]
    return list(column.to_pylist())


def _offset_at(console: ConsoleStore, place: _Place, text: str) -> int:
    """Return the offset of the first row at or after a time; the partition's end if there is none."""
    time_ms = timestamp_ms(with_zone(text))
    found = offset_for_time(
        console.store, place.topic, place.partition, isolation=IsolationLevel.READ_UNCOMMITTED, timestamp_ms=time_ms
    )
    return place.partition.high_watermark if found is None else found.offset


class _Field(NamedTuple):
    """A field of JSON values, and the value that it must have."""

    path: Sequence[str]
    """The names of the members from the outside in."""
    value: str

    def is_in(self, text: bytes | None) -> bool:
        """Return True if a text is JSON with the value in this field."""
        try:
            found = None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            return False
        for name in self.path:
            if not isinstance(found, dict) or name not in found:
                return False
            found = found[name]
        return found == self.value or json.dumps(found, ensure_ascii=False) == self.value


class _Wanted(NamedTuple):
    """The condition of a search."""

    predicate: str | None
    key: bytes | None = None
    """The key of Kafka records. A predicate cannot compare binary columns."""
    contained: str | None = None
    """A part of the values of Kafka records."""
    field: _Field | None = None

    def chosen(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table that match, of those that match the predicate."""
        if self.key is not None:
            table = table.filter(pc.equal(table.column("key"), pa.scalar(self.key, pa.binary())))
        if self.contained is not None:
            table = table.filter(pc.match_substring(table.column("value"), self.contained))
        if self.field is not None:
            table = table.filter(pa.array([self.field.is_in(each) for each in table.column("value").to_pylist()]))
        return table


def _wanted(query: Query, topic: Topic) -> _Wanted | None:
    """Return the condition of the search; None if there is no search. Raises: InvalidOption"""
    key, condition = query.text("key"), query.text("where") or None
    if topic.topic_schema.kind == "records":
        contained, field = query.text("contains") or None, _field(query.text("field"))
        wanted = _Wanted(condition, key.encode() or None, contained, field)
        return None if wanted == _Wanted(None) else wanted
    if not key:
        return None if condition is None else _Wanted(condition)
    name = _key_column(topic).name
    literal = key if is_number(_key_column(topic).type) else _text_literal(key)
    equal = f"`{name.replace('`', '``')}` = {literal}"
    return _Wanted(f"{equal} AND ({condition})" if condition else equal)


def _field(text: str) -> _Field | None:
    """Return the field of JSON values in a search. Raises: InvalidOption"""
    if not text:
        return None
    path, is_equal, value = text.partition("=")
    if not path or not is_equal:
        raise InvalidOption(f"field is {quoted(text)}; it must be NAME=VALUE, such as card.country=DE")
    return _Field(path.strip().split("."), value.strip())


def _text_literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _key_column(topic: Topic) -> pa.Field[Any]:
    names = topic.topic_schema.key
    if len(names) != 1:
        kind = "no key" if not names else "a key of several columns"
        raise InvalidOption(f"topic {topic.topic} has {kind}. Give a condition instead")
    return stored_schema(topic).field(names[0])


def _wanted_partition(query: Query, topic: Topic) -> int | None:
    """Return the partition that a query asks for; None if it asks for none.

    A form always names a partition. So the partition of a key counts before it, and ``in`` before both: the topic may
    have had fewer partitions, or its writers another partitioner.
    """
    if query.text("in"):
        return query.number("in")
    key = query.text("key")
    return _partition_of(key, topic) if key else query.number("partition")


def _partition_of(key: str, topic: Topic) -> int:
    """Return the partition of a key by the topic's number of partitions. Raises: InvalidOption"""
    if topic.topic_schema.kind == "records":
        return partition_for_key(key.encode(), topic.partitions)
    try:
        return int(partitions_for_key_columns([pa.array([key]).cast(_key_column(topic).type)], topic.partitions)[0])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidOption(f"the key {quoted(key)} is no {_key_column(topic).type}") from None


def _found(console: ConsoleStore, place: _Place, reader: _Reader, query: Query) -> _Found:
    wanted, start, end = _wanted(query, place.topic), query.number("from"), query.number("before")
    if query.text("time"):
        start = _offset_at(console, place, query.text("time"))
    if wanted is not None:
        return reader.search(reader.start if start is None else start, wanted)
    if start is not None:
        return reader.forward(start)
    return reader.backward(reader.end if end is None else end)


def rows(console: ConsoleStore, query: Query) -> Page:
    """Return the page with rows of one partition."""
    place = _place(console, query)
    reader = _Reader(console, place, query)
    found, problem = _NOTHING, None
    # Only the ends of the partition are live, because rows do not change.
    if not query.is_live:
        try:
            found = _found(console, place, reader, query)
        except (InvalidOption, OffsetOutOfRange) as error:
            # The page keeps the form, so that the user can correct a condition or a date.
            problem = str(error)
    return Page(
        "rows.html",
        f"Rows of {place.topic.topic}-{place.partition.id.partition}",
        _shown(place, reader, found)
        | {
            "is_search": any(query.text(name) for name in _SEARCHED_BY),
            "key_name": "key"
            if place.topic.topic_schema.kind == "records"
            else ", ".join(place.topic.topic_schema.key),
            "problem": problem,
        },
        400 if problem else 200,
        is_live=problem is None,
    )


def _shown(place: _Place, reader: _Reader, found: _Found) -> dict[str, Any]:
    """Return the values of a page with a list of rows."""
    columns, stored = value_columns(place.topic), stored_schema(place.topic)
    return {
        "place": place,
        "found": found,
        "columns": columns.values if not found.skipped_bytes else [],
        "numbers": {name for name in columns.values if is_number(stored.field(name).type)},
        "more_columns": columns.more,
        "views": _VIEWS,
        "reader": reader,
    }


def follow(console: ConsoleStore, query: Query) -> Page:
    """Return the page that follows one partition: its newest rows, the newest first."""
    # The stream must not move to another partition when that one gets rows. So a page without a partition means 0.
    query = replace(query, values={"partition": query.text("partition") or "0", "view": query.text("view")})
    place = _place(console, query)
    reader = _Reader(console, place, query)
    partition, topic = place.partition, place.topic
    # Without a new row or marker, the partition has the same rows with the same outcomes. Only compaction removes some.
    ends = partition.log_start_offset, partition.last_stable_offset, partition.high_watermark
    key = partition.id, reader.view, ends, topic.schema_version
    found = console.newest_rows(key, lambda: reader.backward(reader.end))
    return Page(
        "follow.html",
        f"New rows of {topic.topic}-{partition.id.partition}",
        _shown(place, reader, found._replace(rows=found.rows[::-1])) | {"most": ROWS},
    )


def row(console: ConsoleStore, query: Query) -> Page:
    """Return the page of one row."""
    place, offset = _place(console, query), query.natural("offset", 0)
    number, name = place.partition.id.partition, place.topic.topic
    columns = value_columns(place.topic, headers=True, most=_MOST_COLUMNS_OF_A_ROW)
    table = console.store.scan(
        name,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        columns=columns.all,
        partitions=[number],
        starting_offsets={number: offset},
        ending_offsets={number: offset + 1},
        include_control_rows=True,
    ).to_table()
    if not table.num_rows:
        raise OffsetOutOfRange(f"partition {name}-{number} has no row at offset {offset}: compaction has removed it")
    (found,) = rows_of(table, columns, VALUE_BYTES)
    values = [
        (title, each, pretty(_whole(table, title)) if each.cut_bytes is None and each.kind != "null" else None)
        for title, each in zip(columns.values, found.cells, strict=True)
    ]
    return Page(
        "row.html",
        f"Row {offset} of {name}-{number}",
        {"place": place, "row": found, "values": values, "partition": number, "more_columns": columns.more},
        is_live=False,
    )


def _whole(table: pa.Table, name: str) -> bytes | str:
    value = table.column(name)[0].as_py()
    return value if isinstance(value, (bytes, str)) else ""
