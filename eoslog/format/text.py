"""Text in columns is UTF-8: Arrow takes that for granted, so what is written and what is read is looked at."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


@cache
def holds_text(data_type: pa.DataType) -> bool:
    """Whether values of this type are text, or have text in them."""
    if isinstance(data_type, pa.DictionaryType):
        return holds_text(data_type.value_type)
    parts: Any = data_type
    if parts.num_fields:
        return any(holds_text(parts.field(index).type) for index in range(parts.num_fields))
    return any(is_text(data_type) for is_text in _TEXT)


def check_text(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> None:
    """Refuse a column whose text is no UTF-8.

    Raises:
        pyarrow.ArrowInvalid
    """
    if holds_text(column.type):
        column.validate(full=True)
