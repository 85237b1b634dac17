"""Commits in the order of their slots: each whole, each once, at the cost of what is read."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog import InvalidOption, OffsetOutOfRange, Store, TopicConfig, TopicPartition, UnknownTopicOrPartition
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import LogStartMoved
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from tests.depth import examples
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

TOPICS = ("a", "b")


def new_store(world: World) -> Store:
    store = world.process()
    for topic in TOPICS:
        store.admin.create_topic(topic, partitions=2, config=TopicConfig(segment_batches=3))
    return store


@pytest.fixture
def store(world: World) -> Store:
    return new_store(world)


def write(store: Store, *topics: str, name: str = "etl", value: bytes = b"x") -> int:
    """One transaction. Returns the slot of its commit."""
    with open_transaction(store, name) as producer:
        for topic in topics:
            producer.send(topic, value, partition=0)
        producer.commit_transaction()
        return store.read(lambda state, slot: slot)


def seal(store: Store) -> None:
    assert seal_segments(store)


def test_a_commit_is_all_that_its_slot_committed_over_the_topics(store: Store, world: World) -> None:
    first = write(store, "a", "b", "b", value=b"1")
    first_ms = world.time_ms
    world.pass_time(1000)
    second = write(store, "b", name="other", value=b"2")

    one, two = store.commits(TOPICS)

    assert [(each.slot, each.timestamp, each.topics) for each in (one, two)] == [
        (first, first_ms, ["a", "b"]),
        (second, first_ms + 1000, ["b"]),
    ]
    assert one.record_count == 3
    assert [each.transactional_id for each in (*one.transactions, *two.transactions)] == ["etl", "other"]
    assert {topic: table["value"].to_pylist() for topic, table in one.to_tables().items()} == {
        "a": [b"1"],
        "b": [b"1", b"1"],
    }
    assert one.scan("a", columns=["_slot"]).to_table().to_pylist() == [{"_slot": first}]
    assert two.scan("a").to_table().num_rows == 0


def test_the_tables_of_a_commit_have_the_headers_of_its_records(store: Store) -> None:
    with store.producer() as producer:
        producer.send("a", b"x", headers=[("trace", b"1")])

    (commit,) = store.commits(["a"])

    assert commit.to_tables()["a"]["headers"].to_pylist() == [[{"key": "trace", "value": b"1"}]]


def test_an_open_transaction_holds_nobody_back_and_comes_when_it_commits(store: Store) -> None:
    slow = open_transaction(store, "slow")
    slow.send("a", b"slow")
    slow.flush()
    behind = write(store, "a")

    (one,) = store.commits("a")
    slow.commit_transaction()
    (two,) = store.commits("a", after_slot=behind)

    assert (one.slot, two.slot) == (behind, store.read(lambda state, slot: slot))
    assert two.to_tables()["a"]["value"].to_pylist() == [b"slow"]


def test_aborted_rows_are_no_commit_and_rows_without_a_transaction_are_one(store: Store) -> None:
    producer = open_transaction(store, "etl")
    producer.send("a", b"aborted")
    producer.flush()
    producer.abort_transaction()
    with store.producer() as plain:
        plain.send("a", b"plain")

    (commit,) = store.commits("a")

    assert commit.transactions[0].transactional_id is None
    assert commit.to_tables()["a"]["value"].to_pylist() == [b"plain"]


def test_unknown_topics_and_slots_are_refused(store: Store) -> None:
    newest = store.read(lambda state, slot: slot)

    with pytest.raises(UnknownTopicOrPartition, match="The store has: a, b"):
        store.commits("c")
    with pytest.raises(InvalidOption, match=f"holds slots 0 to {newest}"):
        store.commits("a", after_slot=newest + 1)
    with pytest.raises(InvalidOption, match=f"holds slots 0 to {newest}"):
        store.commits("a", until_slot=newest + 1)
    with pytest.raises(InvalidOption, match="name the topics"):
        store.commits([])
    write(store, "a")
    with pytest.raises(InvalidOption, match="'b' was not requested"):
        next(store.commits("a")).scan("b")


def test_rows_that_were_deleted_before_they_were_read_are_told(store: Store) -> None:
    first = write(store, "a")
    second = write(store, "a")
    topic_id = store.admin.describe_topic("a").topic_id
    store.append(AppendEntry(LogStartMoved(topic_id=topic_id, partition=0, offset=4, reason="delete_records")))
    third = write(store, "a")

    with pytest.raises(OffsetOutOfRange, match=f"after slot {first}, up to slot {second}, have been deleted since"):
        store.commits("a", after_slot=first)
    assert [commit.slot for commit in store.commits("a", after_slot=second)] == [third]
    assert [commit.slot for commit in store.commits("a")] == [third]


@pytest.mark.parametrize("sealed", [False, True])
def test_aborted_rows_that_were_deleted_are_no_loss(store: Store, sealed: bool) -> None:
    read = write(store, "a")
    for number in range(2):
        with open_transaction(store, f"aborting-{number}") as producer:
            producer.send("a", b"aborted", partition=0)
            producer.flush()
            producer.abort_transaction()
    if sealed:
        seal(store)
    store.admin.delete_records({TopicPartition("a", 0): -1})
    later = write(store, "a", name="later")

    assert [commit.slot for commit in store.commits("a", after_slot=read)] == [later]


def test_records_deleted_in_a_sealed_segment_matter_only_if_unread(store: Store) -> None:
    first, second, third = (write(store, "a") for _ in range(3))
    seal(store)
    assert look_at(store, "a").sealed[0].max_end_slot == second

    assert store.admin.delete_records({TopicPartition("a", 0): 1}) == {TopicPartition("a", 0): 1}

    assert [commit.slot for commit in store.commits("a", after_slot=first)] == [second, third]
    with pytest.raises(OffsetOutOfRange, match=f"up to slot {first}, have been deleted since"):
        store.commits("a", after_slot=first - 1)


def test_records_are_deleted_within_a_segment_whose_index_is_damaged(store: Store) -> None:
    """Nobody knows what is lost, so all that ended in the segment counts."""
    first, second, _ = (write(store, "a") for _ in range(3))
    seal(store)
    segment = look_at(store, "a").sealed[0]
    store.object_store.delete([segment.index.path])

    store.admin.delete_records({TopicPartition("a", 0): 1})

    assert look_at(store, "a").removed_end_slot == second > first


def look_at(store: Store, topic: str) -> Partition:
    return store.read(lambda state, slot: state.partitions[PartitionId(state.topic_ids[topic], 0)])


def test_the_first_commits_of_a_long_history_cost_only_their_indexes(store: Store) -> None:
    for number in range(60):
        with store.producer() as producer:
            producer.send("a", b"%d" % number, partition=0)
    seal(store)
    before = store.requests["GET"]

    first = list(islice(store.commits("a"), 4))

    log, indexes = 1, 1
    assert len(first) == 4
    assert store.requests["GET"] - before == log + indexes


STEP = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(["x", "y"]), st.sampled_from(TOPICS), st.integers(0, 1)),
    st.tuples(st.just("commit"), st.sampled_from(["x", "y"])),
    st.tuples(st.just("abort"), st.sampled_from(["x", "y"])),
    st.tuples(st.just("plain"), st.sampled_from(TOPICS), st.integers(0, 1)),
    st.tuples(st.just("seal")),
)


def run(store: Store, steps: list[tuple[Any, ...]]) -> None:
    producers = {name: store.producer(name) for name in ("x", "y")}
    for producer in producers.values():
        producer.init_transactions()
    begun: set[str] = set()
    for number, step in enumerate(steps):
        match step:
            case ("send", name, topic, partition):
                if name not in begun:
                    producers[name].begin_transaction()
                    begun.add(name)
                producers[name].send(topic, b"%d" % number, partition=partition)
                producers[name].flush()
            case (("commit" | "abort") as end, name) if name in begun:
                getattr(producers[name], f"{end}_transaction")()
                begun.discard(name)
            case ("plain", topic, partition):
                with store.producer() as producer:
                    producer.send(topic, b"%d" % number, partition=partition)
            case ("seal",):
                seal_segments(store)


@examples(12)
@given(st.lists(STEP, min_size=2, max_size=25), st.data())
def test_all_commits_together_are_the_snapshot_however_they_are_parted(
    steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    store = new_store(World())
    run(store, steps)
    expected: dict[int, list[tuple[str, bytes]]] = defaultdict(list)
    for topic in TOPICS:
        rows = store.scan(topic, isolation_level="snapshot", columns=["value", "_slot"]).to_table().to_pylist()
        for row in rows:
            expected[row["_slot"]].append((topic, row["value"]))
    newest = store.read(lambda state, slot: slot)
    middle = data.draw(st.integers(-1, newest))

    commits = list(store.commits(TOPICS))
    parted = [*store.commits(TOPICS, until_slot=middle), *store.commits(TOPICS, after_slot=middle)]

    assert [commit.slot for commit in commits] == sorted(expected)
    assert [commit.slot for commit in parted] == sorted(expected)
    for commit in commits:
        tables = commit.to_tables()
        found = [(topic, value) for topic in tables for value in tables[topic]["value"].to_pylist()]
        assert sorted(found) == sorted(expected[commit.slot])
