"""Parts of objects that this process has read or written recently."""

from __future__ import annotations

import threading
from collections import OrderedDict

from eoslog.storage.process import forks

_MOST_BYTES = 16 << 20


class _Kept:
    """The objects that one process keeps."""

    def __init__(self) -> None:
        self.process = forks()
        self.lock = threading.Lock()
        self.bytes = 0
        self.contents: OrderedDict[str, bytes] = OrderedDict()


class RecentObjects:
    """A cache of bytes by the path of their object. The object never changes. Safe to share between threads."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._of_process = _Kept()

    def keep(self, path: str, content: bytes) -> None:
        """Keep these bytes, and drop the bytes that were kept longest ago. Bytes above the limit are not kept."""
        kept = self._own()
        with kept.lock:
            if path in kept.contents or len(content) > self._most_bytes:
                return
            kept.contents[path] = content
            kept.bytes += len(path) + len(content)
            while kept.bytes > self._most_bytes:
                oldest, dropped = kept.contents.popitem(last=False)
                kept.bytes -= len(oldest) + len(dropped)

    def drop(self, path: str) -> None:
        """Drop the bytes of an object."""
        kept = self._own()
        with kept.lock:
            dropped = kept.contents.pop(path, None)
            if dropped is not None:
                kept.bytes -= len(path) + len(dropped)

    def find(self, path: str) -> bytes | None:
        """Return the bytes of an object; None if they are not kept."""
        kept = self._own()
        with kept.lock:
            return kept.contents.get(path)

    def _own(self) -> _Kept:
        """Return what this process keeps. A forked child begins anew: a thread of its parent may have held the lock."""
        kept = self._of_process
        if kept.process != forks():
            # Two threads may both do this. Then one of the new caches is lost, which costs a request.
            kept = self._of_process = _Kept()
        return kept
