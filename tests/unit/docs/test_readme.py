"""The pages are right as they stand: examples run, links lead somewhere, options and names exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from eoslog.storage.s3_options import S3Options
from tests.pages import PAGES, REPOSITORY, anchors, fenced_blocks, first_cells, links, prose, python_block, run_command
from tests.programs import ran

README = REPOSITORY / "README.md"
SEMANTICS = REPOSITORY / "docs/semantics.md"
OPERATIONS = REPOSITORY / "docs/operations.md"
COMMANDS = [line[2:] for block in fenced_blocks(README, "console") for line in block.splitlines() if line[:2] == "$ "]


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, str, str]]:
    """The directory in which the README's Python example was run, and what came of it."""
    directory = tmp_path_factory.mktemp("quickstart")
    return directory, ran(python_block(with_spark=False), directory=directory)


def test_the_python_example_runs_and_prints_the_committed_record(quickstart: tuple[Path, tuple[int, str, str]]) -> None:
    _, result = quickstart

    assert result == (0, "payments 1 0 b'card-1' b'12.50'\n", "")


def test_each_python_example_of_the_semantics_runs_on_the_example_store(
    quickstart: tuple[Path, tuple[int, str, str]],
) -> None:
    directory, _ = quickstart
    blocks = fenced_blocks(SEMANTICS, "python")
    each = """
import eoslog, sys
for block in sys.argv[1:]:
    exec(block, {"eoslog": eoslog, "store": eoslog.connect("quickstart-store")})
    print("the end of a block")
"""

    status, output, errors = ran(each, *blocks, directory=directory)

    assert status == 0, errors
    assert all(printed.strip() for printed in output.split("the end of a block\n")[: len(blocks)])


def test_the_commands_run_one_after_the_other_on_the_example_store(
    quickstart: tuple[Path, tuple[int, str, str]],
) -> None:
    directory, _ = quickstart
    for line in COMMANDS:
        assert run_command(line, directory).strip(), line


def test_the_readme_shows_the_command_line() -> None:
    assert COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_each_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_each_path_of_the_project_that_a_page_names_exists(page: Path) -> None:
    rooms = "eoslog|spark_ext|tests|conf|docs|examples|benchmarks|schemas"
    for path in re.findall(rf"`((?:{rooms})/[\w./-]*)`", prose(page)):
        assert (REPOSITORY / path).exists(), f"{page.name} names {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_each_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

    named = re.findall(r"^make ([a-z0-9-]+)|`make ([a-z0-9-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)

    assert {first or second for first, second in named} <= targets


def test_the_options_of_spark_that_are_told_are_there() -> None:
    from pyspark_eoslog.options import NAMES

    told = set(re.findall(r'\.option\("(\w+)"', python_block(with_spark=True)))

    assert told
    assert told <= {*NAMES, "checkpointLocation"}


def test_the_options_of_an_s3_store_are_those_of_its_code() -> None:
    (row,) = [line for line in prose(OPERATIONS).splitlines() if line.startswith("| `s3://bucket/prefix`")]

    told = re.findall(r"`(\w+)`", row.split("|")[2])

    assert sorted(told) == sorted(field.name for field in fields(S3Options))


def test_the_crash_points_are_those_of_the_code() -> None:
    sources = [*(REPOSITORY / "eoslog").rglob("*.py"), *(REPOSITORY / "spark_ext").rglob("*.py")]
    known = {
        point
        for source in sources
        for point in re.findall(r'\.reached\(\s*"([^"]+)"', source.read_text(encoding="utf-8"))
    }

    told = {name for cell in first_cells(REPOSITORY / "CONTRIBUTING.md", "Point") for name in cell}

    assert told == known
