"""Random predicates on one column, in the forms of several engines, for tests that compare the rows that they find.

The engines order most values in the same way, and -0.0 equals 0.0. NaN is different. For Spark, eoslog, Polars and
DuckDB it is the greatest number and equals itself. For Arrow, ``<>`` is the only comparison with NaN that is true. For
DataFusion, which delta-rs uses, NaN is greater than infinity, or less than its negative if NaN has a sign.

So a test lets each engine filter the rows twice: the rows of files, and the same rows in memory, where nothing is
skipped.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

UTC = datetime.UTC
_DAYS = [(1, 1, 1), (1582, 10, 4), (1582, 10, 15), (1969, 12, 31), (1970, 1, 1), (2024, 2, 29), (9999, 12, 31)]
_MOMENTS = [
    datetime.datetime(1, 1, 1),
    datetime.datetime(1582, 10, 4, 23, 59, 59, 999999),
    datetime.datetime(1582, 10, 15),
    datetime.datetime(1900, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(2024, 2, 29, 12, 0, 0, 1),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
]
_FLOATS = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -2.25]

POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, -1, 0, 127]),
    "whole": (pa.int64(), [-(2**63), -1, 0, 3, 2**63 - 1]),
    "double": (pa.float64(), [*_FLOATS, 5e-324, 0.1, 1.7976931348623157e308]),
    "single": (pa.float32(), [*_FLOATS, float(np.float32(0.1)), float(np.finfo(np.float32).max)]),
    "half": (pa.float16(), [*_FLOATS, 65504.0]),
    "price": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("-0.01"), Decimal(0), Decimal("12.50")]),
    "amount": (pa.decimal128(18, 4), [Decimal("-99999999999999.9999"), Decimal("0.5"), Decimal(7)]),
    "huge": (pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.5"), Decimal(7)]),
    # By the units of UTF-16, which Java's own strings have, U+10000 is below U+FFEE.
    "text": (pa.string(), ["", "a", "ab", "b", "\u00fc" * 40, "\uffee", "\U00010000", "\U0010ffff" * 40]),
    "bytes": (pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff\xff"]),
    "day": (pa.date32(), [datetime.date(*each) for each in _DAYS]),
    "moment": (pa.timestamp("us", "UTC"), [each.replace(tzinfo=UTC) for each in _MOMENTS]),
    "local": (pa.timestamp("us"), _MOMENTS),
    "span": (pa.duration("us"), [datetime.timedelta(microseconds=each) for each in (-(10**12), -1, 0, 1, 10**12)]),
}
"""The columns by name, with their types and the values that meet in rows and predicates."""

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Condition:
    column: str
    kind: str
    """An operator, or ``<=>``, ``in``, ``between`` or ``null``."""
    values: tuple[Any, ...] = ()
    negated: bool = False

    @property
    def type(self) -> Any:
        """The type of the values. Half floats are stored as floats."""
        data_type = POOLS[self.column][0]
        return pa.float32() if pa.types.is_float16(data_type) else data_type

    def sql(self, literal: Callable[[Any, pa.DataType], str], *, null_safe: str = "<=>", column: str = "") -> str:
        """Return the test in SQL.

        Args:
            literal: returns a value as a literal.
            null_safe: the null-safe equality.
            column: how the column is written; by default its name.
        """
        name = column or self.column
        told = [literal(value, self.type) for value in self.values]
        match self.kind:
            case "null":
                text = f"{name} IS NULL"
            case "in":
                text = f"{name} IN ({', '.join(told)})"
            case "between":
                text = f"{name} BETWEEN {told[0]} AND {told[1]}"
            case "<=>":
                text = f"{name} {null_safe} {told[0]}"
            case _:
                text = f"{name} {self.kind} {told[0]}"
        return f"NOT ({text})" if self.negated else text

    def of(self, value: Any) -> bool | None:
        """Return what the test is of a value by Spark's rules: true, false or null."""
        found = self._of(value)
        return not found if self.negated and found is not None else found

    def _of(self, value: Any) -> bool | None:
        if self.kind == "null":
            return value is None
        if value is None:
            return False if self.kind == "<=>" else None
        key, keys = order(value), [order(each) for each in self.values]
        match self.kind:
            case "in":
                return key in keys
            case "between":
                return bool(keys[0] <= key <= keys[1])
            case "<=>":
                return bool(key == keys[0])
        return bool(_OPERATORS[self.kind](key, keys[0]))

    @property
    def arrow(self) -> Any:
        """The test as an expression of Arrow."""
        field: Any = pc.field(self.column)
        found = self._expressed(
            field,
            [pa.scalar(each, self.type) for each in self.values],
            field.is_null(),
            lambda each: (field == each) & field.is_valid(),
        )
        return ~found if self.negated else found

    @property
    def polars(self) -> Any:
        """The test as an expression of Polars."""
        import polars as pl

        column = pl.col(self.column)
        typed = [pl.Series(pl.from_arrow(pa.array([each], self.type))) for each in self.values]
        values = [pl.lit(each[0], each.dtype) for each in typed]
        found = self._expressed(column, values, column.is_null(), column.eq_missing)
        return ~found if self.negated else found

    def _expressed(self, column: Any, values: list[Any], is_null: Any, null_safe: Callable[[Any], Any]) -> Any:
        match self.kind:
            case "null":
                return is_null
            case "in":
                return reduce(operator.or_, (column == each for each in values))
            case "between":
                return (column >= values[0]) & (column <= values[1])
            case "<=>":
                return null_safe(values[0])
        return _OPERATORS[self.kind](column, values[0])


def order(value: Any) -> Any:
    """Return Spark's sort key of a value: NaN is the greatest number, text is ordered by its bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def conditions_on(column: str) -> st.SearchStrategy[Condition]:
    """Draw a test of a column."""
    values = st.sampled_from(POOLS[column][1])
    comparisons = ["=", "<>"] if column == "flag" else list(_OPERATORS)
    kinds = st.one_of(
        st.tuples(st.sampled_from([*comparisons, "<=>"]), st.tuples(values)),
        st.tuples(st.just("in"), st.lists(values, min_size=1, max_size=3).map(tuple)),
        st.just(("null", ())),
        *([] if column == "flag" else [st.tuples(st.just("between"), st.tuples(values, values))]),
    )
    return st.builds(lambda kind, negated: Condition(column, *kind, negated=negated), kinds, st.booleans())


def casted(value: Any, data_type: pa.DataType) -> str:
    """Return a value as a literal of its type, which Spark and DuckDB read in the same way."""
    match value:
        case bool():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS {'FLOAT' if data_type == pa.float32() else 'DOUBLE'})"
        case int():
            # The smallest integer is no literal: SQL negates one that is too large.
            return f"CAST('{value}' AS {'TINYINT' if data_type == pa.int8() else 'BIGINT'})"
        case Decimal():
            decimal: Any = data_type
            return f"CAST('{value}' AS DECIMAL({decimal.precision}, {decimal.scale}))"
        case bytes():
            return f"unhex('{value.hex()}')"
        case datetime.datetime():
            return f"{'TIMESTAMP' if value.tzinfo else 'TIMESTAMP_NTZ'} '{value.isoformat(' ', 'microseconds')}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case datetime.timedelta():
            micros = value // datetime.timedelta(microseconds=1)
            sign, seconds = "-" if micros < 0 else "", f"{abs(micros) // 10**6}.{abs(micros) % 10**6:06d}"
            return f"INTERVAL '{sign}{seconds}' SECOND"
    return f"'{value}'"


def plain(value: Any, data_type: pa.DataType) -> str:
    """Return a value as a literal of eoslog's predicates."""
    match value:
        case bool() | int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case float():
            return repr(value) if math.isfinite(value) else f"'{'NaN' if math.isnan(value) else f'{value}inity'}'"
        case datetime.datetime():
            return f"'{value.isoformat()}'"
        case datetime.date():
            return f"'{value.isoformat()}'"
    return f"'{value}'"
