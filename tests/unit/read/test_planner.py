"""Which rows a reader is shown, under each isolation level, decided over batch metadata."""

from __future__ import annotations

import pytest

from eoslog import InvalidOption, OffsetOutOfRange, Store, TopicConfig, UnknownTopicOrPartition
from eoslog.maintenance.sealing import seal_segments
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from tests.unit.support.transactions import open_transaction


@pytest.fixture
def store(memory_store: ObjectStore, environment: Environment) -> Store:
    """Offsets 0 committed, 1 its marker, 2 aborted, 3 its marker, 4 open, 5 committed by another, 6 its marker."""
    store = Store(memory_store, environment)
    store.admin.create_topic("t")
    producer = store.producer("etl")
    producer.init_transactions()
    for value, outcome in ((b"committed", "commit"), (b"aborted", "abort"), (b"open", "")):
        producer.begin_transaction()
        producer.send("t", value)
        producer.flush()
        if outcome:
            getattr(producer, f"{outcome}_transaction")()
    other = open_transaction(store, "other")
    other.send("t", b"behind")
    other.commit_transaction()
    return store


def _values(store: Store, **options: object) -> list[bytes]:
    table = store.scan("t", **options).to_table()  # type: ignore[arg-type]
    return table["value"].to_pylist()


def test_read_committed_ends_at_the_last_stable_offset_without_aborted_rows(store: Store) -> None:
    assert _values(store) == [b"committed"]


def test_read_uncommitted_shows_every_row_below_the_high_watermark(store: Store) -> None:
    assert _values(store, isolation_level="read_uncommitted") == [b"committed", b"aborted", b"open", b"behind"]


def test_snapshot_shows_committed_rows_behind_an_open_transaction(store: Store) -> None:
    assert _values(store, isolation_level="snapshot") == [b"committed", b"behind"]


def test_a_snapshot_of_an_earlier_slot_shows_what_had_been_committed_then(store: Store) -> None:
    newest = store.read(lambda state, slot: slot)

    assert _values(store, isolation_level="snapshot", slot=newest - 1) == [b"committed"]
    assert _values(store, isolation_level="snapshot", slot=1) == []


@pytest.mark.usefixtures("files_are_objects")
def test_an_aborted_transaction_costs_no_read_of_its_file(store: Store) -> None:
    before = store.requests["GET"]

    plan = store.scan("t")
    rows = plan.to_table()

    log_polls, files = 1, 1
    assert rows.num_rows == 1
    assert store.requests["GET"] - before == log_polls + files


@pytest.mark.parametrize("end", [0, 2, 5])
def test_an_end_at_or_before_the_start_shows_nothing(
    memory_store: ObjectStore, environment: Environment, end: int
) -> None:
    store = Store(memory_store, environment)
    store.admin.create_topic("t")
    with store.producer() as producer:
        for number in range(10):
            producer.send("t", b"%d" % number)

    scan = store.scan("t", starting_offsets={0: 5}, ending_offsets={0: end})

    assert (scan.record_count, bool(scan.plans[0].rows), scan.to_table().num_rows) == (0, False, 0)


def test_a_partition_that_is_named_twice_is_read_once(store: Store) -> None:
    assert _values(store, partitions=[0, 0]) == [b"committed"]


def test_a_read_beyond_the_log_is_out_of_range(store: Store) -> None:
    with pytest.raises(OffsetOutOfRange, match="holds offsets 0 to 7"):
        store.scan("t", starting_offsets={0: 8})


def test_control_rows_occupy_offsets_and_are_not_rows(store: Store) -> None:
    offsets = store.scan("t", isolation_level="read_uncommitted", columns=["offset"]).to_table()["offset"]

    assert offsets.to_pylist() == [0, 2, 4, 5]


def test_unknown_names_are_refused_with_the_valid_ones(store: Store) -> None:
    with pytest.raises(InvalidOption, match="read_committed, read_uncommitted, snapshot"):
        store.scan("t", isolation_level="serializable")
    with pytest.raises(InvalidOption, match="key, value, topic"):
        store.scan("t", columns=["nothing"])
    with pytest.raises(UnknownTopicOrPartition, match="The store has: t"):
        store.scan("u")
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 0, not 7"):
        store.scan("t", partitions=[7])


def test_a_snapshot_of_an_early_slot_reads_no_later_index(memory_store: ObjectStore, environment: Environment) -> None:
    store = Store(memory_store, environment)
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2))
    with store.producer() as producer:
        for number in range(20):
            producer.send("t", b"%d" % number)
            producer.flush()
    seal_segments(store)
    early = store.scan("t", starting_offsets={0: 1}, ending_offsets={0: 2}, columns=["_slot"]).to_table()["_slot"][0]
    other = Store(memory_store, environment)
    other.scan("t", isolation_level="snapshot", slot=1)
    before = other.requests["GET"]

    plan = other.scan("t", isolation_level="snapshot", slot=early.as_py())

    log_polls, indexes = 1, 1
    assert plan.record_count == 2
    assert other.requests["GET"] - before == log_polls + indexes
