"""A soak of half a minute, without Spark: processes, faults and verdict work together. It has no limit but a hang's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_short_soak_is_exact_and_leaves_its_reports(tmp_path: Path) -> None:
    folder = tmp_path / "soak"

    ended = _run("tests.soak.run", "--minutes", "0.5", "--seed", "7", "--no-spark", "--folder", str(folder))

    assert ended.returncode == 0, ended.stdout
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["verdict"] == "EXACT"
    assert summary["rows"]["orders"] == summary["rows"]["invoices"] > 0
    assert all(summary["versions of Delta tables"].values())
    assert all(summary["versions of Iceberg tables"].values())
    assert summary["rows acknowledged to Python producers"] > 0
    assert (folder / "soak.png").read_bytes().startswith(b"\x89PNG")
    checked = _run("tests.checker", str(folder / "judged.jsonl"))
    assert checked.returncode == 0, checked.stdout


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
