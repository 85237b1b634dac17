"""What a native scan is told of each file: with that alone, the files give the rows and offsets that a scan gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eoslog
from eoslog import Coordinator, TopicConfig
from eoslog.errors import OffsetOutOfRange
from eoslog.read.file_rows import PlannedRows, active_rows
from eoslog.read.planner import PartitionPlan
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import Batch, Outcome
from pyspark_eoslog.native.lookup import PlannedFile, planned_files
from tests.depth import sweep
from tests.unit.pyspark_eoslog.native.histories import NUMBERS, TOPIC, TableHistory
from tests.unit.support.transactions import open_transaction


def rows_by_file(store: eoslog.Store, files: list[PlannedFile]) -> list[tuple[Any, ...]]:
    """The rows as somebody finds them who has the files and what is told of them, and nothing else."""
    found = []
    for file in files:
        stored = pq.read_table(Path(store.url) / file.path, partitioning=None).to_pylist()
        for row, values in enumerate(stored):
            offset = file.base_offset + values["_offset_delta"]
            assert file.first_offset in (None, offset - row)
            if not any(each.first_row <= row < each.end_row for each in file.visible):
                continue
            if file.offsets is not None and not file.offsets[0] <= offset < file.offsets[1]:
                continue
            (time,) = [each.timestamp for each in file.times if each.rows.first_row <= row < each.rows.end_row]
            found.append((file.partition, offset, time, values["n"]))
    return sorted(found)


def rows_by_scan(
    scan: eoslog.Scan,
    partition: str = "_partition",
    offset: str = "_offset",
    time: str = "_timestamp",
    number: str = "n",
) -> list[tuple[Any, ...]]:
    table = scan.to_table()
    times = table[time].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    columns = [table[partition], table[offset], times, table[number]]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


def reads(history: TableHistory) -> list[dict[str, Any]]:
    """Arguments of reads that end and begin anywhere."""
    offsets = history.store.admin.offsets(TOPIC)
    within = {each.partition: (each.earliest + each.last_stable_offset) // 2 for each in offsets}
    return [
        {},
        {"isolation_level": "read_uncommitted"},
        {"isolation_level": "snapshot"},
        {"starting_offsets": within},
        {"ending_offsets": within, "isolation_level": "read_uncommitted"},
        {"starting_offsets": {0: within[0]}, "ending_offsets": {0: within[0] + 1}},
        *({"slot": slot} for slot in history.slots[-3:]),
    ]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("seed", sweep(range(5), quick=[0]))
def test_files_with_what_is_told_of_them_are_the_rows(tmp_path: Path, seed: int, compacted: bool) -> None:
    history = TableHistory(tmp_path, seed, compacted=compacted)
    history.run(30)

    for given in reads(history):
        try:
            scan = history.store.scan(TOPIC, columns=["n", "_partition", "_offset", "_timestamp"], **given)
        except OffsetOutOfRange:
            continue  # Rows of an earlier slot were deleted since.
        files = planned_files(scan.plans)

        assert rows_by_file(history.store, files) == rows_by_scan(scan), given
        assert len({file.name for file in files}) == len(files)


def test_a_compacted_file_hides_aborted_rows_and_holds_its_offsets(tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path / "store"), fsync=False)
    store.admin.create_topic(TOPIC, schema=NUMBERS, config=TopicConfig(segment_batches=5))
    for number, end in enumerate(["commit", "abort", "commit"]):
        with open_transaction(store, "t") as producer:
            producer.send_table(TOPIC, pa.table({"n": [number] * 2, "text": ["k"] * 2}, schema=NUMBERS))
            producer.flush()
            getattr(producer, f"{end}_transaction")()
    Coordinator(store).seal()
    store.admin.compact_files()
    scan = store.scan(TOPIC, columns=["n", "_partition", "_offset", "_timestamp"])

    (file,) = planned_files(scan.plans)

    assert file.visible == ((0, 2), (4, 6))
    assert file.first_offset is None
    assert file.hidden_rows
    assert rows_by_file(store, [file]) == rows_by_scan(scan)
    (uncommitted,) = planned_files(store.scan(TOPIC, isolation_level="read_uncommitted").plans)
    assert not uncommitted.hidden_rows


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize(
    ("given", "cut", "left"),
    [
        ({"starting_offsets": {0: 1}}, (1, 4), [2, 3]),
        ({"ending_offsets": {0: 3}}, (0, 3), [0, 2]),
        ({"starting_offsets": {0: 1}, "ending_offsets": {0: 3}}, (1, 3), [2]),
    ],
)
def test_a_read_of_part_of_a_compacted_batch_uses_offsets(
    tmp_path: Path, given: dict[str, Any], cut: tuple[int, int], left: list[int]
) -> None:
    store = eoslog.connect(str(tmp_path / "store"), fsync=False)
    config = TopicConfig(segment_batches=2, cleanup_policy="compact")
    store.admin.create_topic(TOPIC, schema=NUMBERS, key="text", config=config)
    with store.producer() as producer:
        for keys in (["a", "b", "c", "d"], ["b"]):
            producer.send_table(TOPIC, pa.table({"n": range(len(keys)), "text": keys}, schema=NUMBERS))
            producer.flush()
    Coordinator(store).seal()
    store.admin.compact_keys(TOPIC)
    scan = store.scan(TOPIC, columns=["n", "_partition", "_offset", "_timestamp"], **given)

    (file, *_) = planned_files(scan.plans)

    assert file.offsets == cut
    assert [offset for _, offset, _, _ in rows_by_file(store, [file])] == left


def test_a_read_ending_in_a_later_compacted_file_uses_offsets() -> None:
    def batch(path: str, base_offset: int, record_count: int) -> Batch:
        file = FileReference(path=path, length=1, crc32c=0)
        return Batch(
            base_offset, record_count, 9, file, 0, None, 1, 1, 1, Outcome.COMMITTED, None, 1, 0, 0, 0, 0, False
        )

    rows = PlannedRows([active_rows([batch("first.parquet", 0, 10), batch("second.parquet", 10, 5)], 0, 13)])
    first, second = planned_files([PartitionPlan(TOPIC, "0" * 32, 0, 0, 13, rows)])

    assert (first.offsets, first.hidden_rows) == (None, False)
    assert (second.offsets, second.hidden_rows) == ((10, 13), True)


def test_only_a_file_of_which_rows_are_not_shown_is_filtered(tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path / "store"), fsync=False)
    store.admin.create_topic(TOPIC)
    with store.producer() as producer:
        for number in range(3):
            producer.send_table(TOPIC, pa.table({"value": pa.array([b"%d" % number] * 4)}))
            producer.flush()

    def hidden(**given: Any) -> list[bool]:
        return [file.hidden_rows for file in planned_files(store.scan(TOPIC, **given).plans)]

    assert hidden() == [False, False, False]
    assert hidden(starting_offsets={0: 1}) == [True, False, False]
    assert hidden(starting_offsets={0: 4}, ending_offsets={0: 11}) == [False, True]
