"""The history of a store: the changes of topics by each slot of the log, newest first (Delta's ``DESCRIBE HISTORY``).

It comes from the log's records and ends at the oldest slot. Deletion of old slots shortens the history, but keeps the
changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from eoslog.arguments import is_whole_number
from eoslog.errors import InvalidEntry, InvalidOption, UnsupportedFormat
from eoslog.log.slots import SlotRecord, records_backwards
from eoslog.session.session import Session
from eoslog.state.entries import (
    Entry,
    FilesSkipped,
    LogStartMoved,
    PartitionsCreated,
    SegmentsReplaced,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    TopicSchemaChanged,
)
from eoslog.state.names import check_id
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.state_machine import decode_entry
from eoslog.state.store_state import StoreState
from eoslog.state.topics import topic_named
from eoslog.state.transaction_entries import BatchAppended, StagedBatch, TransactionEnded, WrittenRows
from eoslog.storage.calls import ExclusiveIterator
from eoslog.wording import quoted

_NO_CHANGE = frozenset(
    {
        "store",
        "features",
        "init",
        "add_to_transaction",
        "prepare",
        "offsets",
        "group",
        "delete_offsets",
        "delete_group",
        "seal",
        "clean",
        "horizon",
        "pending_deletions_done",
        "expire",
        "checkpoint",
    }
)
"""The types of entries that change neither a topic nor its rows."""
_OF_SUMMARY = ("duration_ms", "query_id", "query_name", "batch_id", "engine")
"""The fields of an operation that the summary of a commit has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One change of topics by a slot of the log. A field that does not apply or is unknown is None."""

    slot: int
    timestamp: int | None
    """The log's time at the slot (ms since the epoch)."""
    operation: str
    """A commit is ``append``, ``overwrite`` or ``complete``, or ``commit`` if its transaction wrote no rows. Other
    operations are ``abort``, ``create_topic``, ``delete_topic``, ``topic_config``, ``topic_schema``,
    ``create_partitions``, ``delete_records``, ``retention``, ``compact_files`` and ``compact_keys``. An entry of a type
    that this version does not know has that type's name."""
    topics: tuple[str, ...]
    """The names of the changed topics. A deleted topic that the history no longer names appears by its id."""
    rows: int | None = None
    """Number of rows that a commit wrote to the requested topics."""
    files: int | None = None
    """Number of data files of these rows, or of the files that a compaction leaves."""
    bytes: int | None = None
    """Total size of these files in bytes."""
    duration_ms: int | None = None
    """Time from the start of the transaction, or from Spark's planning of the write, to the commit (ms)."""
    outcome: str | None = None
    """``commit`` or ``abort``."""
    reason: str | None = None
    """The reason for the end of the transaction: ``client``, ``timeout``, ``fence`` or ``admin``."""
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    application_id: str | None = None
    """The application of the committed application version. For a stream sink it is the transactional id."""
    version: int | None = None
    """The committed application version. For a stream sink it is the number of the micro-batch."""
    query_id: str | None = None
    query_name: str | None = None
    batch_id: int | None = None
    task_count: int | None = None
    """The number of tasks of a job."""
    engine: str | None = None
    """The engine that ran the job, for example ``spark-4.3.0``."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Further details of the operation, as JSON values."""


def operations_of(
    slot: int,
    time_ms: int | None,
    entries: Sequence[Entry | Mapping[str, Any]],
    *,
    names: dict[str, str],
    topic_id: str | None,
) -> list[Operation]:
    """Return the operations of a slot's entries, the last one first.

    Args:
        slot: the slot.
        time_ms: the log's time at the slot.
        entries: the entries of the slot. An entry of an unknown type is a mapping.
        names: names of topics by their ids. The function adds topics that the entries create or delete.
        topic_id: include only operations on this topic, and count only its rows; None includes all topics.
    """
    for entry in entries:
        if isinstance(entry, (TopicCreated, TopicDeleted)):
            names[entry.topic_id] = entry.topic
    found = _Slot(slot, time_ms, names, topic_id)
    operations = [operation for operation in found.operations(entries) if operation is not None]
    return operations[::-1]


@dataclass(frozen=True, slots=True)
class _Slot:
    slot: int
    time_ms: int | None
    names: Mapping[str, str]
    topic_id: str | None

    def operations(self, entries: Sequence[Entry | Mapping[str, Any]]) -> Iterator[Operation | None]:
        plain: dict[tuple[int, int], list[BatchAppended]] = {}
        moved: dict[tuple[str, str], list[LogStartMoved]] = {}
        replaced: list[LogStartMoved] = []
        for entry in entries:
            match entry:
                case BatchAppended(transactional_id=None):
                    plain.setdefault((entry.producer_id, entry.producer_epoch), []).append(entry)
                case LogStartMoved(reason="overwrite"):
                    replaced.append(entry)
                case LogStartMoved():
                    moved.setdefault((entry.topic_id, entry.reason), []).append(entry)
                case TransactionEnded(outcome="commit"):
                    # An overwrite first moves the log start. The commit that replaces the rows follows in this record.
                    yield self._commit(entry, replaced)
                    replaced = []
                case TransactionEnded():
                    yield self._ended(entry, "abort", {marker.topic_id for marker in entry.markers})
                case BatchAppended():
                    continue
                case _:
                    yield self._other(entry)
        for batches in plain.values():
            yield self._plain(batches)
        for (topic_id, reason), starts in moved.items():
            offsets = {str(each.partition): each.offset for each in starts}
            yield self._operation(reason, {topic_id}, parameters={"offsets": offsets})

    def _operation(self, operation: str, topic_ids: Iterable[str], **fields: Any) -> Operation | None:
        touched = set(topic_ids)
        if self.topic_id is not None and self.topic_id not in touched:
            return None
        topics = tuple(sorted(self.names.get(each, each) for each in touched))
        return Operation(slot=self.slot, timestamp=self.time_ms, operation=operation, topics=topics, **fields)

    def _commit(self, entry: TransactionEnded, replaced: Sequence[LogStartMoved]) -> Operation | None:
        written = _written(entry)
        touched = {marker.topic_id for marker in entry.markers} | {each.topic_id for each in replaced}
        summary, work = entry.summary, entry.application_version
        operation = (summary.operation if summary is not None else None) or "append"
        if not touched and entry.task_count == 0:
            operation = "commit"
        if work is not None and not touched and ":" in work.sink:
            # A job without rows; its sink names the topic.
            touched = {work.sink.rpartition(":")[2]}
        fields = self._numbers(written)
        if groups := sorted({each.group for each in entry.offsets}):
            fields["parameters"] = {"groups": groups}
        if work is not None:
            fields |= {"application_id": work.application_id, "version": work.version}
        if summary is not None:
            fields |= {name: getattr(summary, name) for name in _OF_SUMMARY}
        return self._ended(entry, operation, touched, **fields)

    def _ended(
        self, entry: TransactionEnded, operation: str, topic_ids: Iterable[str], **fields: Any
    ) -> Operation | None:
        """Return the operation of the end of a transaction."""
        return self._operation(
            operation,
            topic_ids,
            outcome=entry.outcome,
            reason=entry.reason,
            transactional_id=entry.transactional_id,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            task_count=entry.task_count or None,
            **fields,
        )

    def _plain(self, batches: Sequence[BatchAppended]) -> Operation | None:
        written = [_of_batch(each) for each in batches]
        return self._operation(
            "append",
            {each.topic_id for each in batches},
            outcome="commit",
            producer_id=batches[0].producer_id,
            producer_epoch=batches[0].producer_epoch,
            **self._numbers(written),
        )

    def _numbers(self, written: Sequence[WrittenRows] | None) -> dict[str, Any]:
        if written is None:
            return {"rows": None, "files": None, "bytes": None}
        counted = [each for each in written if self.topic_id in (None, each.topic_id)]
        return {
            "rows": sum(each.rows for each in counted),
            "files": sum(each.files for each in counted),
            "bytes": sum(each.bytes for each in counted),
        }

    def _other(self, entry: Entry | Mapping[str, Any]) -> Operation | None:
        match entry:
            case TopicCreated():
                parameters = {
                    "partitions": entry.partitions,
                    "kind": entry.topic_schema.kind,
                    "config": entry.config.model_dump(exclude_defaults=True),
                }
                return self._operation("create_topic", {entry.topic_id}, parameters=parameters)
            case TopicDeleted():
                return self._operation("delete_topic", {entry.topic_id})
            case TopicConfigChanged():
                values = entry.config.model_dump(include=set(entry.changed))
                return self._operation("topic_config", {entry.topic_id}, parameters={"config": values})
            case TopicSchemaChanged():
                parameters = {"schema_version": entry.schema_version}
                return self._operation("topic_schema", {entry.topic_id}, parameters=parameters)
            case PartitionsCreated():
                parameters = {"partitions": entry.partitions}
                return self._operation("create_partitions", {entry.topic_id}, parameters=parameters)
            case SegmentsReplaced(reason="skip_files") | FilesSkipped():
                return self._operation(
                    "skip_files",
                    {entry.topic_id},
                    rows=sum(each.rows for each in entry.skipped),
                    files=len(entry.skipped),
                    parameters={
                        "partition": entry.partition,
                        "skipped": [each.model_dump() for each in entry.skipped],
                    },
                )
            case SegmentsReplaced():
                parameters = {"partition": entry.partition, "segments": len(entry.replaced)}
                return self._operation(
                    entry.reason, {entry.topic_id}, files=entry.file_count, bytes=entry.bytes, parameters=parameters
                )
        fields = entry if isinstance(entry, Mapping) else dict(entry)
        type_name, topic_id = fields.get("type"), fields.get("topic_id")
        if type_name in _NO_CHANGE or not isinstance(type_name, str) or not isinstance(topic_id, str):
            return None
        return self._operation(type_name, {topic_id})


def _written(entry: TransactionEnded) -> list[WrittenRows] | None:
    """Return the rows that a commit wrote, by topic; None if the log does not contain them."""
    touched = {marker.topic_id for marker in entry.markers}
    summary = entry.summary
    if entry.batches or not touched:
        return [_of_batch(each) for each in entry.batches]
    if summary is not None and summary.topics is not None:
        # The summary may name topics that were deleted before the commit. They got no rows.
        return [each for each in summary.topics if each.topic_id in touched]
    if summary is None or len(touched) > 1:
        return None
    return [WrittenRows(topic_id=touched.pop(), rows=summary.rows, files=summary.files, bytes=summary.bytes)]


def _of_batch(batch: BatchAppended | StagedBatch) -> WrittenRows:
    return WrittenRows(topic_id=batch.topic_id, rows=batch.record_count, files=1, bytes=batch.file.length)


_CLOCKS_DIFFER_MS = 2_000
_MOST_SLOTS_AHEAD = 128


class _Bounds(NamedTuple):
    """The requested topics and the range of slots that may have changed them."""

    names: dict[str, str]
    """The names of all existing topics, by topic id."""
    topic_id: str | None
    oldest: int
    newest: int


class History(ExclusiveIterator[Operation]):
    """An iterator over the operations of the log, newest first. It reads slots while the caller iterates.

    It starts at ``until_slot``, or else at the slot that was the newest at its creation, and ends after ``after_slot``.
    Only one thread at a time may use it.
    """

    def __init__(
        self,
        store: Session,
        topic: str | None,
        *,
        limit: int | None,
        transactional_id: str | None,
        include_aborts: bool,
        after_slot: int = NO_SLOT,
        until_slot: int | None = None,
    ) -> None:
        if limit is not None and (not is_whole_number(limit) or limit < 1):
            raise InvalidOption(f"a limit is a number of operations, 1 or more, not {quoted(limit)}")
        if transactional_id is not None:
            check_id("transactional id", transactional_id)
        for name, given in (("after_slot", after_slot), ("until_slot", NO_SLOT if until_slot is None else until_slot)):
            if not is_whole_number(given):
                raise InvalidOption(f"{name} is a number of the log, not {quoted(given)}")

        def snapshot(state: StoreState, slot: int) -> _Bounds:
            names = {each.topic_id: each.topic for each in state.topics.values()}
            oldest = max(0, after_slot + 1)
            newest = slot if until_slot is None else min(slot, until_slot)
            if topic is None:
                return _Bounds(names, None, oldest, newest)
            found = topic_named(state, topic)
            return _Bounds(names, found.topic_id, max(oldest, found.created_slot), newest)

        self._url, self._topic = store.url, topic
        self._bounds = store.read(snapshot)
        self._transactional_id = transactional_id
        self._include_aborts = include_aborts
        self.oldest_slot: int | None = None
        """The oldest slot read so far; None before the first."""
        self.is_cut = False
        """True if the history ended because older slots were deleted. False if it ended at ``after_slot`` or at the
        creation of the topic or store."""
        self._records = records_backwards(store.object_store, self._bounds.newest, self._bounds.oldest)
        super().__init__(islice(self._read(), limit))

    def __repr__(self) -> str:
        topic = "" if self._topic is None else f", {self._topic!r}"
        return f"History({self._url!r}{topic}, newest_slot={self._bounds.newest})"

    def _read(self) -> Iterator[Operation]:
        for decoded in _with_log_times(map(_decode, self._records)):
            self.oldest_slot = decoded.slot
            for operation in operations_of(
                decoded.slot, decoded.time_ms, decoded.entries, names=self._bounds.names, topic_id=self._bounds.topic_id
            ):
                if self._transactional_id not in (None, operation.transactional_id):
                    continue
                if operation.outcome == "abort" and not self._include_aborts:
                    continue
                yield operation
        self.is_cut = self.oldest_slot is not None and self.oldest_slot > self._bounds.oldest


class _Decoded:
    """A record, and the latest time in it and in the records before it, as far as they were read (ms)."""

    __slots__ = ("entries", "own_ms", "slot", "time_ms")

    def __init__(self, slot: int, entries: Sequence[Entry | Mapping[str, Any]]) -> None:
        self.slot = slot
        self.entries = entries
        times = [time for entry in entries if (time := getattr(entry, "time_ms", None)) is not None]
        self.own_ms: int | None = max(times, default=None)
        self.time_ms = self.own_ms


def _decode(record: SlotRecord) -> _Decoded:
    """Decode a record. An entry of an unknown type stays JSON. An invalid record changed nothing and has no entries."""
    entries: list[Entry | Mapping[str, Any]] = []
    for value in record.entries:
        try:
            entries.append(decode_entry(value))
        except UnsupportedFormat:
            entries.append(value)
        except InvalidEntry:
            return _Decoded(record.slot, ())
    return _Decoded(record.slot, entries)


def _with_log_times(records: Iterator[_Decoded]) -> Iterator[_Decoded]:
    """Set each record's log time: the latest time in it and in all records before it. So it never runs backwards.

    The records come newest first. Writers' clocks differ only a little, so a few older records are enough to find the
    latest time.
    """
    waiting: deque[_Decoded] = deque()
    for record in records:
        waiting.append(record)
        if record.own_ms is None:
            continue
        for later in waiting:
            later.time_ms = record.own_ms if later.time_ms is None else max(later.time_ms, record.own_ms)
        while waiting and waiting[0] is not record:
            first = waiting[0]
            assert first.time_ms is not None
            if first.time_ms - record.own_ms < _CLOCKS_DIFFER_MS and first.slot - record.slot < _MOST_SLOTS_AHEAD:
                break
            yield waiting.popleft()
    yield from waiting
