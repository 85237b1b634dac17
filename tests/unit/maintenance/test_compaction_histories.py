"""Random histories of a compacted topic against a naive model, written from Kafka's definitions alone.

The model is a list of rows. A pass up to an offset keeps, below it, the committed row of each key with the largest
offset, unless that is a tombstone whose batch got its delete horizon in an earlier pass and that horizon has passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from eoslog import TopicPartition
from eoslog.maintenance.file_compaction import compact_files
from tests.depth import examples
from tests.unit.maintenance.compacted_log import DAY_MS, CompactedLog, Row

TRANSACTIONAL = ("p1", "p2")
HOURS_10_MS = 10 * 3600 * 1000
PLACE = TopicPartition("t", 0)

keys = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=4)
"""Keys, and whether they come with a value."""
steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(("plain", *TRANSACTIONAL)), keys),
    st.tuples(st.just("end"), st.sampled_from(TRANSACTIONAL), st.booleans()),
    st.tuples(st.sampled_from(["seal", "merge", "compact", "compact", "wait"])),
    st.tuples(st.just("delete"), st.floats(0, 1)),
)


@dataclass(frozen=True)
class ModelRow:
    row: Row
    transaction: tuple[str, int] | None
    batch: int


@dataclass
class Model:
    """What was written, and what is left of it."""

    rows: list[ModelRow] = field(default_factory=list)
    end: int = 0
    start: int = 0
    batches: int = 0
    open: dict[str, int] = field(default_factory=dict)
    """First offset of the open transaction by producer."""
    ended: dict[str, int] = field(default_factory=dict)
    outcomes: dict[tuple[str, int], bool] = field(default_factory=dict)
    horizons: dict[int, int] = field(default_factory=dict)

    def send(self, name: str, rows: list[tuple[int, bool]]) -> None:
        transaction = None if name == "plain" else (name, self.ended.get(name, 0))
        if transaction is not None:
            self.open.setdefault(name, self.end)
        for key, has_value in rows:
            row = Row(self.end, b"%d" % key, b"%d" % self.end if has_value else None)
            self.rows.append(ModelRow(row, transaction, self.batches))
            self.end += 1
        self.batches += 1

    def end_transaction(self, name: str, commits: bool) -> None:
        self.outcomes[name, self.ended.get(name, 0)] = commits
        self.ended[name] = self.ended.get(name, 0) + 1
        del self.open[name]
        self.end += 1

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.end)

    def is_committed(self, row: ModelRow) -> bool:
        return row.transaction is None or self.outcomes.get(row.transaction, False)

    def compact(self, cleaned_offset: int, now_ms: int) -> None:
        newest = {
            row.row.key: row.row.offset
            for row in self.rows
            if row.row.offset < cleaned_offset and self.is_committed(row)
        }
        self.rows = [
            row
            for row in self.rows
            if row.row.offset >= cleaned_offset
            or (
                self.is_committed(row)
                and row.row.offset == newest[row.row.key]
                and not (row.row.value is None and self.horizons.get(row.batch, now_ms) < now_ms)
            )
        ]
        for row in self.rows:
            if row.row.offset < cleaned_offset and row.row.value is None:
                self.horizons.setdefault(row.batch, now_ms + DAY_MS)

    def delete(self, offset: int) -> None:
        self.start = max(self.start, offset)
        self.rows = [row for row in self.rows if row.row.offset >= self.start]

    def shown(self, isolation: str) -> list[Row]:
        return [
            row.row
            for row in self.rows
            if isolation == "read_uncommitted"
            or (self.is_committed(row) and (isolation == "snapshot" or row.row.offset < self.last_stable_offset))
        ]


class History:
    def __init__(self, segment_batches: int) -> None:
        self.log = CompactedLog(segment_batches=segment_batches, cleanup_policy="compact,delete")
        self.model = Model()

    def take(self, step: tuple[object, ...]) -> None:
        log, model = self.log, self.model
        match step:
            case ("send", str(name), list(rows)):
                producer = log.producer(name)
                if name != "plain" and name not in model.open:
                    producer.begin_transaction()
                for index, (key, has_value) in enumerate(rows):
                    value = b"%d" % (model.end + index) if has_value else None
                    producer.send("t", value, key=b"%d" % key)
                producer.flush()
                model.send(name, rows)
            case ("end", str(name), bool(commits)) if name in model.open:
                log.end(name, commit=commits)
                model.end_transaction(name, commits)
            case ("seal",):
                log.seal()
            case ("merge",):
                store = log.process()
                compact_files(store)
            case ("compact",):
                before = log.partition().producers
                now_ms = log.clock.now_ms
                log.compact()
                assert log.partition().producers == before
                if log.partition().sealed:
                    model.compact(log.partition().cleaned_offset, now_ms)
            case ("wait",) if not model.open:  # else it would be aborted for its age
                log.clock.now_ms += HOURS_10_MS
            case ("delete", float(fraction)):
                offset = model.start + int(fraction * (model.last_stable_offset - model.start))
                if offset > model.start:
                    log.store.admin.delete_records({PLACE: offset})
                    model.delete(offset)

    def check(self) -> None:
        log, model = self.log, self.model
        (offsets,) = log.store.admin.offsets("t")
        assert (offsets.earliest, offsets.last_stable_offset, offsets.high_watermark) == (
            model.start,
            model.last_stable_offset,
            model.end,
        )
        for isolation in ("read_committed", "read_uncommitted", "snapshot"):
            assert log.rows(isolation) == model.shown(isolation), isolation

    def check_consumer(self, isolation: str) -> None:
        consumer = self.log.process().consumer(
            auto_offset_reset="earliest", isolation_level=isolation, max_poll_records=3
        )
        consumer.assign([PLACE])
        found: list[Row] = []
        while consumer.lag().get(PLACE, 1) or not consumer.position(PLACE):
            records = consumer.poll(0)
            found += [Row(record.offset, record.key, record.value) for record in records]
            if not records and consumer.position(PLACE) >= consumer.end_offsets([PLACE])[PLACE]:
                break
        assert found == self.model.shown(isolation)


@examples(12)
@given(st.sampled_from([1, 2, 5]), st.lists(steps, max_size=40))
def test_compaction_keeps_the_rows_that_kafkas_definitions_name(
    segment_batches: int, taken: list[tuple[object, ...]]
) -> None:
    history = History(segment_batches)
    for step in taken:
        history.take(step)
        if step[0] in ("merge", "compact", "delete"):
            history.check()
    history.take(("compact",))
    history.take(("merge",))
    history.take(("compact",))
    history.check()
    history.check_consumer("read_committed")
    history.check_consumer("read_uncommitted")
