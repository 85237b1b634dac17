"""Arrays of types with non-nullable parts: change their declared type, and remove nulls hidden below other nulls."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


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


def _parts(array: Any, data_type: Any) -> tuple[Any, list[tuple[Any, Any]]]:
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
    _, parts = _parts(array, data_type)
    return any((part.null_count and not field.nullable) or _hides_nulls(part, field.type) for field, part in parts)


def _rebuilt(array: Any, data_type: Any, *, required: bool) -> Any:
    as_list, parts = _parts(array, data_type)
    children = [_rebuilt(part, field.type, required=not field.nullable) for field, part in parts]
    buffers = as_list.buffers()[: as_list.type.num_buffers]
    if required:
        buffers[0] = None
    rebuilt = pa.Array.from_buffers(
        as_list.type, len(as_list), buffers, offset=as_list.offset, children=children or None
    )
    return declare(rebuilt, data_type)
