"""Transactions from end to end: what producers end, consumers of other processes are shown."""

from __future__ import annotations

import pytest

from eoslog.state.names import TopicPartition
from tests.conformance.end_to_end import TOPICS, Stage, polled, send, transaction
from tests.unit.support.world import World, faulty

FIRST = [TopicPartition(topic, 0) for topic in TOPICS]


@pytest.mark.scenario(121, 136, 139)
@pytest.mark.parametrize("flushes", ["each record", "all at the end"])
def test_commits_and_aborts_are_exact_with_one_batch_in_flight_and_with_many(stage: Stage, flushes: str) -> None:
    producer = stage.producer()
    for outcome, *values in (("abort", "2", "4"), ("commit", "1", "3"), ("abort", "6", "8"), ("commit", "5", "7")):
        producer.begin_transaction()
        for number, value in enumerate(values):
            send(producer, value, topic=TOPICS[number], partition=0)
            if flushes == "each record":
                producer.flush()
        producer.flush()
        getattr(producer, f"{outcome}_transaction")()

    assert stage.shown() == [b"1", b"3", b"5", b"7"]
    assert stage.shown("read_uncommitted") == [b"%d" % number for number in range(1, 9)]


@pytest.mark.scenario(122, 139)
def test_a_read_committed_consumer_sees_nothing_undecided(stage: Stage) -> None:
    visible_ms = stage.world.time_ms
    first, second = stage.producer("first"), stage.producer("second")
    second.begin_transaction()
    for topic in TOPICS:
        second.send(topic, b"x1", partition=0, timestamp=visible_ms)
    second.flush()
    first.begin_transaction()
    for topic, value in (("topic1", b"a"), ("topic1", b"b"), ("topic2", b"c"), ("topic2", b"d")):
        first.send(topic, value, partition=0, timestamp=visible_ms + 1)
    first.flush()
    for topic in TOPICS:
        second.send(topic, b"x2", partition=0, timestamp=visible_ms + 2)
    second.commit_transaction()

    assert len(stage.shown("read_uncommitted")) == 8
    assert stage.shown() == [b"x1", b"x1"]
    store = stage.cold()
    with store.consumer() as committed, store.consumer(isolation_level="read_uncommitted") as uncommitted:
        for consumer in (committed, uncommitted):
            consumer.assign(FIRST)
            consumer.seek_to_end()
        assert [committed.position(place) for place in FIRST] == [1, 1]
        assert list(committed.end_offsets(FIRST).values()) == [1, 1]
        # Four rows, and the marker of the second producer.
        assert [uncommitted.position(place) for place in FIRST] == [5, 5]

        for undecided_ms in (visible_ms + 1, visible_ms + 2):
            assert set(committed.offsets_for_times(dict.fromkeys(FIRST, undecided_ms)).values()) == {None}
        assert set(committed.offsets_for_times(dict.fromkeys(FIRST, visible_ms)).values()) == {(0, visible_ms)}
        latest = uncommitted.offsets_for_times(dict.fromkeys(FIRST, visible_ms + 2))
        assert set(latest.values()) == {(3, visible_ms + 2)}


@pytest.mark.further("End to end")
def test_a_waiting_poll_skips_an_abort_and_returns_the_next_commit(stage: Stage) -> None:
    """Kafka's delayed fetch must know of an abort that came after the fetch."""
    producer = stage.producer()
    producer.begin_transaction()
    send(producer, "aborted", partition=0)
    producer.flush()
    steps = [producer.abort_transaction, lambda: transaction(producer, "commit", "next", partition=0)]

    def meanwhile() -> None:
        # The producer may sleep too.
        stage.world.while_asleep = lambda: None
        if steps:
            steps.pop(0)()
        stage.world.while_asleep = meanwhile

    with stage.cold().consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([FIRST[0]])
        assert consumer.poll(0) == []
        stage.world.while_asleep = meanwhile

        assert [record.value for record in consumer.poll(10.0)] == [b"next"]


@pytest.mark.further("End to end")
def test_a_snapshot_never_shows_a_part_of_a_transaction_while_others_are_open(stage: Stage) -> None:
    holder, producer = stage.producer("holder"), stage.producer()
    holder.begin_transaction()
    for topic in TOPICS:
        send(holder, "held", topic=topic, partition=0)
    holder.flush()
    for number in range(5):
        producer.begin_transaction()
        for topic in TOPICS:
            send(producer, f"{number}", topic=topic, partition=number % 2)
            producer.flush()
            assert len(set(map(tuple, _snapshots(stage)))) == 1
        getattr(producer, f"{('commit', 'abort')[number % 2]}_transaction")()

    assert _snapshots(stage) == [[b"0", b"2", b"4"]] * 2


def _snapshots(stage: Stage) -> list[list[bytes]]:
    store = stage.cold()
    return [
        sorted(store.scan(topic, isolation_level="snapshot", columns=["value"]).to_table()["value"].to_pylist())
        for topic in TOPICS
    ]


@pytest.mark.scenario(139)
def test_index_files_alone_name_the_aborted_transactions_of_sealed_segments(world: World) -> None:
    stage = Stage(world, "sealed")
    producer = stage.producer()
    for number in range(6):
        transaction(producer, ("commit", "abort")[number % 2], f"{number}", partition=0)

    store = stage.cold()
    records = polled(store)

    assert store.read(lambda state, slot: [each.active for each in state.partitions.values() if each.active]) == []
    assert [each.value for each in records] == [b"0", b"2", b"4"]
    assert any(path.endswith(".index.parquet") for path in faulty(store).gets)
