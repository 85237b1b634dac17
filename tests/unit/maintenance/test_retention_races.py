"""A process that drops rows or changes a topic may lose every race: its change is right at the slot that it wins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import errors
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import begun
from tests.unit.support.world import FaultyStore, ManualEnvironment, World

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
DAY_MS = 24 * 3600 * 1000


class Overtaken(ManualEnvironment):
    """Others act when this process comes to a point for the first time."""

    def __init__(self, world: World, point: str, others: Callable[[], object]) -> None:
        super().__init__(world)
        self._point = point
        self._others: Callable[[], object] | None = others

    def reached(self, crash_point: str) -> None:
        if crash_point == self._point and self._others is not None:
            others, self._others = self._others, None
            others()


def overtaken(world: World, others: Callable[[], object], at: str = "log.slot.before_put") -> Store:
    environment = Overtaken(world, at, others)
    return Store(FaultyStore(world, environment), environment)


@pytest.fixture
def rows(store: Store, world: World) -> Store:
    """Offsets 0 to 3 in partition 0, sealed by twos, all of them too old."""
    store.admin.alter_topic("t", segment_batches=2, retention_ms=DAY_MS)
    with store.producer() as producer:
        for number in range(4):
            producer.send("t", b"%d" % number, partition=0)
            producer.flush()
    Coordinator(store).seal()
    world.pass_time(2 * DAY_MS)
    return store


def earliest(store: Store) -> list[int]:
    return [each.earliest for each in store.admin.offsets("t")]


def test_retention_that_was_switched_off_meanwhile_drops_nothing(rows: Store, world: World) -> None:
    process = overtaken(world, lambda: rows.admin.alter_topic("t", retention_ms=None))

    assert Coordinator(process).apply_retention() == []
    assert earliest(rows) == [0, 0]


@pytest.mark.parametrize(("offset", "dropped"), [(1, [(1, 4)]), (4, [])])
def test_retention_tells_what_it_dropped_itself(
    rows: Store, world: World, offset: int, dropped: list[tuple[int, int]]
) -> None:
    process = overtaken(world, lambda: rows.admin.delete_records({T0: offset}))

    report = Coordinator(process).apply_retention()

    assert [(each.start_offset, each.end_offset) for each in report] == dropped
    assert earliest(rows) == [4, 0]


def test_two_that_apply_retention_drop_it_once(rows: Store, world: World) -> None:
    process = overtaken(world, lambda: Coordinator(rows).apply_retention())
    slot = rows.read(lambda state, slot: slot)

    assert Coordinator(process).apply_retention() == []
    assert rows.read(lambda state, slot: slot) == slot + 1


def test_a_topic_recreated_meanwhile_keeps_its_rows(rows: Store, world: World) -> None:
    def made_anew() -> None:
        rows.admin.delete_topic("t")
        rows.admin.create_topic("t", partitions=2)
        with rows.producer() as producer:
            producer.send("t", b"new", partition=0, timestamp=0)

    assert Coordinator(overtaken(world, made_anew)).apply_retention() == []
    assert rows.scan("t").record_count == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.admin.delete_records({T0: 2}),
        lambda store: store.admin.alter_topic("t", segment_ms=5),
        lambda store: store.admin.create_partitions("t", 5),
    ],
)
def test_a_call_on_a_topic_that_is_deleted_meanwhile_is_an_error(
    rows: Store, world: World, call: Callable[[Store], object]
) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition):
        call(overtaken(world, lambda: rows.admin.delete_topic("t")))


def test_rows_of_a_transaction_that_begins_meanwhile_are_not_deleted(rows: Store, world: World) -> None:
    process = overtaken(world, lambda: begun(rows, "tx", 0))

    assert process.admin.delete_records({T0: -1}) == {T0: 4}
    assert rows.admin.offsets("t")[0].last_stable_offset == 4


def test_a_segment_whose_rows_are_deleted_meanwhile_is_sealed_next_round(rows: Store, world: World) -> None:
    with rows.producer() as producer:
        for number in range(3):
            producer.send("t", b"%d" % number, partition=1)
            producer.flush()
    process = overtaken(world, lambda: rows.admin.delete_records({T1: 1}), at="segment.seal.files_written")

    # The first file set was written for a segment that begins elsewhere now; the round sees that and goes on.
    assert Coordinator(process).seal() == [T1]

    assert [row["value"] for row in rows.scan("t", partitions=[1]).to_table().to_pylist()] == [b"1", b"2"]
    assert rows.admin.restore_indexes("t") == []


def test_settings_that_two_change_at_once_are_all_changed(rows: Store, world: World) -> None:
    process = overtaken(world, lambda: rows.admin.alter_topic("t", retention_bytes=7))

    altered = process.admin.alter_topic("t", segment_ms=5)

    assert (altered.config.retention_bytes, altered.config.segment_ms) == (7, 5)


def test_the_later_of_two_partition_raises_may_only_go_higher(rows: Store, world: World) -> None:
    with pytest.raises(errors.InvalidTopic, match="has 5 partitions, and cannot have 5"):
        overtaken(world, lambda: rows.admin.create_partitions("t", 5)).admin.create_partitions("t", 5)

    process = overtaken(world, lambda: rows.admin.create_partitions("t", 6))
    assert process.admin.create_partitions("t", 7).partitions == 7


def test_a_consumer_that_has_planned_goes_on_at_the_log_start(rows: Store, world: World) -> None:
    consumer = world.process().consumer(auto_offset_reset="earliest", max_poll_records=1)
    consumer.assign([T0])
    assert [record.value for record in consumer.poll(0)] == [b"0"]
    rows.admin.delete_records({T0: 3})
    world.pass_time(2_000)

    assert [record.value for record in consumer.poll(0)] == [b"3"]
