"""The object store of a soak, a server on this machine, and the bad network in front of it."""

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
_CONF = Path(__file__).resolve().parents[2] / "conf"
BUCKET = "eoslog"
KINDS_OF_SERVERS = {"s3": "s3_server.sh", "gs": "gcs_server.sh", "az": "azure_server.sh"}
"""The scripts that run them, by the scheme of their URLs."""


class ObjectServer:
    """A server on this machine and a proxy before it, each a process; a context manager that ends both."""

    def __init__(self, kind: str, folder: Path, seed: int) -> None:
        self._folder = folder
        self._server = self._start("server", str(_CONF / KINDS_OF_SERVERS[kind]), "run", str(folder / "server"))
        # It says a word when it has started, and ends when nobody holds its standard input any more.
        if self._server.stdout is None or self._server.stdout.readline() != b"started\n":
            raise RuntimeError(f"the server did not start; see {folder / 'server.log'}")
        os.environ |= _variables(folder / "server" / "environment")
        self.direct_url, path = _address(kind)
        address = folder / "network"
        self._network = self._start(
            "network", sys.executable, "-m", "tests.soak.network", kind, self.direct_url, str(seed), str(address)
        )
        deadline = time.monotonic() + _PATIENCE_S
        while not address.exists() or not address.read_text():
            if time.monotonic() > deadline:
                raise TimeoutError("the network did not come up; see its log")
            time.sleep(0.1)
        self.url = address.read_text() + path
        self.direct_url += path

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


def _address(kind: str) -> tuple[str, str]:
    """The URL of the server in the environment, and the path that belongs to the endpoint."""
    match kind:
        case "s3":
            return os.environ.pop("AWS_ENDPOINT_URL"), ""
        case "gs":
            return os.environ["STORAGE_EMULATOR_HOST"], ""
        case _:
            parts = os.environ["AZURE_STORAGE_CONNECTION_STRING"].split(";")
            (endpoint,) = (part.removeprefix("BlobEndpoint=") for part in parts if part.startswith("BlobEndpoint="))
            url, _, account = endpoint.rpartition("/")
            return url, f"/{account}"


def _variables(file: Path) -> dict[str, str]:
    """What a shell would export on reading the file."""
    words = shlex.split(file.read_text())
    return dict(word.split("=", 1) for word in words if "=" in word)
