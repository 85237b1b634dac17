"""Several processes rewrite a published file that was truncated in part, and some of them die: rows are exact."""

from __future__ import annotations

import contextlib
import itertools

import pyarrow as pa
import pytest

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.maintenance.sealing import seal_segments
from eoslog.verification.findings import Severity
from tests.delta_logs import tables
from tests.depth import sweep
from tests.unit.support.delta_tables import rows_of_snapshot
from tests.unit.support.paused_processes import Died, asleep_at, dies_at
from tests.unit.support.world import World

ROWS = 8
PLACE = TopicPartition("t", 0)
REWRITE = (
    "segment.compact_files.files_written",
    "segment.compact_files.index_written",
    "segment.compact_files.replaced",
)
VERSION = ("delta.version.planned", "delta.version.put")
POINTS = ("segment.hidden_rows.sealed", *REWRITE, *VERSION)


class Truncation:
    """A topic with one file, truncated step by step, and the rows that a version at each slot must have."""

    def __init__(self, world: World, *, sealed: bool) -> None:
        self.world = world
        self.store = world.process()
        schema = pa.schema([("value", pa.int64())])
        config = TopicConfig(publish="delta", segment_batches=1 if sealed else 100)
        self.store.admin.create_topic("t", schema=schema, config=config)
        with self.store.producer() as producer:
            producer.send_table("t", pa.table({"value": range(ROWS)}, schema=schema))
        if sealed:
            assert seal_segments(self.store)
        self._starts = [(0, 0)]
        self.publish(self.world.process())

    def delete(self, store: Store, start: int) -> None:
        store.admin.delete_records({PLACE: start})
        self._starts.append((store.read(lambda state, slot: slot), start))

    def publish(self, store: Store) -> None:
        store.admin.publish("t")
        self.check()

    def check(self) -> None:
        """Compare each version whose files are there with the rows that were visible at its slot."""
        for table in tables(self.store.object_store, "t"):
            start = max(start for slot, start in self._starts if slot <= table.slot)
            assert table.has_all_files
            assert table.rows() == [(0, offset, offset) for offset in range(start, ROWS)]

    def check_newest(self) -> None:
        *_, newest = tables(self.store.object_store, "t")
        assert newest.slot == self.store.read(lambda state, slot: slot)
        assert newest.rows() == rows_of_snapshot(self.store, "t", newest.slot)


@pytest.mark.parametrize(
    ("first_dies", "second_dies_at"),
    sweep(
        itertools.product((True, False), (None, *REWRITE[1:], "delta.version.planned")),
        quick=[(True, None), (False, REWRITE[-1])],
    ),
)
@pytest.mark.parametrize(
    ("first_at", "sealed"),
    [*((point, False) for point in POINTS), *((point, True) for point in POINTS[1:])],
)
@pytest.mark.parametrize("second_start", [6, pytest.param(ROWS, marks=pytest.mark.slow)])
def test_of_two_processes_at_a_truncated_file_one_dies_and_one_truncates_further(
    world: World, first_at: str, sealed: bool, first_dies: bool, second_dies_at: str | None, second_start: int
) -> None:
    topic = Truncation(world, sealed=sealed)
    first, second = world.process(), world.process()
    topic.delete(topic.store, 2)

    def meanwhile() -> None:
        topic.delete(second, second_start)
        if second_dies_at is not None:
            dies_at(second, second_dies_at)
        with contextlib.suppress(Died):
            second.admin.publish("t")
        topic.check()
        if first_dies:
            raise Died

    slept = asleep_at(first, first_at, meanwhile)
    with pytest.raises(Died) if first_dies else contextlib.nullcontext():
        first.admin.publish("t")
    topic.check()
    topic.publish(world.process())

    assert slept == [first_at]
    topic.check_newest()
    assert [each for each in topic.store.admin.verify(data=True) if each.severity is Severity.ERROR] == []
