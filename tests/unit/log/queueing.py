"""Holds a log's appends back until several threads have queued theirs. The thread that was first then leads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eoslog.log.append_queue import Proposal
from eoslog.log.log import Log


@contextmanager
def held(log: Log[Any]) -> Iterator[None]:
    """Within this context no thread leads. Use it when no append is under way."""
    queue = log.appender._queue
    nobody = Proposal(None)
    with queue._mutex:
        queue._leader = nobody
    try:
        yield
    finally:
        queue._leave(nobody)


def await_queued(log: Log[Any], count: int) -> None:
    """Wait until so many proposals are queued."""
    while len(log.appender._queue._waiting) < count:
        threading.Event().wait(0.001)
