"""A transaction past its time-out hides rows only until somebody appends or reads: no coordinator has to run."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from eoslog.log import next_record
from eoslog.log.slots import records_backwards
from eoslog.state import transaction_requests
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import begun, open_transaction
from tests.unit.support.world import SLOTS, World, faulty, values

PLACE = TopicPartition("t", 0)


@pytest.fixture
def hidden(store: Store, world: World) -> list[bytes]:
    """Committed rows behind those of a producer that died in its transaction, long ago."""
    begun(store, "dead", 0, transaction_timeout_ms=1_000)
    with store.producer() as producer:
        producer.send("t", b"behind it", partition=0)
    world.pass_time(2_000)
    return [b"behind it"]


def ongoing(store: Store) -> list[str]:
    return store.read(lambda state, slot: sorted(state.ongoing))


def flush(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"more", partition=1)


def eager_flush(store: Store) -> None:
    begun(store, "another", 1)


def staged_commit(store: Store) -> None:
    producer = open_transaction(store, "another", staged=True)
    producer.send("t", b"more", partition=1)
    producer.commit_transaction()


def group_commit(store: Store) -> None:
    consumer = store.consumer("g")
    consumer.assign([PLACE])
    consumer.commit({PLACE: 0})


def create_topic(store: Store) -> None:
    store.admin.create_topic("another")


def checkpoint(store: Store) -> None:
    store.log.checkpoint()


APPENDS = [flush, eager_flush, staged_commit, group_commit, create_topic, checkpoint]


@pytest.mark.parametrize("append", APPENDS, ids=lambda each: each.__name__)
def test_every_append_ends_transactions_past_their_timeouts(
    append: Callable[[Store], None], world: World, hidden: list[bytes]
) -> None:
    other = world.process()

    append(other)

    assert "dead" not in ongoing(world.process())


def test_the_abort_shares_the_record_of_the_append(store: Store, world: World, hidden: list[bytes]) -> None:
    newest = store.read(lambda state, slot: slot)

    create_topic(store)

    assert store.read(lambda state, slot: slot) == newest + 1
    record = next(records_backwards(store.object_store, newest + 1))
    assert [entry["type"] for entry in record.entries] == ["topic", "end"]


@pytest.mark.usefixtures("files_are_objects")
def test_overdue_transactions_that_make_a_record_too_large_hinder_no_append(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_requests, "_MOST_PARTITIONS_ABORTED_A_RECORD", 100)
    monkeypatch.setattr(next_record, "LARGEST_RECORD_BYTES", 12_000)
    store.admin.create_topic("wide", partitions=60)
    for number in range(3):
        dead = open_transaction(store, f"dead{number}", transaction_timeout_ms=60_000)
        for partition in range(60):
            dead.send("wide", b"v", partition=partition)
            if partition % 10 == 9:
                dead.flush()
    world.pass_time(100_000)

    for number in range(4):
        store.admin.create_topic(f"topic{number}" + "x" * 200)

    assert ongoing(store) == []


def test_a_flush_past_the_timeout_of_its_own_transaction_ends_it(store: Store, world: World) -> None:
    slow = begun(store, "slow", 0, transaction_timeout_ms=1_000)
    world.pass_time(2_000)
    slow.send("t", b"late", partition=0)

    slow.flush()

    assert ongoing(store) == []
    assert values(store, isolation_level="read_committed") == []


def scanned(store: Store) -> list[bytes]:
    return values(store)


def stable_rows(store: Store) -> list[bytes]:
    """The rows after ``admin.offsets`` reported them as stable."""
    first = store.admin.offsets("t")[0]
    assert first.last_stable_offset == first.high_watermark
    return values(store)


def polled(store: Store, timeout: float = 5) -> list[bytes]:
    consumer = store.consumer(auto_offset_reset="earliest")
    consumer.assign([PLACE])
    return [record.value for record in consumer.poll(timeout) if record.value is not None]


def polled_once(store: Store) -> list[bytes]:
    return polled(store, timeout=0)


@pytest.mark.parametrize("read", [scanned, stable_rows, polled, polled_once], ids=lambda each: each.__name__)
def test_a_blocked_reader_that_may_write_aborts_overdue_transactions(
    read: Callable[[Store], list[bytes]], world: World, hidden: list[bytes]
) -> None:
    assert read(world.process()) == hidden


def test_a_scan_at_read_uncommitted_ends_nothing(world: World, hidden: list[bytes]) -> None:
    store = world.process()

    assert len(values(store, isolation_level="read_uncommitted")) == 2

    assert ongoing(store) == ["dead"]


def test_a_reader_without_write_access_logs_which_transaction_hides_rows(
    world: World, hidden: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    reader = world.process()
    faulty(reader).deny(SLOTS)

    with caplog.at_level(logging.WARNING, logger="eoslog"):
        assert values(reader) == []
        assert values(reader) == []

    assert len(caplog.messages) == 1
    for part in ("transactional id 'dead' in t-0, open for 2 s", "Any process that appends", "eoslog coordinator"):
        assert part in caplog.messages[0]


def test_a_reader_whose_abort_is_not_answered_still_reads_visible_rows(world: World, hidden: list[bytes]) -> None:
    reader = world.process()
    values(reader, "t", "read_uncommitted")
    faulty(reader).lose_one_answer(SLOTS, lands=False)

    assert values(reader) in ([], hidden)
    assert values(reader) == hidden
