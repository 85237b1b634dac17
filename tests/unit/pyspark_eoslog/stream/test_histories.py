"""Streams over random histories, with random limits: each visible row once and in order, whatever the micro-batches."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import eoslog
from eoslog.errors import OffsetOutOfRange, UnknownTopicOrPartition
from eoslog.maintenance.sealing import seal_segments
from eoslog.producer.producer import Producer
from eoslog.state.partition_state import NO_SLOT
from pyspark_eoslog.options import Options
from pyspark_eoslog.read.batch_reader import ReadPartition
from pyspark_eoslog.read.packing import Piece
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from pyspark_eoslog.worker import this_worker
from tests.depth import examples

NUMBERS = pa.schema([pa.field("n", pa.int64())])
SCHEMA = StructType(
    [
        StructField("n", LongType()),
        StructField("_topic", StringType(), nullable=False),
        StructField("_partition", IntegerType(), nullable=False),
        StructField("_offset", LongType(), nullable=False),
    ]
)
TOPICS = {"a": 2, "b": 1}
PRODUCERS = ("p", "q")
Row = tuple[str, int, int, int]

writes = st.tuples(
    st.just("write"),
    st.sampled_from([*PRODUCERS, None]),
    st.lists(st.tuples(st.sampled_from([("a", 0), ("a", 1), ("b", 0)]), st.integers(1, 4)), min_size=1, max_size=3),
)
ends = st.tuples(st.sampled_from(["commit", "commit", "abort"]), st.sampled_from(PRODUCERS))
deletions = st.tuples(st.just("delete rows"), st.sampled_from([("a", 0), ("a", 1), ("b", 0)]), st.integers(0, 100))
recreations = st.tuples(st.just("create again"), st.sampled_from(["a", "b"]))
losses = st.one_of(deletions, recreations, st.tuples(st.just("restart")))
others = st.tuples(st.sampled_from(["seal", "read", "read"]))
histories = st.lists(st.one_of(writes, writes, ends, others), min_size=1, max_size=14)
limits = st.fixed_dictionaries(
    {},
    optional={
        "maxOffsetsPerTrigger": st.integers(1, 12),
        "maxBytesPerTrigger": st.integers(1, 4000),
        "maxFilesPerTrigger": st.integers(1, 4),
    },
)
levels = st.sampled_from(
    [
        {"isolationLevel": "read_committed"},
        {"isolationLevel": "read_uncommitted"},
        {"isolationLevel": "snapshot"},
        {"transactionConsistent": "true"},
    ]
)


class History:
    """A store on which a history happens, and a stream that reads it meanwhile."""

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        self.store = eoslog.connect(root, fsync=False)
        for topic in TOPICS:
            self._create(topic)
        self.options = {
            "path": root,
            "store.fsync": "false",
            "subscribe": ",".join(TOPICS),
            "startingOffsets": "earliest",
            **{name: str(value) for name, value in options.items()},
        }
        self._written = 0
        self._producers: dict[str, Producer] = {}
        self._open: set[str] = set()
        self._pending: dict[str, set[int]] = {}
        self.committed: set[int] = set()
        """The numbers of all rows that were ever committed, gone or not."""
        self._reader = self.reader()
        self.position = self._reader.initialOffset()
        self.batches: list[tuple[Any, Any, list[Row]]] = []

    def reader(self) -> EosLogStreamReader:
        return EosLogStreamReader(Options.of(self.options), SCHEMA)

    def apply(self, step: Any) -> None:
        if step[0] == "write":
            self._write(step[1], step[2])
        elif step[0] == "seal":
            seal_segments(self.store)
        elif step[0] == "read":
            self.read()
        elif step[0] == "restart":
            self._reader = self.reader()
        elif step[0] == "delete rows":
            self._delete_rows(step[1], step[2])
        elif step[0] == "create again":
            self._end_all()
            self.store.admin.delete_topic(step[1])
            self._create(step[1])
        elif step[1] in self._open:
            getattr(self._producers[step[1]], f"{step[0]}_transaction")()
            self._open.discard(step[1])
            pending = self._pending.pop(step[1])
            if step[0] == "commit":
                self.committed |= pending

    def read(self) -> bool:
        """One micro-batch. Whether there was one."""
        end = self._reader.latestOffset(self.position, self._reader.getDefaultReadLimit())
        end = json.loads(json.dumps(end))
        if end == self.position:
            return False
        self.batches.append((self.position, end, rows(self._reader, self.position, end)))
        self.position = end
        return True

    def read_from(self, position: Any) -> list[Row]:
        """What a stream reads that begins at an earlier offset of the checkpoint."""
        stream, read = self.reader(), []
        while (end := stream.latestOffset(position, stream.getDefaultReadLimit())) != position:
            read += rows(stream, position, end)
            position = end
        return read

    def finish(self) -> None:
        self._end_all()
        while self.read():
            pass

    def _end_all(self) -> None:
        for name in sorted(self._open):
            self.apply(("commit", name))

    def _create(self, topic: str) -> None:
        config = eoslog.TopicConfig(segment_batches=3)
        self.store.admin.create_topic(topic, partitions=TOPICS[topic], schema=NUMBERS, config=config)

    def _delete_rows(self, place: tuple[str, int], percent: int) -> None:
        """Move the log start of a partition up, by so much of what is decided."""
        offsets = next(each for each in self.store.admin.offsets(place[0]) if each.partition == place[1])
        decided = offsets.last_stable_offset - offsets.earliest
        offset = offsets.earliest + decided * percent // 100
        self.store.admin.delete_records({eoslog.TopicPartition(*place): offset})

    def visible(self, isolation: str) -> list[Row]:
        columns = ["n", "_topic", "_partition", "_offset"]
        scans = [self.store.scan(topic, isolation_level=isolation, columns=columns) for topic in TOPICS]
        return [row for scan in scans for row in as_rows(scan.to_table())]

    def commit_slots(self, *, of_transactions: bool = False) -> dict[int, int]:
        """The slot that committed each row, by its number; of all rows, or of those of transactions."""
        columns = ["n", "_slot", "_transactional_id"]
        found = [row for topic in TOPICS for row in self.store.scan(topic, columns=columns).to_table().to_pylist()]
        return {row["n"]: row["_slot"] for row in found if row["_transactional_id"] or not of_transactions}

    def _write(self, name: str | None, parts: list[tuple[tuple[str, int], int]]) -> None:
        producer = self._producer(name)
        if name is not None and name not in self._open:
            producer.begin_transaction()
            self._open.add(name)
        for (topic, partition), count in parts:
            numbers = list(range(self._written, self._written + count))
            self._written += count
            (self.committed if name is None else self._pending.setdefault(name, set())).update(numbers)
            producer.send_table(topic, pa.table({"n": numbers, "_partition": [partition] * count}))
        producer.flush()

    def _producer(self, name: str | None) -> Producer:
        key = name or ""
        if key not in self._producers:
            self._producers[key] = self.store.producer(name)
            if name is not None:
                self._producers[key].init_transactions()
        return self._producers[key]


def as_rows(table: Any) -> list[Row]:
    return [(row["_topic"], row["_partition"], row["_offset"], row["n"]) for row in table.to_pylist()]


def rows(stream: EosLogStreamReader, start: Any, end: Any) -> list[Row]:
    return [row for part in stream.partitions(start, end) for batch in stream.read(part) for row in as_rows(batch)]


@contextmanager
def history(options: dict[str, Any]) -> Iterator[History]:
    with TemporaryDirectory() as root:
        try:
            yield History(root + "/store", options)
        finally:
            this_worker().forget_stores()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_worker().environment, "sleep_ms", lambda duration_ms: None)


def pieces(stream: EosLogStreamReader, start: Any, end: Any) -> list[Piece]:
    planned = stream.partitions(start, end)
    return [piece for part in planned if isinstance(part, ReadPartition) for piece, _ in part.pieces]


few = settings(examples(6), suppress_health_check=list(HealthCheck))


@few
@given(histories, limits, levels)
def test_micro_batches_hold_each_visible_row_once_also_after_a_restart(
    steps: list[Any], limits: dict[str, Any], level: dict[str, str]
) -> None:
    with history({**limits, **level}) as happening:
        for step in steps:
            happening.apply(step)
        happening.finish()

        isolation = level.get("isolationLevel", "read_committed")
        read = [row for _, _, batch in happening.batches for row in batch]
        assert sorted(read) == sorted(happening.visible(isolation))
        if isolation != "snapshot":
            for place in {row[:2] for row in read}:
                offsets = [row[2] for row in read if row[:2] == place]
                assert offsets == sorted(offsets)
        happening.apply(("seal",))
        happening.store.admin.compact_files()
        for start, end, batch in happening.batches:
            assert sorted(rows(happening.reader(), start, end)) == sorted(batch)
        for begun in range(len(happening.batches)):
            rest = [row for _, _, batch in happening.batches[begun:] for row in batch]
            assert sorted(happening.read_from(happening.batches[begun][0])) == sorted(rest)


@few
@given(histories, limits, st.sampled_from(["snapshot", "consistent"]))
def test_no_micro_batch_splits_a_transaction(steps: list[Any], limits: dict[str, Any], kind: str) -> None:
    options = {"isolationLevel": "snapshot"} if kind == "snapshot" else {"transactionConsistent": "true"}
    with history({**limits, **options}) as happening:
        for step in steps:
            happening.apply(step)
        happening.finish()

        slots = happening.commit_slots(of_transactions=kind == "consistent")
        by_batch = [{slots[row[3]] for row in batch if row[3] in slots} for _, _, batch in happening.batches]
        assert sum(len(each) for each in by_batch) == len(set().union(*by_batch))
        if kind == "snapshot":
            in_order = [slot for each in by_batch for slot in sorted(each)]
            assert in_order == sorted(in_order)


@few
@given(histories, limits, st.sampled_from(["read_committed", "read_uncommitted", "snapshot"]))
def test_a_micro_batch_exceeds_limits_only_by_one_file_or_commit(
    steps: list[Any], limits: dict[str, Any], isolation: str
) -> None:
    with history({**limits, "isolationLevel": isolation}) as happening:
        for step in steps:
            happening.apply(step)
        happening.finish()

        slots = happening.commit_slots() if isolation == "snapshot" else {}
        for start, end, batch in happening.batches:
            files: dict[str, tuple[int, int, int]] = {}
            for piece in pieces(happening.reader(), start, end):
                for rows in piece.files:
                    assert rows.file is not None
                    taken = files.get(rows.file.path, (0, 0, 0))[2] + rows.record_count
                    files[rows.file.path] = (rows.file.length, rows.file_rows, taken)
            units = {slots[row[3]] for row in batch} if isolation == "snapshot" else files
            if len(units) > 1:
                size = sum(length * taken / file_rows for length, file_rows, taken in files.values())
                assert len(files) <= limits.get("maxFilesPerTrigger", math.inf)
                assert size <= limits.get("maxBytesPerTrigger", math.inf)
                if isolation == "snapshot":
                    assert len(batch) <= limits.get("maxOffsetsPerTrigger", math.inf)


@few
@given(st.lists(st.one_of(writes, writes, ends, losses, others), min_size=1, max_size=16), limits, levels)
def test_a_stream_that_may_lose_data_reads_each_remaining_row_once(
    steps: list[Any], limits: dict[str, Any], level: dict[str, str]
) -> None:
    with history({**limits, **level, "failOnDataLoss": "false"}) as happening:
        for step in steps:
            happening.apply(step)
        happening.finish()

        read = [row[3] for _, _, batch in happening.batches for row in batch]
        left = {row[3] for row in happening.visible(level.get("isolationLevel", "read_committed"))}
        assert len(read) == len(set(read))
        assert left <= set(read)


@pytest.mark.parametrize("lost", [deletions, recreations], ids=["rows", "topics"])
@few
@given(st.data(), limits, levels)
def test_a_stream_that_may_not_lose_data_reads_everything_or_ends(
    lost: st.SearchStrategy[Any], data: st.DataObject, limits: dict[str, Any], level: dict[str, str]
) -> None:
    written = ("write", None, [(("a", 0), 3), (("b", 0), 3)])
    steps = [written, *data.draw(st.lists(st.one_of(writes, ends, lost, lost, others), max_size=12))]
    with history({**limits, **level}) as happening:
        try:
            for step in steps:
                # A stream of slots that has read nothing begins with what there is.
                if happening.position.get("slot") != NO_SLOT or step[0] not in ("delete rows", "create again"):
                    happening.apply(step)
            happening.finish()
        except (OffsetOutOfRange, UnknownTopicOrPartition) as error:
            assert "failOnDataLoss=false" in str(error)  # noqa: PT017 - most histories lose nothing.
            return

        read = [row[3] for _, _, batch in happening.batches for row in batch]
        assert len(read) == len(set(read))
        assert happening.committed <= set(read)
