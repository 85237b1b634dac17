"""Checks that text in columns is UTF-8. Arrow assumes it without a check, so eoslog checks what it writes and reads."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from eoslog.format.column_types import kind_of


@cache
def holds_text(data_type: pa.DataType) -> bool:
    """Return True if values of this type are text or contain text."""
    if isinstance(data_type, pa.DictionaryType):
        return holds_text(data_type.value_type)
    parts: Any = data_type
    return kind_of(data_type) == "text" or any(holds_text(parts.field(index).type) for index in range(parts.num_fields))


def check_text(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> None:
    """Refuse a column with text that is not UTF-8.

    Raises:
        pyarrow.ArrowInvalid: a text is not UTF-8.
    """
    if holds_text(column.type):
        column.validate(full=True)
