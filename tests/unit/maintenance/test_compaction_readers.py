"""What readers are shown of a compacted partition: its gaps, its ranges, its snapshots."""

from __future__ import annotations

import pytest

from eoslog import OffsetOutOfRange, TopicPartition
from tests.unit.maintenance.compacted_log import CompactedLog


def test_snapshots_from_before_rows_were_removed_are_out_of_range() -> None:
    log = CompactedLog()
    log.send("plain", 1)
    slot = log.store.read(lambda state, slot: slot)
    log.send("plain", 1)

    log.compact()

    assert [row.offset for row in log.rows("snapshot")] == [1]
    with pytest.raises(OffsetOutOfRange, match="dropped rows at slot"):
        log.rows("snapshot", slot=slot)


def test_snapshots_outlive_the_removal_of_aborted_rows_alone() -> None:
    log = CompactedLog()
    log.send("plain", 1)
    slot = log.store.read(lambda state, slot: slot)
    log.write("p1", 2, commit=False)

    log.compact()

    assert [row.offset for row in log.rows("read_uncommitted")] == [0]
    assert [row.offset for row in log.rows("snapshot", slot=slot)] == [0]


@pytest.mark.scenario(146)
def test_a_consumer_steps_over_gaps_and_empty_batches() -> None:
    log = CompactedLog()
    log.send("plain-1", 1, 2, 3)
    log.write("p1", 4, 5, commit=False)
    log.send("plain-2", 1, 3)
    log.send("plain-3", *range(10, 20))
    log.send("plain-4", *range(10, 20))
    for _ in range(2):
        log.compact()
    consumer = log.process().consumer(auto_offset_reset="earliest", max_poll_records=1)
    place = TopicPartition("t", 0)
    consumer.assign([place])

    offsets = [record.offset for _ in range(3) for record in consumer.poll(0)]
    assert offsets == [1, 6, 7]

    consumer.seek(place, 2)
    assert [record.offset for record in consumer.poll(0)] == [6]
    consumer.seek(place, 9)
    assert [record.offset for record in consumer.poll(0)] == [18]
    consumer.seek(place, 27)
    assert [record.offset for record in consumer.poll(0)] == [27]
    while consumer.poll(0):
        continue
    assert consumer.position(place) == 28
    assert consumer.lag() == {place: 0}


@pytest.mark.parametrize("start", range(0, 13, 3))
def test_ranges_of_a_compacted_partition_begin_and_end_anywhere(start: int) -> None:
    log = CompactedLog(segment_batches=2)
    log.send("plain", 1, 2, 3, 4, 5, 6)
    log.send("plain", 2, 4, 5, 7, 8, 9)
    log.compact()
    everything = log.rows()

    for end in range(start, 13):
        found = log.rows(starting_offsets={0: start}, ending_offsets={0: end})
        assert found == [row for row in everything if start <= row.offset < end]
