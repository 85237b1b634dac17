"""The command ``eoslog`` as tests run it, on one store."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from eoslog.main import cli
from tests.programs import Program

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
        self, *arguments: str, stdout: int = subprocess.PIPE, largest_file: int = resource.RLIM_INFINITY
    ) -> Program:
        """The command as a process of its own, which the caller ends; its files end at ``largest_file`` bytes."""
        program = f"""
import resource
from eoslog.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({largest_file}, {largest_file}))
main()
"""
        return Program(program, "--store", self.url, *arguments, stdout=stdout)
