"""Durations as text."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eoslog.session.metrics import parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P7D", timedelta(days=7)),
        ("PT1H30M", timedelta(minutes=90)),
        ("p1dt0.5s", timedelta(days=1, milliseconds=500)),
        ("PT0S", timedelta()),
    ],
)
def test_a_duration_is_read(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "P1DT", "PT1D", "P1Y", "PT-1H", "P999999999999D", "P1D "])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|too long"):
        parse_duration(text)
