"""How many examples a property draws: few in ``make test``, ten times as many in ``make test-deep``."""

from __future__ import annotations

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
