"""Lazy frames of Polars over topics. Polars tells the scan which columns and rows a query needs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source
from sqlglot import exp

from eoslog.errors import InvalidOption
from eoslog.read.isolation import IsolationLevel
from eoslog.read.scan import Scan

if TYPE_CHECKING:
    from eoslog.store import Store

_COMPARISONS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_CONNECTIVES = {"And": "AND", "Or": "OR", "LogicalAnd": "AND", "LogicalOr": "OR"}
_EPOCH = date(1970, 1, 1)
_DAYS = range((date.min - _EPOCH).days, (date.max - _EPOCH).days + 1)
"""The days that Python's dates and SQL's literals can express."""


def scan_topic(store: Store, topic: str, **options: Any) -> pl.LazyFrame:
    """Return a lazy frame over the rows of a topic that are visible now.

    Every ``collect()`` reads the same rows, even if a query uses the frame twice. It fetches only the columns that the
    query needs. eoslog skips files by the conditions that its predicates support.

    Args:
        options: those of ``Store.scan`` except ``predicate``: for example ``isolation_level``, ``columns``, ``slot``.
            The frame has ``_partition`` and ``_offset`` only if ``columns`` names them.

    Raises:
        UnknownTopicOrPartition, OffsetOutOfRange, InvalidOption
    """
    if "predicate" in options:
        raise InvalidOption("scan_topic() takes no predicate. Filter the lazy frame")
    first = store.scan(topic, **options)
    fixed = options | _same_rows(first, options)

    def read(
        with_columns: Sequence[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = list(first.schema.names if with_columns is None else with_columns)
        extra = [] if predicate is None else [each for each in predicate.meta.root_names() if each not in wanted]
        scan = _planned(store, topic, fixed | {"columns": [*wanted, *extra]}, predicate)
        if n_rows is not None and predicate is None:
            scan = scan.limit(n_rows)
        left = n_rows
        for batch in scan.to_batches():
            rows = pl.DataFrame(batch)
            if predicate is not None:
                rows = rows.filter(predicate).select(wanted)
            if left is not None:
                rows = rows.head(left)
                left -= rows.height
            yield rows
            if left == 0:
                return

    return register_io_source(read, schema=pl.DataFrame(first.schema.empty_table()).schema)


def _same_rows(scan: Scan, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with which a later scan finds the rows of this one."""
    if scan.as_of is not None:
        return {"slot": scan.as_of.slot, "timestamp": scan.as_of.time_ms}
    level = options.get("isolation_level")
    if level and IsolationLevel.of(level) is IsolationLevel.SNAPSHOT:
        return {"slot": scan.slot}
    return {
        "starting_offsets": {plan.partition: plan.start_offset for plan in scan.plans},
        "ending_offsets": {plan.partition: plan.end_offset for plan in scan.plans},
        "partitions": [plan.partition for plan in scan.plans],
        "transaction_consistent": False,
    }


def _planned(store: Store, topic: str, options: Mapping[str, Any], predicate: pl.Expr | None) -> Scan:
    text = None if predicate is None else predicate_text(predicate)
    try:
        return store.scan(topic, **options, predicate=text)
    except InvalidOption:
        if text is None:
            raise
        # The predicate does not fit the topic's columns. Scan without it: Polars filters the rows.
        return store.scan(topic, **options)


def predicate_text(predicate: pl.Expr) -> str | None:
    """Return a condition in SQL, or None. The condition may accept more rows than the expression, never fewer."""
    return _sql(json.loads(predicate.meta.serialize(format="json")), can_widen=True)


def _sql(node: Any, *, can_widen: bool) -> str | None:
    """Return an expression in SQL; None if it cannot be expressed.

    The form of the expressions belongs to Polars and may change. Return None for an unknown form.

    Args:
        can_widen: True if the result may accept more rows. Then an unknown part of an AND is dropped.
    """
    match node:
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _CONNECTIVES:
            parts = [_sql(each, can_widen=can_widen) for each in (left, right)]
            known = [each for each in parts if each is not None]
            if len(known) < 2:
                return known[0] if known and can_widen and _CONNECTIVES[op] == "AND" else None
            return f"({known[0]} {_CONNECTIVES[op]} {known[1]})"
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _COMPARISONS:
            sides = [_column(each) or _literal(each) for each in (left, right)]
            return f"{sides[0]} {_COMPARISONS[op]} {sides[1]}" if None not in sides else None
        case {"Function": {"input": [part], "function": {"Boolean": "Not"}}}:
            inner = _sql(part, can_widen=False)
            return None if inner is None else f"(NOT {inner})"
        case {"Function": {"input": [part], "function": {"Boolean": "IsNull" | "IsNotNull" as test}}}:
            column = _column(part)
            return None if column is None else f"{column} IS {'NOT ' if test == 'IsNotNull' else ''}NULL"
        case {"Function": {"input": [part, low, high], "function": {"Boolean": {"IsBetween": {"closed": "Both"}}}}}:
            found = [_column(part), _literal(low), _literal(high)]
            return f"{found[0]} BETWEEN {found[1]} AND {found[2]}" if None not in found else None
        case {"Function": {"input": [part, values], "function": {"Boolean": {"IsIn": {"nulls_equal": False}}}}}:
            column, listed = _column(part), _values(values)
            return f"{column} IN ({', '.join(listed)})" if column and listed else None
    return None


def _column(node: Any) -> str | None:
    match node:
        case {"Column": str(name)}:
            return exp.to_identifier(name, quoted=True).sql(dialect="spark")
    return None


def _literal(node: Any) -> str | None:
    match node:
        case {"Literal": {"Dyn": {"Int": int(value)} | {"Float": float(value)}}}:
            return _number(value)
        case {"Literal": {"Scalar": {"Date": int(days)}}} if days in _DAYS:
            return f"DATE '{_EPOCH + timedelta(days=days)}'"
        case {"Literal": {"Scalar": {"Float32": int(value) | float(value)}}}:
            # Polars writes the shortest digits of the 32-bit number. Read as a 64-bit number they are another value.
            return _number(float(np.float32(value)))
        case {"Literal": {"Scalar": {"String": str(text)}}}:
            return _text(text)
        case {"Literal": {"Scalar": {"Boolean": bool(value)}}}:
            return str(value).upper()
        case {"Literal": {"Scalar": dict(scalar)}}:
            (kind, value), *_ = scalar.items()
            is_number = kind.startswith(("Int", "UInt", "Float")) and isinstance(value, int | float)
            return _number(value) if is_number else None
    return None


def _values(node: Any) -> list[str] | None:
    """Return the values of a list, which Polars writes as an Arrow stream of one column."""
    match node:
        case {"Literal": {"Scalar": {"List": list(stream)}}}:
            values: list[Any] = pa.ipc.open_stream(bytes(stream)).read_all().column(0).to_pylist()
        case _:
            return None
    if all(isinstance(each, str) for each in values):
        return [_text(each) for each in values]
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        numbers = [_number(each) for each in values]
        return [each for each in numbers if each is not None] if None not in numbers else None
    return None


def _number(value: float) -> str | None:
    return repr(value) if math.isfinite(value) else None


def _text(value: str) -> str:
    return exp.Literal.string(value).sql(dialect="spark")
