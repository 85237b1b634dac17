"""Rows as JSON and back: what ``console consume --json`` prints of a row, ``console produce`` reads again.

Bytes are text where they are UTF-8, else ``{"base64": …}``; dates and times are ISO 8601, durations microseconds,
decimals text, a map is a list of pairs, and a number that JSON lacks is ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from eoslog.errors import SchemaMismatch

_EXACT = Context(prec=1_000)
_NUMBERS_OF_TEXT = ("NaN", "Infinity", "-Infinity")


def to_json(value: Any) -> Any:
    """A value of a row, as JSON has it."""
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


def row_of_json(line: bytes, schema: pa.Schema) -> dict[str, Any]:
    """A row from a line that holds a JSON object.

    Raises:
        SchemaMismatch: naming the column, and what was expected and found.
    """
    try:
        value = json.loads(line, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SchemaMismatch(f"no JSON object: {error}") from None
    if not isinstance(value, dict):
        raise SchemaMismatch(f"no JSON object but {_found(value)}")
    return _struct(value, list(schema), "")


def from_json(value: Any, data_type: Any, path: str) -> Any:
    """A value for a column of some type, as ``json.loads(…, parse_float=Decimal)`` gives it.

    Raises:
        SchemaMismatch: naming the path, and what was expected and found.
    """
    if value is None:
        return None
    try:
        return _converter(data_type)(value, data_type, path)
    except (ValueError, TypeError, OverflowError, InvalidOperation, binascii.Error):
        raise SchemaMismatch(f"column {path!r}: expected {data_type}, found {_found(value)}") from None


def _converter(data_type: pa.DataType) -> Callable[[Any, Any, str], Any]:
    types = pa.types
    for applies, convert in (
        (types.is_struct, lambda value, kind, path: _struct(value, list(kind), f"{path}.")),
        (types.is_list, _list),
        (types.is_map, _map),
        (types.is_boolean, lambda value, kind, path: _of(bool, value)),
        (types.is_integer, _integer),
        (types.is_floating, _float),
        (types.is_decimal, _decimal),
        (types.is_string, lambda value, kind, path: _text(value)),
        (types.is_binary, _binary),
        (types.is_date, lambda value, kind, path: date.fromisoformat(_of(str, value))),
        (types.is_time, lambda value, kind, path: time.fromisoformat(_of(str, value))),
        (types.is_timestamp, _timestamp),
        (types.is_duration, lambda value, kind, path: timedelta(microseconds=_of(int, value))),
    ):
        if applies(data_type):
            return convert
    return _nothing


def _nothing(value: Any, kind: Any, path: str) -> Any:
    raise TypeError


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError
    return value


def _text(value: Any) -> str:
    text: str = _of(str, value)
    text.encode()  # JSON can spell halves of characters, which are no text
    return text


def _struct(value: Any, fields: list[Any], prefix: str) -> dict[str, Any]:
    names = [field.name for field in fields]
    for name in _of(dict, value):
        if name not in names:
            raise SchemaMismatch(f"column {prefix + name!r} is not in the topic; there are {', '.join(names)}")
    return {field.name: from_json(value.get(field.name), field.type, prefix + field.name) for field in fields}


def _list(value: Any, kind: Any, path: str) -> list[Any]:
    return [from_json(each, kind.value_type, f"{path}.element") for each in _of(list, value)]


def _map(value: Any, kind: Any, path: str) -> list[tuple[Any, Any]]:
    pairs = [_of(list, pair) for pair in _of(list, value)]
    return [
        (from_json(key, kind.key_type, f"{path}.key"), from_json(item, kind.item_type, f"{path}.value"))
        for key, item in pairs
    ]


def _integer(value: Any, kind: Any, path: str) -> int:
    number: int = _of(int, value)
    if not -(1 << (kind.bit_width - 1)) <= number < 1 << (kind.bit_width - 1):
        raise OverflowError
    return number


def _float(value: Any, kind: Any, path: str) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and value not in _NUMBERS_OF_TEXT):
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
    if -exponent > kind.scale or len(digits) + exponent > kind.precision - kind.scale:
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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; write it as text")


def _found(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
