"""Guards of objects that belong to one process.

A forked child has copies of its parent's objects. Among them are locks that another thread held during the fork,
sequences that the parent continues, and rows that the parent will write. So a client refuses to work in the child, or
opens its resources again.
"""

from __future__ import annotations

import os

from eoslog.errors import InvalidRequest, OpenedBeforeFork

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def forks() -> int:
    """Return the number of forks between this process and its first ancestor that imported this module.

    It identifies the process that opened an object, because every object was opened by this process or an ancestor.
    Unlike a process id it never repeats among ancestors, and it costs no system call.
    """
    return _forks


class HomeProcess:
    """The process that opened a client. Only that process may use it."""

    def __init__(self, client: str) -> None:
        """
        Args:
            client: the name of the client in error messages, such as ``producer``.
        """
        self._client = client
        self._process = _forks

    @property
    def is_this(self) -> bool:
        """False in a child that was forked since."""
        return self._process == _forks

    def check(self, call: str) -> None:
        """Refuse a user's call in a forked child.

        Raises:
            OpenedBeforeFork
        """
        if self._process != _forks:
            raise OpenedBeforeFork(
                f"{call}: this {self._client} belongs to the parent process. "
                f"Open another {self._client} in this process"
            )


def cannot_be_pickled(held: object, instead: str) -> InvalidRequest:
    """Return the error for pickling an object that belongs to one process.

    Args:
        instead: what to pass to the other process, and what to do there.
    """
    return InvalidRequest(f"a {type(held).__name__} belongs to its process and cannot be pickled: pass on {instead}")
