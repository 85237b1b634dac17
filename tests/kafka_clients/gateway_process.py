"""A gateway in a process of its own, which tests kill and start again at the same address."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_END_S = 30
_READY = re.compile(r"Kafka's clients: (\S+);")


class GatewayProcess:
    """A gateway that may be killed and started again."""

    def __init__(self, store_url: str, log: Path, *, options: tuple[str, ...], variables: Mapping[str, str]) -> None:
        """
        Args:
            log: a file for the standard error of all its processes.
            options: options of ``eoslog gateway``.
            variables: environment variables with which the process finds the store.
        """
        self.store_url = store_url
        self.log = log
        self._options = options
        self.variables = variables
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _PATHS)), **variables}
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def servers(self) -> str:
        """The address of the gateway (``bootstrap.servers``)."""
        return self._listen

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the gateway at the address that it had before, and wait until it listens."""
        command = [sys.executable, "-m", "eoslog.main", "--store", self.store_url, "gateway"]
        with self.log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                [*command, "--listen", self._listen, *self._options],
                cwd=REPOSITORY,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.starts += 1
        self._listen = self._address(begin)

    def _address(self, begin: int) -> str:
        assert self._process is not None
        while True:
            with self.log.open("rb") as log:
                log.seek(begin)
                said = log.read().decode(errors="replace")
            if found := _READY.search(said):
                return found[1]
            if self._process.poll() is not None:
                raise RuntimeError(f"the gateway ended with exit code {self._process.returncode}: {said[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End the gateway with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(_END_S)

    def stop(self) -> int:
        """End the gateway with SIGTERM, and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


_PATHS = (REPOSITORY, REPOSITORY / "spark_ext")
_GATEWAYS = 3
_RESTARTED_EVERY_S = 4


class RollingGateways(GatewayProcess):
    """Three gateways in front of a store. Each is ended by SIGTERM and started again, one after the other, for ever.

    To tests they look like one gateway. A kill ends the one whose turn it is.
    """

    def __init__(self, store_url: str, directory: Path, *, options: tuple[str, ...]) -> None:
        """
        Args:
            directory: a directory for the standard error of the gateways.
        """
        super().__init__(store_url, directory / "gateway.log", options=options, variables={})
        self._gateways = [
            GatewayProcess(store_url, directory / f"gateway-{number}.log", options=options, variables={})
            for number in range(_GATEWAYS)
        ]
        self._turn = 0
        self._restarting = threading.Lock()
        """Held while a gateway does not run: the two others do."""
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._restarter = threading.Thread(target=self._restart_again, name="restarter")

    @property
    def pid(self) -> int:
        return self._gateways[self._turn].pid

    @property
    def servers(self) -> str:
        """The addresses of the gateways (``bootstrap.servers``)."""
        return ",".join(gateway.servers for gateway in self._gateways)

    def run(self) -> None:
        """Start the gateways, and restart them until ``close``."""
        for gateway in self._gateways:
            gateway.start()
        self.starts = 1
        self._restarter.start()

    def close(self) -> None:
        """End the gateways."""
        self._ended.set()
        self._restarter.join()
        for gateway in self._gateways:
            gateway.stop()
        if self._error is not None:
            raise self._error

    def kill(self) -> None:
        """End the gateway whose turn it is with SIGKILL. ``start`` follows."""
        self._restarting.acquire()
        self._gateways[self._turn].kill()

    def start(self) -> None:
        """Start the gateway that was ended."""
        self._start_ended()
        self._restarting.release()

    def _start_ended(self) -> None:
        self._gateways[self._turn].start()
        self._turn = (self._turn + 1) % _GATEWAYS
        self.starts += 1

    def _restart_again(self) -> None:
        try:
            while not self._ended.wait(_RESTARTED_EVERY_S):
                with self._restarting:
                    code = self._gateways[self._turn].stop()
                    assert code == 0, f"gateway {self._turn} ended with exit code {code}"
                    self._start_ended()
        except BaseException as error:
            self._error = error


@contextmanager
def rolling_gateways(store_url: str, directory: Path, *options: str) -> Iterator[RollingGateways]:
    """Run three gateways that are restarted in turn until the block ends."""
    gateways = RollingGateways(store_url, directory, options=options)
    gateways.run()
    try:
        yield gateways
    finally:
        gateways.close()


@contextmanager
def running_gateway(
    store_url: str, log: Path, *options: str, variables: Mapping[str, str] | None = None
) -> Iterator[GatewayProcess]:
    """Run a gateway at a free port until the block ends.

    Args:
        log: a file for its standard error.
        options: options of ``eoslog gateway``.
        variables: environment variables with which the process finds the store.
    """
    gateway = GatewayProcess(store_url, log, options=options, variables=variables or {})
    gateway.start()
    try:
        yield gateway
    finally:
        code = gateway.stop()
        assert code == 0, f"the gateway ended with exit code {code}: {log.read_text(errors='replace')[-2000:]}"


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process for the time of the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def killed_every(
    gateway: GatewayProcess, seconds: float, *, progress: Callable[[], int] | None = None
) -> Iterator[None]:
    """Kill a gateway again and again, and start it again at once, until the block ends. Then it runs.

    Args:
        progress: how much the clients have done. A gateway is killed only after a client has done something with it, so
            that clients get on even if the machine is busy.
    """
    ended = threading.Event()
    errors: list[BaseException] = []

    def kill_again() -> None:
        try:
            done = 0
            while not ended.wait(seconds):
                if progress is None or progress() > done:
                    gateway.kill()
                    gateway.start()
                    done = 0 if progress is None else progress()
        except BaseException as error:
            errors.append(error)

    killer = threading.Thread(target=kill_again, name="killer")
    killer.start()
    try:
        yield
    finally:
        ended.set()
        killer.join()
    if errors:
        raise errors[0]
