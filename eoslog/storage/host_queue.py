"""Turns: processes of one host that append to the same store do so one after the other.

The holder is the process that has the turn. It listens to a name, an abstract Unix socket. The other processes connect
to it, send their requests, and wait. The holder may append these requests for them. At the end of its turn it passes
the socket to the first process that still waits, with the connections of the rest. With each answer, and with the
socket, it hands over the newest records of the log, so that nobody must read them from the object store. If the holder
dies, the kernel closes the socket: then all wake, and the first process that listens to the name has the turn.

A turn is a hint: put-if-absent alone decides which record a slot gets. Turns avoid races that a process would lose. No
wait is longer than the queue's patience. So if the holder is stopped, the others continue without it. Only processes of
one user share turns, because any process of the host may listen to any name.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakSet

from eoslog.storage.environment import Environment

LARGEST_MESSAGE_BYTES = 64 << 10
_LARGEST_ANSWER_BYTES = LARGEST_MESSAGE_BYTES + 64
"""The largest size of records that are handed over, and of the word before them (bytes)."""
_MOST_READ_BYTES = 8 << 20
"""The largest total size of the messages that a process reads in one turn (bytes)."""
_MOST_CONNECTIONS = 200
"""The largest number of connections that a turn accepts. One message can pass on 253 sockets."""
_BACKLOG = 1024
_PAUSE_MS = 0.1
_MOST_PAUSES = 100
"""The longest series of pauses while the name is taken but no process listens. Then a process appends without one."""
_CREDENTIALS = struct.Struct("3i")
"""Process id, user id and group id."""
_APPENDED = b"appended"
_YOUR_TURN = b"your turn"
_ONLY_WATCHES = b"only watches"
"""The message of a process that only observes when a turn ends. It does not wait for its own turn."""

_open_sockets: WeakSet[socket.socket] = WeakSet()
"""The sockets of this process."""
_fork_lock = threading.RLock()
"""Held while a socket is opened or closed. A fork by another thread waits: the child could not close the socket."""


def _close_inherited() -> None:
    # A turn belongs to the open socket. A forked child has that socket, too, so it would keep the turn.
    _fork_lock.release()
    for each in list(_open_sockets):
        each.close()


os.register_at_fork(before=_fork_lock.acquire, after_in_parent=_fork_lock.release, after_in_child=_close_inherited)


class HostQueue:
    """The turns of one process in one store."""

    is_supported = sys.platform == "linux"
    """True if the system has abstract Unix sockets. Without them the processes of a host race."""

    def __init__(
        self,
        name: Callable[[], str | None],
        environment: Environment,
        *,
        patience_ms: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            name: a function that returns the name of the queue. Processes with queues of one name share turns. None:
                this process does not wait for others.
            patience_ms: the longest wait for a turn (ms).
            check: a function called before this process queues up. It may raise an error.
        """
        self._name = name
        self._environment = environment
        self.patience_ms = patience_ms
        self._check = check
        self.is_crowded = False
        """True if three or more processes shared turns recently."""
        self.stopped: socket.socket | None = None
        """A connection to a process whose turn lasts too long. While it is open, this process does not wait again."""

    @contextlib.contextmanager
    def turn(self, deadline_ms: int | None = None) -> Iterator[Turn]:
        """Queue up. The end of the context ends the turn, or gives up the wait for it.

        Args:
            deadline_ms: when to stop waiting (elapsed time, ms). No wait is longer than ``patience_ms``.
        """
        self._check()
        turn = Turn(self, self._environment, self._name(), deadline_ms)
        try:
            yield turn
        finally:
            turn.leave()


def name_of_directory(directory: str) -> str | None:
    """Return the name of the queue of a store in a directory; None if the directory does not exist.

    Processes that see the same directory find the same name, however they spell its path.
    """
    try:
        status = os.stat(directory)
    except OSError:
        # The first put creates the directory.
        return None
    return f"{status.st_dev}-{status.st_ino}"


class Turn:
    """The turn of a process: first the wait for it, then the turn itself."""

    def __init__(
        self, queue: HostQueue, environment: Environment, name: str | None, deadline_ms: int | None = None
    ) -> None:
        """
        Args:
            name: the name of the queue; None: this process does not wait for others.
        """
        self._queue = queue
        self._environment = environment
        self._name = None if name is None else f"\0eoslog-turn-{os.geteuid()}-{name}"
        end_ms = environment.monotonic_ms() + queue.patience_ms
        self._end_ms = end_ms if deadline_ms is None else min(end_ms, deadline_ms)
        self._holder: socket.socket | None = None
        """The connection to the process that has the turn."""
        self.is_appended = False
        """True if the holder of a turn has answered that it appended the requests of this process."""
        self.handed_over = b""
        """The newest records of the log, as they came with the last answer or with the turn; may be empty."""
        self.newest = b""
        """The newest records of the log, which this process hands over at the end of its turn; may be empty."""
        self._turn: socket.socket | None = None
        self._waiting: list[socket.socket] = []
        """Connections from processes that wait for the end of this turn, in the order of their arrival."""
        self._asking: list[socket.socket] = []
        """The connections in ``_waiting`` whose messages were read."""
        self._has_answered = False
        self._pauses = 0

    @property
    def is_crowded(self) -> bool:
        """True if this process should send a message. With only two processes a message saves no record."""
        return self._queue.is_crowded and not self._is_stopped()

    def begin(self) -> bool:
        """Begin the turn. Return False if another process has it."""
        if self._name is None or self._turn is not None:
            return True
        try:
            # An interrupt may come at any line. ``leave`` closes only what is an attribute by then.
            turn = self._turn = _new_socket()
        except OSError:
            # Too many open files: this process appends without a turn.
            return True
        try:
            turn.bind(self._name)
            turn.listen(_BACKLOG)
        except OSError as error:
            _close(turn)
            self._turn = None
            # Any other error: this process may not use such names.
            return error.errno != errno.EADDRINUSE
        return True

    def ask(self, message: bytes) -> bool:
        """Tell the process that has the turn that this process waits, and send it a message.

        Args:
            message: at most ``LARGEST_MESSAGE_BYTES``; may be empty.

        Returns:
            True if the message was sent. False if it is empty, or if no process could be asked.
        """
        if self._name is None or self._is_stopped():
            return False
        try:
            holder = self._holder = _new_socket()
        except OSError:
            self._name = None
            return False
        try:
            holder.connect(self._name)
            if not _is_same_user(holder):
                # A process of another user listens to this name. Do not wait for it.
                self._name = None
                raise PermissionError
            if message:
                holder.send(message)
        except OSError:
            # A turn has just ended, or is just beginning.
            self._stop_waiting()
            return False
        return bool(message)

    def _is_stopped(self) -> bool:
        """Return True if the holder of the turn is known to be stopped."""
        stopped = self._queue.stopped
        if stopped is not None and stopped.fileno() >= 0 and not _is_ready(stopped, 0):
            return True
        if stopped is not None:
            _close(stopped)
        self._queue.stopped = None
        return False

    def wait(self) -> bool:
        """Wait until this process has the turn, another has appended for it, or no process has the turn.

        Returns:
            False if the wait takes too long.
        """
        self.handed_over = b""
        left_ms = self._end_ms - self._environment.monotonic_ms()
        if left_ms <= 0 or self._queue.stopped is not None:
            return False
        holder = self._holder
        if holder is None:
            self._environment.sleep_ms(_PAUSE_MS)
            self._pauses += 1
            # A process of any user may take the name and never listen.
            return self._pauses < _MOST_PAUSES
        if not _is_ready(holder, left_ms):
            self._stop_waiting()
            self.ask(_ONLY_WATCHES)
            self._queue.stopped, self._holder = self._holder, None
            return False
        with contextlib.suppress(OSError):
            with _fork_lock:
                answer, received, is_cut = _receive(holder)
            if received:
                self._turn, *self._waiting = received
            if is_cut:
                self._drop_half()
            word, _, self.handed_over = answer.partition(b"\n")
            self.is_appended = word == _APPENDED
        if self.is_appended:
            self._queue.is_crowded = True
        self._stop_waiting()
        return True

    def _stop_waiting(self) -> None:
        if self._holder is not None:
            _close(self._holder)
            self._holder = None

    def messages(self) -> Sequence[bytes]:
        """Return the messages of the processes that wait for the end of this turn."""
        self._accept()
        found: list[bytes] = []
        size = 0
        for other in self._waiting:
            message = _peek(other)
            if message not in (b"", _ONLY_WATCHES) and size < _MOST_READ_BYTES:
                found.append(message)
                size += len(message)
                self._asking.append(other)
        return found

    def answer(self, count: int) -> None:
        """Tell the processes that sent the first ``count`` messages that their requests were appended."""
        for other in self._asking[:count]:
            _tell(other, _APPENDED, self.newest)
            self._waiting.remove(other)
            self._has_answered = True
        self._asking.clear()

    def _accept(self) -> None:
        if self._turn is None:
            return
        # Accept a limited number: another user may connect again and again.
        for _ in range(_BACKLOG):
            if len(self._waiting) >= _MOST_CONNECTIONS:
                return
            try:
                with _fork_lock:
                    self._waiting.append(_kept(self._turn.accept()[0]))
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._drop_half()
                return
            if not _is_same_user(self._waiting[-1]):
                _close(self._waiting.pop())

    def _drop_half(self) -> None:
        """Close connections after the last descriptor was used: this process needs some to append."""
        for _ in range((len(self._waiting) + 1) // 2):
            # Its process wakes and asks again.
            _close(self._waiting.pop())

    def leave(self) -> None:
        """Give up the wait, or hand the turn to the process that waits longest."""
        self._stop_waiting()
        if self._turn is None:
            return
        try:
            self._hand_over(self._turn)
        finally:
            # Close all sockets, also after an interrupt: its traceback may keep this object alive.
            for each in (self._turn, *self._waiting):
                _close(each)
            self._turn, self._waiting = None, []

    def _hand_over(self, turn: socket.socket) -> None:
        is_crowded = self._has_answered or bool(self._waiting)
        self._accept()
        for watching in [each for each in self._waiting if _peek(each) == _ONLY_WATCHES]:
            self._waiting.remove(watching)
            _close(watching)
        self._queue.is_crowded = is_crowded or len(self._waiting) > 1
        while self._waiting:
            is_told = _tell(self._waiting[0], _YOUR_TURN, self.newest, turn, *self._waiting[1:])
            del self._waiting[0]
            if is_told:
                return
            # That process has died or has left.


def _new_socket() -> socket.socket:
    with _fork_lock:
        return _kept(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC))


def _kept(opened: socket.socket) -> socket.socket:
    opened.setblocking(False)
    _open_sockets.add(opened)
    return opened


def _close(opened: socket.socket) -> None:
    with _fork_lock:
        opened.close()


def _peek(other: socket.socket) -> bytes:
    """Read a message without removing it. If it is not used now, the next holder of the turn reads it."""
    try:
        return other.recv(LARGEST_MESSAGE_BYTES, socket.MSG_PEEK)
    except OSError:
        return b""


def _tell(other: socket.socket, word: bytes, newest: bytes, *sockets: socket.socket) -> bool:
    """Send an answer to a process that waits, and close the connection. Return False if that process is gone.

    Args:
        newest: records to hand over, at most ``LARGEST_MESSAGE_BYTES``. They are left out if the system does not send
            a message of this size.
    """
    descriptors = [each.fileno() for each in sockets]
    try:
        with contextlib.suppress(BlockingIOError):
            # The other end would lose the answer if a message were left unread.
            if other.recv(LARGEST_MESSAGE_BYTES) == _ONLY_WATCHES:
                return False
        try:
            socket.send_fds(other, [word, b"\n", newest], descriptors)
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
            socket.send_fds(other, [word], descriptors)
    except OSError:
        return False
    finally:
        _close(other)
    return True


def _receive(holder: socket.socket) -> tuple[bytes, list[socket.socket], bool]:
    """Return an answer, the sockets that come with it, and True if this process could not open all of them."""
    descriptors = array.array("i")
    # ``socket.recv_fds`` ignores its flags. Without this flag, programs that this process starts inherit the turn.
    answer, attached, flags, _ = holder.recvmsg(
        _LARGEST_ANSWER_BYTES, socket.CMSG_LEN((_MOST_CONNECTIONS + 1) * descriptors.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, found in attached:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(found[: len(found) - len(found) % descriptors.itemsize])
    received = [_kept(socket.socket(fileno=each)) for each in descriptors]
    return answer, received, bool(flags & socket.MSG_CTRUNC)


def _is_same_user(connection: socket.socket) -> bool:
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(peer)[1] == os.geteuid())


def _is_ready(connection: socket.socket, patience_ms: int) -> bool:
    """Wait until there is a message, or the other end closes the connection."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(patience_ms))
