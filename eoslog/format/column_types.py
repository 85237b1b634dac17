"""The types of a topic's columns: one table of the types that can be stored, and which types widen to them.

Parquet, Spark and Arrow all support the stored types. Each type has one stored form: text and lists with 32-bit
offsets, timestamps in microseconds of UTC or without time zone, signed integers, decimals of up to 38 digits.

Arrow does not check that text is UTF-8, and Parquet refuses nulls in non-nullable parts even below other nulls. So
eoslog checks the text that it writes and reads, and removes such nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from eoslog.errors import UnsupportedSchema

_MAX_DEPTH = 32
"""The deepest nesting of types. Arrow cannot read back a schema that is much deeper."""

_FLOAT_MANTISSA = {32: 24, 64: 53}


ValueKind = Literal[
    "null", "boolean", "integer", "float", "decimal", "text", "binary", "date", "time", "timestamp", "duration",
    "struct", "list", "map",
]  # fmt: skip
"""The types whose values have the same notation. They differ in their range, unit or parts."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type that can be stored: one row of the table of column types."""

    kind: ValueKind
    arrow: tuple[Any, ...]
    """The stored form, then the other Arrow types that are stored in this form. Parameters of types do not count."""
    value: type | None = None
    """The Python type of its values in statistics and comparisons; None if they have no order there."""
    key: str | None = None
    """The form of a key by Kafka's serializers: the NumPy code of a number, or ``bytes``; None if not a key."""
    encoding: str | None = None
    """Its encoding in Parquet; None for Parquet's default."""
    form: Callable[[Any], pa.DataType | None] | None = None
    """Returns the stored form of a type with parameters; None if these cannot be stored."""


def _decimal(found: Any) -> pa.DataType | None:
    storable = found.precision <= 38 and 0 <= found.scale <= found.precision
    return pa.decimal128(found.precision, found.scale) if storable else None


def _nested(found: Any) -> pa.DataType:
    return with_parts(found, [stored_field(field, name) for name, field in parts(found)])


_PACKED = "DELTA_BINARY_PACKED"
_LENGTHS = "DELTA_LENGTH_BYTE_ARRAY"
_NULL: Any = pa.null()
_DECIMALS = (pa.decimal128(1), pa.decimal32(1), pa.decimal64(1), pa.decimal256(1))
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))
_LISTS = (pa.list_(_NULL), pa.large_list(_NULL), pa.list_(_NULL, 1), pa.list_view(_NULL), pa.large_list_view(_NULL))

# Floats are stored plain: Spark's vectorized reader supports BYTE_STREAM_SPLIT only since 4.3.
_TYPES = (
    ColumnType("null", (_NULL,)),
    ColumnType("boolean", (pa.bool_(),), bool, "i1"),
    ColumnType("integer", (pa.int8(),), int, "i1", _PACKED),
    ColumnType("integer", (pa.int16(), pa.uint8()), int, "i2", _PACKED),
    ColumnType("integer", (pa.int32(), pa.uint16()), int, "i4", _PACKED),
    ColumnType("integer", (pa.int64(), pa.uint32()), int, "i8", _PACKED),
    ColumnType("float", (pa.float32(), pa.float16()), float, "f4"),
    ColumnType("float", (pa.float64(),), float, "f8"),
    ColumnType("decimal", _DECIMALS, int, form=_decimal),
    ColumnType("text", (pa.string(), pa.large_string(), pa.string_view()), str, "bytes", _LENGTHS),
    ColumnType("binary", _BYTES, None, "bytes", _LENGTHS),
    ColumnType("date", (pa.date32(), pa.date64()), int, "i4", _PACKED),
    ColumnType("time", (pa.time64("ns"), pa.time32("s")), int, None, _PACKED),
    ColumnType(
        "timestamp", (pa.timestamp("us"),), int, "i8", _PACKED, lambda found: pa.timestamp("us", found.tz and "UTC")
    ),
    ColumnType("duration", (pa.duration("us"),), None, None, _PACKED),
    ColumnType("struct", (pa.struct([]),), form=_nested),
    ColumnType("list", _LISTS, form=_nested),
    ColumnType("map", (pa.map_(pa.string(), _NULL),), form=_nested),
)
_BY_ARROW_ID: dict[int, ColumnType] = {arrow.id: each for each in _TYPES for arrow in each.arrow}
_KINDS = {arrow: each.kind for arrow, each in _BY_ARROW_ID.items()}


def column_type(data_type: pa.DataType) -> ColumnType | None:
    """Return the row of an Arrow type in the table of column types; None if it cannot be stored."""
    return _BY_ARROW_ID.get(data_type.id)


def kind_of(data_type: pa.DataType) -> ValueKind | None:
    """Return the kind of an Arrow type; None if it cannot be stored."""
    return _KINDS.get(data_type.id)


def whole_numbers(data_type: Any) -> range:
    """Return the values of a stored type that are compared as integers. Decimals count units of their last digit."""
    if kind_of(data_type) == "decimal":
        return range(1 - 10**data_type.precision, 10**data_type.precision)
    end = 1 << (data_type.bit_width - 1)
    return range(-end, end)


def digits_before_point(data_type: Any) -> int:
    """Return the number of digits before the point that every integer or decimal of a type fits into."""
    if kind_of(data_type) == "decimal":
        return int(data_type.precision - data_type.scale)
    return len(str(2**data_type.bit_width - 1))  # As in Spark, 64 bits count 20 digits.


def plain_type(data_type: Any) -> Any:
    """Return the type of the values: that of a dictionary's or a run's values, or an extension type's storage."""
    while True:
        if isinstance(data_type, (pa.DictionaryType, pa.RunEndEncodedType)):
            data_type = data_type.value_type
        elif isinstance(data_type, pa.BaseExtensionType):
            is_bool8 = data_type.extension_name == "arrow.bool8"
            data_type = pa.bool_() if is_bool8 else data_type.storage_type
        else:
            return data_type


def parts(data_type: Any) -> list[tuple[str, pa.Field[Any]]]:
    """Return the fields directly within a type, with their names in the path of a column."""
    match kind_of(data_type):
        case "struct":
            return [(field.name, field) for field in data_type]
        case "list":
            return [("element", data_type.value_field)]
        case "map":
            return [("key", data_type.key_field), ("value", data_type.item_field)]
    return []


def with_parts(data_type: pa.DataType, fields: Sequence[Any]) -> pa.DataType:
    """Return the stored form of a type with other fields. A type without parts stays as it is."""
    match kind_of(data_type):
        case "struct":
            return pa.struct(fields)
        case "list":
            return pa.list_(fields[0])
        case "map":
            return pa.map_(fields[0], fields[1])
    return data_type


def check_names(names: Iterable[str], what: str) -> None:
    """Refuse empty names, and names that Spark cannot distinguish because it ignores case.

    Raises:
        UnsupportedSchema: a name is empty, or two names are equal but for case. The message contains the names.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise UnsupportedSchema(f"{what}: a name is empty")
        if seen.get(name.lower()) == name:
            raise UnsupportedSchema(f"{what} {name!r} and {name!r} have the same name")
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
    data_type = plain_type(data_type)
    fields = parts(data_type)
    if isinstance(data_type, pa.StructType):
        if not fields:
            raise UnsupportedSchema(f"column {path!r} is a struct without fields, which Parquet cannot hold")
        check_names([name for name, _ in fields], f"fields of column {path!r}:")
    if pa.types.is_uint64(data_type):
        raise UnsupportedSchema(f"column {path!r}: Spark has no uint64: cast it to int64 or decimal128(20, 0)")
    for name, field in fields:
        check_type(field.type, f"{path}.{name}", depth + 1)
    if not fields and stored_type(data_type) is None:
        raise UnsupportedSchema(
            f"column {path!r}: type {data_type} cannot be stored in Parquet and read by Spark: cast it to another "
            "type, for example to text"
        )


def stored_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the stored form of a type, or of the type of its values; None if it cannot be stored."""
    data_type = plain_type(data_type)
    found = column_type(data_type)
    if found is None:
        return None
    return found.arrow[0] if found.form is None else found.form(data_type)


def stored_field(field: pa.Field[Any], name: str) -> pa.Field[Any]:
    """Return a field of a storable type in its stored form."""
    stored: Any = stored_type(field.type)
    return pa.field(name, stored, nullable=field.nullable or pa.types.is_null(stored))


def widens(found: Any, expected: Any) -> bool:
    """Return True if values of one type can be cast to another without loss, judged by the types alone.

    A single value may still not fit: a timestamp in nanoseconds, for example, may lie between two microseconds. Fields
    of structs are matched by name. A nullable field that is missing becomes null.
    """
    found = plain_type(found)
    if found == expected or pa.types.is_null(found):
        return True
    if pa.types.is_integer(found):
        return _integer_widens(found, expected)
    kind = kind_of(expected)
    if kind_of(found) != kind:
        return False
    match kind:
        case "struct":
            return _fields_widen(found, expected)
        case "list" | "map":
            pairs = zip(parts(found), parts(expected), strict=True)
            return all(widens(part.type, wanted.type) for (_, part), (_, wanted) in pairs)
        case "float":
            return bool(found.bit_width <= expected.bit_width)
        case "decimal":
            fits = digits_before_point(found) <= digits_before_point(expected)
            return fits and bool(found.scale <= expected.scale)
        case "timestamp":
            return (found.tz is None) == (expected.tz is None)
    return bool(stored_type(found) == expected)


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


def _fields_widen(found: pa.StructType, expected: pa.StructType) -> bool:
    types = {field.name: field.type for field in found}
    wanted = {field.name for field in expected}
    return (
        len(types) == found.num_fields
        and types.keys() <= wanted
        and all(widens(types[field.name], field.type) if field.name in types else field.nullable for field in expected)
    )


def _integer_widens(found: Any, expected: Any) -> bool:
    bits = found.bit_width
    match kind_of(expected):
        case "integer":
            return bool(bits + pa.types.is_unsigned_integer(found) <= expected.bit_width)
        case "float":
            return bool(bits <= _FLOAT_MANTISSA[expected.bit_width])
        case "decimal":
            return digits_before_point(found) <= digits_before_point(expected)
    return False


class _Declared:
    """An array with another type of the same layout, passed through Arrow's C interface."""

    def __init__(self, array: Any, data_type: Any) -> None:
        self._array = array
        self._type = data_type

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._type.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def declare(array: Any, data_type: pa.DataType) -> Any:
    """Return the same array with another type of the same layout."""
    declared: Any = _Declared(array, data_type)
    return pa.array(declared)


def without_hidden_nulls(array: Any, data_type: pa.DataType) -> Any:
    """Return the array without nulls in non-nullable parts that are below other nulls.

    Spark marks the parts of a null struct as null even if they are not nullable. Parquet's writer refuses such parts.
    """
    if not _hides_nulls(array, data_type):
        return array
    # Concatenation with an empty slice forces a copy, whose offsets all begin at 0.
    return _rebuilt(pa.concat_arrays([array, array.slice(0, 0)]), data_type, required=False)


def nulls(count: int, data_type: pa.DataType) -> Any:
    """Return this many nulls of a type, even if its parts are not nullable."""
    wanted: Any = data_type
    return without_hidden_nulls(pa.nulls(count, wanted), data_type)


def _child_arrays(array: Any, data_type: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return the array, with a map as a list of entries, and its children with their fields."""
    if isinstance(data_type, pa.MapType):
        data_type = pa.list_(
            pa.field("entries", pa.struct([data_type.key_field, data_type.item_field]), nullable=False)
        )
        array = declare(array, data_type)
    if isinstance(data_type, pa.StructType):
        return array, [(field, array.field(index)) for index, field in enumerate(data_type)]
    if isinstance(data_type, pa.ListType):
        return array, [(data_type.value_field, array.values)]
    return array, []


def _hides_nulls(array: Any, data_type: pa.DataType) -> bool:
    _, parts = _child_arrays(array, data_type)
    return any((part.null_count and not field.nullable) or _hides_nulls(part, field.type) for field, part in parts)


def _rebuilt(array: Any, data_type: Any, *, required: bool) -> Any:
    as_list, parts = _child_arrays(array, data_type)
    children = [_rebuilt(part, field.type, required=not field.nullable) for field, part in parts]
    buffers = as_list.buffers()[: as_list.type.num_buffers]
    if required:
        buffers[0] = None
    rebuilt = pa.Array.from_buffers(
        as_list.type, len(as_list), buffers, offset=as_list.offset, children=children or None
    )
    return declare(rebuilt, data_type)


@cache
def holds_text(data_type: pa.DataType) -> bool:
    """Return True if values of this type are text or contain text."""
    parts: Any = plain_type(data_type)
    return kind_of(parts) == "text" or any(holds_text(parts.field(index).type) for index in range(parts.num_fields))


def check_text(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> None:
    """Refuse a column with text that is not UTF-8.

    Raises:
        pyarrow.ArrowInvalid: a text is not UTF-8.
    """
    if holds_text(column.type):
        column.validate(full=not _is_ascii(column))


def _is_ascii(column: Any) -> bool:
    """Return True if all bytes of a decoded column are ASCII. This is much faster than a check of each value.

    Return False for a chunked column: it comes from a user, so its offsets may be wrong, too.
    """
    if not isinstance(column, pa.StringArray):
        return False
    text: Any = column.buffers()[2]
    return text is None or text.size == 0 or bool(np.frombuffer(text, np.int8).min() >= 0)
