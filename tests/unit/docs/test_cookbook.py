"""The cookbook's examples are one program. Its commands then run on the store that the program made."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.pages import REPOSITORY, fenced_blocks

PAGE = REPOSITORY / "docs/cookbook.md"


def test_the_examples_and_commands_of_the_page_run(tmp_path: Path) -> None:
    commands = [line[2:] for block in fenced_blocks(PAGE, "console") for line in block.splitlines()]
    assert len(commands) == 3

    for command in [
        ["-c", "\n".join(fenced_blocks(PAGE, "python"))],
        *(["-m", "eoslog.cli.main", *shlex.split(each)[1:]] for each in commands),
    ]:
        subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            timeout=120,
            check=True,
        )
