"""Where a consumer stands after gaps, damage and the loss of its place."""

from __future__ import annotations

import pytest

from eoslog.errors import CorruptRecord, OffsetOutOfRange
from eoslog.store import Store
from tests.unit.maintenance.compacted_log import CompactedLog
from tests.unit.support.partitions import partition_of
from tests.unit.support.readers import PLACE, assigned, producer_of, send
from tests.unit.support.world import faulty

pytestmark = pytest.mark.further("Reader")


@pytest.mark.parametrize("most", [1, 2, 500])
def test_the_position_goes_over_the_last_rows_of_a_batch_that_compaction_removed(most: int) -> None:
    log = CompactedLog()
    log.send("plain-1", 1, 2, 3, 4)
    log.send("plain-2", 3, 4, 5)
    log.send("plain-3", 5)
    log.compact()
    assert log.offsets() == [0, 1, 4, 5, 7]
    consumer = assigned(log.process(), "read_committed", max_poll_records=most)

    seen = []
    while records := consumer.poll(0):
        seen += [record.offset for record in records]
        assert consumer.position(PLACE) > seen[-1]

    assert seen == [0, 1, 4, 5, 7]
    assert consumer.position(PLACE) == 8
    consumer.seek(PLACE, 6)
    assert [record.offset for record in consumer.poll(0)] == [7]


def test_a_batch_that_lost_its_last_rows_does_not_hide_what_is_appended_later() -> None:
    log = CompactedLog()
    log.send("plain-1", 1)
    log.write("p1", 2, 3, commit=False)
    log.compact()
    consumer = assigned(log.process(), "read_committed")
    assert [record.offset for record in consumer.poll(0)] == [0]
    assert consumer.poll(0) == []
    assert consumer.position(PLACE) == 4

    log.write("p1", 4)

    assert [record.offset for record in consumer.poll(0)] == [4]


@pytest.mark.usefixtures("files_are_objects")
def test_a_damaged_file_stops_a_reader_before_it_and_who_seeks_beyond_it_goes_on(store: Store) -> None:
    producer = producer_of(store)
    for value in (b"0", b"2", b"4"):
        send(producer, value, begin=True)
        producer.commit_transaction()
    (damaged,) = [batch.file.path for batch in partition_of(store, "t").active if batch.base_offset == 2 and batch.file]
    intact = faulty(store).get(damaged).body
    faulty(store).put(damaged, b"damaged")
    consumer = assigned(store, "read_committed")

    assert [record.value for record in consumer.poll(0)] == [b"0"]
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="has 7 bytes"):
            consumer.poll(0)
        assert consumer.position(PLACE) == 1
    consumer.seek(PLACE, 3)
    assert [record.value for record in consumer.poll(0)] == [b"4"]

    faulty(store).put(damaged, intact)
    consumer.seek(PLACE, 1)
    assert [record.value for record in consumer.poll(0)] == [b"2", b"4"]


@pytest.mark.parametrize("position", [1, 99])
def test_a_position_that_is_gone_is_reset_as_the_policy_says(store: Store, position: int) -> None:
    producer = producer_of(store)
    for value in (b"0", b"2"):
        send(producer, value, begin=True)
        producer.commit_transaction()
    store.admin.delete_records({PLACE: 2})

    for policy, records, after in (("earliest", [b"2"], 4), ("latest", [], 4)):
        consumer = assigned(store, "read_committed", auto_offset_reset=policy)
        consumer.seek(PLACE, position)
        assert [record.value for record in consumer.poll(0)] == records
        consumer.poll(0)
        assert consumer.position(PLACE) == after
    strict = assigned(store, "read_committed", auto_offset_reset="none")
    strict.seek(PLACE, position)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange):
            strict.poll(0)
