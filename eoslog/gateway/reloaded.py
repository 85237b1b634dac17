"""Contents of files that may change while the gateway runs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from eoslog.errors import InvalidOption

T = TypeVar("T")
_logger = logging.getLogger(__name__)


class Reloaded(Generic[T]):
    """The content of files.

    After a change the files are read again. If they are broken then, the former value stays.
    """

    def __init__(self, paths: Sequence[Path], load: Callable[[], T]) -> None:
        """
        Args:
            load: reads the files. It raises InvalidOption if they are broken.

        Raises:
            InvalidOption: they are broken now.
        """
        self._paths = paths
        self._load = load
        self._lock = threading.Lock()
        # Before the files are read: a change during the read counts as a later one.
        self._version = self._current_version()
        self._value = load()

    def value(self) -> T:
        """Return the content of the files."""
        with self._lock:
            version = self._current_version()
            if version != self._version:
                self._version = version
                try:
                    self._value = self._load()
                    _logger.info("%s: the new content is in use", self._paths[0])
                except InvalidOption as error:
                    _logger.warning("the former content of %s stays in use: %s", self._paths[0], error)
            return self._value

    def _current_version(self) -> tuple[tuple[int, ...] | None, ...]:
        """Return a value that changes with the files, and with the targets of links: Kubernetes changes these.

        ``st_ctime_ns`` also changes when a file becomes readable, and when a copy keeps the time of the content.
        """
        found: list[tuple[int, ...] | None] = []
        for path in self._paths:
            try:
                status = os.stat(path)
                found.append((status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                found.append(None)
        return tuple(found)
