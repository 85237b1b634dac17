"""How much a test draws or sweeps: few examples and points in ``make test``, many in ``make test-deep``."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest
from hypothesis import settings

_QUICK, _DEEP = 25, 250


def register_profiles() -> None:
    """Register Hypothesis' profiles ``quick`` and ``deep``.

    Both draw the same examples each time, and have no deadline.
    """
    for name, count in (("quick", _QUICK), ("deep", _DEEP)):
        settings.register_profile(name, settings.get_profile("ci"), max_examples=count)


def examples(quick: int) -> settings:
    """Return settings for a property whose examples take long.

    Args:
        quick: the number of examples under the profile ``quick``. Another profile has more in proportion.
    """
    return settings(max_examples=quick * settings().max_examples // _QUICK)


def sweep(points: Iterable[Any], quick: Container[Any]) -> list[Any]:
    """Return the points of a sweep as parameters of a test. All but the quick ones are slow."""
    return [point if point in quick else pytest.param(*_parameters(point), marks=pytest.mark.slow) for point in points]


def _parameters(point: Any) -> tuple[Any, ...]:
    return point if type(point) is tuple else (point,)
