"""Rows as JSON and back: ``console produce`` reads what ``console consume --json`` prints.

Bytes are text if they are UTF-8, else ``{"base64": …}``. Dates and times are ISO 8601, durations are microseconds,
decimals are text, and a map is a list of pairs. Numbers that JSON lacks are ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from eoslog.errors import SchemaMismatch
from eoslog.format.column_types import kind_of, whole_numbers
from eoslog.wording import without_code


def to_json(value: Any) -> Any:
    """Return the value of a row as JSON has it."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value // timedelta(microseconds=1)
        case Decimal():
            return str(value)
        case dict():
            return {name: to_json(each) for name, each in value.items()}
        case list() | tuple():
            return [to_json(each) for each in value]
    return value


def rows_of_json(lines: Iterable[bytes], schema: pa.Schema, first: int) -> list[dict[str, Any]]:
    """Return the rows of lines that hold a JSON object each.

    Args:
        first: the number of the first line, for errors.

    Raises:
        SchemaMismatch: names the line and the column, and says what was expected and found.
    """
    rows = []
    for number, line in enumerate(lines, start=first):
        try:
            rows.append(row_of_json(line, schema))
        except SchemaMismatch as error:
            raise SchemaMismatch(f"line {number}: {without_code(error)}") from None
    return rows


def row_of_json(line: bytes, schema: pa.Schema) -> dict[str, Any]:
    """Return the row of a line that holds a JSON object.

    Raises:
        SchemaMismatch: names the column, and says what was expected and found.
    """
    try:
        value = json.loads(line, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SchemaMismatch(f"not a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise SchemaMismatch(f"not a JSON object but {_found(value)}")
    return _struct(value, schema, "")


def _struct(value: dict[str, Any], fields: Iterable[Any], prefix: str) -> dict[str, Any]:
    names = [field.name for field in fields]
    for name in value:
        if name not in names:
            raise SchemaMismatch(f"column {prefix + name!r} is not in the topic. Its columns are {', '.join(names)}")
    return {field.name: _from_json(value.get(field.name), field.type, prefix + field.name) for field in fields}


def _from_json(value: Any, kind: Any, path: str) -> Any:
    """Return a value of ``json.loads(…, parse_float=Decimal)`` for a column of some type."""
    if value is None:
        return None
    try:
        return _converted(value, kind, path)
    except (ValueError, TypeError, OverflowError, InvalidOperation, pa.ArrowException):
        raise SchemaMismatch(f"column {path!r}: expected {kind}, found {_found(value)}") from None


def _converted(value: Any, kind: Any, path: str) -> Any:
    """Return the Python value of a column that JSON spells so.

    Raises:
        ValueError, TypeError, OverflowError, InvalidOperation, pa.ArrowException: it is of another type.
    """
    match kind_of(kind), value:
        case (("integer" | "float" | "decimal" | "duration"), bool()):
            raise TypeError  # to Python a bool is an int
        case "boolean", bool():
            return value
        case "integer", int() if value in whole_numbers(kind):
            return value
        case "text", str():
            value.encode()  # JSON can spell a lone surrogate, which is not text
            return value
        case "float", int() | Decimal() | "NaN" | "Infinity" | "-Infinity":
            return float(value)
        case "decimal", int() | Decimal() | str():
            number = Decimal(value)
            pa.scalar(number, kind)  # Arrow checks the digits
            return number
        case "binary", {"base64": str(text), **others} if not others:
            return base64.b64decode(text, validate=True)
        case "binary", str():
            return value.encode()
        case "date", str():
            return date.fromisoformat(value)
        case "time", str():
            return time.fromisoformat(value)
        case "timestamp", str():
            moment = datetime.fromisoformat(value)
            if (moment.tzinfo is None) != (kind.tz is None):
                wanted = "an offset such as Z" if kind.tz is not None else "no offset"
                raise SchemaMismatch(f"column {path!r}: a {kind} has {wanted}, found {_found(value)}")
            return moment
        case "duration", int():
            return timedelta(microseconds=value)
        case "struct", dict():
            return _struct(value, kind, f"{path}.")
        case "list", list():
            return [_from_json(each, kind.value_type, f"{path}.element") for each in value]
        case "map", list():
            return [
                (_from_json(key, kind.key_type, f"{path}.key"), _from_json(item, kind.item_type, f"{path}.value"))
                for key, item in value
            ]
    raise TypeError


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON. Write it as text")


def _found(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
