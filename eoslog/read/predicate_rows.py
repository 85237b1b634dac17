"""The value of a predicate for rows."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eoslog.format.statistics import Value
from eoslog.read.predicate import AllOf, AnyOf, Below, Condition, Constant, IsNull, Not, Predicate, StartsWith


def is_wanted(predicate: Predicate, batch: pa.RecordBatch) -> Any:
    """Return the value of the predicate for each row: true, false or null."""
    return _evaluated(predicate.condition, batch)


def _evaluated(condition: Condition, batch: pa.RecordBatch) -> Any:
    if isinstance(condition, Constant):
        return pa.repeat(pa.scalar(condition.value, pa.bool_()), batch.num_rows)
    if isinstance(condition, Not):
        return pc.invert(_evaluated(condition.part, batch))
    if isinstance(condition, AllOf):
        return reduce(pc.and_kleene, (_evaluated(part, batch) for part in condition.parts))
    if isinstance(condition, AnyOf):
        return reduce(pc.or_kleene, (_evaluated(part, batch) for part in condition.parts))
    column: Any = batch.column(condition.column)
    if isinstance(condition, IsNull):
        return pc.is_null(column)
    if isinstance(condition, StartsWith):
        return pc.starts_with(column, pattern=condition.prefix)
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    if isinstance(condition, Below):
        return _below(column, condition)
    return _one_of(column, condition.values)


def _below(column: Any, condition: Below) -> Any:
    value = condition.value
    if isinstance(value, float) and math.isnan(value):
        # As in Spark, NaN is the greatest value and equals only NaN.
        return _unless_null(column, True) if condition.inclusive else pc.invert(pc.is_nan(column))
    compare: Any = pc.less_equal if condition.inclusive else pc.less
    return compare(column, _scalar(value, column.type))


def _one_of(column: Any, values: tuple[Value, ...]) -> Any:
    if pa.types.is_floating(column.type):
        # is_in distinguishes -0.0 from 0.0, but equality must not.
        numbers = map(float, values)
        is_one = (pc.is_nan(column) if math.isnan(each) else pc.equal(column, pa.scalar(each)) for each in numbers)
        return reduce(pc.or_, is_one, _unless_null(column, False))
    if len(values) == 1:
        return pc.equal(column, _scalar(values[0], column.type))
    value_set = pa.array([_plain(value, column.type) for value in values], column.type)
    return _unless_null(column, pc.is_in(column, value_set=value_set))


def _unless_null(column: Any, value: Any) -> Any:
    null: Any = pa.scalar(None, pa.bool_())
    return pc.if_else(pc.is_valid(column), value, null)


def _scalar(value: Value, data_type: pa.DataType) -> Any:
    return pa.scalar(_plain(value, data_type), data_type)


def _plain(value: Value, data_type: pa.DataType) -> Any:
    return Decimal(f"{value}E-{data_type.scale}") if isinstance(data_type, pa.Decimal128Type) else value
