"""Arrow arrays of every type and layout: nested, sliced, encoded, with gaps, and with values that nulls hide."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from eoslog.format.column_types import plain_type

UTC = datetime.UTC
_MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
_MILLISECONDS = _MOMENTS.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))
_SECONDS = _MOMENTS.map(lambda each: each.replace(microsecond=0))
_DAYS = st.dates(datetime.date(1900, 1, 1), datetime.date(2200, 1, 1))
_TEXT = st.text(st.sampled_from("aé日🙂"), max_size=20)
_BYTES = st.binary(max_size=20)
_SPANS = st.timedeltas(datetime.timedelta(-9999), datetime.timedelta(9999))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda each: decimal.Decimal(f"{each}E-{scale}"))


def _whole(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


FLAT: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), _whole(8)),
    (pa.int64(), _whole(64)),
    (pa.uint8(), _whole(8, signed=False)),
    (pa.uint16(), _whole(16, signed=False)),
    (pa.uint32(), _whole(32, signed=False)),
    (pa.float16(), st.floats(width=16, allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.decimal32(5, 2), _decimals(5, 2)),
    (pa.decimal64(12, 0), _decimals(12, 0)),
    (pa.decimal128(38, 38), _decimals(38, 38)),
    (pa.decimal256(30, 4), _decimals(30, 4)),
    (pa.string(), _TEXT),
    (pa.large_string(), _TEXT),
    (pa.string_view(), _TEXT),
    (pa.binary(), _BYTES),
    (pa.large_binary(), _BYTES),
    (pa.binary_view(), _BYTES),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), _DAYS),
    (pa.date64(), _DAYS),
    (pa.time32("s"), st.times().map(lambda each: each.replace(microsecond=0))),
    (pa.time64("us"), st.times()),
    (pa.timestamp("s", "Asia/Tokyo"), _SECONDS.map(lambda each: each.replace(tzinfo=UTC))),
    (pa.timestamp("ms"), _MILLISECONDS),
    (pa.timestamp("ns", "UTC"), _MOMENTS.map(lambda each: each.replace(tzinfo=UTC))),
    (pa.duration("us"), _SPANS),
    (pa.duration("s"), _SPANS.map(lambda each: datetime.timedelta(each.days, each.seconds))),
    (pa.uuid(), st.binary(min_size=16, max_size=16)),
    (pa.json_(), _TEXT),
    (pa.json_(pa.string_view()), _TEXT),
    (pa.bool8(), st.booleans()),
]


def types() -> st.SearchStrategy[Any]:
    """Types that can be stored, each with the strategies of its flat parts in ``values_of``."""

    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        keys = inner.filter(lambda kind: not pa.types.is_null(plain_type(kind)))
        lists = st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
        return st.one_of(
            st.builds(lambda form, kind: form(kind), lists, inner),
            st.builds(pa.list_, inner, st.integers(0, 3)),
            st.lists(inner, min_size=1, max_size=3).map(
                lambda kinds: pa.struct([(f"f{index}", kind) for index, kind in enumerate(kinds)])
            ),
            st.builds(pa.map_, keys, inner),
            st.builds(pa.dictionary, st.sampled_from([pa.int8(), pa.uint32(), pa.int64()]), inner),
            st.builds(pa.run_end_encoded, st.sampled_from([pa.int16(), pa.int64()]), inner),
        )

    return st.recursive(st.sampled_from([kind for kind, _ in FLAT]), nested, max_leaves=4)


def values_of(data_type: Any) -> st.SearchStrategy[Any]:
    """Values of a type as Python has them, with nulls."""
    flat = next((values for kind, values in FLAT if kind == data_type), None)
    if flat is not None:
        return st.none() | flat
    if isinstance(data_type, (pa.DictionaryType, pa.RunEndEncodedType)):
        return values_of(data_type.value_type)
    if isinstance(data_type, pa.StructType):
        return st.none() | st.fixed_dictionaries({field.name: values_of(field.type) for field in data_type})
    if isinstance(data_type, pa.MapType):
        keys = values_of(data_type.key_type).filter(lambda each: each is not None)
        return st.none() | st.lists(st.tuples(keys, values_of(data_type.item_type)), max_size=3)
    size = data_type.list_size if isinstance(data_type, pa.FixedSizeListType) else None
    lengths = {"max_size": 3} if size is None else {"min_size": size, "max_size": size}
    return st.none() | st.lists(values_of(data_type.value_type), **lengths)


def array_of(data_type: Any, values: list[Any], draw: Any) -> Any:
    """Return an array of these values. ``draw`` chooses gaps, the order of views, hidden values, runs and slices."""
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    padding = st.lists(values_of(data_type), min_size=before + after, max_size=before + after)
    other = draw(padding) if before + after else []
    padded = [*other[:before], *values, *other[before:]]
    return _built(data_type, padded, draw).slice(before, len(values))


def _built(data_type: Any, values: list[Any], draw: Any) -> Any:
    validity = pa.array([each is None for each in values], pa.bool_())
    if isinstance(data_type, pa.BaseExtensionType):
        storage = data_type.storage_type
        if data_type.extension_name == "arrow.bool8":
            values = [None if each is None else draw(st.sampled_from([1, -1, 7])) if each else 0 for each in values]
        return pa.ExtensionArray.from_storage(data_type, _built(storage, values, draw))
    if isinstance(data_type, pa.DictionaryType):
        distinct = [each for index, each in enumerate(values) if each not in values[:index]]
        # A null is one of the index, or of the dictionary.
        indices = [None if each is None and draw(st.booleans()) else distinct.index(each) for each in values]
        dictionary = array_of(data_type.value_type, distinct, draw)
        return pa.DictionaryArray.from_arrays(pa.array(indices, data_type.index_type), dictionary)
    if isinstance(data_type, pa.RunEndEncodedType):
        ends = [end for end in range(1, len(values) + 1) if end == len(values) or values[end - 1] != values[end]]
        runs = array_of(data_type.value_type, [values[end - 1] for end in ends], draw)
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, data_type.run_end_type), runs)
    if isinstance(data_type, pa.StructType):
        columns = [
            array_of(field.type, [draw(values_of(field.type)) if each is None else each[field.name] for each in values],
                     draw)
            for field in data_type
        ]  # fmt: skip
        return pa.StructArray.from_arrays(columns, fields=list(data_type), mask=validity)
    if isinstance(data_type, (pa.ListViewType, pa.LargeListViewType)):
        return _views(data_type, values, validity, draw)
    if isinstance(data_type, pa.FixedSizeListType):
        slots = [[None] * data_type.list_size if each is None else each for each in values]
        elements = array_of(data_type.value_type, [each for slot in slots for each in slot], draw)
        bitmap = pa.array([each is not None for each in values], pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(data_type, len(values), [bitmap], children=[elements])
    if isinstance(data_type, pa.MapType):
        entries = [entry for each in values if each for entry in each]
        keys = array_of(data_type.key_type, [key for key, _ in entries], draw)
        items = array_of(data_type.item_type, [value for _, value in entries], draw)
        offsets = _offsets([[] if each is None else each for each in values], pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, type=data_type, mask=validity)
    if isinstance(data_type, (pa.ListType, pa.LargeListType)):
        # A null list may have elements that nobody sees.
        hidden = draw(st.lists(values_of(data_type.value_type), max_size=2))
        lists = [hidden if each is None else each for each in values]
        elements = array_of(data_type.value_type, [element for each in lists for element in each], draw)
        is_large = isinstance(data_type, pa.LargeListType)
        offsets = _offsets(lists, pa.int64() if is_large else pa.int32())
        kind: Any = pa.LargeListArray if is_large else pa.ListArray
        return kind.from_arrays(offsets, elements, type=data_type, mask=validity)
    if pa.types.is_float16(data_type):
        import numpy as np

        return pa.array([None if each is None else np.float16(each) for each in values], data_type)
    return pa.array(values, data_type)


def _offsets(lists: list[Any], data_type: pa.DataType) -> Any:
    ends = [0]
    for each in lists:
        ends.append(ends[-1] + len(each))
    return pa.array(ends, data_type)


def _views(data_type: Any, values: list[Any], validity: Any, draw: Any) -> Any:
    order = draw(st.permutations(range(len(values))))
    elements: list[Any] = []
    starts, sizes = [0] * len(values), [0] * len(values)
    for place in order:
        elements += draw(st.lists(values_of(data_type.value_type), max_size=1))
        starts[place], sizes[place] = len(elements), len(values[place] or ())
        elements += values[place] or ()
    is_large = isinstance(data_type, pa.LargeListViewType)
    number = pa.int64() if is_large else pa.int32()
    kind: Any = pa.LargeListViewArray if is_large else pa.ListViewArray
    array = array_of(data_type.value_type, elements, draw)
    return kind.from_arrays(pa.array(starts, number), pa.array(sizes, number), array, type=data_type, mask=validity)
