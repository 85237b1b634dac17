"""Deleting records: the rows that go and that stay, and the answers to readers and writers."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog import errors
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import begun
from tests.unit.support.world import World

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def rows(store: Store) -> Store:
    """Offsets 0 to 3 in partition 0, one file each, and 0 in partition 1."""
    with store.producer() as producer:
        for number in range(4):
            producer.send("t", b"%d" % number, partition=0)
            producer.flush()
        producer.send("t", b"other", partition=1)
    return store


def values(store: Store, partition: int = 0) -> list[bytes]:
    found: list[bytes] = store.scan("t", partitions=[partition]).to_table()["value"].to_pylist()
    return found


def newest_slot(store: Store) -> int:
    return store.read(lambda state, slot: slot)


def test_one_slot_deletes_the_rows_below_the_offsets_of_all_partitions(rows: Store, world: World) -> None:
    slot = newest_slot(rows)

    assert rows.admin.delete_records({T0: 3, T1: -1}) == {T0: 3, T1: 1}

    assert newest_slot(rows) == slot + 1
    other = world.process()
    assert (values(other, 0), values(other, 1)) == ([b"3"], [])
    assert [each.earliest for each in other.admin.offsets("t")] == [3, 1]


def test_the_log_starts_anywhere_within_a_batch(store: Store) -> None:
    with store.producer() as producer:
        for number in range(4):
            producer.send("t", b"%d" % number, partition=0)

    assert store.admin.delete_records({T0: 2}) == {T0: 2}

    assert values(store) == [b"2", b"3"]
    with pytest.raises(errors.OffsetOutOfRange):
        store.scan("t", partitions=[0], starting_offsets={0: 1})


def test_deleting_deleted_records_returns_the_log_start_and_takes_no_slot(rows: Store) -> None:
    rows.admin.delete_records({T0: 3})
    slot = newest_slot(rows)

    assert rows.admin.delete_records({T0: 1, T1: 0}) == {T0: 3, T1: 0}
    assert rows.admin.delete_records({}) == {}
    assert newest_slot(rows) == slot


def test_delete_records_keeps_the_rows_of_an_open_transaction(rows: Store) -> None:
    producer = begun(rows, "tx", 0)

    with pytest.raises(
        errors.OffsetOutOfRange, match=r"up to its last stable offset 4, not 5: .* a transaction is open"
    ):
        rows.admin.delete_records({T0: 5})
    assert rows.admin.delete_records({T0: -1}) == {T0: 4}

    producer.commit_transaction()
    assert len(values(rows)) == 1


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ({T0: 1, T1: 2}, errors.OffsetOutOfRange),
        ({T0: 1, T1: -2}, errors.OffsetOutOfRange),
        ({T0: 1, TopicPartition("t", 2): 0}, errors.UnknownTopicOrPartition),
        ({T0: 1, TopicPartition("absent", 0): 0}, errors.UnknownTopicOrPartition),
        ({T0: 1, T1: "0"}, errors.InvalidRequest),
        ({T0: 1, T1: None}, errors.InvalidRequest),
    ],
)
def test_one_wrong_offset_deletes_nothing(rows: Store, offsets: Any, error: type[Exception]) -> None:
    slot = newest_slot(rows)

    with pytest.raises(error):
        rows.admin.delete_records(offsets)

    assert newest_slot(rows) == slot
    assert len(values(rows)) == 4


def test_a_topic_that_only_compacts_keeps_its_records(rows: Store) -> None:
    rows.admin.alter_topic("t", cleanup_policy="compact")
    with pytest.raises(errors.InvalidRequest, match="compacted"):
        rows.admin.delete_records({T0: 1})

    rows.admin.alter_topic("t", cleanup_policy="compact,delete")
    assert rows.admin.delete_records({T0: 1}) == {T0: 1}


@pytest.mark.parametrize(("reset", "wanted"), [("earliest", [b"2", b"3"]), ("latest", [])])
def test_a_consumer_below_the_log_start_goes_where_its_policy_says(
    rows: Store, world: World, reset: Any, wanted: list[bytes]
) -> None:
    consumer = world.process().consumer("g", auto_offset_reset=reset)
    consumer.assign([T0])
    consumer.commit({T0: 1})
    rows.admin.delete_records({T0: 2})

    assert [record.value for record in consumer.poll(0)] == wanted
    assert consumer.position(T0) == 4


def test_a_consumer_without_a_policy_is_told_what_there_is(rows: Store, world: World) -> None:
    consumer = world.process().consumer(auto_offset_reset="none")
    consumer.assign([T0])
    consumer.seek(T0, 1)
    rows.admin.delete_records({T0: 2})

    with pytest.raises(errors.OffsetOutOfRange, match=r"holds offsets 2 to 4 \(exclusive\), not 1"):
        consumer.poll(0)


def test_the_lag_below_the_log_start_counts_from_the_position(rows: Store) -> None:
    consumer = rows.consumer("g", auto_offset_reset="earliest")
    consumer.assign([T0])
    consumer.commit({T0: 1})
    rows.admin.delete_records({T0: 3})

    assert consumer.lag() == {T0: 3}
    assert len(consumer.poll(0)) == 1
    assert consumer.lag() == {T0: 0}


@pytest.mark.usefixtures("files_are_objects")
def test_a_reader_that_planned_before_keeps_its_files_for_one_day(rows: Store, world: World) -> None:
    rows.admin.alter_topic("t", segment_batches=2)
    seal_segments(rows)
    before = rows.scan("t", partitions=[0])
    rows.admin.delete_records({T0: 3})
    vacuum(rows)
    assert len(before.to_table()) == 4

    world.pass_time(2 * DAY_MS)
    report = vacuum(rows)

    # The first segment goes with its rows, index and snapshot; in the second lies offset 3.
    assert len(report.paths) == 4
    assert values(rows) == [b"3"]
    with pytest.raises(errors.CorruptRecord):
        before.to_table()
