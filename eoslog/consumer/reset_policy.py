"""The policies for a position that is not committed, or that was deleted (Kafka's ``auto.offset.reset``)."""

from __future__ import annotations

from datetime import timedelta

from eoslog.errors import InvalidOption
from eoslog.session.metrics import parse_duration
from eoslog.wording import quoted

ResetPolicy = str | timedelta
"""``earliest``, ``latest`` or ``none``; or a duration: start at the rows of the last hour, for example (KIP-1106)."""
_NAMES = ("earliest", "latest", "none")
_BY_DURATION = "by_duration:"


def parse_reset_policy(given: object) -> ResetPolicy:
    """Return the policy that ``auto_offset_reset`` names.

    Raises:
        InvalidOption: it names none.
    """
    if isinstance(given, str):
        if given in _NAMES:
            return given
        if given.startswith(_BY_DURATION):
            try:
                return parse_duration(given.removeprefix(_BY_DURATION))
            except ValueError as error:
                raise InvalidOption(f"auto_offset_reset {quoted(given)}: {error}") from None
    raise InvalidOption(
        f"auto_offset_reset {quoted(given)} is unknown; it is one of: {', '.join(_NAMES)}, or a duration such as "
        f"{_BY_DURATION}PT1H"
    )
