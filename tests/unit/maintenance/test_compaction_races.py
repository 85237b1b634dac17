"""A pass that dies, or that others overtake, costs no key its newest row and no reader its files."""

from __future__ import annotations

import pytest

from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import LogStartMoved
from tests.depth import sweep
from tests.unit.maintenance.compacted_log import DAY_MS, CompactedLog
from tests.unit.support.paused_processes import At, Died, die

POINTS = (
    "segment.compact_keys.files_written",
    "segment.compact_keys.index_written",
    "segment.compact_keys.replaced",
    "segment.compact_keys.cleaned",
)


def _history() -> CompactedLog:
    log = CompactedLog(segment_batches=3)
    for number in range(6):
        log.send("plain", number % 2, number % 3 + 10)
        log.write("p1", number % 3, number % 2 + 20, commit=number % 3 != 1)
    log.seal()
    return log


@pytest.mark.parametrize(
    ("point", "times"),
    sweep(
        [*((point, times) for point in POINTS[:3] for times in (1, 2)), (POINTS[3], 1)],
        quick=[(point, 1) for point in POINTS],
    ),
)
def test_a_pass_that_dies_leaves_no_key_without_its_newest_row(point: str, times: int) -> None:
    undisturbed, log = _history(), _history()
    undisturbed.compact()
    newest = {row.key: row for row in log.rows("read_committed")}

    with pytest.raises(Died):
        log.compact(At(point, die, times))

    assert {row.key: row for row in log.rows("read_committed")} == newest
    log.compact()
    assert log.rows() == undisturbed.rows()
    log.clock.now_ms += 8 * DAY_MS
    vacuum(log.store)
    assert log.rows() == undisturbed.rows()
    named = {batch.file.path for batch in log.batches() if batch.file is not None}
    files = {info.path for info in log.objects.list("t/") if info.path.endswith(".parquet")}
    assert named == {path for path in files if not path.endswith(".index.parquet")}


@pytest.mark.parametrize("point", POINTS[:3])
def test_two_passes_at_once_remove_only_rows_with_a_newer_one(point: str) -> None:
    undisturbed, log = _history(), _history()
    undisturbed.compact()

    report = log.compact(At(point, lambda: log.compact()))

    assert report.lost_races == 1
    assert log.rows() == undisturbed.rows()
    assert log.partition().cleaned_offset == undisturbed.partition().cleaned_offset


@pytest.mark.parametrize("point", POINTS[:3])
def test_a_file_compaction_beside_a_pass_keeps_the_same_rows(point: str) -> None:
    undisturbed, log = _history(), _history()
    undisturbed.compact()
    other = log.process()

    log.compact(At(point, lambda: compact_files(other)))
    log.compact()

    assert log.rows() == undisturbed.rows()


def test_a_pass_that_the_log_start_overtakes_goes_no_further() -> None:
    log = _history()
    topic_id = log.store.admin.describe_topic("t").topic_id
    end = log.partition().sealed[1].end_offset
    entry = LogStartMoved(topic_id=topic_id, partition=0, offset=end, reason="delete_records")

    report = log.compact(At(POINTS[1], lambda: log.store.append(AppendEntry(entry))))

    assert (report.partitions, report.lost_races) == ([], 1)
    log.compact()
    assert min(row.offset for row in log.rows()) >= end


def test_a_pass_over_a_topic_that_is_deleted_meanwhile_is_given_up() -> None:
    log = _history()

    report = log.compact(At(POINTS[1], lambda: log.store.admin.delete_topic("t")))

    assert (report.partitions, report.lost_races) == ([], 1)
