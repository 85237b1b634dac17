"""The page of conformance is what the tests say, and every scenario is answered."""

from __future__ import annotations

import pytest

from tests.conformance.differences import DIFFERENCES
from tests.conformance.page import PAGE, CollectedTest, collect, faults, render, unanswered
from tests.conformance.scenarios import FAMILIES, SCENARIOS


@pytest.fixture(scope="module")
def collected() -> list[CollectedTest]:
    return collect()


def test_a_number_stands_for_one_scenario() -> None:
    assert len(SCENARIOS) == sum(len(family.scenarios) for family in FAMILIES)


def test_a_difference_is_that_of_a_scenario() -> None:
    assert DIFFERENCES.keys() <= SCENARIOS.keys()


def test_every_test_names_scenarios_or_a_family_that_there_are(collected: list[CollectedTest]) -> None:
    assert faults(collected) == []


def test_every_scenario_has_a_test_or_a_reason(collected: list[CollectedTest]) -> None:
    assert {family.name: found for family in FAMILIES if (found := unanswered(family, collected))} == {}


def test_a_scenario_with_a_test_has_no_reason(collected: list[CollectedTest]) -> None:
    tested = {number for test in collected for number in test.scenarios}

    assert [number for number in tested if SCENARIOS[number].reason] == []


def test_the_page_is_what_the_tests_say(collected: list[CollectedTest]) -> None:
    assert PAGE.read_text(encoding="utf-8") == render(collected), "run `make conformance`"
