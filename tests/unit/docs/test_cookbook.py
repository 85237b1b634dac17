"""The cookbook's examples are one program. Its commands then run on the store that the program made."""

from __future__ import annotations

from pathlib import Path

from tests.pages import REPOSITORY, fenced_blocks, run_commands, run_examples

PAGE = REPOSITORY / "docs/cookbook.md"


def test_the_examples_and_commands_of_the_page_run(tmp_path: Path) -> None:
    run_examples(fenced_blocks(PAGE, "python"), tmp_path)

    assert run_commands(PAGE, tmp_path) == 3
