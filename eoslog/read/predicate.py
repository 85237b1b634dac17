"""Predicates: a condition on rows in SQL's three-valued logic, and its evaluation on the bounds of columns.

A row matches if the condition is true for it. A row for which it is false or null does not match.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from eoslog.format.statistics import ColumnBounds, Value, order, successor

BoundsOf = Callable[[str], ColumnBounds]
"""Returns the bounds of a column by its name."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A condition with the same value for every row."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """The column has one of these values; null if it is null."""

    column: str
    values: tuple[Value, ...]
    """The values in ascending order. Without values the condition is false for every value."""


@dataclass(frozen=True, slots=True)
class Below:
    """The column is less than the value; null if it is null."""

    column: str
    value: Value
    inclusive: bool
    """Also true if the column equals the value."""


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The text of a column begins with a prefix; null if it is null."""

    column: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Condition, ...]


Condition = Constant | IsNull | OneOf | Below | StartsWith | Not | AllOf | AnyOf


class Truth(NamedTuple):
    """The possible values of a condition for some rows.

    It may include a value that no row has. It never omits a value that a row has.
    """

    can_be_true: bool
    can_be_false: bool
    can_be_null: bool


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the rows of one topic. It consists of plain values, so it can be sent to the tasks of a read."""

    text: str
    """The predicate as the user wrote it, in SQL."""
    condition: Condition
    columns: pa.Schema
    """The columns that the condition uses."""
    of_records: bool
    """True for a topic of Kafka records."""

    def may_match(self, bounds: BoundsOf) -> bool:
        """Return False if no row within these bounds can match."""
        return truth(self.condition, bounds).can_be_true


def truth(condition: Condition, bounds: BoundsOf) -> Truth:
    """Return the possible values of the condition for rows within these bounds."""
    if isinstance(condition, Constant):
        return Truth(condition.value is True, condition.value is False, condition.value is None)
    if isinstance(condition, Not):
        return _negated(truth(condition.part, bounds))
    if isinstance(condition, AllOf):
        return _all(truth(part, bounds) for part in condition.parts)
    if isinstance(condition, AnyOf):
        # De Morgan's law holds in three-valued logic too.
        return _negated(_all(_negated(truth(part, bounds)) for part in condition.parts))
    known = bounds(condition.column)
    if isinstance(condition, IsNull):
        return Truth(known.has_nulls, known.has_values, False)
    if not known.has_values:
        return Truth(False, False, True)
    if isinstance(condition, OneOf):
        holds, fails = _one_of(condition.values, known)
    elif isinstance(condition, Below):
        holds, fails = _below(condition, known)
    else:
        holds, fails = _starts_with(condition.prefix, known)
    return Truth(holds, fails, known.has_nulls)


def _negated(found: Truth) -> Truth:
    return Truth(found.can_be_false, found.can_be_true, found.can_be_null)


def _all(parts: Iterable[Truth]) -> Truth:
    found = list(parts)
    return Truth(
        all(part.can_be_true for part in found),
        any(part.can_be_false for part in found),
        any(part.can_be_null for part in found) and all(part.can_be_true or part.can_be_null for part in found),
    )


def _one_of(values: tuple[Value, ...], known: ColumnBounds) -> tuple[bool, bool]:
    first = 0 if known.least is None else bisect_left(values, order(known.least), key=order)
    holds = first < len(values) and (known.greatest is None or order(values[first]) <= order(known.greatest))
    is_one_value = (
        known.least is not None and known.greatest is not None and order(known.least) == order(known.greatest)
    )
    return holds, not (holds and is_one_value)


def _below(condition: Below, known: ColumnBounds) -> tuple[bool, bool]:
    end = order(condition.value)

    def is_below(value: Value) -> bool:
        return order(value) <= end if condition.inclusive else order(value) < end

    return known.least is None or is_below(known.least), known.greatest is None or not is_below(known.greatest)


def _starts_with(prefix: str, known: ColumnBounds) -> tuple[bool, bool]:
    least, greatest = known.least, known.greatest
    behind = successor(prefix)
    begins_before = least is None or behind is None or str(least) < behind
    ends_after = greatest is None or str(greatest) >= prefix
    everywhere = all(isinstance(end, str) and end.startswith(prefix) for end in (least, greatest))
    return begins_before and ends_after, not everywhere
