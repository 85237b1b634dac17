"""The verdict: what the store holds at the end, compared with what every process was told and shown."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import eoslog
from eoslog.errors import OffsetOutOfRange
from eoslog.format.topic_schemas import RECORDS_SCHEMA
from eoslog.state.names import TopicPartition
from eoslog.verification.findings import Severity
from tests.checker import History, Kind, Operation, Outcome, Poll, Send, check, read_history
from tests.checker.history import NEVER, in_order
from tests.delta_logs import PublishedTable, tables
from tests.iceberg_tables import IcebergVersion, iceberg_versions
from tests.soak.history import place_name, topic_of
from tests.soak.layout import (
    BANK,
    COPIES,
    INVOICES,
    INVOICING,
    KEPT,
    NEWEST,
    ORDERS,
    PARTITIONS,
    PUBLISHED,
    RECENT,
    RECOPIES,
    Run,
)
from tests.soak.observer import Observer
from tests.unit.support.delta_tables import copy_to, rows_by_delta, rows_of_snapshot

_WRITTEN_BY_CLIENTS = (ORDERS, INVOICES, BANK)
_VERSIONS_COMPARED = 30
"""Each comparison reads the topic twice."""


class Row(NamedTuple):
    place: str
    offset: int
    value: str
    commit_ms: int


@dataclass(frozen=True, slots=True)
class Evidence:
    run: Run
    store: eoslog.Store
    observer: Observer
    operations: Sequence[Operation]
    rows: dict[str, list[Row]]
    """What read_committed shows at the end, by topic."""
    has_streams: bool

    @classmethod
    def gather(cls, run: Run, store: eoslog.Store, observer: Observer, *, has_streams: bool) -> Evidence:
        rows = {topic: list(_rows(store, topic)) for topic in PARTITIONS}
        return cls(run, store, observer, read_history([run.histories]), rows, has_streams)

    def writes(self) -> Iterator[Operation]:
        return (each for each in self.operations if each.kind in (Kind.SEND, Kind.TXN))


def _rows(store: eoslog.Store, topic: str) -> Iterator[Row]:
    for batch in store.scan(topic, columns=["partition", "offset", "value", "_commit_timestamp"]).to_batches():
        for row in batch.to_pylist():
            committed = row["_commit_timestamp"]
            time_ms = committed if isinstance(committed, int) else int(committed.timestamp() * 1000)
            yield Row(place_name(topic, row["partition"]), row["offset"], row["value"].decode(), time_ms)


def contradictions_of(evidence: Evidence) -> dict[str, list[str]]:
    """The contradictions of each promise. Every promise is kept if there are none."""
    checks = _CHECKS | _CHECKS_OF_STREAMS if evidence.has_streams else _CHECKS
    return {promise: list(check(evidence)) for promise, check in checks.items()}


def damaged(evidence: Evidence) -> Iterator[str]:
    """All that lies in the store is as the log says: every file was read whole."""
    for finding in evidence.store.admin.verify(data=True):
        if finding.severity is Severity.ERROR:
            yield f"{finding.kind} ({finding.path}): {finding.problem}"


def undecided(evidence: Evidence) -> Iterator[str]:
    for topic in PARTITIONS:
        for ends in evidence.store.admin.offsets(topic):
            if ends.last_stable_offset != ends.high_watermark:
                yield f"{topic}-{ends.partition}: the last stable offset stays behind: {ends}"


def unkept_acknowledgements(evidence: Evidence) -> Iterator[str]:
    """Acknowledged work shows whole, once and at its offsets, failed work not at all, the rest whole or not at all."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for topic in _WRITTEN_BY_CLIENTS:
        for row in evidence.rows[topic]:
            found[row.place, row.value].append(row.offset)
    for operation in evidence.writes():
        sends = [each for each in operation.sends() if topic_of(each.key) in _WRITTEN_BY_CLIENTS]
        offsets = [found.pop((each.key, str(each.value)), []) for each in sends]
        shown = sum(bool(each) for each in offsets)
        for send, places in zip(sends, offsets, strict=True):
            if len(places) > 1:
                yield f"{operation}: {send.value} is more than once in {send.key}, at {places}"
            if places and send.offset is not None and send.offset not in places:
                yield f"{operation}: {send.value} was acknowledged at {send.key}:{send.offset} and is at {places}"
        if operation.outcome is Outcome.OK and shown < len(sends):
            yield f"{operation} was acknowledged and shows {shown} of {len(sends)} rows"
        if operation.outcome is Outcome.FAIL and shown:
            yield f"{operation} failed and shows {shown} of {len(sends)} rows"
        if operation.outcome is Outcome.INFO and operation.kind is Kind.TXN and shown not in (0, len(sends)):
            yield f"{operation} shows in part: {shown} of {len(sends)} rows"
    for (place, value), places in found.items():
        yield f"nobody wrote {value}, which {place} shows at {places}"


def reordered(evidence: Evidence) -> Iterator[str]:
    """What one producer wrote, one thing after the other, has offsets in this order in each partition."""
    for topic in (*_WRITTEN_BY_CLIENTS, RECENT):
        last: dict[tuple[str, str, int], tuple[int, str]] = {}
        for row in sorted(evidence.rows[topic]):
            name, incarnation, number = row.value.partition("|")[0].split("/")
            before = last.get((row.place, name, int(incarnation)), (0, ""))
            if int(number) <= before[0]:
                yield f"{row.place}:{row.offset} has {row.value} behind {before[1]}"
            last[row.place, name, int(incarnation)] = (int(number), row.value)


def unstable_rows(evidence: Evidence) -> Iterator[str]:
    """Whatever anybody was ever shown is at its offset for ever."""
    final = {(row.place, row.offset): row.value for topic in KEPT for row in evidence.rows[topic]}
    for operation in evidence.operations:
        for place, offset, value in operation.reads():
            if final.get((place, offset)) != value:
                yield f"{operation} was shown {value} at {place}:{offset}, where there is {final.get((place, offset))}"


def uneven_invoices(evidence: Evidence) -> Iterator[str]:
    """The output is the input below the group's committed offsets, each row once."""
    places = [TopicPartition(ORDERS, partition) for partition in range(PARTITIONS[ORDERS])]
    committed = evidence.store.consumer(INVOICING).committed(places)
    ends = {place_name(*place): found.offset if found is not None else 0 for place, found in committed.items()}
    consumed = Counter(row.value for row in evidence.rows[ORDERS] if row.offset < ends[row.place])
    produced = Counter(row.value.partition("|")[2] for row in evidence.rows[INVOICES])
    yield from _difference("invoices", consumed, produced)


def uneven_copies(evidence: Evidence) -> Iterator[str]:
    """A query's sink is its source below the offsets in its checkpoint, each row once."""
    for source, sink in ((ORDERS, COPIES), (COPIES, RECOPIES)):
        ends = checkpoint_offsets(evidence.run, sink)
        consumed = Counter(row.value for row in evidence.rows[source] if row.offset < ends.get(row.place, 0))
        yield from _difference(sink, consumed, Counter(row.value for row in evidence.rows[sink]))


def checkpoint_offsets(run: Run, sink: str) -> dict[str, int]:
    """How far the micro-batches that are committed have read, by place."""
    checkpoint = run.checkpoints / sink
    done = max((int(each.name) for each in (checkpoint / "commits").glob("[0-9]*")), default=None)
    if done is None:
        return {}
    topics = json.loads((checkpoint / "offsets" / str(done)).read_text().splitlines()[-1])["topics"]
    return {
        f"{topic}-{partition}": int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
        if partition != "topic_id"
    }


def uneven_bank(evidence: Evidence) -> Iterator[str]:
    """The topic of the two-phase commits has the rows of the database."""
    with closing(sqlite3.connect(evidence.run.database)) as database:
        decided = Counter(f"{place} {value}" for place, value in database.execute("SELECT place, value FROM rows"))
    yield from _difference(BANK, decided, Counter(f"{row.place} {row.value}" for row in evidence.rows[BANK]))


def _difference(what: str, expected: Counter[str], found: Counter[str]) -> Iterator[str]:
    for value in (expected - found).elements():
        yield f"{what} lacks {value}"
    for value in (found - expected).elements():
        yield f"{what} has one {value} too many"


def lost_keys(evidence: Evidence) -> Iterator[str]:
    """Of each key the newest acknowledged row is there, or one of the same process that came later."""
    newest: dict[str, tuple[int, int]] = {}
    for operation in evidence.writes():
        if operation.outcome is Outcome.OK:
            for send in operation.sends():
                if topic_of(send.key) == NEWEST:
                    value, _, key = str(send.value).partition("@")
                    newest[key] = max(newest.get(key, (0, 0)), _number(value))
    shown: dict[str, tuple[int, int]] = {}
    for row in evidence.rows[NEWEST]:
        value, _, key = row.value.partition("@")
        shown[key] = max(shown.get(key, (0, 0)), _number(value))
    for key, number in newest.items():
        if shown.get(key, (0, 0)) < number:
            yield f"key {key}: row {number} was acknowledged, the newest there is {shown.get(key)}"


def _number(value: str) -> tuple[int, int]:
    _, incarnation, number = value.split("/")
    return int(incarnation), int(number)


def lost_recent_rows(evidence: Evidence) -> Iterator[str]:
    """Retention drops rows from the beginning only: what was acknowledged at or above the log start is there."""
    starts = {place_name(RECENT, each.partition): each.earliest for each in evidence.store.admin.offsets(RECENT)}
    shown = {(row.place, row.offset): row.value for row in evidence.rows[RECENT]}
    values = set(shown.values())
    for operation in evidence.writes():
        for send in operation.sends():
            if topic_of(send.key) != RECENT:
                continue
            if operation.outcome is Outcome.FAIL and send.value in values:
                yield f"{operation} failed and shows {send.value}"
            is_kept = send.offset is not None and send.offset >= starts[send.key]
            if operation.outcome is Outcome.OK and is_kept and shown.get((send.key, send.offset or 0)) != send.value:
                yield f"{operation}: {send.value} was acknowledged at {send.key}:{send.offset} and is not there"


def wrong_fold(evidence: Evidence) -> Iterator[str]:
    """The state that the checkpoint leads to is that of all records there ever were, and none of them was invalid."""
    yield from evidence.observer.contradictions
    slot, state = evidence.store.read(lambda state, slot: (slot, state.frozen_copy()))
    if slot != evidence.observer.slot:
        yield f"the log ends at slot {slot}, and the observer came to slot {evidence.observer.slot}"
    elif state != evidence.observer.state.frozen_copy():
        yield f"the state at slot {slot} that the checkpoint leads to is not that of the whole log"


def unlike_snapshots(evidence: Evidence) -> Iterator[str]:
    """The newest versions of each table are, for delta-rs and by Iceberg's spec, the snapshots at their slots."""
    objects = evidence.store.object_store
    for topic in PUBLISHED:
        with TemporaryDirectory() as directory:
            root = copy_to(Path(directory), objects, topic)
            found = list(tables(objects, topic))
            yield from _unlike(evidence, "Delta", found, topic, partial(_rows_by_delta, root))
        yield from _unlike(evidence, "Iceberg", list(iceberg_versions(objects, topic)), topic, _rows_by_iceberg)


V = TypeVar("V", PublishedTable, IcebergVersion)


def _unlike(
    evidence: Evidence, table_format: str, versions: Sequence[V], topic: str, read: Callable[[V], list[Any]]
) -> Iterator[str]:
    if not versions:
        yield f"{topic} has no {table_format} table"
    for table in versions[-_VERSIONS_COMPARED:]:
        if not table.has_all_files and table is not versions[-1]:
            continue
        try:
            expected = rows_of_snapshot(evidence.store, topic, table.slot)
        except OffsetOutOfRange:
            # Compaction by key and retention have removed rows of this snapshot since.
            if table is versions[-1]:
                yield f"the snapshot of {topic} at slot {table.slot}, its newest {table_format} version's, is gone"
            continue
        found = read(table)
        if found != expected:
            here, there = next(each for each in zip_longest(found, expected) if each[0] != each[1])
            yield (
                f"{table_format} version {table.version} of {topic} has {len(found)} rows, the snapshot at slot "
                f"{table.slot} {len(expected)}: {here} for {there}"
            )


def _rows_by_delta(root: str, table: PublishedTable) -> list[Any]:
    return rows_by_delta(root, table.version)


def _rows_by_iceberg(table: IcebergVersion) -> list[Any]:
    """Return partition, offset and the columns of Kafka records of all rows, in order."""
    columns = [table.rows(name) for name in RECORDS_SCHEMA.names]
    return [(*row[0][:2], *(value for _, _, value in row)) for row in zip(*columns, strict=True)]


def illegal_histories(evidence: Evidence) -> Iterator[str]:
    """Jepsen's rules, over the history that is checked."""
    yield from (f"{each.rule}: {each.witness}" for each in check(checked_history(evidence)).illegal)


def checked_history(evidence: Evidence) -> History:
    """The part that the checker can check: topics that keep their rows, Spark's sends, and a last poll of all."""
    told = [*_of_kept_topics(evidence.operations), *_sent_by_streams(evidence)]
    return in_order([*told, _last_poll(evidence)])


def _of_kept_topics(operations: Sequence[Operation]) -> Iterator[Operation]:
    for operation in operations:
        kept = [each for each in operation.micro_operations if not isinstance(each, Send) or topic_of(each.key) in KEPT]
        if kept or not operation.micro_operations:
            yield replace(operation, micro_operations=tuple(kept))


def _sent_by_streams(evidence: Evidence) -> Iterator[Operation]:
    """Spark writes no history: what its queries may have sent are their sources' rows, at any time."""
    for source, sink in ((ORDERS, COPIES), (COPIES, RECOPIES)):
        sources = {row.value for row in evidence.rows[source]}
        for place, value in sorted({(row.place, row.value) for row in evidence.rows[sink] if row.value in sources}):
            yield Operation(f"{sink} {value}", Kind.SEND, Outcome.INFO, 0, 0, (Send(place, value),))


def _last_poll(evidence: Evidence) -> Operation:
    """At the end a client of its own reads all that there is."""
    records: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for topic in KEPT:
        for row in sorted(evidence.rows[topic]):
            records[row.place].append((row.offset, row.value))
    times = (time_ns for each in evidence.operations for time_ns in (each.invoked, each.completed) if time_ns != NEVER)
    end_ns = max(times, default=0) + 1
    return Operation("the last reader", Kind.POLL, Outcome.OK, end_ns, end_ns, (Poll(records),))


_CHECKS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "every transaction is decided, and every last stable offset is the high watermark": undecided,
    "acknowledged rows are there once and whole, failed ones not at all": unkept_acknowledgements,
    "no producer's rows are reordered": reordered,
    "what was shown once is at its offset for ever": unstable_rows,
    "invoices are the orders below the committed offsets": uneven_invoices,
    "a two-phase commit ended as the database decided": uneven_bank,
    "compaction keeps the newest row of each key": lost_keys,
    "retention drops only old rows": lost_recent_rows,
    "the fold from the checkpoint is the fold of the whole log": wrong_fold,
    "every object in the store is as the log says": damaged,
    "published topics are Delta and Iceberg tables with exactly the snapshots' rows": unlike_snapshots,
    "no history breaks a rule of Jepsen's kafka workload": illegal_histories,
}
_CHECKS_OF_STREAMS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "the sinks of streams are their sources below the checkpoints": uneven_copies,
}
