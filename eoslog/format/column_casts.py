"""Lossless casts of columns to the stored types.

Only flat values are cast by Arrow. Its casts of list views, of null parts and of views beyond 2 GiB return other rows,
or arrays that contradict their own type (https://github.com/apache/arrow/issues/43838). So this module takes every
nested or encoded array apart itself: structs, lists of all forms, maps, dictionaries, runs and extension types. It
checks every array that it has cast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.format.column_types import declare, kind_of, parts, with_parts, without_hidden_nulls
from eoslog.wording import first_line

_MOST_BYTES = 2**31 - 1
"""The most bytes of text, or elements of lists, in one array of a stored type."""
_MOST_TAKEN = 1 << 26
"""The most elements of lists that are taken at once, because each needs an index."""
_ARROW_ERRORS = (pa.ArrowException, ValueError, TypeError, NotImplementedError, OverflowError)
_VIEW_BYTES = 16

Numbers = npt.NDArray[np.int64]


class LossyCast(Exception):
    """A value does not exist in the wanted type."""


def cast_losslessly(column: pa.ChunkedArray[Any], expected: pa.DataType) -> pa.ChunkedArray[Any]:
    """Return the column cast to a type that its own type widens to.

    The result is fully validated, unless the column has the type already. Rows that are too large for one array of the
    type are split into several chunks.

    Raises:
        LossyCast: a value does not exist in that type, or a null is in a part that allows none.
        pyarrow.ArrowInvalid: a text is not UTF-8.
    """
    nullable = _nullable_inside(expected)
    strict = nullable != expected
    if column.type == expected and not strict:
        return column
    chunks: list[pa.Array[Any]] = []
    for found in column.chunks:
        # Cast to nullable parts first, and check for nulls below: nulls below other nulls are allowed.
        for chunk in [found] if found.type == expected else _cast_chunk(found, nullable):
            if strict:
                if path := _forbidden_null(chunk, expected):
                    raise LossyCast(f"{path} holds a null, but the topic allows none")
                chunk = without_hidden_nulls(declare(chunk, expected), expected)
            chunks.append(chunk)
    wanted: Any = expected
    cast: pa.ChunkedArray[Any] = pa.chunked_array(chunks, type=wanted)
    return cast


def cast_array(array: Any, expected: pa.DataType) -> Any:
    """Return an array with another type. Its own type widens to that type, or has fewer fields in its structs.

    Raises:
        pyarrow.ArrowException, ValueError, TypeError: a value does not exist in that type.
    """
    nullable = _nullable_inside(expected)
    cast = _cast(array, nullable)
    cast.validate(full=True)
    return cast if nullable == expected else without_hidden_nulls(declare(cast, expected), expected)


def problem_of(error: Exception) -> str:
    """Return what an error of Arrow says about a column, as the end of a sentence about the column."""
    if _is_of_text(error):
        return "holds text that is not UTF-8: write it as binary, or repair it first (in Spark with make_valid_utf8)"
    return f"contradicts its own type: {first_line(error)}. Build the column again, for example with pyarrow.array()"


def _is_of_text(error: Exception) -> bool:
    return isinstance(error, pa.ArrowInvalid) and "UTF8" in str(error)


def _cast_chunk(found: Any, expected: pa.DataType) -> Iterator[Any]:
    """Yield the chunk in the expected type: one array, or several if the rows are too large for one."""
    try:
        cast = _cast(found, expected)
        cast.validate(full=True)
    except _ARROW_ERRORS as error:
        # Arrow raises the same errors for two cases: the rows are too large for one array, or a value is wrong. So cast
        # the halves. The error of a single row is about its value.
        if len(found) < 2:
            if _is_of_text(error):
                raise
            raise LossyCast(first_line(error)) from None
    else:
        yield cast
        return
    middle = len(found) // 2
    yield from _cast_chunk(found.slice(0, middle), expected)
    yield from _cast_chunk(found.slice(middle), expected)


def _cast(array: Any, wanted: Any) -> Any:
    """Return an array of a type whose parts are all nullable. The caller validates it."""
    found = array.type
    if found == wanted:
        return array
    if not len(array):
        return pa.array([], wanted)
    if isinstance(found, pa.BaseExtensionType):
        is_bool8 = found.extension_name == "arrow.bool8"
        return _cast(array.storage.cast(pa.bool_()) if is_bool8 else array.storage, wanted)
    if isinstance(found, pa.DictionaryType):
        return _cast(array.dictionary, wanted).take(array.indices)
    if isinstance(found, pa.RunEndEncodedType):
        return _decoded_runs(array, wanted)
    if pa.types.is_null(found):
        return pa.nulls(len(array), wanted)
    match kind_of(wanted):
        case "struct":
            return _cast_struct(array, wanted)
        case "list":
            return _cast_list(array, wanted, _cast)
        case "map":
            return declare(_cast_list(array, _entries(wanted), _cast_entries), wanted)
    if pa.types.is_string_view(found) or pa.types.is_binary_view(found):
        _check_views(array)
    elif pa.types.is_large_string(found) or pa.types.is_large_binary(found):
        array = _within_offsets(array)
    return array.cast(wanted)


def _decoded_runs(array: Any, wanted: Any) -> Any:
    first, count = array.find_physical_offset(), array.find_physical_length()
    ends = array.run_ends.to_numpy()[first : first + count].astype(np.int64) - array.offset
    lengths = np.diff(np.minimum(ends, len(array)), prepend=0)
    return _cast(array.values.slice(first, count), wanted).take(pa.array(np.repeat(np.arange(count), lengths)))


def _cast_struct(array: Any, wanted: Any) -> Any:
    """Return the structs with other fields, matched by name. A field that the structs lack is null."""
    found = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    columns = [
        _cast(found[field.name], field.type) if field.name in found else pa.nulls(len(array), field.type)
        for field in wanted
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask)


def _cast_list(array: Any, wanted: Any, cast_elements: Callable[[Any, Any], Any]) -> Any:
    """Return lists of any form as lists with 32-bit offsets."""
    mask = array.is_null() if array.null_count else None
    if isinstance(array.type, (pa.ListType, pa.LargeListType, pa.MapType)):
        offsets = array.offsets.to_numpy().astype(np.int64)
        if mask is None or not np.any(np.diff(offsets)[np.asarray(mask)]):
            # Each list begins where the one before it ends. The offsets are validated later.
            first, last = int(offsets[0]), int(offsets[-1])
            _check_size(last - first, _MOST_BYTES)
            elements = cast_elements(array.values.slice(first, max(0, last - first)), wanted.value_type)
            return _list_array(offsets - first, elements, wanted, mask)
    values, starts, sizes = _ranges(array)
    filled = sizes > 0
    first = int(starts[filled].min()) if filled.any() else 0
    last = int((starts + sizes).max(where=filled, initial=first))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    # The lists may overlap, be out of order, or leave elements out.
    is_scattered = bool(np.any(starts[filled] - first != offsets[:-1][filled]))
    _check_size(offsets[-1], _MOST_TAKEN if is_scattered else _MOST_BYTES)
    elements = cast_elements(values.slice(first, last - first), wanted.value_type)
    if is_scattered:
        elements = elements.take(pa.array(np.repeat(starts - first - offsets[:-1], sizes) + np.arange(offsets[-1])))
    return _list_array(offsets, elements, wanted, mask)


def _check_size(elements: int, most: int) -> None:
    if elements > most:
        raise pa.ArrowInvalid(f"the lists have {elements} elements, more than {most} in one array")


def _list_array(offsets: Numbers, elements: Any, wanted: Any, mask: Any) -> Any:
    ends: Any = pa.array(offsets.astype(np.int32))
    return pa.ListArray.from_arrays(ends, elements, type=wanted, mask=mask)


def _ranges(array: Any) -> tuple[Any, Numbers, Numbers]:
    """Return the values of an array of lists, and for each list its start in them and its size; 0 for a null list."""
    found, values = array.type, array.values
    if isinstance(found, pa.FixedSizeListType):
        starts = (array.offset + np.arange(len(array), dtype=np.int64)) * found.list_size
        sizes = np.full(len(array), found.list_size, np.int64)
    elif isinstance(found, (pa.ListViewType, pa.LargeListViewType)):
        starts = array.offsets.to_numpy().astype(np.int64)
        sizes = array.sizes.to_numpy().astype(np.int64)
    else:
        offsets = array.offsets.to_numpy().astype(np.int64)
        starts, sizes = offsets[:-1], np.diff(offsets)
    if array.null_count:
        sizes = np.where(np.asarray(array.is_valid()), sizes, 0)
    if np.any((sizes < 0) | ((sizes > 0) & ((starts < 0) | (starts > len(values) - sizes)))):
        raise pa.ArrowInvalid("a list lies beyond the values of its array")
    return values, starts, sizes


def _entries(data_type: Any) -> Any:
    return pa.list_(pa.struct([data_type.key_field, data_type.item_field]))


def _cast_entries(array: Any, wanted: Any) -> Any:
    """Return the entries of maps. Their two fields have names of the user's choice, so they are not matched by name."""
    columns = [_cast(column, field.type) for column, field in zip(array.flatten(), wanted, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(wanted))


def _check_views(array: Any) -> None:
    """Refuse views with more bytes than fit into one array. Arrow's cast would let their offsets overflow.

    Raises:
        pyarrow.ArrowInvalid: the views have more bytes.
    """
    begin = array.offset * _VIEW_BYTES
    views = memoryview(array.buffers()[1])[begin : begin + len(array) * _VIEW_BYTES]
    lengths = np.frombuffer(views, np.int32)[::4]
    if array.null_count:
        lengths = lengths[np.asarray(array.is_valid())]
    total = int(lengths.sum(dtype=np.int64))
    if total > _MOST_BYTES:
        raise pa.ArrowInvalid(f"the values have {total} bytes, more than the {_MOST_BYTES} of one array")


def _within_offsets(array: Any) -> Any:
    """Return text or bytes whose offsets begin at 0 if the offsets of a slice are too large for Arrow's cast."""
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    if offsets[-1] <= _MOST_BYTES or offsets[-1] - offsets[0] > _MOST_BYTES:
        return array
    # Concatenation with an empty slice forces a copy, whose offsets begin at 0.
    return pa.concat_arrays([array, array.slice(0, 0)])


def _nullable_inside(data_type: pa.DataType) -> pa.DataType:
    """Return the type with all its parts nullable, except a map's keys."""
    if not (fields := parts(data_type)):
        return data_type
    is_map = kind_of(data_type) == "map"
    nullable = [pa.field(name, _nullable_inside(field.type), not is_map or name == "value") for name, field in fields]
    return with_parts(data_type, nullable)


def _forbidden_null(array: Any, data_type: Any) -> str | None:
    """Return the path of a part that contains a null although its type allows none; None if there is none."""
    match kind_of(data_type):
        case "struct":
            present = array.filter(array.is_valid()) if array.null_count else array
            values = [present.field(index) for index in range(data_type.num_fields)]
        case "list":
            values = [array.flatten()]
        case "map":
            entries = declare(array, pa.list_(pa.struct([data_type.key_field, data_type.item_field]))).flatten()
            values = [entries.field(0), entries.field(1)]
        case _:
            return None
    for (name, field), part in zip(parts(data_type), values, strict=True):
        if part.null_count and not field.nullable:
            return name
        if below := _forbidden_null(part, field.type):
            return f"{name}.{below}"
    return None
