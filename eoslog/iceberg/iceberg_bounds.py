"""The bounds of a file's columns in Iceberg's single-value serialization."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from eoslog.format.column_ids import OFFSET_DELTA_ID, id_of
from eoslog.format.column_types import kind_of
from eoslog.publication.file_statistics import FileStatistics


def bounds(statistics: FileStatistics, numbered: pa.Schema) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return the lower and the upper bounds of a file, by column id.

    Args:
        numbered: the schema of the topic's data files, with column ids.
    """
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for name, column in statistics.columns.items():
        field = numbered.field(name)
        for found, value, is_upper in ((lower, column.least, False), (upper, column.greatest, True)):
            encoded = None if value is None else _encoded(value, field.type, is_upper=is_upper)
            if encoded is not None:
                found[id_of(field)] = encoded
    return lower, upper


def null_counts(statistics: FileStatistics, numbered: pa.Schema) -> dict[int, int]:
    """Return the number of nulls, by column id, where it is known."""
    known = ((name, column.nulls) for name, column in statistics.columns.items())
    return {id_of(numbered.field(name)): nulls for name, nulls in known if nulls is not None}


def encode_int(value: int) -> bytes:
    return struct.pack("<i", value)


def encode_long(value: int) -> bytes:
    return struct.pack("<q", value)


def end_delta(upper: Mapping[int, bytes]) -> int:
    """Return the end of the offset deltas in a file (exclusive), from its upper bounds.

    Raises:
        LookupError, struct.error: there is no such bound.
    """
    return int(struct.unpack("<q", upper[OFFSET_DELTA_ID])[0]) + 1


def _encoded(value: Any, data_type: Any, *, is_upper: bool) -> bytes | None:
    """Return a bound; None if Iceberg has none for such a value."""
    match kind_of(data_type):
        case "boolean":
            return bytes([value])
        case "integer":
            return encode_long(value) if data_type.bit_width == 64 else encode_int(value)
        case "date":
            return encode_int(value)
        case "float":
            return _float(value, data_type.bit_width, is_upper=is_upper)
        case "decimal":
            return _decimal(value)
        case "text":
            return str(value).encode()
        case "timestamp":
            return encode_long(value * 1000 if data_type.unit == "ms" else value)
    return None


def _decimal(unscaled: int) -> bytes:
    """Return an unscaled value in the fewest bytes, big-endian."""
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _float(value: float, width: int, *, is_upper: bool) -> bytes | None:
    """Return a bound of floats. Iceberg's bounds leave NaN out, so a file with NaN has no upper bound.

    Iceberg orders -0.0 before 0.0. eoslog takes them for equal, so a zero may stand for both.
    """
    if math.isnan(value):
        return None
    if value == 0:
        value = 0.0 if is_upper else -0.0
    return struct.pack("<f" if width == 32 else "<d", value)
