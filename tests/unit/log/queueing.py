"""Holds a log's appends back until several threads have queued theirs. The thread that was first then leads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eoslog.log.append_queue import Proposal, SlotFence
from eoslog.log.log import Log

_MOST_WAITS = 30_000


@contextmanager
def held(log: Log[Any]) -> Iterator[None]:
    """Within this context no thread leads. Use it when no append is under way."""
    queue = log.appender._queue
    nobody = Proposal(SlotFence())
    with queue._mutex:
        queue._leader = nobody
    try:
        yield
    finally:
        queue._leave(nobody)


def await_queued(log: Log[Any], count: int) -> None:
    """Wait until so many proposals are queued."""
    for _ in range(_MOST_WAITS):
        if len(log.appender._queue._waiting) >= count:
            return
        threading.Event().wait(0.001)
    pytest.fail(f"{count} proposals were not queued: a thread has ended early")
