"""Durations as text (ISO 8601), as Kafka's options take them: ``PT1H30M``, ``P7D``."""

from __future__ import annotations

import re
from datetime import timedelta

_DURATION = re.compile(
    r"P(?=[0-9T])(?:(?P<days>[0-9]+)D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+(?:\.[0-9]{1,6})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


def parse_duration(text: str) -> timedelta:
    """A duration of days, hours, minutes and seconds.

    Raises:
        ValueError: the text is none, or it is longer than can be counted.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration as PT1H30M or P7D (ISO 8601)")
    try:
        return timedelta(**{unit: float(count) for unit, count in found.groupdict().items() if count is not None})
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None
