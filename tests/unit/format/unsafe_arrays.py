"""Arrays that contradict their own type, as unsafe casts and forged files bring them about."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def not_utf_8() -> Any:
    """One text, of bytes that no text has."""
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
