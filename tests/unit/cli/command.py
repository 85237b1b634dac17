"""The command ``eoslog`` as tests run it, on one store."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from eoslog.main import cli

REPOSITORY = Path(__file__).resolve().parents[3]


class Command:
    """Runs ``eoslog --store URL …``."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, *arguments: str, text: str | bytes | None = None) -> Result:
        """The result, whatever it is; no error of eoslog leaves the command as a traceback."""
        result = CliRunner().invoke(cli, ["--store", self.url, *arguments], input=text)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def ok(self, *arguments: str, text: str | bytes | None = None) -> str:
        """What it prints, if it succeeds."""
        result = self.run(*arguments, text=text)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str, text: str | bytes | None = None) -> Any:
        """What it prints with ``--json``."""
        return json.loads(self.ok(*arguments, "--json", text=text))

    def start(
        self, *arguments: str, stdout: int = subprocess.PIPE, largest_file: int | None = None
    ) -> subprocess.Popen[bytes]:
        """The command as a process of its own, which the caller ends; its files end at ``largest_file`` bytes."""

        def prepare() -> None:
            # A shell that starts tests in the background has them ignore Ctrl-C.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if largest_file is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

        return subprocess.Popen(
            [sys.executable, "-m", "eoslog.main", "--store", self.url, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            preexec_fn=prepare,
        )
