"""Packing: every row once, in the order of the log, in neither too many nor too few partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eoslog.read.planner import FileSlice
from pyspark_eoslog.packing import LARGEST_BYTES, Piece, pack


def piece(*sizes: int, topic: str = "t", partition: int = 0) -> Piece:
    slices = tuple(FileSlice(f"f{index}", size, 0, 10, 0, 10, index * 10, 0) for index, size in enumerate(sizes))
    return Piece(topic, partition, None, slices)


@given(st.lists(st.lists(st.integers(0, 40 << 20), max_size=30), max_size=4), st.one_of(st.none(), st.integers(1, 40)))
def test_every_file_is_read_once_and_in_order(sizes: list[list[int]], min_partitions: int | None) -> None:
    pieces = [piece(*each, partition=index) for index, each in enumerate(sizes)]

    packed = pack(pieces, min_partitions)

    flat = [(part.partition, each) for parts in packed for part in parts for each in part.slices]
    assert flat == [(part.partition, each) for part in pieces for each in part.slices]
    assert len(packed) >= min(min_partitions or 0, len(flat))


def test_nothing_is_packed_into_nothing() -> None:
    assert pack([piece()]) == []


def test_small_files_share_a_partition() -> None:
    assert len(pack([piece(*[1000] * 400)])) == 4


def test_large_files_are_parted() -> None:
    assert len(pack([piece(*[LARGEST_BYTES] * 10)])) == 10


def test_partitions_that_the_user_asks_for_are_given() -> None:
    assert len(pack([piece(*[1000] * 400)], min_partitions=20)) >= 20


def test_control_rows_that_are_planned_are_packed() -> None:
    marker = FileSlice("", 0, 0, 1, 0, 1, 10, 0, control=1)

    assert pack([Piece("t", 0, None, (marker,))]) == [(Piece("t", 0, None, (marker,)),)]


def test_a_file_that_holds_many_batches_is_read_by_one_task() -> None:
    slices = tuple(
        FileSlice(f"f{index // 100}", LARGEST_BYTES // 2, 0, 1000, index % 100 * 10, 10, index * 10, 0)
        for index in range(400)
    )

    packed = pack([Piece("t", 0, None, slices)], min_partitions=40)

    assert [{each.path for piece in parts for each in piece.slices} for parts in packed] == [
        {"f0"},
        {"f1"},
        {"f2"},
        {"f3"},
    ]
