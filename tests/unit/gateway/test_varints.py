"""Numbers are written and read many at a time as one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.gateway.batch_errors import InvalidBatch
from eoslog.gateway.varints import (
    MOST_BYTES_OF_INT,
    MOST_BYTES_OF_LONG,
    read_unsigned_varint,
    read_varint,
    read_varints,
    varint_sizes,
    write_varints,
)
from tests.unit.gateway.kafka_batches import longest, varint

LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70) | st.sampled_from([-(2**63), 2**63 - 1])
INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-70, 70)


@given(st.lists(LONGS, max_size=20) | st.lists(INTS, max_size=20))
def test_numbers_take_as_many_bytes_as_needed(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    written, is_written = write_varints(values)

    assert written[is_written].tobytes() == b"".join(varint(each) for each in numbers)
    assert is_written.sum(axis=1).tolist() == [len(varint(each)) for each in numbers]
    assert varint_sizes(values).tolist() == [len(varint(each)) for each in numbers]


@given(st.lists(st.tuples(LONGS, st.integers(0, 9)), min_size=1, max_size=20), st.booleans())
def test_numbers_are_read_at_their_positions(numbers: list[tuple[int, int]], padded: bool) -> None:
    parts = [longest(each, 10) if padded and len(varint(each)) < 10 else varint(each) for each, _ in numbers]
    gaps = [gap for _, gap in numbers]
    data = b"".join(bytes(gap) + part for part, gap in zip(parts, gaps, strict=True))
    ends = np.cumsum([len(part) + gap for part, gap in zip(parts, gaps, strict=True)])
    places = ends - [len(part) for part in parts]

    values, after = read_varints(np.frombuffer(data, np.uint8), places, MOST_BYTES_OF_LONG)

    assert values.tolist() == [each for each, _ in numbers]
    assert after.tolist() == ends.tolist()


@given(INTS, st.booleans())
def test_one_number_is_read_as_many(number: int, padded: bool) -> None:
    data = longest(number, 5) if padded and len(varint(number)) < 5 else varint(number)

    assert read_varint(b"\xff" + data + b"\xff", 1) == (number, 1 + len(data))


def test_a_number_without_zigzag() -> None:
    assert read_unsigned_varint(b"\xac\x02", 0) == (300, 2)
    assert read_unsigned_varint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)


@pytest.mark.parametrize("most", [MOST_BYTES_OF_INT, MOST_BYTES_OF_LONG])
def test_longer_numbers_are_invalid(most: int) -> None:
    data = b"\x02" + longest(1, most + 1) + longest(1, most)
    with pytest.raises(InvalidBatch):
        read_varints(np.frombuffer(data, np.uint8), np.array([0, 1]), most)
    values, _ = read_varints(np.frombuffer(data, np.uint8), np.array([0, most + 2]), most)
    assert values.tolist() == [1, 1]


@pytest.mark.parametrize("data", [longest(1, 6), b"\x80", b"\x80\x80\x80\x80"])
def test_a_longer_number_and_one_without_end_are_invalid(data: bytes) -> None:
    with pytest.raises(InvalidBatch):
        read_varint(data, 0)


def test_a_read_behind_the_data_ends_behind_it() -> None:
    data = np.frombuffer(b"\x02\x04", np.uint8)

    _, after = read_varints(data, np.array([1, 2, 2**35]))

    assert after.tolist() == [2, 3, 2**35 + 1]


@pytest.mark.parametrize("most", [MOST_BYTES_OF_INT, MOST_BYTES_OF_LONG])
def test_a_read_over_the_end_of_the_data_ends_behind_it_or_is_invalid(most: int) -> None:
    with pytest.raises(InvalidBatch):
        read_varints(np.frombuffer(b"\x02\x80", np.uint8), np.array([0, 1]), most)
