"""Processes of one host take turns: in order, woken at once, and never blocked by a stopped process."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from eoslog.storage import host_queue
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import LARGEST_MESSAGE_BYTES, HostQueue, Turn, name_of_directory

pytestmark = pytest.mark.skipif(not HostQueue.is_supported, reason="this system has no abstract Unix sockets")


SHORT_MS = 300
"""A patience that ends soon, but not before a process on a busy machine begins to wait."""


@pytest.fixture
def queue(tmp_path: Path) -> HostQueue:
    return HostQueue(lambda: name_of_directory(str(tmp_path)), Environment(), patience_ms=1_000)


@contextmanager
def waiting(queue: HostQueue, message: bytes = b"") -> Iterator[Turn]:
    """A turn whose process has asked the process that has begun its turn."""
    with queue.turn() as turn:
        assert not turn.begin()
        turn.ask(message)
        yield turn


@contextmanager
def taken(queue: HostQueue) -> Iterator[Turn]:
    with queue.turn() as turn:
        assert turn.begin()
        yield turn


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_one_process_at_a_time_has_the_turn(queue: HostQueue) -> None:
    with taken(queue), queue.turn() as other:
        assert not other.begin()
    with taken(queue):
        pass


def test_the_turn_goes_to_the_processes_that_wait_in_their_order(queue: HostQueue) -> None:
    with ExitStack() as turns:
        with taken(queue):
            first, second = turns.enter_context(waiting(queue)), turns.enter_context(waiting(queue))

        assert first.wait()
        with queue.turn() as newcomer:
            assert not newcomer.begin()
        assert first.begin()
        first.leave()
        assert second.wait()
        assert second.begin()


def test_a_process_that_waits_is_woken_when_the_turn_ends(queue: HostQueue) -> None:
    with ExitStack() as turns:
        with taken(queue):
            turn = turns.enter_context(waiting(queue))
            woken = in_background(turn.wait)
        woken.join()

        assert turn.begin()


def test_a_message_is_answered_after_its_request_was_appended(queue: HostQueue) -> None:
    with taken(queue) as turn, waiting(queue, b"a") as asking, waiting(queue) as silent:
        assert turn.messages() == [b"a"]
        turn.answer(1)

        assert asking.wait()
        assert asking.is_appended
        turn.leave()
        assert silent.wait()
        assert not silent.is_appended
        assert silent.begin()


def test_the_record_of_a_turn_comes_with_the_answer_and_with_the_next_turn(queue: HostQueue) -> None:
    record = bytes(range(256)) * (LARGEST_MESSAGE_BYTES // 256)
    with taken(queue) as holder, waiting(queue, b"request") as asks, waiting(queue) as waits:
        assert holder.messages() == [b"request"]
        holder.newest = record
        holder.answer(1)
        holder.leave()

        assert asks.wait()
        assert waits.wait()

        assert (asks.is_appended, waits.is_appended) == (True, False)
        assert asks.handed_over == waits.handed_over == record
        assert waits.begin()


def test_records_that_the_system_does_not_send_are_left_out(queue: HostQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = host_queue._kept

    def with_small_buffer(opened: socket.socket) -> socket.socket:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
        return kept(opened)

    monkeypatch.setattr(host_queue, "_kept", with_small_buffer)
    with taken(queue) as holder, waiting(queue, b"request") as asks, waiting(queue) as waits:
        holder.messages()
        holder.newest = bytes(LARGEST_MESSAGE_BYTES)
        holder.answer(1)
        holder.leave()

        assert asks.wait()
        assert waits.wait()

        assert (asks.is_appended, asks.handed_over, waits.handed_over) == (True, b"", b"")
        assert waits.begin()


def test_a_process_that_asks_again_forgets_the_record_that_it_got(queue: HostQueue) -> None:
    with taken(queue) as holder, waiting(queue, b"request") as turn:
        holder.messages()
        holder.newest = b"record"
        holder.answer(1)
        assert turn.wait()
        assert turn.handed_over == b"record"
        holder.newest = b""

        turn.ask(b"")
        holder.leave()
        assert turn.wait()

        assert turn.handed_over == b""


def test_a_process_that_asks_knows_whether_its_message_was_sent(queue: HostQueue) -> None:
    with queue.turn() as turn:
        assert not turn.ask(b"nobody has the turn")

    with taken(queue), queue.turn() as turn:
        assert not turn.ask(b"")
    with taken(queue), queue.turn() as turn:
        assert turn.ask(b"request")


def test_messages_that_were_not_used_go_to_the_next_turn(queue: HostQueue) -> None:
    with ExitStack() as turns:
        with taken(queue) as turn:
            first = turns.enter_context(waiting(queue, b"a"))
            turns.enter_context(waiting(queue, b"b"))
            turns.enter_context(waiting(queue, b"c"))
            assert turn.messages() == [b"a", b"b", b"c"]
        assert first.wait()

        assert first.messages() == [b"b", b"c"]


def test_the_largest_message_arrives_whole(queue: HostQueue) -> None:
    message = os.urandom(LARGEST_MESSAGE_BYTES)

    with taken(queue) as turn, waiting(queue, message):
        assert turn.messages() == [message]


def test_a_process_that_has_left_is_passed_over(queue: HostQueue) -> None:
    with ExitStack() as turns:
        with taken(queue):
            with waiting(queue):
                pass
            second = turns.enter_context(waiting(queue))

        assert second.wait()
        assert second.begin()


def test_a_process_that_gets_the_turn_while_it_leaves_wakes_the_others(queue: HostQueue) -> None:
    with ExitStack() as turns:
        with taken(queue) as turn, waiting(queue):
            second = turns.enter_context(waiting(queue))
            turn.leave()

        assert second.wait()
        assert second.begin()


def test_a_dead_processs_turn_is_free_and_the_others_wake(queue: HostQueue) -> None:
    ready, is_ready = os.pipe()
    die, dies = os.pipe()
    child = os.fork()
    if child == 0:
        with taken(queue):
            os.write(is_ready, b"1")
            os.close(dies)
            os.read(die, 1)
            os._exit(0)
    os.read(ready, 1)

    with waiting(queue) as turn:
        os.close(dies)
        os.waitpid(child, 0)
        assert turn.wait()
        assert turn.begin()


def test_a_stopped_process_delays_only_the_first_that_waits(queue: HostQueue) -> None:
    queue.patience_ms = SHORT_MS
    with taken(queue):
        with waiting(queue) as turn:
            assert not turn.wait()
        queue.patience_ms = 3_600_000
        with waiting(queue) as turn:
            assert not turn.wait()

    with taken(queue), waiting(queue) as turn:
        assert turn._holder is not None


def test_no_message_is_sent_while_the_process_that_has_the_turn_is_stopped(queue: HostQueue) -> None:
    queue.is_crowded = True
    queue.patience_ms = SHORT_MS
    with taken(queue):
        with waiting(queue) as turn:
            assert turn.is_crowded
            turn.wait()
        with queue.turn() as turn:
            assert not turn.is_crowded


def test_no_wait_is_longer_than_the_deadline(queue: HostQueue) -> None:
    with taken(queue), queue.turn(deadline_ms=0) as turn:
        turn.ask(b"")
        assert not turn.wait()


def test_a_program_that_is_started_does_not_inherit_a_turn_that_was_handed_over(queue: HostQueue) -> None:
    with ExitStack() as turns:
        with taken(queue):
            first, second = turns.enter_context(waiting(queue)), turns.enter_context(waiting(queue))
        assert first.wait()

        assert first._turn is not None
        assert [each.get_inheritable() for each in (first._turn, *first._waiting)] == [False, False]
        first.leave()
        assert second.wait()


def sockets_of_turns() -> set[int]:
    return {each.fileno() for each in host_queue._open_sockets if each.fileno() >= 0}


INTERRUPTED = ["_new_socket", "_is_same_user", "_is_ready", "_peek", "_tell"]


@pytest.mark.parametrize("function", INTERRUPTED)
def test_an_interrupt_ends_the_turn_and_the_wait_while_its_traceback_is_kept(
    queue: HostQueue, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    queue.patience_ms = SHORT_MS
    original = getattr(host_queue, function)
    before = sockets_of_turns()

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    def use() -> None:
        with taken(queue), waiting(queue) as first, waiting(queue):
            monkeypatch.setattr(host_queue, function, interrupted)
            with queue.turn() as turn:
                turn.begin()
                turn.ask(b"")
            first.wait()

    with pytest.raises(KeyboardInterrupt) as kept:
        use()

    monkeypatch.setattr(host_queue, function, original)
    queue.stopped = None
    assert sockets_of_turns() == before
    with taken(queue):
        assert kept.tb is not None


def test_a_forked_child_does_not_keep_the_turn_of_its_parent(queue: HostQueue) -> None:
    leave, left = os.pipe()
    runs, is_run = os.pipe()
    with taken(queue):
        child = os.fork()
        if child == 0:
            os.close(left)
            os.write(is_run, b"1")
            os.read(leave, 1)
            os._exit(0)
    os.read(runs, 1)
    try:
        with taken(queue):
            pass
    finally:
        os.close(left)
        os.close(leave)
        os.waitpid(child, 0)


def open_sockets() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {each for each in found if each.startswith("socket:")}


def test_a_child_forked_while_another_thread_opens_a_socket_does_not_keep_it(
    queue: HostQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child closes the sockets that it knows: not one that a thread was about to open or to close."""
    queue.patience_ms = 3_600_000
    original = host_queue._kept
    before = open_sockets()
    kept: list[int] = []
    forks: list[threading.Thread] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(len(open_sockets() - before))
        kept.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def kept_after_a_fork(opened: socket.socket) -> socket.socket:
        forks.append(in_background(fork))
        if not host_queue._fork_lock._is_owned():  # type: ignore[attr-defined]
            # No lock holds the fork up, so it comes before the socket is known.
            forks[-1].join()
        return original(opened)

    monkeypatch.setattr(host_queue, "_kept", kept_after_a_fork)
    with ExitStack() as turns:
        with taken(queue):
            waits = turns.enter_context(waiting(queue))
        assert waits.wait()
    for each in forks:
        each.join()

    assert kept == [0] * len(forks)


def test_a_forked_child_waits_as_if_nobody_were_stopped(queue: HostQueue) -> None:
    queue.patience_ms = SHORT_MS
    with taken(queue):
        with waiting(queue) as turn:
            turn.wait()
        child = os.fork()
        if child == 0:
            with waiting(queue) as turn:
                os._exit(0 if turn._holder is not None else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_nobody_waits_for_a_process_of_another_user(queue: HostQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    with taken(queue), queue.turn() as turn:
        assert not turn.begin()
        monkeypatch.setattr(host_queue, "_is_same_user", lambda connection: False)
        turn.ask(b"secret")

        assert turn.begin()


def test_a_process_of_another_user_that_connects_again_and_again_holds_nobody_up(
    queue: HostQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as clients, taken(queue) as turn:

        def again(connection: socket.socket) -> bool:
            client = clients.enter_context(host_queue._new_socket())
            assert turn._name is not None
            client.connect(turn._name)
            connection.close()
            return False

        client = clients.enter_context(host_queue._new_socket())
        assert turn._name is not None
        client.connect(turn._name)
        monkeypatch.setattr(host_queue, "_is_same_user", again)

        assert turn.messages() == []


def test_nobody_waits_long_for_a_name_that_nobody_listens_to(queue: HostQueue) -> None:
    queue.patience_ms = 3_600_000
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bound, queue.turn() as turn:
        assert turn._name is not None
        bound.bind(turn._name)
        assert not turn.begin()
        turn.ask(b"")
        while turn.wait():
            assert not turn.begin()
            turn.ask(b"")


def test_messages_of_another_user_are_not_read(queue: HostQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    with taken(queue) as turn, waiting(queue, b"forged"):
        monkeypatch.setattr(host_queue, "_is_same_user", lambda connection: False)

        assert turn.messages() == []


def test_without_a_directory_nobody_waits(tmp_path: Path) -> None:
    queue = HostQueue(lambda: name_of_directory(str(tmp_path / "missing")), Environment(), patience_ms=1_000)

    with taken(queue), taken(queue):
        pass


def test_without_free_descriptors_nobody_waits(queue: HostQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise OSError("too many open files")

    with taken(queue):
        monkeypatch.setattr(socket, "socket", refused)
        with queue.turn() as turn:
            assert turn.begin()


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_connections_do_not_use_up_the_descriptors_that_an_append_needs(queue: HostQueue, is_handed_over: bool) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as turns:
        turn = turns.enter_context(taken(queue))
        for _ in range(20):
            turns.enter_context(waiting(queue))
        if is_handed_over:
            first = turns.enter_context(waiting(queue))
            turn.messages()
            # The first that waits is the one of this test: the others wait behind it.
            turn._waiting.insert(0, turn._waiting.pop())
        free = os.open("/dev/null", os.O_RDONLY)
        os.close(free)
        try:
            if is_handed_over:
                turn.leave()
                resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, limits[1]))
                assert first.wait()
                turn = first
            else:
                resource.setrlimit(resource.RLIMIT_NOFILE, (free + 8, limits[1]))
                turn.messages()
            spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in spare:
            os.close(each)
        assert turn._turn is not None
        assert 0 < len(turn._waiting) < 8


def test_turns_leave_no_socket_open(queue: HostQueue) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with taken(queue) as turn, waiting(queue, b"a"), waiting(queue) as second, waiting(queue) as third:
            turn.messages()
            turn.answer(1)
            turn.leave()
            assert second.wait()
            second.leave()
            assert third.wait()

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_message_is_sent_only_if_three_processes_share_turns(queue: HostQueue) -> None:
    with taken(queue), waiting(queue):
        pass
    assert not queue.is_crowded

    with taken(queue), waiting(queue), waiting(queue) as turn:
        assert not turn.is_crowded
    assert queue.is_crowded


def test_after_a_turn_that_answered_messages_are_sent(queue: HostQueue) -> None:
    with taken(queue) as turn, waiting(queue, b"a"):
        turn.messages()
        turn.answer(1)

    assert queue.is_crowded
