"""What a consumer shows of transactions: by its isolation level, and when their producer is dead."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.store import Store
from tests.unit.support.reading import T0, T1, assigned, send, taken, transaction
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World, faulty


def test_a_consumer_refuses_snapshots_and_unknown_options(store: Store) -> None:
    with pytest.raises(errors.InvalidOption, match="scan"):
        store.consumer(isolation_level="snapshot")
    for options in (
        {"isolation_level": "dirty"},
        {"auto_offset_reset": "first"},
        {"max_poll_records": 0},
        {"enable_auto_commit": True},
        {"group_id": "g", "session_timeout_ms": 5},
    ):
        with pytest.raises(errors.InvalidOption):
            store.consumer(**options)
    with pytest.raises(errors.InvalidRequest):
        store.consumer("")


def test_records_tell_who_wrote_them_on_request(store: Store) -> None:
    transaction(store, "commit", b"1", b"2", partition=0)
    slot = store.read(lambda state, newest: newest)
    send(store, b"3", partition=1)

    first, second, alone = assigned(store, with_transaction=True).poll()

    assert first.transaction is not None
    assert second.transaction is not None
    assert alone.transaction is not None
    assert (first.transaction.transactional_id, first.transaction.slot) == ("tx", slot)
    assert (first.transaction.sequence, second.transaction.sequence) == (0, 1)
    assert (alone.transaction.transactional_id, alone.transaction.slot) == (None, slot + 2)
    assert alone.transaction.commit_timestamp == store.read(lambda state, newest: state.time_ms)
    assert all(record.transaction is None for record in assigned(store).poll())


def test_a_row_of_an_open_transaction_tells_that_it_is_not_decided(store: Store) -> None:
    transaction(store, "", b"1", partition=0)

    (record,) = assigned(store, with_transaction=True, isolation_level="read_uncommitted").poll()

    assert record.transaction is not None
    assert (record.transaction.slot, record.transaction.commit_timestamp) == (None, None)


# Dead producers


@pytest.mark.scenario(128)
def test_a_consumer_ends_a_dead_producers_transaction_that_hides_rows(store: Store, world: World) -> None:
    dead = open_transaction(world.process(), "dead", transaction_timeout_ms=10_000)
    dead.send("t", b"dead", partition=0)
    dead.flush()
    transaction(store, "commit", b"stuck")
    consumer = assigned(store, T0)
    assert consumer.poll(timeout=5) == []

    assert taken(consumer.poll(timeout=10)) == [b"stuck"]
    assert store.admin.describe_transaction("dead").transaction_state == "COMPLETE_ABORT"


def test_a_consumer_that_may_not_write_waits_for_others_to_end_it(store: Store, world: World) -> None:
    transaction(store, "open", b"dead")
    world.pass_time(120_000)
    reader = world.process()
    faulty(reader).deny("__transaction_state")
    consumer = assigned(reader, T0)

    assert consumer.poll(timeout=2) == []
    transaction(store, "commit", b"v", transactional_id="other")
    assert taken(consumer.poll(timeout=2)) == [b"v"]


def test_nothing_is_ended_that_is_within_its_timeout_or_hides_nothing(store: Store, world: World) -> None:
    transaction(store, "open", b"1", partition=0)
    elsewhere = assigned(store, T1)
    world.pass_time(120_000)
    elsewhere.poll(timeout=1)
    uncommitted = assigned(store, isolation_level="read_uncommitted")
    uncommitted.poll(timeout=1)
    uncommitted.poll(timeout=1)

    assert store.admin.describe_transaction("tx").transaction_state == "ONGOING"
