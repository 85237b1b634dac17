"""Interrupts a call at each instruction at which Python delivers a signal, one at a time.

CPython looks for signals when a function begins, after a call returns, and when a loop jumps back. So a signal that
arrives before such an instruction is delivered at it. A tracer stops before the instruction, and marks a signal as
arrived. Then the real delivery runs the handler, at the place and with the effects that a real signal has.
"""

from __future__ import annotations

import ctypes
import dis
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

SIGNAL = signal.SIGUSR2


class TimeLimit(Exception):
    """The exception of a time limit, such as Celery's soft time limit."""


class Point(NamedTuple):
    """An instruction, and how often it was executed before."""

    code: CodeType
    offset: int
    before: int

    def __str__(self) -> str:
        line = next((line for start, end, line in self.code.co_lines() if start <= self.offset < end), None)
        return f"{self.code.co_filename}:{line} {self.code.co_qualname}+{self.offset} ({self.before})"


class _Arrival:
    """``arrival[number]`` marks a signal as arrived. A subscript, unlike a call, is no place of delivery."""

    __getitem__ = ctypes.pythonapi.PyErr_SetInterruptEx


_arrival: Any = _Arrival()


def _delivers(code: CodeType, offset: int) -> bool:
    name = dis.opname[code.co_code[offset]]
    return name.startswith(("CALL", "RESUME")) or "JUMP_BACKWARD" in name


def _traced(step: Callable[[FrameType], bool], code: CodeType | None) -> Any:
    """Return a tracer that calls ``step`` before each instruction of each function that begins.

    Args:
        code: the only function to trace; None for all. To trace one is many times faster.
    """

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if code is not None and frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode" and step(frame):
            sys.settrace(None)
            # Last: from here on, no instruction of the tracer delivers the signal. The traced frame does.
            _arrival[SIGNAL]
        return trace

    return trace


def points(call: Callable[[], object]) -> list[Point]:
    """Make a call, and return the points of it at which a signal may be delivered.

    For an instruction that is executed several times, it returns the first and the last time. Instructions of tests do
    not count.
    """
    counts: Counter[tuple[CodeType, int]] = Counter()

    def step(frame: FrameType) -> bool:
        if _delivers(frame.f_code, frame.f_lasti):
            counts[frame.f_code, frame.f_lasti] += 1
        return False

    _run(call, step)
    return [
        Point(code, offset, before)
        for (code, offset), count in counts.items()
        for before in sorted({0, count - 1})
        if "/tests/" not in code.co_filename
    ]


def interrupt(call: Callable[[], object], point: Point) -> object:
    """Make a call, and let a signal arrive at a point of it. The handler of ``SIGNAL`` decides what happens."""
    left = point.before

    def step(frame: FrameType) -> bool:
        nonlocal left
        if frame.f_lasti != point.offset:
            return False
        left -= 1
        return left < 0

    return _run(call, step, point.code)


_NONE = object()


def _run(call: Callable[[], object], step: Callable[[FrameType], bool], code: CodeType | None = None) -> object:
    answer = _NONE
    # The tests may be traced already, to measure their coverage.
    before = sys.gettrace()
    sys.settrace(_traced(step, code))
    try:
        answer = call()
        sys.settrace(before)
    except BaseException:
        sys.settrace(before)
        # A signal that arrived at the end of the call is delivered after its return, so the call was not interrupted.
        if answer is _NONE:
            raise
    return answer


@contextmanager
def handled(handler: Callable[[], object]) -> Iterator[None]:
    """Handle the signal by calling ``handler``."""
    before = signal.signal(SIGNAL, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(SIGNAL, before)
