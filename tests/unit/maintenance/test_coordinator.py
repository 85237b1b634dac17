"""The coordinator does the work that no client asks for."""

from __future__ import annotations

import pytest

from eoslog.log.replica import LogConfig
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.entries import TopicConfig
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import begun
from tests.unit.support.world import World, at_last_epoch, values

DAY_MS = 24 * 3600 * 1000


def test_transactions_past_their_timeouts_are_aborted_and_no_others(store: Store, world: World) -> None:
    begun(store, "short", 0, transaction_timeout_ms=1_000)
    begun(store, "long", 0, transaction_timeout_ms=100_000)
    begun(store, "done", 0, transaction_timeout_ms=1_000).commit_transaction()
    coordinator = Coordinator(world.process())
    assert coordinator.abort_timed_out_transactions() == []
    world.pass_time(2_000)

    assert coordinator.abort_timed_out_transactions() == ["short"]

    states = {each.transactional_id: each.transaction_state for each in store.admin.list_transactions()}
    assert states == {"short": "COMPLETE_ABORT", "long": "ONGOING", "done": "COMPLETE_COMMIT"}


def test_more_transactions_than_fit_into_a_record_are_aborted_in_several(store: Store, world: World) -> None:
    names = [f"tx{number}" for number in range(150)]
    for name in names:
        begun(store, name, 0, transaction_timeout_ms=60_000)
    world.pass_time(100_000)

    assert sorted(Coordinator(store).abort_timed_out_transactions()) == sorted(names)
    assert store.admin.list_transactions(states=["Ongoing"]) == []


@pytest.fixture
def exhausted(store: Store, world: World) -> list[str]:
    """Transactions past their time-outs whose ends exhaust their epochs: each needs a producer id, a record has one."""
    names = ["x", "y", "z"]
    for name in names:
        producer = store.producer(name, transaction_timeout_ms=1_000)
        producer.init_transactions()
        at_last_epoch(store, producer)
        producer.begin_transaction()
        producer.send("t", b"open", partition=0)
        producer.flush()
    with store.producer() as producer:
        producer.send("t", b"behind them", partition=0)
    world.pass_time(2_000)
    return names


def test_a_sweep_ends_all_transactions_whose_epochs_are_exhausted(store: Store, exhausted: list[str]) -> None:
    assert sorted(Coordinator(store).abort_timed_out_transactions()) == exhausted


def test_a_reader_that_they_hold_up_ends_all_of_them_at_once(store: Store, exhausted: list[str]) -> None:
    """A batch reader asks once, and would be shown nothing behind those that are left."""
    assert values(store) == [b"behind them"]
    assert store.admin.list_transactions(states=["Ongoing"]) == []


def test_a_consumer_is_not_held_up_by_them(store: Store, exhausted: list[str]) -> None:
    consumer = store.consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])

    assert [record.value for record in consumer.poll(timeout=5)] == [b"behind them"]


def test_silent_members_of_all_groups_are_evicted(store: Store, world: World) -> None:
    consumers = [world.process().consumer(group) for group in ("g", "h")]
    for consumer in consumers:
        consumer.subscribe("t")
        consumer.poll(0)
    coordinator = Coordinator(world.process())
    assert coordinator.evict_silent_members() == []
    world.pass_time(40_000)
    consumers[0].poll(0)
    world.pass_time(10_000)

    assert coordinator.evict_silent_members() == [consumers[1].group_metadata().member_id]
    assert coordinator.evict_silent_members() == []


def test_more_ids_than_an_entry_holds_expire_in_several(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eoslog.state.expiry._MOST_EXPIRED", 2)
    names = [f"tx{number}" for number in range(5)]
    for name in names:
        store.producer(name).init_transactions()
    world.pass_time(8 * DAY_MS)

    assert Coordinator(store).expire_transactional_ids() == names
    assert store.admin.list_transactions() == []


def test_ids_of_each_kind_expire_by_themselves(store: Store, world: World) -> None:
    begun(store, "tx", 0).commit_transaction()
    idempotent = store.producer()
    idempotent.send("t", b"v")
    idempotent.flush()
    world.pass_time(8 * DAY_MS)

    assert Coordinator(store).expire_producer_ids() == [idempotent.producer_id]
    assert [each.transactional_id for each in store.admin.list_transactions()] == ["tx"]
    assert Coordinator(store).expire_transactional_ids() == ["tx"]
    assert Coordinator(store).expire_producer_ids() == []


def test_a_checkpoint_that_was_due_and_never_written_is_written(store: Store, world: World) -> None:
    """Whoever makes one due may die before it is written."""
    writer = world.process(LogConfig(checkpoint_slots=1_000_000))
    for number in range(70):
        writer.producer(f"tx{number}").init_transactions()
    coordinator = Coordinator(world.process())

    written = coordinator.checkpoint()

    assert written is not None
    assert written.slot == store.read(lambda state, slot: slot) - 1
    assert coordinator.checkpoint() is None


def _kept(store: Store, topic: str) -> list[bytes]:
    values: list[bytes] = store.scan(topic).to_table()["value"].to_pylist()
    return values


def test_retention_drops_by_time_and_size_and_nothing_else(store: Store, world: World) -> None:
    store.admin.create_topic("old", config=TopicConfig(segment_batches=1, retention_ms=DAY_MS))
    store.admin.create_topic("large", config=TopicConfig(segment_batches=1, retention_bytes=1))
    store.admin.create_topic("kept", config=TopicConfig(segment_batches=1))
    with store.producer() as producer:
        for topic in ("old", "large", "kept"):
            for number in range(3):
                producer.send(topic, b"%d" % number)
                producer.flush()
    coordinator = Coordinator(world.process())
    coordinator.seal()

    by_size = coordinator.apply_retention()
    world.pass_time(DAY_MS + 1)
    by_time = coordinator.apply_retention()

    assert [(each.topic, each.start_offset, each.end_offset) for each in by_size] == [("large", 0, 2)]
    assert [(each.topic, each.start_offset, each.end_offset) for each in by_time] == [("old", 0, 3)]
    assert [_kept(store, topic) for topic in ("old", "large", "kept")] == [[], [b"2"], [b"0", b"1", b"2"]]
    assert coordinator.apply_retention() == []


def test_retention_goes_by_the_stores_clock_and_the_rows_timestamps(store: Store, world: World) -> None:
    store.admin.alter_topic("t", retention_ms=DAY_MS)
    with store.producer() as producer:
        producer.send("t", b"of long ago", partition=0, timestamp=1)
        producer.send("t", b"of the future", partition=1, timestamp=world.time_ms + 9 * DAY_MS)
    world.pass_time(2 * DAY_MS)

    dropped = Coordinator(store).apply_retention()

    assert [(each.partition, each.end_offset) for each in dropped] == [(0, 1)]


def test_retention_waits_for_open_transactions(store: Store, world: World) -> None:
    store.admin.alter_topic("t", retention_ms=DAY_MS)
    producer = begun(store, "tx", 0, transaction_timeout_ms=900_000)
    world.pass_time(2 * DAY_MS)
    coordinator = Coordinator(store)

    assert coordinator.apply_retention() == []
    producer.abort_transaction()
    assert coordinator.apply_retention() == []
    world.pass_time(2 * DAY_MS)
    assert [(each.partition, each.end_offset) for each in coordinator.apply_retention()] == [(0, 2)]


def test_a_run_applies_retention_and_a_later_one_vacuums_the_files(store: Store, world: World) -> None:
    store.admin.alter_topic("t", retention_ms=DAY_MS, segment_ms=1)
    with store.producer() as producer:
        producer.send("t", b"1", partition=0)
    world.pass_time(2 * DAY_MS)
    coordinator = Coordinator(world.process())

    first = {report.step: report.did for report in coordinator.run_once()}
    world.pass_time(2 * DAY_MS)
    second = {report.step: report.did for report in coordinator.run_once()}

    assert first["seal-segments"] == {"sealed_segments": ["t-0"]}
    assert first["apply-retention"] == {"dropped_rows": ["t-0 0..0"]}
    assert second["vacuum"]["deleted_files"] == 3
    assert second["apply-retention"] == {}
