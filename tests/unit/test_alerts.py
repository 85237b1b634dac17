"""The alert rules fire when they must, and only then. Prometheus' own promtool evaluates them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pages import REPOSITORY

RULES = REPOSITORY / "conf/deploy/alerts.yml"
CASES = Path(__file__).with_name("alert_cases.yml")


@pytest.fixture(scope="module")
def promtool() -> str:
    """The path of promtool. It is not built here, as that takes minutes."""
    found = subprocess.run([REPOSITORY / "conf/promtool.sh", "find"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip()


def run(*command: object) -> tuple[int, str]:
    """The status of a command, and its output."""
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def alerts() -> list[Any]:
    return [rule for rule in parsed(RULES)["groups"][0]["rules"] if "alert" in rule]


def test_the_rules_are_valid(promtool: str) -> None:
    status, output = run(promtool, "check", "rules", RULES)

    assert status == 0, output


def test_each_alert_fires_in_its_cases_and_in_no_others(promtool: str) -> None:
    status, output = run(promtool, "test", "rules", CASES)

    assert status == 0, output


def test_cases_contradict_rules_that_never_fire(promtool: str, tmp_path: Path) -> None:
    rules, cases = parsed(RULES), parsed(CASES)
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = "vector(0) > 1"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(cases | {"rule_files": ["rules.yml"]}), encoding="utf-8")

    status, output = run(promtool, "test", "rules", tmp_path / "cases.yml")

    assert status != 0
    assert all(rule["alert"] in output for rule in alerts())


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    names = sorted(rule["alert"] for rule in alerts())
    cases = [case for each in parsed(CASES)["tests"] for case in each["alert_rule_test"]]

    assert sorted({case["alertname"] for case in cases if case.get("exp_alerts")}) == names
    assert sorted({case["alertname"] for case in cases if not case.get("exp_alerts")}) == names
