"""The S3 server of a soak, and the bad network in front of it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

_PATIENCE_S = 60
_SCRIPT = Path(__file__).resolve().parents[2] / "conf" / "s3_server.sh"
BUCKET = "eoslog"


class ObjectServer:
    """An S3 server on this machine and a proxy before it, each a process; a context manager that ends both."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._server = self._start("server", str(_SCRIPT), "run", str(folder / "s3"))
        # It says a word when it has started, and ends when nobody holds its standard input any more.
        if self._server.stdout is None or self._server.stdout.readline() != b"started\n":
            raise RuntimeError(f"the S3 server did not start; see {folder / 'server.log'}")
        os.environ |= _variables(folder / "s3" / "environment")
        self.direct_url = os.environ.pop("AWS_ENDPOINT_URL")
        address = folder / "network"
        self._network = self._start(
            "network", sys.executable, "-m", "tests.soak.network", self.direct_url, str(seed), str(address)
        )
        deadline = time.monotonic() + _PATIENCE_S
        while not address.exists() or not address.read_text():
            if time.monotonic() > deadline:
                raise TimeoutError("the network did not come up; see its log")
            time.sleep(0.1)
        self.url = address.read_text()

    def __enter__(self) -> ObjectServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._network.kill()
        self._network.wait()
        self._server.communicate()

    def calm(self) -> None:
        """From here on the network only forwards."""
        self._network.send_signal(signal.SIGUSR1)

    def faults(self) -> dict[str, int]:
        """What the network did, by kind."""
        lines = (self._folder / "network.faults").read_text().splitlines()
        return {name: int(count) for count, _, name in (line.partition(" ") for line in lines)}

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)


def _variables(file: Path) -> dict[str, str]:
    """What a shell would export on reading the file."""
    words = shlex.split(file.read_text())
    return dict(word.split("=", 1) for word in words if "=" in word)
