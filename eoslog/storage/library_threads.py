"""Threads of the library, in which the steps of users' calls run to their end.

Python raises the exception of a signal handler (Ctrl-C, a time limit) in the main thread, after any call that this
thread makes. ``PyThreadState_SetAsyncExc`` raises one in a thread that the program names. The program does not know the
threads of this module, so no exception from outside ends a step half way.

A signal handler may make calls, too. It runs in the main thread, between two instructions of the interrupted call. So
the interrupted thread must hold no lock that a step needs: a step runs in another thread, and would wait for ever.

The interpreter stops these threads when it exits. A thread that is stopped within Arrow's or NumPy's code aborts the
process, so the exit waits for the running steps, within a time limit.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from eoslog.storage.process import forks

T = TypeVar("T")
_IDLE_S = 60
"""A thread ends when it has been idle for this long (s)."""
_EXIT_CHECK_S = 0.05
_exit_s = 10.0
"""How long the exit of the interpreter may still take (s). A request may never be answered."""


class _CurrentThread(threading.local):
    is_library_thread = False


_current = _CurrentThread()


class _Step:
    """A step that is handed to a thread of the library, and its outcome."""

    __slots__ = ("answer", "context", "done", "error", "function")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.context = copy_context()
        self.answer: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        """Released when the step has ended."""
        self.done.acquire()


class _Threads:
    """The threads of one process. They take steps from one queue."""

    def __init__(self) -> None:
        self._steps: SimpleQueue[_Step] = SimpleQueue()
        self._idle: deque[None] = deque()
        """An item for each idle thread that no caller has reserved. A caller takes an item, which reserves a thread,
        then puts a step. So each step finds a thread, however long the other steps take."""
        self._running: set[_Step] = set()

    def hand_over(self, step: _Step) -> bool:
        """Have a thread run a step. Return False if no thread can start, because the interpreter exits."""
        try:
            self._idle.pop()
        except IndexError:
            try:
                threading.Thread(target=self._run, daemon=True, name="eoslog-step").start()
            except RuntimeError:
                return False
        # An interrupt just before this line leaves a thread reserved without a step. No step waits for that thread.
        self._steps.put(step)
        return True

    def _run(self) -> None:
        _current.is_library_thread = True
        while True:
            try:
                step = self._steps.get(timeout=_IDLE_S)
            except Empty:
                # If there is no item, a caller has reserved this thread, and its step is about to come.
                with contextlib.suppress(IndexError):
                    self._idle.pop()
                    return
                continue
            self._running.add(step)
            try:
                step.answer = step.context.run(step.function)
            except BaseException as error:
                step.error = error
            self._running.discard(step)
            # Before the caller continues: its next step finds this thread idle.
            self._idle.append(None)
            step.done.release()
            # An idle thread keeps no request and no answer alive.
            del step

    def wait_at_exit(self) -> None:
        """Wait until the steps have ended whose callers were interrupted."""
        global _exit_s
        for step in tuple(self._running):
            # A daemon thread of the program may wait for the same step, and keep the lock afterwards.
            while step in self._running and _exit_s > 0:
                if step.done.acquire(timeout=_EXIT_CHECK_S):
                    step.done.release()
                else:
                    _exit_s -= _EXIT_CHECK_S


_threads_of_process = {forks(): _Threads()}
"""By the number of forks: a forked child has none of its parent's threads."""


def spend_exit_time(spent_ms: float) -> None:
    """Subtract the time that a flush at the exit has taken (ms) from the time that is left for steps."""
    global _exit_s
    _exit_s -= spent_ms / 1000


@atexit.register
def _wait_at_exit() -> None:
    threads = _threads_of_process.get(forks())
    if threads is not None:
        threads.wait_at_exit()


def run_to_its_end(function: Callable[[], T]) -> T:
    """Run a function in a thread of the library, and return its answer or raise its error.

    An exception from outside ends only the wait of the caller. The function runs to its end in any case. A function
    that calls this function again runs in the same thread.
    """
    # At its end the interpreter stops all other threads. Then it destroys objects, and their finalizers may make calls.
    if _current.is_library_thread or sys.is_finalizing():
        return function()
    step = _Step(function)
    if not _threads_of_this_process().hand_over(step):
        return function()
    step.done.acquire()
    if step.error is not None:
        try:
            raise step.error
        finally:
            # The error refers to this frame, and this frame must not refer to the error.
            del step
    answer: T = step.answer
    return answer


def run_all_to_their_end(functions: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """Run functions in parallel, each as ``run_to_its_end`` does. Raise the first error after all of them have ended.

    Args:
        at_once: how many run at the same time.
    """
    answers: list[Any] = [None] * len(functions)
    errors: dict[int, BaseException] = {}
    waiting = deque(enumerate(functions))

    def run_waiting() -> None:
        while True:
            try:
                at, function = waiting.popleft()
            except IndexError:
                return
            try:
                answers[at] = function()
            except BaseException as error:
                errors[at] = error

    def run() -> None:
        helpers = [] if sys.is_finalizing() else [_Step(run_waiting) for _ in functions[1:at_once]]
        threads = _threads_of_this_process()
        helpers = [step for step in helpers if threads.hand_over(step)]
        run_waiting()
        for step in helpers:
            step.done.acquire()

    run_to_its_end(run)
    if errors:
        try:
            raise errors[min(errors)]
        finally:
            # The error refers to this frame, and this frame must not refer to the error.
            errors.clear()
    return answers


def _threads_of_this_process() -> _Threads:
    threads = _threads_of_process.get(forks())
    if threads is None:
        threads = _threads_of_process.setdefault(forks(), _Threads())
    return threads


def start_thread(work: Callable[[], None], name: str) -> None:
    """Run ``work`` in a new daemon thread of the library.

    Raises:
        RuntimeError: no thread can start, because the interpreter exits.
    """

    def run() -> None:
        _current.is_library_thread = True
        work()

    threading.Thread(target=run, daemon=True, name=name).start()


class LibraryExecutor(Executor):
    """An executor whose threads are of the library, so ``run_to_its_end`` needs no other thread there.

    The exit of the interpreter does not wait for these threads: their requests may never be answered. A thread
    that runs Arrow's code must end before the exit, so ``shutdown`` waits for it.
    """

    def __init__(self, threads: int, name: str) -> None:
        """
        Args:
            threads: the largest number of threads. They start when there is work for them, and end after ``shutdown``.
            name: the name of the threads.
        """
        self._name = name
        self._most = threads
        self._threads = self._idle = 0
        self._is_shut_down = False
        self._works: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._changed = threading.Condition()

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a function in a thread.

        Raises:
            RuntimeError: the executor is shut down, or it has no thread and none can start.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._is_shut_down:
                raise RuntimeError("the executor is shut down")
            if self._idle <= len(self._works) and self._threads < self._most:
                self._start_thread()
            self._works.append((future, partial(function, *args, **kwargs)))
            self._changed.notify()
        return future

    def _start_thread(self) -> None:
        try:
            start_thread(self._run, self._name)
        except RuntimeError:
            # The process has too many threads. Those of this executor get on.
            if not self._threads:
                raise
        else:
            self._threads += 1

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._works or self._is_shut_down)
                self._idle -= 1
                if not self._works:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                future, work = self._works.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            # An idle thread keeps no request and no answer alive.
            del future, work

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, timeout_s: float | None = None) -> None:
        """Take no more work.

        Args:
            wait: wait until all threads have ended.
            cancel_futures: cancel the work that has not begun.
            timeout_s: wait at most this long (s); None: without a limit.
        """
        with self._changed:
            self._is_shut_down = True
            if cancel_futures:
                for future, _ in self._works:
                    future.cancel()
            self._changed.notify_all()
            if wait:
                self._changed.wait_for(lambda: not self._threads, timeout_s)
