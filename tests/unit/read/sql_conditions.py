"""Conditions in SQL with what they mean, written down a second time in plain Python: for tests.

Each column has few values and few literals, which meet often: equal, next to each other, at the ends of the type.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import product
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

Row = dict[str, Any]
Literal = tuple[str, Any]
"""As text, and as a value; None for NULL."""


class SqlCondition(NamedTuple):
    text: str
    of: Callable[[Row], bool | None]
    """What it is of a row: true, false or null."""


class Column(NamedTuple):
    data_type: pa.DataType
    values: list[Any]
    literals: list[Literal]


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def key(value: Any) -> Any:
    """What Spark orders values by."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def _zone(hours: float) -> datetime.timezone:
    return datetime.timezone(datetime.timedelta(hours=hours))


_LONG = "a" * 31
_TEXTS = ["", "a", "ab", "é", "%_\\'", "\ud7ff", "\ue000", "\U0010ffff", _LONG, f"{_LONG}a", f"{_LONG}ab", f"{_LONG}b"]
_TEXTS += [f"{_LONG}\U0010ffff", f"{_LONG}\U0010ffffa", f"{_LONG}\U0010ffff\U0010ffff", f"{_LONG}\ud7ffx"]
_NUMBERS: list[Literal] = [
    ("-1", -1),
    ("0", 0),
    ("1", 1),
    ("-0.5", Decimal("-0.5")),
    ("0.50", Decimal("0.5")),
    (".005", Decimal("0.005")),
    ("-1.505", Decimal("-1.505")),
    ("9999.995", Decimal("9999.995")),
    ("127L", 127),
    ("128", 128),
    ("-129", -129),
    (str(2**63 - 1), 2**63 - 1),
    (str(-(2**63)), -(2**63)),
]
_FLOATS = [-1.5, -0.0, 0.0, 0.1, 1.5, math.nan, math.inf, -math.inf]
_FLOAT_LITERALS: list[Literal] = [(text, float(value)) for text, value in _NUMBERS[:9]] + [
    ("0.1", 0.1),
    ("15e-1", 1.5),
    ("-1.5D", -1.5),
    ("'NaN'", math.nan),
    ("'-Infinity'", -math.inf),
    ("DOUBLE('inf')", math.inf),
]
_DAYS = [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)]
_MOMENTS = [datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=each) for each in (-1, 0, 1)]
_TIMES = [datetime.time(0), datetime.time(12), datetime.time(12, 0, 0, 1)]

COLUMNS: dict[str, Column] = {
    "whole": Column(pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1], _NUMBERS),
    "small": Column(pa.int8(), [-128, -1, 0, 1, 127], _NUMBERS),
    "price": Column(
        pa.decimal128(6, 2),
        [Decimal(each) for each in ("-9999.99", "-1.51", "-1.50", "0", "0.01", "0.5", "9999.99")],
        _NUMBERS,
    ),
    "double": Column(pa.float64(), _FLOATS, _FLOAT_LITERALS),
    "single": Column(pa.float32(), _FLOATS, _FLOAT_LITERALS),
    "name": Column(pa.string(), _TEXTS, [(quoted(each), each) for each in _TEXTS]),
    "flag": Column(pa.bool_(), [True, False], [("TRUE", True), ("false", False)]),
    "day": Column(pa.date32(), _DAYS, [(f"{kind}'{each}'", each) for kind, each in product(("", "DATE "), _DAYS)]),
    "moment": Column(
        pa.timestamp("us", "UTC"),
        [each.replace(tzinfo=datetime.UTC) for each in _MOMENTS],
        [
            (f"{kind}'{each.replace(tzinfo=_zone(hours))}'", each.replace(tzinfo=_zone(hours)))
            for (kind, hours), each in product((("", 0), ("TIMESTAMP ", -1.5)), _MOMENTS)
        ]
        + [("'1970-01-01T00:00:00Z'", datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))]
        + [("TIMESTAMP '1970-01-01 14:00:00+14:00'", datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))],
    ),
    "local": Column(
        pa.timestamp("us"),
        _MOMENTS,
        [(f"{kind}'{each.isoformat()}'", each) for kind, each in product(("", "TIMESTAMP_NTZ "), _MOMENTS)],
    ),
    "clock": Column(
        pa.time64("ns"), _TIMES, [(f"{kind}'{each}'", each) for kind, each in product(("", "TIME "), _TIMES)]
    ),
    "bytes": Column(pa.binary(), [b"", b"\xff"], []),
}
SCHEMA: pa.Schema = pa.schema([pa.field(name, column.data_type) for name, column in COLUMNS.items()])

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other,
    "==": lambda one, other: one == other,
    "<>": lambda one, other: one != other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def either(one: bool | None, other: bool | None) -> bool | None:
    return negated(both(negated(one), negated(other)))


def simple_conditions(name: str) -> Iterator[SqlCondition]:
    """All that can be said of one column by one operator."""
    literals = [*COLUMNS[name].literals, ("NULL", None)]
    yield SqlCondition(f"{name} IS NULL", lambda row: row[name] is None)
    yield SqlCondition(f"{name} IS NOT NULL", lambda row: row[name] is not None)
    if name == "bytes":
        return
    if name == "flag":
        yield SqlCondition(name, lambda row: row[name])
        yield SqlCondition(f"{name} IS FALSE", lambda row: row[name] is False)
        yield SqlCondition(f"{name} IS NOT TRUE", lambda row: row[name] is not True)
    operators = ["=", "!="] if name == "flag" else list(_COMPARISONS)
    for operator, literal in product(operators, literals):
        yield from _compared(name, operator, literal)
    for literal in literals:
        yield _null_safe(name, literal)
    for index, literal in enumerate(literals):
        for other in (literal, literals[index - 1]):
            yield from _with_not(f"{name} {{}}IN ({literal[0]}, {other[0]})", _in(name, literal[1], other[1]))
            if name != "flag":
                between = f"{name} {{}}BETWEEN {literal[0]} AND {other[0]}"
                yield from _with_not(between, _between(name, literal[1], other[1]))
    if name == "name":
        for text in _TEXTS:
            if not set(text) & set("%_\\"):
                yield from _with_not(f"name {{}}LIKE {quoted(text)}", _like(text, is_prefix=False))
                yield from _with_not(f"name {{}}LIKE {quoted(f'{text}%')}", _like(text, is_prefix=True))


def _with_not(text: str, of: Callable[[Row], bool | None]) -> Iterator[SqlCondition]:
    yield SqlCondition(text.format(""), of)
    yield SqlCondition(text.format("NOT "), lambda row: negated(of(row)))


def _compared(name: str, operator: str, literal: Literal) -> Iterator[SqlCondition]:
    text, value = literal
    compare = _COMPARISONS[operator]

    def of(row: Row) -> bool | None:
        return None if value is None or row[name] is None else compare(key(row[name]), key(value))

    def turned(row: Row) -> bool | None:
        return None if value is None or row[name] is None else compare(key(value), key(row[name]))

    yield SqlCondition(f"{name} {operator} {text}", of)
    yield SqlCondition(f"{text} {operator} {name}", turned)


def _null_safe(name: str, literal: Literal) -> SqlCondition:
    text, value = literal

    def of(row: Row) -> bool | None:
        if value is None or row[name] is None:
            return value is None and row[name] is None
        return bool(key(row[name]) == key(value))

    return SqlCondition(f"{name} <=> {text}", of)


def _in(name: str, *values: Any) -> Callable[[Row], bool | None]:
    def of(row: Row) -> bool | None:
        if row[name] is None:
            return None
        if any(value is not None and key(row[name]) == key(value) for value in values):
            return True
        return None if None in values else False

    return of


def _between(name: str, low: Any, high: Any) -> Callable[[Row], bool | None]:
    def of(row: Row) -> bool | None:
        if row[name] is None:
            return None
        return both(
            None if low is None else bool(key(row[name]) >= key(low)),
            None if high is None else bool(key(row[name]) <= key(high)),
        )

    return of


def _like(text: str, *, is_prefix: bool) -> Callable[[Row], bool | None]:
    def of(row: Row) -> bool | None:
        found: str | None = row["name"]
        if found is None:
            return None
        return found.startswith(text) if is_prefix else found == text

    return of


SIMPLE = {name: list(simple_conditions(name)) for name in COLUMNS}


def rows() -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({name: st.sampled_from([*column.values, None]) for name, column in COLUMNS.items()})


def conditions() -> st.SearchStrategy[SqlCondition]:
    """Simple ones, put together by AND, OR and NOT."""
    constants = st.sampled_from(
        [
            SqlCondition("TRUE", lambda row: True),
            SqlCondition("false", lambda row: False),
            SqlCondition("NULL", lambda row: None),
        ]
    )
    simple = st.sampled_from(list(COLUMNS)).flatmap(lambda name: st.sampled_from(SIMPLE[name]))
    return st.recursive(st.one_of(simple, simple, simple, constants), _combined, max_leaves=5)


def _combined(parts: st.SearchStrategy[SqlCondition]) -> st.SearchStrategy[SqlCondition]:
    def all_of(each: tuple[SqlCondition, SqlCondition]) -> SqlCondition:
        one, other = each
        return SqlCondition(f"({one.text}) AND ({other.text})", lambda row: both(one.of(row), other.of(row)))

    def any_of(each: tuple[SqlCondition, SqlCondition]) -> SqlCondition:
        one, other = each
        return SqlCondition(f"({one.text}) or ({other.text})", lambda row: either(one.of(row), other.of(row)))

    def not_of(each: SqlCondition) -> SqlCondition:
        return SqlCondition(f"NOT ({each.text})", lambda row: negated(each.of(row)))

    pairs = st.tuples(parts, parts)
    return st.one_of(pairs.map(all_of), pairs.map(any_of), parts.map(not_of))
