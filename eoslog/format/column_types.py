"""The types of a topic's columns: the types that can be stored, their stored form, and lossless casts to them.

Parquet, Spark and Arrow all support the stored types. Each type has one stored form: text and lists with 32-bit
offsets, timestamps in microseconds of UTC or without time zone, signed integers, decimals of up to 38 digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from eoslog.errors import UnsupportedSchema
from eoslog.format.declared_arrays import declare, without_hidden_nulls

_MAX_DEPTH = 32
"""The deepest nesting of types. Arrow cannot read back a schema that is much deeper."""

_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_FLOAT_MANTISSA = {16: 11, 32: 24, 64: 53}


class LossyCast(Exception):
    """A value does not exist in the wanted type."""


def check_names(names: Iterable[str], what: str) -> None:
    """Refuse empty names, and names that Spark cannot distinguish because it ignores case.

    Raises:
        UnsupportedSchema: a name is empty, or two names are equal but for case. The message contains the names.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise UnsupportedSchema(f"{what}: one has no name")
        if seen.get(name.lower()) == name:
            raise UnsupportedSchema(f"{what} {name!r} and {name!r} have one name")
        if name.lower() in seen:
            raise UnsupportedSchema(
                f"{what} {seen[name.lower()]!r} and {name!r} differ only in case, which Spark ignores"
            )
        seen[name.lower()] = name


def check_type(data_type: pa.DataType, path: str, depth: int = 1) -> None:
    """Refuse a type that cannot be stored.

    Args:
        data_type: the type of a column, or of a part of it.
        path: the path from the column's name to the part.
        depth: the number of nested types down to this one, itself included.

    Raises:
        UnsupportedSchema: the message contains the path and what to do.
    """
    if depth > _MAX_DEPTH:
        raise UnsupportedSchema(f"column {path!r} is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(data_type, pa.StructType):
        if not data_type.num_fields:
            raise UnsupportedSchema(f"column {path!r} is a struct without fields, which Parquet cannot hold")
        check_names([field.name for field in data_type], f"fields of column {path!r}:")
        for field in data_type:
            check_type(field.type, f"{path}.{field.name}", depth + 1)
    elif isinstance(data_type, pa.MapType):
        check_type(data_type.key_type, f"{path}.key", depth + 1)
        check_type(data_type.item_type, f"{path}.value", depth + 1)
    elif isinstance(data_type, _LISTS):
        check_type(data_type.value_type, f"{path}.element", depth + 1)
    elif pa.types.is_dictionary(data_type):
        raise UnsupportedSchema(
            f"column {path!r} is dictionary-encoded: decode it, for example by a cast to its values' type"
        )
    elif pa.types.is_uint64(data_type):
        raise UnsupportedSchema(f"column {path!r}: Spark has no uint64: cast it to int64 or decimal128(20, 0)")
    elif _normal_scalar(data_type) is None:
        raise UnsupportedSchema(f"column {path!r}: type {data_type} cannot be stored in Parquet and read by Spark")


def normal_field(field: pa.Field[Any], name: str) -> pa.Field[Any]:
    """Return a field of a storable type in its stored form."""
    return pa.field(name, _normal_type(field.type), nullable=field.nullable or pa.types.is_null(field.type))


def widens(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return True if values of one type can be cast to another without loss, judged by the types alone.

    A single value may still not fit: a timestamp in nanoseconds, for example, may lie between two microseconds. Fields
    of structs are matched by name. A nullable field that is missing becomes null.
    """
    types = pa.types
    if found == expected or types.is_null(found):
        return True
    if isinstance(found, pa.DictionaryType):
        return widens(found.value_type, expected)
    if isinstance(expected, pa.StructType):
        return isinstance(found, pa.StructType) and _fields_widen(found, expected)
    if isinstance(expected, pa.MapType):
        return (
            isinstance(found, pa.MapType)
            and widens(found.key_type, expected.key_type)
            and widens(found.item_type, expected.item_type)
        )
    if isinstance(expected, _LISTS):
        return isinstance(found, _LISTS) and widens(found.value_type, expected.value_type)
    if types.is_timestamp(expected):
        return types.is_timestamp(found) and (found.tz is None) == (expected.tz is None)
    if types.is_integer(found):
        return _integer_widens(found, expected)
    if types.is_floating(expected):
        return types.is_floating(found) and found.bit_width <= expected.bit_width
    if types.is_decimal(expected):
        return (
            types.is_decimal(found)
            and found.scale <= expected.scale
            and found.precision - found.scale <= expected.precision - expected.scale
        )
    normal = _normal_scalar(found)
    return normal is not None and normal == expected


def narrows(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return True if a stored type can be read as another type: as in `widens`, but structs may have fewer fields."""
    if isinstance(stored, pa.StructType) and isinstance(wanted, pa.StructType):
        fields = {field.name: field.type for field in stored}
        return wanted.num_fields > 0 and all(
            field.name in fields and narrows(fields[field.name], field.type) for field in wanted
        )
    if isinstance(stored, pa.ListType) and isinstance(wanted, pa.ListType):
        return narrows(stored.value_type, wanted.value_type)
    if isinstance(stored, pa.MapType) and isinstance(wanted, pa.MapType):
        return widens(stored.key_type, wanted.key_type) and narrows(stored.item_type, wanted.item_type)
    return widens(stored, wanted)


def cast_losslessly(column: pa.ChunkedArray[Any], expected: pa.DataType) -> pa.ChunkedArray[Any]:
    """Return the column cast to a type that its own type widens to.

    Raises:
        LossyCast: a value does not exist in that type, or a null is in a part that allows none.
    """
    strict = _nullable_inside(expected) != expected
    if column.type == expected and not strict:
        return column
    chunks: list[pa.Array[Any]] = []
    for found in column.chunks:
        try:
            # Arrow's cast to non-nullable parts accepts nulls in lists and fails for null structs. So cast to nullable
            # parts first, and check for nulls below.
            chunk: Any = found if found.type == expected else found.cast(_nullable_inside(expected))
        except (pa.ArrowException, ValueError, TypeError, NotImplementedError) as error:
            raise LossyCast(str(error).splitlines()[0]) from None
        if strict:
            if path := _forbidden_null(chunk, expected):
                raise LossyCast(f"{path} holds a null, but the topic allows none")
            chunk = without_hidden_nulls(declare(chunk, expected), expected)
        chunks.append(chunk)
    wanted: Any = expected
    cast: pa.ChunkedArray[Any] = pa.chunked_array(chunks, type=wanted)
    return cast


def _normal_type(data_type: pa.DataType) -> pa.DataType:
    if isinstance(data_type, pa.StructType):
        return pa.struct([normal_field(field, field.name) for field in data_type])
    if isinstance(data_type, pa.MapType):
        key: Any = normal_field(data_type.key_field, "key")
        value: Any = normal_field(data_type.item_field, "value")
        normal_map: pa.DataType = pa.map_(key, value)
        return normal_map
    if isinstance(data_type, _LISTS):
        return pa.list_(normal_field(data_type.value_field, "element"))
    normal = _normal_scalar(data_type)
    if normal is None:
        raise UnsupportedSchema(f"type {data_type} cannot be stored")
    return normal


def _normal_scalar(data_type: pa.DataType) -> pa.DataType | None:
    """Return the stored form of a type without parts; None if it cannot be stored."""
    types = pa.types
    if types.is_null(data_type) or types.is_boolean(data_type) or types.is_signed_integer(data_type):
        return data_type
    if types.is_unsigned_integer(data_type):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(data_type.bit_width)
    if types.is_floating(data_type):
        return pa.float64() if data_type.bit_width == 64 else pa.float32()
    if types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type):
        return pa.string()
    if (
        types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_binary_view(data_type)
        or types.is_fixed_size_binary(data_type)
    ):
        return pa.binary()
    if types.is_decimal(data_type):
        storable = data_type.precision <= 38 and 0 <= data_type.scale <= data_type.precision
        return pa.decimal128(data_type.precision, data_type.scale) if storable else None
    if types.is_date(data_type):
        return pa.date32()
    if types.is_time(data_type):
        return pa.time64("ns")
    if types.is_timestamp(data_type):
        return pa.timestamp("us") if data_type.tz is None else pa.timestamp("us", "UTC")
    if types.is_duration(data_type):
        return pa.duration("us")
    return None


def _fields_widen(found: pa.StructType, expected: pa.StructType) -> bool:
    types = {field.name: field.type for field in found}
    wanted = {field.name for field in expected}
    return (
        len(types) == found.num_fields
        and types.keys() <= wanted
        and all(widens(types[field.name], field.type) if field.name in types else field.nullable for field in expected)
    )


def _integer_widens(found: Any, expected: Any) -> bool:
    types = pa.types
    bits = found.bit_width
    signed = types.is_signed_integer(found)
    if types.is_signed_integer(expected):
        return bool(bits <= expected.bit_width if signed else bits < expected.bit_width)
    if types.is_floating(expected):
        return bool(bits <= _FLOAT_MANTISSA[expected.bit_width])
    if types.is_decimal(expected):
        return bool(_INTEGER_DIGITS[bits] <= expected.precision - expected.scale)
    return False


def _nullable_inside(data_type: pa.DataType) -> pa.DataType:
    """Return the type with all its parts nullable, except a map's keys."""
    if isinstance(data_type, pa.StructType):
        return pa.struct([pa.field(field.name, _nullable_inside(field.type)) for field in data_type])
    if isinstance(data_type, pa.MapType):
        return pa.map_(_nullable_inside(data_type.key_type), _nullable_inside(data_type.item_type))
    if isinstance(data_type, pa.ListType):
        return pa.list_(pa.field("element", _nullable_inside(data_type.value_type)))
    return data_type


def _forbidden_null(array: Any, data_type: pa.DataType) -> str | None:
    """Return the path of a part that contains a null although its type allows none; None if there is none."""
    parts: list[tuple[str, pa.Field[Any], Any]] = []
    if isinstance(data_type, pa.StructType):
        present = array.filter(array.is_valid()) if array.null_count else array
        parts = [(field.name, field, present.field(index)) for index, field in enumerate(data_type)]
    elif isinstance(data_type, pa.MapType):
        entries = declare(array, pa.list_(pa.struct([data_type.key_field, data_type.item_field]))).flatten()
        parts = [("key", data_type.key_field, entries.field(0)), ("value", data_type.item_field, entries.field(1))]
    elif isinstance(data_type, pa.ListType):
        parts = [("element", data_type.value_field, array.flatten())]
    for name, field, part in parts:
        if part.null_count and not field.nullable:
            return name
        if below := _forbidden_null(part, field.type):
            return f"{name}.{below}"
    return None
