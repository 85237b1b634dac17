"""A cache bounded by bytes, of which a pass over more than it holds leaves a part in place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_STAYS = 16


class _Kept(NamedTuple, Generic[Value]):
    value: Value
    bytes: int


class IndexCache(Generic[Key, Value]):
    """The values that were asked for last, up to a number of bytes. Threads may share it.

    In a full cache a new value takes the place of the newest one that nobody has asked for again, not that of the
    oldest. So of a pass over more values than there is room for, the next pass finds most that fit (the bimodal
    insertion policy, Qureshi et al., ISCA 2007). One of sixteen new values is treated as one that was asked for again:
    values that nobody needs any more give way in the end.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._kept: OrderedDict[Key, _Kept[Value]] = OrderedDict()
        """In the order in which they give way."""
        self._bytes = 0
        self._evicting_puts = 0

    @property
    def bytes(self) -> int:
        """Of the values that are kept."""
        return self._bytes

    def get(self, key: Key) -> Value | None:
        """The value, if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found.value

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value of so many bytes; one that alone is larger than the cache, until the next one."""
        with self._lock:
            before = self._kept.pop(key, None)
            if before is not None:
                self._bytes -= before.bytes
            is_full = self._bytes + size > self._most_bytes
            while self._kept and self._bytes + size > self._most_bytes:
                self._bytes -= self._kept.popitem(last=False)[1].bytes
            self._kept[key] = _Kept(value, size)
            self._bytes += size
            if is_full:
                self._evicting_puts += 1
                self._kept.move_to_end(key, last=self._evicting_puts % _STAYS == 0)
