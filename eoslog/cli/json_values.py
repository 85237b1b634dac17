"""Rows as JSON and back: ``console produce`` reads what ``console consume --json`` prints.

Bytes are text if they are UTF-8, else ``{"base64": …}``. Dates and times are ISO 8601, durations are microseconds,
decimals are text, and a map is a list of pairs. Numbers that JSON lacks are ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from eoslog.errors import SchemaMismatch
from eoslog.format.column_types import ValueKind, digits_before_point, kind_of, whole_numbers
from eoslog.wording import without_code

_EXACT = Context(prec=1_000)
"""Enough digits to strip the zeros at the end of any decimal without rounding it."""
_NUMBERS_AS_TEXT = ("NaN", "Infinity", "-Infinity")


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


def _from_json(value: Any, kind: Any, path: str) -> Any:
    """Return a value of ``json.loads(…, parse_float=Decimal)`` for a column of some type."""
    if value is None:
        return None
    convert = _CONVERTERS.get(kind_of(kind), _nothing)
    try:
        return convert(value, kind, path)
    except (ValueError, TypeError, OverflowError, InvalidOperation, binascii.Error):
        raise SchemaMismatch(f"column {path!r}: expected {kind}, found {_found(value)}") from None


def _nothing(value: Any, kind: Any, path: str) -> Any:
    raise TypeError


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError
    return value


def _text(value: Any) -> str:
    text: str = _of(str, value)
    text.encode()  # JSON can spell a lone surrogate, which is not text
    return text


def _struct(value: Any, fields: Iterable[Any], prefix: str) -> dict[str, Any]:
    names = [field.name for field in fields]
    for name in _of(dict, value):
        if name not in names:
            raise SchemaMismatch(f"column {prefix + name!r} is not in the topic; there are {', '.join(names)}")
    return {field.name: _from_json(value.get(field.name), field.type, prefix + field.name) for field in fields}


def _list(value: Any, kind: Any, path: str) -> list[Any]:
    return [_from_json(each, kind.value_type, f"{path}.element") for each in _of(list, value)]


def _map(value: Any, kind: Any, path: str) -> list[tuple[Any, Any]]:
    pairs = [_of(list, pair) for pair in _of(list, value)]
    return [
        (_from_json(key, kind.key_type, f"{path}.key"), _from_json(item, kind.item_type, f"{path}.value"))
        for key, item in pairs
    ]


def _integer(value: Any, kind: Any, path: str) -> int:
    number: int = _of(int, value)
    if number not in whole_numbers(kind):
        raise OverflowError
    return number


def _float(value: Any, kind: Any, path: str) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and value not in _NUMBERS_AS_TEXT):
        raise TypeError
    return float(value)


def _decimal(value: Any, kind: Any, path: str) -> Decimal:
    if isinstance(value, bool):
        raise TypeError
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError
    _, digits, exponent = number.normalize(_EXACT).as_tuple()
    assert isinstance(exponent, int)
    if -exponent > kind.scale or len(digits) + exponent > digits_before_point(kind):
        raise OverflowError
    return number


def _binary(value: Any, kind: Any, path: str) -> bytes:
    if isinstance(value, dict) and list(value) == ["base64"]:
        return base64.b64decode(_of(str, value["base64"]), validate=True)
    return _text(value).encode()


def _timestamp(value: Any, kind: Any, path: str) -> datetime:
    moment = datetime.fromisoformat(_of(str, value))
    if (moment.tzinfo is None) != (kind.tz is None):
        wanted = "an offset such as Z" if kind.tz is not None else "no offset"
        raise SchemaMismatch(f"column {path!r}: a {kind} has {wanted}, found {_found(value)}")
    return moment


_CONVERTERS: dict[ValueKind | None, Callable[[Any, Any, str], Any]] = {
    "struct": lambda value, kind, path: _struct(value, kind, f"{path}."),
    "list": _list,
    "map": _map,
    "boolean": lambda value, kind, path: _of(bool, value),
    "integer": _integer,
    "float": _float,
    "decimal": _decimal,
    "text": lambda value, kind, path: _text(value),
    "binary": _binary,
    "date": lambda value, kind, path: date.fromisoformat(_of(str, value)),
    "time": lambda value, kind, path: time.fromisoformat(_of(str, value)),
    "timestamp": _timestamp,
    "duration": lambda value, kind, path: timedelta(microseconds=_of(int, value)),
}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; write it as text")


def _found(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
