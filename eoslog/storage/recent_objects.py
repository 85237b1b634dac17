"""Parts of objects that this process has read or written recently."""

from __future__ import annotations

import threading
from collections import OrderedDict

_MOST_BYTES = 16 << 20


class RecentObjects:
    """A cache of bytes by the path of their object. The object never changes. Safe to share between threads."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def keep(self, path: str, content: bytes) -> None:
        """Keep these bytes, and let go of those that were kept longest ago. Larger ones than the limit are not kept."""
        with self._lock:
            if path in self._kept or len(content) > self._most_bytes:
                return
            self._kept[path] = content
            self._bytes += len(path) + len(content)
            while self._bytes > self._most_bytes:
                oldest, dropped = self._kept.popitem(last=False)
                self._bytes -= len(oldest) + len(dropped)

    def drop(self, path: str) -> None:
        """Let go of the bytes of an object."""
        with self._lock:
            dropped = self._kept.pop(path, None)
            if dropped is not None:
                self._bytes -= len(path) + len(dropped)

    def find(self, path: str) -> bytes | None:
        """Return the bytes of an object; None if they are not kept."""
        with self._lock:
            return self._kept.get(path)
