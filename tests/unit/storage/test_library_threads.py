"""Functions that run in parallel, in threads of the library."""

from __future__ import annotations

import os
import threading
import time
import weakref
from concurrent.futures import Future
from functools import partial

import pytest

from eoslog.storage.library_threads import LibraryExecutor, run_all_to_their_end, run_to_its_end
from tests.programs import ran


def test_functions_run_at_once_and_answer_in_order() -> None:
    together = threading.Barrier(8)

    def meet(number: int) -> int:
        together.wait(30)
        return number

    assert run_all_to_their_end([partial(meet, number) for number in range(8)], 8) == list(range(8))


def test_no_more_than_the_limit_run_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()
    pause = threading.Event()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        pause.wait(0.01)
        with lock:
            running -= 1

    run_all_to_their_end([work] * 20, 3)

    assert most == 3


def test_the_first_error_is_raised_after_all_have_ended() -> None:
    ended: list[int] = []

    def work(number: int) -> None:
        threading.Event().wait(0.05 * number)
        ended.append(number)
        if number:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        run_all_to_their_end([partial(work, number) for number in range(4)], 2)

    assert sorted(ended) == [0, 1, 2, 3]


def test_functions_that_run_functions_do_not_wait_for_each_other() -> None:
    together = threading.Barrier(16)

    def inner() -> int:
        return together.wait(30)

    def outer() -> int:
        return sum(run_all_to_their_end([inner] * 4, 4))

    assert run_to_its_end(lambda: sum(run_all_to_their_end([outer] * 4, 4))) == sum(range(16))


def test_a_forked_child_has_threads_of_its_own() -> None:
    run_all_to_their_end([threading.get_ident] * 4, 4)

    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if run_all_to_their_end([lambda: 1] * 4, 4) == [1] * 4 else 1)
        finally:
            os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_step_in_a_thread_of_the_librarys_executor_needs_no_other_thread() -> None:
    with LibraryExecutor(1, "executor") as executor:
        threads = executor.submit(lambda: (threading.get_ident(), run_to_its_end(threading.get_ident))).result(30)

    assert threads[0] == threads[1] != threading.get_ident()


def test_an_executor_runs_as_much_at_once_as_it_has_threads() -> None:
    together = threading.Barrier(3)
    with LibraryExecutor(3, "executor") as executor:
        assert sorted(executor.map(lambda number: number + 0 * together.wait(30), range(6))) == list(range(6))


def test_an_executor_that_is_shut_down_does_what_it_was_given_and_takes_no_more() -> None:
    executor = LibraryExecutor(1, "executor")
    futures = [executor.submit(lambda number=number: number) for number in range(5)]
    executor.shutdown()
    assert [each.result(0) for each in futures] == list(range(5))
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(int)


def busy(executor: LibraryExecutor) -> tuple[Future[bool], threading.Event]:
    """Let a thread of an executor work until the event is set."""
    has_begun, may_end = threading.Event(), threading.Event()

    def work() -> bool:
        has_begun.set()
        return may_end.wait(30)

    found = executor.submit(work)
    assert has_begun.wait(30)
    return found, may_end


def test_an_executor_does_not_wait_for_work_that_does_not_end() -> None:
    executor = LibraryExecutor(1, "executor")
    stuck, may_end = busy(executor)
    left_out = executor.submit(int)
    executor.shutdown(cancel_futures=True, timeout_s=0.01)
    assert left_out.cancelled()
    assert not stuck.done()
    may_end.set()
    assert stuck.result(30)


def test_errors_of_work_reach_its_caller() -> None:
    with LibraryExecutor(1, "executor") as executor:
        assert isinstance(executor.submit(lambda: 1 // 0).exception(30), ZeroDivisionError)
        assert executor.submit(int).result(30) == 0


def test_an_executor_gets_on_with_the_threads_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("no thread can start")

    with LibraryExecutor(2, "executor") as executor:
        first, may_end = busy(executor)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            second = executor.submit(int)
            with pytest.raises(RuntimeError, match="no thread"):
                LibraryExecutor(1, "other").submit(int)
        may_end.set()
        assert first.result(30)
        assert second.result(30) == 0


def test_an_idle_thread_keeps_no_canceled_work_alive() -> None:
    class Work:
        def __call__(self) -> None:
            raise AssertionError("it was canceled")

    work = Work()
    kept = weakref.ref(work)
    with LibraryExecutor(1, "executor") as executor:
        _, may_end = busy(executor)
        canceled = executor.submit(work)
        assert canceled.cancel()
        del work, canceled
        may_end.set()
        end = time.monotonic() + 30
        while kept() is not None and time.monotonic() < end:
            time.sleep(0.01)
        assert kept() is None


def test_the_exit_of_the_interpreter_does_not_wait_for_an_executor() -> None:
    program = (
        "import threading\n"
        "from eoslog.storage.library_threads import LibraryExecutor\n"
        "LibraryExecutor(1, 'executor').submit(threading.Event().wait)\n"
    )
    assert ran(program)[0] == 0
