"""The index of aborted transactions: entries in the order of their markers, one file per sealed segment."""

from __future__ import annotations

import pytest

from eoslog.format.kafka_files import decode_transaction_index, encode_transaction_index
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import AbortedTransaction, Partition, collect_aborted
from eoslog.store import Store
from tests.unit.state.histories import History
from tests.unit.support.partitions import partition_of, topic_of_small_segments, write
from tests.unit.support.world import World

FOUR = [
    AbortedTransaction(0, 0, 10, 11),
    AbortedTransaction(1, 5, 15, 13),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
]


def txnindexes(partition: Partition) -> list[FileReference | None]:
    return [segment.txnindex for segment in partition.sealed]


@pytest.mark.scenario(3)
def test_markers_are_indexed_in_their_order_whatever_began_first(history: History) -> None:
    first, second = history.init("first"), history.init("second")
    history.send(first, transactional_id="first")
    history.send(second, transactional_id="second")

    history.abort(second, "second")
    history.abort(first, "first")

    index = history.partition().aborted
    assert [(txn.first_offset, txn.last_offset) for txn in index] == [(1, 2), (0, 3)]
    assert [txn.last_stable_offset for txn in index] == [0, 4]
    encode_transaction_index(index)


@pytest.mark.scenario(5)
@pytest.mark.parametrize(("end_offset", "left"), [(1, [1, 3]), (2, [3]), (3, [3]), (4, [])])
def test_a_seal_cuts_the_index_by_the_place_of_the_markers(history: History, end_offset: int, left: list[int]) -> None:
    """What is cut off goes to the segment's file; the rest belongs to segments to come."""
    identity = history.init()
    for _ in range(2):
        history.send(identity)
        identity = history.abort(identity)

    history.seal(end_offset)

    assert [txn.last_offset for txn in history.partition().aborted] == left


@pytest.mark.scenario(6)
def test_a_segment_without_aborted_transactions_has_no_index_file(store: Store) -> None:
    topic_of_small_segments(store, "s")
    write(store, "s", "commit", "abort", "commit")

    seal_segments(store)

    assert [index is None for index in txnindexes(partition_of(store, "s"))] == [True, False, True]


@pytest.mark.scenario(7)
def test_an_index_moves_into_its_file_and_goes_on_without_losing_an_entry(store: Store) -> None:
    topic_of_small_segments(store, "s")
    write(store, "s", "abort", "abort")
    in_state = partition_of(store, "s").aborted

    seal_segments(store)
    write(store, "s", "abort")

    partition = partition_of(store, "s")
    in_files = [
        entry
        for file in txnindexes(partition)
        if file is not None
        for entry in decode_transaction_index(store.object_store.get(file.path).body, file.path)
    ]
    assert in_files == in_state
    assert [txn.first_offset for txn in [*in_files, *partition.aborted]] == [0, 2, 4]


@pytest.mark.scenario(9)
def test_an_index_that_is_deleted_twice_is_gone(store: Store, world: World) -> None:
    topic_of_small_segments(store, "s")
    write(store, "s", "abort")
    seal_segments(store)
    (file,) = txnindexes(partition_of(store, "s"))
    assert file is not None
    store.admin.delete_topic("s")
    world.pass_time(30 * 24 * 3600 * 1000)

    assert file.path in vacuum(store).paths
    store.object_store.delete([file.path])

    assert vacuum(store).paths == []


@pytest.mark.further("Aborted-transaction index")
@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound_offset", "found", "is_complete"),
    [(0, 100, [0, 1, 2, 3], False), (0, 11, [0], True),
        (0, 32, [0, 1, 2], True), (0, 35, [0, 1, 2, 3], True), (10, 35, [0, 1, 2, 3], True),
     (11, 35, [1, 2, 3], True), (20, 41, [2, 3], False), (26, 100, [2, 3], False), (51, 100, [], False)],
)  # fmt: skip
def test_a_lookup_finds_what_overlaps_and_says_whether_later_segments_may_have_more(
    fetch_offset: int, upper_bound_offset: int, found: list[int], is_complete: bool
) -> None:
    assert collect_aborted(FOUR, fetch_offset, upper_bound_offset) == ([FOUR[n] for n in found], is_complete)
