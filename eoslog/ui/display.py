"""Values as a page shows them: numbers, sizes, times, and text. A store may hold hostile text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from eoslog.cli.rendering import duration_shown, shown, size_shown
from eoslog.format.column_types import kind_of
from eoslog.format.json_values import to_json

CELL_BYTES = 160
"""How many bytes of a value a list shows."""
THIN_SPACE = "\u202f"
NONE = "\u2013"
"""The text for a missing value."""
VALUE_BYTES = 64 << 10
"""How many bytes of a value the page of its row shows."""
_CHARACTER_BYTES = 4


def number(value: int | float | None) -> str:
    """Return a number with thin spaces between its thousands."""
    return NONE if value is None else f"{value:,}".replace(",", THIN_SPACE)


def counted(value: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 row`` or ``2 rows``."""
    return f"{number(value)} {noun}{'s' * (value != 1)}"


def size(value: int | None) -> str:
    """Return a number of bytes, such as ``1.5 MiB``."""
    return NONE if value is None else size_shown(value)


def duration(value_ms: int | float | None) -> str:
    """Return a duration in its two largest units, such as ``12 s`` or ``3 m 12 s``."""
    return NONE if value_ms is None or value_ms < 0 else duration_shown(int(value_ms))


def ago(time_ms: int | None, now_ms: int) -> str:
    """Return how long ago a time is."""
    if time_ms is None or time_ms < 0:
        return NONE
    elapsed_ms = max(0, now_ms - time_ms)
    return "now" if elapsed_ms < 1_000 else f"{duration(elapsed_ms)} ago"


def moment(time_ms: int | None) -> str:
    """Return a time in ISO 8601."""
    if time_ms is None or time_ms < 0:
        return "unknown"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "milliseconds").replace("+00:00", " UTC")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def text(value: Any, limit: int = 200) -> str:
    """Return a text on one line. Invisible characters, and those that change the order of text, become escapes.

    A longer text than ``limit`` loses its middle: names that begin in the same way often differ at their ends.
    """
    found = str(value)
    if len(found) > limit:
        end = (limit - 1) // 2
        found = f"{found[: limit - 1 - end]}…{found[-end:]}"
    return shown(found)


class Cell(NamedTuple):
    """A value of a row as a page shows it."""

    text: str
    kind: str
    """``text``, ``number``, ``bytes`` (in hexadecimal), ``json`` or ``null``."""
    cut_bytes: int | None = None
    """The whole size in bytes, if only the beginning is shown."""


def cell(value: Any, limit: int = CELL_BYTES) -> Cell:
    """Return a value of a row, a ``pyarrow.Scalar``, and at most ``limit`` bytes of it."""
    if not value.is_valid:
        return Cell("null", "null")
    kind = kind_of(value.type)
    if kind in ("binary", "text"):
        whole = value.as_buffer()
        start = whole.slice(0, min(limit, whole.size)).to_pybytes()
        is_cut = whole.size > limit
        return _of_bytes(start, is_text=kind == "text", whole=whole.size if is_cut else None)
    try:
        plain = to_json(value.as_py())
    except (ValueError, OverflowError):
        # A date or time that Python cannot hold, such as one after the year 9999.
        return Cell(f"a {value.type} beyond the years 1 to 9999", "null")
    if pa.types.is_nested(value.type):
        return _of_json(json.dumps(plain, ensure_ascii=False, default=str), limit)
    return Cell(shown(str(plain)[:limit]), "number" if is_number(value.type) else "text")


def is_number(data_type: pa.DataType) -> bool:
    """Return True if the values of a type are numbers."""
    return kind_of(data_type) in ("integer", "float", "decimal")


def _of_bytes(start: bytes, *, is_text: bool, whole: int | None) -> Cell:
    try:
        decoded = start.decode()
    except UnicodeDecodeError as error:
        # The limit may have cut a character.
        cut_character = whole is not None and error.start > len(start) - _CHARACTER_BYTES
        if not (cut_character or is_text):
            return Cell(start[: len(start) // 2 if whole is not None else None].hex(), "bytes", whole)
        decoded = start[: error.start].decode()
    return Cell(shown(decoded), "text", whole)


def _of_json(written: str, limit: int) -> Cell:
    whole = len(written.encode()) if len(written) > limit else None
    return Cell(shown(written[:limit]), "json", whole)


def pretty(cell_text: bytes | str) -> str | None:
    """Return a JSON text with a line for each member; None if it is no JSON."""
    try:
        value = json.loads(cell_text)
    except (ValueError, RecursionError):
        return None
    return lines(json.dumps(value, indent=2, ensure_ascii=False)) if isinstance(value, (dict, list)) else None


def lines(value: str) -> str:
    """Return a text of several lines, with escapes for all other characters that are not printable."""
    return "\n".join(shown(line) for line in value.split("\n"))
