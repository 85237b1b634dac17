"""``docs/operations.md`` describes the coordinator's steps and the metrics as the code has them."""

from __future__ import annotations

import re
from dataclasses import fields

from eoslog.maintenance.coordinator import STEPS
from eoslog.session.metrics import StoreMetrics
from eoslog.session.settings import CoordinatorSettings
from eoslog.verification.findings import Kind
from tests.pages import REPOSITORY

PAGE = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
UNITS_MS = {"s": 1_000, "min": 60_000, "h": 3_600_000, "day": 86_400_000}


def rows(first_column: str) -> list[list[str]]:
    """The rows of the table whose head begins with this column."""
    (text,) = re.findall(rf"^\| {first_column} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_the_steps_their_settings_and_intervals_are_those_of_the_code() -> None:
    told = []
    for name, _, every, setting in rows("Step"):
        number, unit = every.split()
        told.append((name.strip("`"), setting.strip("`"), int(number) * UNITS_MS[unit]))

    defaults = CoordinatorSettings()
    assert told == [(step.name, step.setting, getattr(defaults, step.setting)) for step in STEPS]


def test_the_metrics_are_those_of_the_code() -> None:
    told = [name for row in rows("Metric") for name in re.findall(r"`(\w+)`", row[0])]

    assert sorted(told) == sorted(field.name for field in fields(StoreMetrics) if field.name != "slot")


def test_the_kinds_of_findings_are_those_of_the_code() -> None:
    told = [(name.strip("`"), *rest) for name, *rest in rows("Kind")]

    assert told == [(kind.value, kind.severity.value, kind.follows, kind.remedy) for kind in Kind]
