"""How far a verification has come."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], object]
"""Called with what is looked at, how many of it were, and of how many."""


def no_progress(what: str, done: int, total: int) -> None:
    """Tell nobody."""
