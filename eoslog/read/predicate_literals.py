"""Literals of a predicate: turn a comparison with a literal into a comparison with a value of the column's type.

A comparison that Spark would do after rounding, or by a session's time zone, is refused. So a read yields exactly the
rows that Spark's own filter would keep.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

import pyarrow as pa

from eoslog.format.column_types import digits_before_point, kind_of, whole_numbers
from eoslog.format.statistics import Value, order
from eoslog.read.predicate import Below, Condition, Not, OneOf
from eoslog.wording import quoted


class LiteralKind(Enum):
    """The kind of a literal, by its notation."""

    BOOLEAN = "TRUE or FALSE"
    NUMBER = "a number"
    DOUBLE = "a double"
    """A number with an exponent or the suffix D."""
    TEXT = "a text"
    DATE = "a DATE"
    TIMESTAMP = "a TIMESTAMP"
    TIMESTAMP_NTZ = "a TIMESTAMP_NTZ"
    TIME = "a TIME"


class Literal(NamedTuple):
    """A literal of a predicate."""

    kind: LiteralKind
    text: str
    """The text without quotes; ``true`` or ``false`` for a boolean."""


class CannotCompare(Exception):
    """A literal cannot be compared with its column. The message says which literals can."""


class _Converted(NamedTuple):
    """A literal as a value of a column's type."""

    value: Value
    """The literal, or the greatest value below it."""
    is_exact: bool
    """True if the value is the literal."""


_MOST_DIGITS = 38
_NUMBER = re.compile(r"(-?)([0-9]*)(?:\.([0-9]*))?", re.ASCII)
_DOUBLE = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]"
    r"([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?) ?(Z|UTC|[+-][0-9]{2}:[0-9]{2})?",
    re.ASCII,
)
_NOT_FINITE = {
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
}


def one_of(column: pa.Field[Any], literals: Sequence[Literal]) -> Condition:
    """Return the condition that the column equals one of the literals.

    Raises:
        CannotCompare: a literal cannot be compared with the column.
    """
    values = [converted.value for literal in literals if (converted := _converted(literal, column.type)).is_exact]
    unique = {order(value): value for value in values if _within(value, column.type) == 0}
    return OneOf(column.name, tuple(unique[each] for each in sorted(unique)))


def below(column: pa.Field[Any], literal: Literal, *, inclusive: bool) -> Condition:
    """Return the condition that the column is less than the literal, or equal to it if ``inclusive``.

    Raises:
        CannotCompare: the literal cannot be compared with the column.
    """
    if kind_of(column.type) == "boolean":
        raise CannotCompare("a boolean is compared with = or <>")
    value, is_exact = _converted(literal, column.type)
    if kind_of(column.type) == "integer" and _within(value, pa.int64()):
        # Spark takes such a comparison for true even if the column is null.
        raise CannotCompare(f"{literal.text} is outside the range of integers. Omit the comparison")
    beyond = _within(value, column.type)
    if beyond:
        never = OneOf(column.name, ())
        return never if beyond < 0 else Not(never)
    return Below(column.name, value, inclusive or not is_exact)


def _converted(literal: Literal, data_type: Any) -> _Converted:
    text = literal.text
    match kind_of(data_type):
        case "integer":
            return _number(literal, 0, digits_before_point(data_type), "an integer")
        case "decimal":
            return _number(literal, data_type.scale, digits_before_point(data_type), "a decimal")
        case "float":
            return _Converted(_float(literal), True)
        case "boolean":
            _expect(literal, "a boolean", LiteralKind.BOOLEAN)
            return _Converted(text == "true", True)
        case "text":
            _expect(literal, "text", LiteralKind.TEXT)
            return _Converted(text, True)
        case "date":
            _expect(literal, "a date", LiteralKind.DATE, LiteralKind.TEXT)
            return _Converted(_days(text), True)
        case "time":
            _expect(literal, "a time", LiteralKind.TIME, LiteralKind.TEXT)
            return _Converted(_nanoseconds(text), True)
        case "timestamp":
            return _Converted(_microseconds(literal, with_zone=data_type.tz is not None), True)
    raise CannotCompare(f"columns of its type {data_type} support only IS NULL and IS NOT NULL")


def _within(value: Value, data_type: pa.DataType) -> int:
    """Return -1 or 1 if the value is below or above the type's range, else 0."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    numbers = whole_numbers(data_type)
    return -1 if value < numbers.start else int(value >= numbers.stop)


def _expect(literal: Literal, what: str, *kinds: LiteralKind) -> None:
    if literal.kind not in kinds:
        listed = " or ".join(kind.value for kind in kinds)
        raise CannotCompare(f"it is {what}, which is compared with {listed}, not with {literal.kind.value}")


def _number(literal: Literal, scale: int, whole_digits: int, what: str) -> _Converted:
    """Return a number in units of the type's last digit."""
    _expect(literal, what, LiteralKind.NUMBER)
    found = _NUMBER.fullmatch(literal.text)
    if found is None or not (found[2] or found[3]):
        raise CannotCompare(f"{quoted(literal.text)} is not a number")
    sign, whole, fraction = found[1], found[2].lstrip("0"), found[3] or ""
    if max(len(whole), whole_digits) + max(len(fraction), scale) > _MOST_DIGITS:
        raise CannotCompare(f"{literal.text} has more digits than can be compared with it exactly")
    units = int((whole + fraction[:scale].ljust(scale, "0")) or "0")
    is_exact = not fraction[scale:].strip("0")
    if sign:
        units = -units if is_exact else -units - 1
    return _Converted(units, is_exact)


def _float(literal: Literal) -> float:
    """Return the value as a double, because Spark compares floats of any size as doubles."""
    _expect(literal, "a float", LiteralKind.NUMBER, LiteralKind.DOUBLE, LiteralKind.TEXT)
    if literal.text.lower() in _NOT_FINITE and literal.kind is not LiteralKind.NUMBER:
        return _NOT_FINITE[literal.text.lower()]
    if literal.kind is LiteralKind.TEXT:
        raise CannotCompare("it is a float, which is compared with a number, 'NaN', 'Infinity' or '-Infinity'")
    if not _DOUBLE.fullmatch(literal.text):
        raise CannotCompare(f"{quoted(literal.text)} is not a number")
    return float(literal.text)


def _days(text: str) -> int:
    wrong = CannotCompare(f"{quoted(text)} is not a date such as '2026-01-31'")
    if not _DATE.fullmatch(text):
        raise wrong
    try:
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    except ValueError:
        raise wrong from None


def _nanoseconds(text: str) -> int:
    found = _TIME.fullmatch(text)
    hours, minutes, seconds = (int(found[group] or 0) if found else 99 for group in (1, 2, 3))
    if found is None or hours > 23 or minutes > 59 or seconds > 59:
        raise CannotCompare(f"{quoted(text)} is not a time such as '12:30:00'")
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int((found[4] or "").ljust(9, "0"))


def _microseconds(literal: Literal, *, with_zone: bool) -> int:
    what = "a timestamp" if with_zone else "a timestamp without zone"
    _expect(literal, what, LiteralKind.TIMESTAMP if with_zone else LiteralKind.TIMESTAMP_NTZ, LiteralKind.TEXT)
    example = "'2026-01-31T12:00:00Z'" if with_zone else "'2026-01-31T12:00:00'"
    wrong = CannotCompare(f"{quoted(literal.text)} is not a timestamp such as {example}")
    found = _TIMESTAMP.fullmatch(literal.text)
    if found is None:
        raise wrong
    if (found[3] is not None) != with_zone:
        hint = "add one, because sessions have different ones" if with_zone else "remove it"
        found_zone = "no" if with_zone else "a"
        raise CannotCompare(f"{quoted(literal.text)} has {found_zone} time zone: {hint}, as in {example}")
    zone = "+00:00" if found[3] in (None, "Z", "UTC") else found[3]
    try:
        time = datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}")
        return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise wrong from None
