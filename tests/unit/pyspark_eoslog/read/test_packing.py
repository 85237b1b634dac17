"""Packing: every row once, in the order of the log, in neither too many nor too few partitions, and evenly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from eoslog.read.file_rows import FileRows
from pyspark_eoslog.read.packing import LARGEST_BYTES, Piece, pack
from tests.file_rows import batch, control, file_rows

MIB = 1 << 20


def piece(*sizes: int, topic: str = "t", partition: int = 0, rows: int = 10) -> Piece:
    """A file of each size (bytes), of one batch."""
    files = (
        file_rows(f"f{index}", batch(base_offset=index * rows, record_count=rows), length=size, file_rows=rows)
        for index, size in enumerate(sizes)
    )
    return Piece(topic, partition, None, tuple(files))


@st.composite
def partition_pieces(draw: st.DrawFn, partition: int) -> Piece:
    """Files of one or several batches, some with gaps, of which some rows are read, and control rows between."""
    files: list[FileRows] = []
    offset = 0
    for number in range(draw(st.integers(0, 5))):
        counts = draw(st.lists(st.integers(1, 50), min_size=1, max_size=4))
        length, first_row = draw(st.integers(1, 64 * MIB)), 0
        batches = []
        for count in counts:
            gaps = {"end_offset": offset + 2 * count} if draw(st.booleans()) else {}
            if draw(st.integers(0, 3)):
                batches.append(batch(first_row=first_row, record_count=count, base_offset=offset, **gaps))
            first_row += count
            offset += 2 * count
        if draw(st.booleans()):
            batches.append(control(offset))
            offset += 1
        if batches:
            files.append(file_rows(f"f{number}", *batches, length=length, file_rows=sum(counts)))
    return Piece("t", partition, None, tuple(files))


topics = st.integers(0, 4).flatmap(lambda count: st.tuples(*(partition_pieces(index) for index in range(count))))
limits = st.one_of(st.none(), st.integers(1, 60))


def rows_of(pieces: Sequence[Piece]) -> list[tuple[int, str, int, int, int | None]]:
    """Each row by its partition, its file, its row there, and its offset; with gaps, the range of its batch."""
    return [
        (each.partition, path_of(rows), first_row + row, offset + (0 if gaps else row), end if gaps else None)
        for each in pieces
        for rows in each.files
        for first_row, count, offset, end, gaps in batches_of(rows)
        for row in range(count)
    ]


def batches_of(rows: FileRows) -> Iterator[tuple[int, int, int, int, bool]]:
    batches = rows.batches
    columns = (batches.first_row, batches.record_count, batches.base_offset, batches.end_offset, batches.has_gaps)
    return zip(*(each.tolist() for each in columns), strict=True)


def path_of(rows: FileRows) -> str:
    return "" if rows.file is None else rows.file.path


def size_of(rows: FileRows) -> int:
    return 0 if rows.file is None else rows.file.length


@given(topics, limits, limits)
def test_every_row_is_read_once_in_order_and_the_limits_hold(
    pieces: Sequence[Piece], min_partitions: int | None, max_records: int | None
) -> None:
    packed = pack(pieces, min_partitions, max_records)

    rows = rows_of(pieces)
    assert rows_of([each for part in packed for each in part]) == rows
    assert all(rows_of(part) for part in packed)
    assert len(packed) >= min(min_partitions or 0, len(rows))
    if max_records is not None:
        assert all(len(rows_of(part)) <= max_records for part in packed)


@given(st.lists(st.integers(1, 64 * MIB), min_size=1, max_size=20), st.integers(1, 20))
def test_partitions_that_are_asked_for_are_even(sizes: list[int], min_partitions: int) -> None:
    packed = pack([piece(*sizes, rows=100_000)], min_partitions)

    costs = [
        sum(size_of(rows) * rows.record_count // rows.file_rows + 256 * 1024 for each in parts for rows in each.files)
        for parts in packed
    ]
    share = max(sum(costs) / len(costs), (sum(sizes) + len(sizes) * 256 * 1024) / min_partitions)
    assert max(costs) <= 2.5 * share


def test_nothing_is_packed_into_nothing() -> None:
    assert pack([piece()], min_partitions=3, max_records=1) == []


def test_small_files_share_a_partition() -> None:
    assert len(pack([piece(*[1000] * 400)])) == 4


def test_many_large_files_are_read_whole_and_one_by_one() -> None:
    packed = pack([piece(*[64 * MIB] * 10)])

    assert [[rows.record_count for each in parts for rows in each.files] for parts in packed] == [[10]] * 10


def test_a_large_file_alone_is_cut_evenly() -> None:
    (packed,) = zip(*pack([piece(64 * MIB, rows=1000)]), strict=True)

    assert [found[:3] for each in packed for rows in each.files for found in batches_of(rows)] == [
        (0, 250, 0),
        (250, 250, 250),
        (500, 250, 500),
        (750, 250, 750),
    ]


def test_a_file_of_little_is_not_cut_unless_it_is_asked_for() -> None:
    assert len(pack([piece(10 * MIB)])) == 1
    assert len(pack([piece(10 * MIB)], min_partitions=8)) == 8


def test_as_many_partitions_as_rows_can_be_asked_for_and_no_more() -> None:
    assert [parts[0].files[0].record_count for parts in pack([piece(10)], min_partitions=99)] == [1] * 10


def test_partitions_that_the_user_asks_for_are_given() -> None:
    assert len(pack([piece(*[1000] * 400)], min_partitions=20)) == 20


def test_files_of_one_row_do_not_keep_others_from_being_cut() -> None:
    assert len(pack([piece(10, rows=1), piece(10, rows=16, partition=1)], min_partitions=17)) == 17


def test_a_limit_of_rows_parts_files_evenly() -> None:
    packed = pack([piece(1000, rows=10)], max_records=4)

    assert [parts[0].files[0].record_count for parts in packed] == [4, 3, 3]


def test_a_large_file_beside_small_ones_is_cut() -> None:
    packed = pack([piece(LARGEST_BYTES, *[1000] * 20, rows=1000)], min_partitions=8)

    assert max(sum(rows.record_count for rows in each.files if path_of(rows) == "f0") for each, *_ in packed) <= 200


def test_control_rows_that_are_planned_are_packed() -> None:
    piece_of_a_marker = Piece("t", 0, None, (FileRows(control(10)),))
    ((packed,),) = pack([piece_of_a_marker])
    assert rows_of([packed]) == rows_of([piece_of_a_marker])
