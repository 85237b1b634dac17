"""Python programs that tests start as processes of their own.

The modules of the library take a second to import. So each program is a fork of one process that has imported them and
has done nothing else. The interpreter of a program ends as that of any other program does.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from select import select
from types import ModuleType, TracebackType
from typing import Self

_REPOSITORY = Path(__file__).resolve().parents[1]
_LONGEST_S = 120


class Program:
    """A running program: the parts of ``subprocess.Popen`` that tests use."""

    def __init__(
        self, text: str, *arguments: str, directory: Path | None = None, stdout: int = subprocess.PIPE
    ) -> None:
        """Start a program.

        Args:
            text: the program.
            arguments: what it finds in ``sys.argv`` behind its name.
            directory: its working directory. None: that of this process.
            stdout: a file descriptor for its output. By default ``self.stdout`` is a pipe from there.
        """
        request = {
            "text": text,
            "arguments": arguments,
            "directory": str(directory or Path.cwd()),
            "environment": dict(os.environ),
        }
        output, own_output = os.pipe()
        errors, own_errors = os.pipe()
        status, own_status = os.pipe()
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(request).encode())
            file.seek(0)
            used_output = own_output if stdout == subprocess.PIPE else stdout
            socket.send_fds(_server(), [b"\0"], [file.fileno(), used_output, own_errors, own_status])
        for each in (own_output, own_errors, own_status):
            os.close(each)
        self.stdout = os.fdopen(output, "rb")
        self.stderr = os.fdopen(errors, "rb")
        self._status = os.fdopen(status, "rb")
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self.wait()
        for file in (self.stdout, self.stderr, self._status):
            file.close()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if self.returncode is None:
            self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = _LONGEST_S) -> int:
        """Return the status with which the program ends: below zero the number of a signal."""
        if self.returncode is None:
            if not select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a program", timeout)
            self.returncode = int(self._status.readline())
        return self.returncode

    def communicate(self, timeout: float = _LONGEST_S) -> tuple[bytes, bytes]:
        """Return what the program has written to both of its outputs until it ended."""
        found: dict[io.BufferedReader, bytes] = {}
        readers = [
            threading.Thread(target=lambda file=file: found.update({file: file.read()}), daemon=True)
            for file in (self.stdout, self.stderr)
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return found[self.stdout], found[self.stderr]


def ran(text: str, *arguments: str, directory: Path | None = None) -> tuple[int, str, str]:
    """Run a program to its end. Return its status and what it wrote to both of its outputs."""
    with Program(text, *arguments, directory=directory) as program:
        output, errors = program.communicate()
        return program.wait(), output.decode(), errors.decode()


@cache
def _server() -> socket.socket:
    """Start the process of which programs are forks. It ends when this process has ended."""
    own, theirs = socket.socketpair()
    with theirs:
        subprocess.Popen(
            [sys.executable, "-c", f"from tests.programs import serve; serve({theirs.fileno()})"],
            cwd=_REPOSITORY,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
    return own


def serve(descriptor: int) -> None:
    """Start a program for each request. Only the processes of programs return, at the end of their programs."""
    import pyarrow as pa

    import eoslog.cli.gateway
    import eoslog.cli.store_commands
    import eoslog.store  # noqa: F401

    pa.array([])  # imports pandas
    gc.freeze()  # The collections at the end of a program need not look at what was imported.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    while files := socket.recv_fds(control, 1, 4)[1]:
        if os.fork() == 0:
            control.close()
            return _run(*files)
        for file in files:
            os.close(file)
    os._exit(0)


def _run(request: int, output: int, errors: int, status: int) -> None:
    """Run a program in a fork of this process, which waits for its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    program = os.fork()
    if program != 0:
        os.close(output)
        os.close(errors)
        os.write(status, b"%d\n" % program)
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]))
        os._exit(0)
    os.close(status)
    for file, place in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (errors, 2)):
        os.dup2(file, place)
        os.close(file)
    with open(request, "rb") as asked:
        wanted = json.load(asked)
    os.chdir(wanted["directory"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv = ["-c", *wanted["arguments"]]
    # A shell that starts tests in the background has them ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.modules["__main__"] = module = ModuleType("__main__")
    exec(compile(wanted["text"], "<string>", "exec"), vars(module))
