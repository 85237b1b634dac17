"""Functions that run in parallel, in threads of the library."""

from __future__ import annotations

import os
import threading
from functools import partial

import pytest

from eoslog.storage.library_threads import library_executor, run_all_to_their_end, run_to_its_end


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
    with library_executor(1, "executor") as executor:
        threads = executor.submit(lambda: (threading.get_ident(), run_to_its_end(threading.get_ident))).result(30)

    assert threads[0] == threads[1] != threading.get_ident()
