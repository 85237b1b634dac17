"""Kafka's numbers of variable length, many at a time.

A number is zigzag-encoded, so that small negative numbers are short, too. It is cut into groups of 7 bits, lowest
first. Each byte has one group, and its highest bit is set if another byte follows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eoslog.gateway.batch_errors import InvalidBatch

Bytes: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]
_Unsigned: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]

MOST_BYTES_OF_INT = 5
"""The bytes of a 32-bit number (Kafka's ``varint``)."""
MOST_BYTES_OF_LONG = 10
"""The bytes of a 64-bit number (Kafka's ``varlong``)."""
_GROUP_BITS = 7
_GROUP, _MORE = np.uint8(0x7F), np.uint8(0x80)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the 32-bit number at a position, and the position behind it.

    Raises:
        InvalidBatch: the number has no end, or too many bytes.
    """
    # Nearly all numbers have one byte, and headers have many of them.
    if at < len(data) and (byte := data[at]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, after = read_unsigned_varint(data, at)
    return (value >> 1) ^ -(value & 1), after


def read_unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the 32-bit number without zigzag at a position, and the position behind it.

    Raises:
        InvalidBatch: the number has no end, or too many bytes.
    """
    value = shift = 0
    for after, byte in enumerate(data[at : at + MOST_BYTES_OF_INT], at + 1):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, after
        shift += _GROUP_BITS
    raise InvalidBatch(f"the number at byte {at} of the records has no end, or more than {MOST_BYTES_OF_INT} bytes")


def read_varints(data: Bytes, at: Numbers, most_bytes: int = MOST_BYTES_OF_INT) -> tuple[Numbers, Numbers]:
    """Return the numbers at these positions, and for each the position behind it.

    A position behind the data is read as the last byte, and the position returned for it lies behind the data, too.
    So the caller may read all fields of a record, and then check only the last position.

    Raises:
        InvalidBatch: a number has more than ``most_bytes`` bytes.
    """
    byte = data.take(at, mode="clip")
    after = at + 1
    has_more = byte >= _MORE
    if not has_more.any():
        signed = byte.astype(np.int64)
        return (signed >> 1) ^ -(signed & 1), after
    zigzag = (byte & _GROUP).astype(np.uint64)
    for group in range(1, most_bytes):
        byte = data.take(after, mode="clip") * has_more
        zigzag |= (byte & _GROUP).astype(np.uint64) << np.uint64(_GROUP_BITS * group)
        after += has_more
        has_more = byte >= _MORE
        if not has_more.any():
            return (zigzag >> np.uint64(1)).view(np.int64) ^ -(zigzag & np.uint64(1)).view(np.int64), after
    raise InvalidBatch(f"a number in the records has more than {most_bytes} bytes")


def varint_sizes(numbers: Numbers) -> Numbers:
    """Return how many bytes each number takes."""
    zigzag = _zigzag(numbers)
    sizes = np.ones(numbers.shape, np.int64)
    for group in range(1, _groups(zigzag)):
        sizes += zigzag >= 1 << _GROUP_BITS * group
    return sizes


def write_varints(numbers: Numbers) -> tuple[Bytes, Flags]:
    """Return the bytes of each number along a new last axis, and True for those that the number takes."""
    zigzag = _zigzag(numbers)
    left = zigzag[..., None] >> np.arange(0, _GROUP_BITS * _groups(zigzag), _GROUP_BITS, dtype=zigzag.dtype)
    is_taken = left != 0
    is_taken[..., 0] = True
    written = left.astype(np.uint8) & _GROUP
    written[..., :-1] |= _MORE * is_taken[..., 1:]
    return written, is_taken


def _zigzag(numbers: Numbers) -> _Unsigned:
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    # Nearly all numbers are small, and half the bytes take half the time.
    return zigzag.astype(np.uint32) if zigzag.max(initial=0) < 1 << 32 else zigzag


def _groups(zigzag: _Unsigned) -> int:
    return max(1, -(-int(zigzag.max(initial=0)).bit_length() // _GROUP_BITS))
