"""The page on backups: its examples and the restore drill run, one after the other."""

from __future__ import annotations

from pathlib import Path

import eoslog
from tests.pages import REPOSITORY, fenced_blocks, run_commands, run_examples

PAGE = REPOSITORY / "docs/backup.md"


def test_the_examples_and_the_drill_run(tmp_path: Path) -> None:
    *before, after = fenced_blocks(PAGE, "python")

    run_examples(before, tmp_path)
    assert run_commands(PAGE, tmp_path) == 8
    run_examples(["import eoslog", after], tmp_path)

    backup = eoslog.connect(tmp_path / "backups/shop-of-monday")
    assert backup.scan("orders").to_table().num_rows == 6
    assert eoslog.connect(tmp_path / "shop-restored").scan("orders").to_table().num_rows == 7
