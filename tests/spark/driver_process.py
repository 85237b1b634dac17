"""Run a Spark driver as a victim: in a session of processes of its own, of which none is left at the end.

A driver is several processes (its Python, the JVM, Python workers and the daemon that forks them). When one of them is
killed the others are orphaned and take a moment to notice. What the store holds can be judged only after the last has
gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from tests.spark.local_spark import REPOSITORY, python_environment


class DriverProcess:
    """A driver script in its own session of processes; a context manager that ends whatever is left of it.

    ``output`` is a file that takes stdout and stderr of all its processes. ``environment`` adds to that of the tests.
    """

    def __init__(
        self, script: Path, *arguments: str, output: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._output = output
        with output.open("wb") as sink:
            self._python = subprocess.Popen(
                [sys.executable, str(script), *arguments],
                cwd=REPOSITORY,
                env=os.environ | python_environment() | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def output(self) -> str:
        """What the driver's processes have printed so far."""
        return self._output.read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        """The living processes of the driver, orphans included: parents change, the session does not.

        Each has its name and status in ``info``, as they were when it was found: it may end at any moment.
        """
        return [process for process in psutil.process_iter(["name", "status"]) if self._is_member(process)]

    def jvm(self) -> psutil.Process | None:
        """The driver's JVM, if it runs."""
        return next((process for process in self.processes() if process.info["name"] == "java"), None)

    def wait(self, *, timeout_s: float = 400, orphans_s: float = 30) -> int:
        """Wait for the driver's Python, then for all its other processes; the exit code, negative if by a signal.

        Raises ``TimeoutError`` with the output if the driver does not end within ``timeout_s`` seconds. Orphans that
        have not ended ``orphans_s`` seconds later are killed.
        """
        try:
            code = self._python.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"the driver did not end within {timeout_s} s; it printed:\n{self.output}") from None
        self._wait_for_all(orphans_s)
        self.kill()
        return code

    def kill(self) -> None:
        """SIGKILL every process of the driver, and wait until all are gone."""
        while members := self.processes():
            for process in members:
                try:
                    process.send_signal(signal.SIGKILL)
                except psutil.NoSuchProcess:
                    continue
            self._wait_for_all(5)
        self._python.wait()

    def _wait_for_all(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _is_member(self, process: psutil.Process) -> bool:
        try:
            # A zombie does nothing any more; it only waits for its parent to read its exit code.
            return os.getsid(process.pid) == self._python.pid and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False


StartDriver = Callable[..., DriverProcess]
"""``start_driver(script_text, *arguments, **environment)``: the fixture of that name."""

_RUN_IN_A_DIRECTORY = """
    import os, runpy, sys
    os.chdir(sys.argv[1])
    runpy.run_path("page.py", run_name="__main__")
"""


def run_page(start_driver: StartDriver, blocks: Sequence[str], directory: Path, *, timeout_s: float = 400) -> str:
    """Run the Python blocks of a page as one program in a new directory, and return what it printed.

    Raises:
        AssertionError: the program failed.
    """
    directory.mkdir()
    (directory / "page.py").write_text("\n".join(blocks))
    driver = start_driver(_RUN_IN_A_DIRECTORY, str(directory))
    assert driver.wait(timeout_s=timeout_s) == 0, driver.output
    return driver.output
