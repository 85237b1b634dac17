"""Each mutation is caught by a history, the one that was written down or one soon after, that passes without it."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.pages import REPOSITORY, table_rows
from tests.simulation.mutations import page
from tests.simulation.mutations.catalog import BY_HISTORIES, BY_UNIT_TESTS, MUTATIONS
from tests.simulation.mutations.hunt import Catch, hunt, run_history
from tests.simulation.mutations.page import PAGE, recorded

MOST_HISTORIES = 60
"""The recorded one is the first of them. A change of the simulation makes another history of it."""

BROKEN_CODE = re.compile(r"^E +(?:TypeError|AttributeError|NameError|ImportError)\b", re.MULTILINE)
"""A mutation that does not fit the code any more is none."""


@cache
def caught(name: str) -> Catch | None:
    return hunt(BY_HISTORIES[name], first_seed=recorded()[name].seed, most_histories=MOST_HISTORIES)


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_mutation_fits_the_code(name: str) -> None:
    with MUTATIONS[name].applied():
        pass


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_HISTORIES)
def test_a_history_catches_the_mutation_and_passes_without_it(name: str) -> None:
    catch = caught(name)

    assert catch is not None
    assert run_history(catch.seed, BY_HISTORIES[name].focus) is None


def test_an_error_without_the_expected_text_is_no_catch() -> None:
    mutation = BY_HISTORIES["not_found_taken_for_absent"]
    catch = caught(mutation.name)
    assert catch is not None
    assert "one append" in catch.error
    of_another_kind = replace(mutation, shows="is missing")

    assert hunt(of_another_kind, first_seed=catch.seed, most_histories=1) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_UNIT_TESTS)
def test_a_unit_test_catches_the_mutation(name: str) -> None:
    test = f"tests/{BY_UNIT_TESTS[name].unit_test}"
    under = [sys.executable, "-m", "tests.simulation.mutations", "--apply", name, test]

    done = subprocess.run(under, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    # The exit code of an error outside of pytest is the same.
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert not BROKEN_CODE.search(done.stdout), done.stdout


def test_the_page_has_every_mutation_with_its_rule() -> None:
    for table, mutations in (("histories", BY_HISTORIES), ("unit tests", BY_UNIT_TESTS)):
        rows = [tuple(row[:3]) for row in table_rows(PAGE, table)]

        assert rows == [(f"`{name}`", each.rule, each.breaks) for name, each in mutations.items()]


def test_the_pages_state_how_many_mutations_there_are() -> None:
    both, histories, unit_tests = len(BY_HISTORIES) + len(BY_UNIT_TESTS), len(BY_HISTORIES), len(BY_UNIT_TESTS)
    own = " ".join(PAGE.read_text(encoding="utf-8").split())
    reliability = PAGE.with_name("reliability.md").read_text(encoding="utf-8")

    assert f"So {both} rules of" in own
    assert f"simulation (`make simulate`) show {histories} of them" in own
    assert f"each of the other {unit_tests}" in own
    assert f"{both} rules left out, one at a time: {histories} caught by histories" in reliability


def test_hunts_that_write_the_page_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / PAGE.name)
    page.PAGE.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")

    with ThreadPoolExecutor(8) as hunts:
        list(hunts.map(lambda name: page.record(name, Catch(7, 8, "it broke")), BY_HISTORIES))

    assert {name: each[:3] for name, each in page.recorded().items()} == dict.fromkeys(BY_HISTORIES, ("it broke", 7, 8))
    assert [path.name for path in tmp_path.iterdir()] == [PAGE.name]
