"""Keys go to the partitions that Kafka's default partitioner chooses."""

from __future__ import annotations

import datetime
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import InvalidRequest, UnsupportedSchema
from eoslog.format.partitioner import (
    check_key_type,
    partition_for_key,
    partitions_for_key_columns,
    split_by_partition,
)

KAFKAS_OWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
UTC = datetime.UTC
KEYS = st.lists(st.none() | st.binary(max_size=40), max_size=60)


@pytest.mark.parametrize(("key", "expected"), KAFKAS_OWN.items())
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert partition_for_key(key, 1 << 31) == expected & 0x7FFFFFFF


def test_the_partition_is_the_hash_without_its_sign_modulo_the_number_of_partitions() -> None:
    assert partition_for_key(b"foobar", 7) == (-790332482 & 0x7FFFFFFF) % 7
    assert partition_for_key(b"foobar", 1) == 0


def test_a_column_of_keys_gets_the_partitions_of_its_values() -> None:
    keys = list(KAFKAS_OWN) * 20

    found = partitions_for_key_columns([pa.array(keys)], 1000)

    assert found.dtype == np.int32
    assert found.tolist() == [(KAFKAS_OWN[key] & 0x7FFFFFFF) % 1000 for key in keys]


@given(KEYS, st.integers(1, 2**31 - 1), st.data())
def test_a_column_and_its_values_one_by_one_agree(
    keys: list[bytes | None], partitions: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(keys)))
    column = pa.array(keys, pa.binary()).slice(start)

    found = partitions_for_key_columns([column], partitions)

    assert found.tolist() == [-1 if key is None else partition_for_key(key, partitions) for key in keys[start:]]


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 7, 8, 36, 1000])
def test_keys_of_equal_length_and_at_a_buffers_end_agree(length: int) -> None:
    keys = [bytes((row * 31 + position) % 256 for position in range(length)) for row in range(100)]

    assert partitions_for_key_columns([pa.array(keys)], 97).tolist() == [partition_for_key(key, 97) for key in keys]


def test_a_few_long_keys_among_short_ones_agree_with_their_values() -> None:
    keys = [b"k%d" % row * (1 + 999 * (row % 20 == 0)) for row in range(100)]

    assert partitions_for_key_columns([pa.array(keys)], 97).tolist() == [partition_for_key(key, 97) for key in keys]


def test_chunks_are_one_column() -> None:
    chunked = pa.chunked_array([["a", None], [], ["b", "c"]], pa.string())

    assert partitions_for_key_columns([chunked], 11).tolist() == [
        partition_for_key(b"a", 11),
        -1,
        partition_for_key(b"b", 11),
        partition_for_key(b"c", 11),
    ]
    assert partitions_for_key_columns([pa.chunked_array([], pa.string())], 11).tolist() == []


@pytest.mark.parametrize(
    ("value", "data_type", "serialized"),
    [
        ("ä€", pa.string(), "ä€".encode()),
        ("ä€", pa.large_string(), "ä€".encode()),
        (b"\x00\xff", pa.binary(), b"\x00\xff"),
        (b"\x00\xff", pa.binary(2), b"\x00\xff"),
        (True, pa.bool_(), b"\x01"),
        (False, pa.bool_(), b"\x00"),
        (-2, pa.int8(), b"\xfe"),
        (-2, pa.int16(), b"\xff\xfe"),
        (-2, pa.int32(), b"\xff\xff\xff\xfe"),
        (258, pa.int64(), b"\x00\x00\x00\x00\x00\x00\x01\x02"),
        (1.5, pa.float32(), struct.pack(">f", 1.5)),
        (-0.0, pa.float64(), b"\x80" + bytes(7)),
        (struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x01")[0], pa.float64(), b"\x7f\xf8" + bytes(6)),
        (datetime.date(1970, 1, 3), pa.date32(), b"\x00\x00\x00\x02"),
        (datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), pa.timestamp("us", "UTC"), (10**6).to_bytes(8, "big")),
        (datetime.datetime(1970, 1, 1, 0, 0, 1), pa.timestamp("us"), (10**6).to_bytes(8, "big")),
    ],
)
def test_a_typed_key_is_the_bytes_of_kafkas_serializer(value: Any, data_type: pa.DataType, serialized: bytes) -> None:
    column = pa.array([None, None, value, None], data_type).slice(1)
    expected = partition_for_key(serialized, 2**31 - 1)

    assert partitions_for_key_columns([column], 2**31 - 1).tolist() == [-1, expected, -1]
    check_key_type("k", data_type)


@pytest.mark.parametrize(
    "data_type",
    [
        pa.list_(pa.int32()),
        pa.struct([("a", pa.int32())]),
        pa.decimal128(5, 2),
        pa.uint64(),
        pa.null(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
)
def test_other_types_cannot_be_keys(data_type: pa.DataType) -> None:
    with pytest.raises(UnsupportedSchema, match="cannot be a key"):
        partitions_for_key_columns([pa.array([None], data_type)], 3)
    with pytest.raises(UnsupportedSchema, match=r"column 'k' of type .* cannot be a key"):
        check_key_type("k", data_type)


def test_a_key_of_several_columns_is_its_parts_each_after_its_length() -> None:
    names = pa.chunked_array([["ab", None], ["", None]])
    numbers = pa.array([1, 2, None, None], pa.int32())

    found = partitions_for_key_columns([names, numbers], 1009)

    assert found.tolist() == [
        partition_for_key(b"\x00\x00\x00\x02ab\x00\x00\x00\x04\x00\x00\x00\x01", 1009),
        partition_for_key(b"\xff\xff\xff\xff\x00\x00\x00\x04\x00\x00\x00\x02", 1009),
        partition_for_key(b"\x00\x00\x00\x00\xff\xff\xff\xff", 1009),
        -1,
    ]


def test_key_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="different lengths"):
        partitions_for_key_columns([pa.array(["a"]), pa.array([1, 2])], 3)


@given(st.lists(st.integers(0, 299), max_size=200), st.data())
def test_a_split_gives_each_partition_its_rows_in_their_order(partitions: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(partitions)))
    row = pa.array(range(len(partitions)), pa.int64())
    table = pa.table(
        {"row": pa.chunked_array([row[:cut], row[cut:]]), "text": [f"r{index}" for index in range(len(row))]}
    )

    found = split_by_partition(table, np.array(partitions, np.int32), 300)

    assert [partition for partition, _ in found] == sorted(set(partitions))
    for partition, rows in found:
        expected = [index for index, other in enumerate(partitions) if other == partition]
        assert rows.to_pydict() == {"row": expected, "text": [f"r{index}" for index in expected]}


def test_a_record_batch_is_split_like_a_table() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 3]})

    found = split_by_partition(batch, np.array([1, 0, 1], np.int32), 2)

    assert [(partition, rows.to_pydict()) for partition, rows in found] == [(0, {"a": [2]}), (1, {"a": [1, 3]})]


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_row_of_no_partition_is_not_lost_in_silence(partition: int) -> None:
    with pytest.raises(InvalidRequest, match=f"partition {partition} is not one of the topic's 2"):
        split_by_partition(pa.table({"a": [1, 2]}), np.array([0, partition], np.int32), 2)
