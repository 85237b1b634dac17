"""The largest ends that split no committed transaction, compared with all the ends there are."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog import InvalidOption, Store, TopicConfig
from eoslog.maintenance.sealing import seal_segments
from eoslog.read.consistent_ends import limited_consistent_ends, transaction_consistent_ends
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.depth import examples
from tests.unit.support.transactions import open_transaction

PARTITIONS = 3
ROW = {"etl": b"etl", "load": b"load", "audit": b"audit"}


class Row(NamedTuple):
    partition: int
    offset: int
    slot: int
    """Of the transaction's commit."""


def new_store() -> Store:
    environment = Environment()
    store = Store(MemoryStore(environment), environment)
    store.admin.create_topic("t", partitions=PARTITIONS, config=TopicConfig(segment_batches=3))
    return store


def partitions_of(store: Store) -> dict[int, Partition]:
    topic_id = store.admin.describe_topic("t").topic_id
    return store.read(
        lambda state, slot: {number: state.partitions[PartitionId(topic_id, number)] for number in range(PARTITIONS)}
    )


def stable(partitions: Mapping[int, Partition]) -> dict[int, int]:
    return {number: partition.last_stable_offset for number, partition in partitions.items()}


def committed_rows(store: Store) -> list[Row]:
    """All rows of committed transactions, also those that an open one hides from read_committed."""
    names = ["partition", "offset", "_slot", "_transactional_id"]
    rows = store.scan("t", isolation_level="snapshot", columns=names).to_table().to_pylist()
    return [Row(row["partition"], row["offset"], row["_slot"]) for row in rows if row["_transactional_id"]]


def splits_nothing(rows: list[Row], starts: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    shown = defaultdict(set)
    for row in rows:
        if row.offset >= starts[row.partition]:
            shown[row.slot].add(row.offset < ends[row.partition])
    return all(len(each) == 1 for each in shown.values())


def largest(rows: list[Row], starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    """Of all ends that split nothing the largest, which is above every other in every partition."""
    every = itertools.product(*(range(starts[number], ends[number] + 1) for number in range(PARTITIONS)))
    whole = [each for each in every if splits_nothing(rows, starts, dict(enumerate(each)))]
    return {number: max(each[number] for each in whole) for number in range(PARTITIONS)}


STEP = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(["etl", "load"]), st.integers(0, PARTITIONS - 1), st.integers(1, 2)),
    st.tuples(st.just("commit"), st.sampled_from(["etl", "load"])),
    st.tuples(st.just("abort"), st.sampled_from(["etl", "load"])),
    st.tuples(st.just("plain"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("seal")),
)
PARTITION_PAIR = st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, PARTITIONS - 1))


class Writers:
    """Producers whose transactions overlap, and rows without a transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._producers = {name: store.producer(name) for name in ("etl", "load")}
        self._open: set[str] = set()
        for producer in self._producers.values():
            producer.init_transactions()

    def do(self, step: tuple[object, ...]) -> None:
        match step:
            case ("send", str(name), int(partition), int(count)):
                producer = self._producers[name]
                if name not in self._open:
                    producer.begin_transaction()
                    self._open.add(name)
                for _ in range(count):
                    producer.send("t", ROW[name], partition=partition)
                producer.flush()
            case ("commit", str(name)) if name in self._open:
                self._producers[name].commit_transaction()
                self._open.discard(name)
            case ("abort", str(name)) if name in self._open:
                self._producers[name].abort_transaction()
                self._open.discard(name)
            case ("plain", int(partition)):
                with self._store.producer() as producer:
                    producer.send("t", b"plain", partition=partition)
            case ("seal",):
                seal_segments(self._store)


@examples(12)
@given(st.lists(STEP, min_size=3, max_size=14), st.lists(STEP, max_size=5), st.data())
def test_the_ends_are_the_largest_consistent_ones_and_never_go_back(
    steps: list[tuple[object, ...]], later: list[tuple[object, ...]], data: st.DataObject
) -> None:
    store = new_store()
    writers = Writers(store)
    for step in steps:
        writers.do(step)
    partitions = partitions_of(store)
    bounds = stable(partitions)
    starts = {number: data.draw(st.integers(0, bounds[number])) for number in range(PARTITIONS)}
    limits = {number: data.draw(st.integers(starts[number], bounds[number])) for number in range(PARTITIONS)}
    rows = committed_rows(store)
    origin = dict.fromkeys(range(PARTITIONS), 0)

    found = transaction_consistent_ends(store.indexes, partitions, origin, bounds)
    limited = transaction_consistent_ends(store.indexes, partitions, starts, limits)

    assert splits_nothing(rows, origin, found)
    assert found == largest(rows, origin, bounds)
    assert limited == largest(rows, starts, limits)
    for step in later:
        writers.do(step)
    after = partitions_of(store)
    again = transaction_consistent_ends(store.indexes, after, origin, stable(after))
    assert all(again[number] >= found[number] for number in range(PARTITIONS))


@examples(10)
@given(st.lists(STEP, min_size=3, max_size=14), st.integers(1, 4))
def test_a_limit_below_one_transaction_gives_way_and_all_is_read(steps: list[tuple[object, ...]], most: int) -> None:
    store = new_store()
    writers = Writers(store)
    for step in steps:
        writers.do(step)
    partitions = partitions_of(store)
    bounds = stable(partitions)
    rows = committed_rows(store)
    origin = dict.fromkeys(range(PARTITIONS), 0)
    starts = origin
    whole = transaction_consistent_ends(store.indexes, partitions, starts, bounds)

    while True:

        def limit(offsets: int, starts: dict[int, int] = starts) -> dict[int, int]:
            return {number: min(bounds[number], starts[number] + offsets) for number in range(PARTITIONS)}

        ends = limited_consistent_ends(store.indexes, partitions, starts, ends=bounds, limit=limit, max_offsets=most)
        assert splits_nothing(rows, origin, ends)
        if ends == starts:
            break
        starts = ends

    assert starts == whole


def send(store: Store, name: str, *partitions: int, end: bool = True) -> None:
    producer = open_transaction(store, name)
    for partition in partitions:
        producer.send("t", ROW[name], partition=partition)
    producer.flush()
    if end:
        producer.commit_transaction()


def test_a_transaction_left_out_takes_those_sharing_a_partition_with_it() -> None:
    store = new_store()
    send(store, "etl", 0, end=False)
    send(store, "load", 0, 1)
    send(store, "load", 1, 2)
    partitions = partitions_of(store)
    bounds = stable(partitions)
    origin = dict.fromkeys(range(PARTITIONS), 0)

    found = transaction_consistent_ends(store.indexes, partitions, origin, bounds)

    assert min(bounds[1], bounds[2]) > 0
    assert found == {0: 0, 1: 0, 2: 0}


@examples(12)
@given(
    st.lists(PARTITION_PAIR, max_size=3),
    st.integers(0, PARTITIONS - 1),
    st.lists(PARTITION_PAIR, min_size=2, max_size=5),
)
def test_a_chain_of_transactions_has_the_largest_consistent_ends(
    before: list[tuple[int, int]], held_back: int, after: list[tuple[int, int]]
) -> None:
    """One transaction stays open; those after it are linked by the partitions that they share."""
    store = new_store()
    for pair in before:
        send(store, "load", *pair)
    send(store, "etl", held_back, end=False)
    for number, pair in enumerate(after):
        send(store, ("load", "audit")[number % 2], *pair)
    partitions = partitions_of(store)
    bounds = stable(partitions)
    rows = committed_rows(store)
    origin = dict.fromkeys(range(PARTITIONS), 0)

    found = transaction_consistent_ends(store.indexes, partitions, origin, bounds)

    assert splits_nothing(rows, origin, found)
    assert found == largest(rows, origin, bounds)


def test_a_scan_leaves_out_what_it_would_show_in_part() -> None:
    store = new_store()
    send(store, "etl", 1, end=False)
    send(store, "load", 0, 1)

    def values(**options: bool) -> list[bytes]:
        found: list[bytes] = store.scan("t", columns=["value"], **options).to_table()["value"].to_pylist()  # type: ignore[arg-type]
        return found

    assert values() == [b"load"]
    assert values(transaction_consistent=True) == []


def test_without_an_open_transaction_no_index_is_read() -> None:
    store = new_store()
    for _ in range(6):
        send(store, "load", 0, 1, 2)
    assert seal_segments(store)
    partitions = partitions_of(store)
    before = store.requests.total()

    transaction_consistent_ends(store.indexes, partitions, dict.fromkeys(range(PARTITIONS), 0), stable(partitions))

    assert store.requests.total() == before


@pytest.mark.parametrize("level", ["read_uncommitted", "snapshot"])
def test_other_isolation_levels_have_no_such_end(level: str) -> None:
    with pytest.raises(InvalidOption, match="A snapshot never splits a transaction"):
        new_store().scan("t", transaction_consistent=True, isolation_level=level)
