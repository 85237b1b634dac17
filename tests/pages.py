"""The project's pages as tests see them: fenced blocks, tables, links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner

from eoslog.main import cli
from tests.programs import ran

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def fenced_blocks(page: Path, language: str) -> list[str]:
    """The texts of a page's fenced blocks in a language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    """The targets of a page's links."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made on GitHub."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def first_cells(page: Path, head: str) -> list[list[str]]:
    """What stands in backquotes in the first cell of each row of the table whose head begins with ``head``."""
    lines = prose(page).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {head} |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append(re.findall(r"`([^`]+)`", line.split("|")[1]))
    return found


def table_rows(page: Path, name: str) -> list[list[str]]:
    """The cells of the table that follows the comment ``<!-- table: name -->``, without its head."""
    (text,) = re.findall(rf"<!-- table: {re.escape(name)} -->\n((?:\|.*\n)+)", page.read_text(encoding="utf-8"))
    return [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in text.splitlines()][2:]


def python_block(with_spark: bool) -> str:
    """The README's Python block that does, or does not, need Spark."""
    (found,) = [block for block in fenced_blocks(PAGES[0], "python") if ("pyspark" in block) == with_spark]
    return found


def run_examples(blocks: Sequence[str], directory: Path) -> None:
    """Run Python blocks one after the other, as one program in a directory."""
    status, _, errors = ran("\n".join(blocks), directory=directory)
    assert status == 0, errors


def run_commands(page: Path, directory: Path) -> int:
    """Run the commands ``eoslog`` of a page's console blocks in a directory. Return their number."""
    commands = [line[2:] for block in fenced_blocks(page, "console") for line in block.splitlines()]
    for command in commands:
        run_command(command, directory)
    return len(commands)


def run_command(line: str, directory: Path) -> str:
    """Run a command ``eoslog`` in a directory and in this process: a process of its own takes a second to start.

    Returns:
        What it printed.
    """
    name, *arguments = shlex.split(line)
    assert name == "eoslog"
    with chdir(directory):
        done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, f"{line}: {done.output}"
    return done.stdout
