"""The values of options: one rule for each kind, whether an argument, a configuration or a setting gives the value.

The annotation of an option names its kind, as ``Count | None`` does. A plain ``int`` or ``str`` has no rule here: it
names something in the store, such as a slot or a topic, and the call checks it against the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from eoslog.errors import InvalidOption, is_whole_number, quoted

LARGEST = 2**63 - 1
"""The largest number that the formats of eoslog, Arrow and Spark hold. Kafka writes "no limit" like this."""

Count: TypeAlias = int
"""A whole number of 1 or more."""
Natural: TypeAlias = int
"""A whole number of 0 or more."""
Integer: TypeAlias = int
"""A whole number."""
SessionTimeout: TypeAlias = int
"""The time without a poll after which a member may be evicted (ms)."""
TransactionTimeout: TypeAlias = int
"""A timeout of transactions (ms). The rules of transactions limit it."""

SHORTEST_SESSION_TIMEOUT_MS = 6_000
LONGEST_SESSION_TIMEOUT_MS = 1_800_000


class _Bounds(NamedTuple):
    least: int
    most: int = LARGEST


_BOUNDS = {
    "Count": _Bounds(1),
    "Natural": _Bounds(0),
    "Integer": _Bounds(-LARGEST - 1),
    "SessionTimeout": _Bounds(SHORTEST_SESSION_TIMEOUT_MS, LONGEST_SESSION_TIMEOUT_MS),
}
_OR_NONE = " | None"
_KINDS = frozenset({"bool", "TransactionTimeout", *_BOUNDS})


def kinds_of(annotations: Mapping[str, object]) -> dict[str, str]:
    """Return the annotations of the options whose kind has a rule."""
    found = {name: str(annotation) for name, annotation in annotations.items()}
    return {name: kind for name, kind in found.items() if kind.removesuffix(_OR_NONE) in _KINDS}


def read_option(kind: str, value: Any) -> Any:
    """Return the value of a text, as Kafka's clients read numbers and booleans. Other values stay as they are.

    Args:
        kind: the annotation of the option.
    """
    if not isinstance(value, str):
        return value
    if kind.startswith("bool"):
        return {"true": True, "false": False}.get(value.strip().lower(), value)
    try:
        return int(value)
    except ValueError:
        return value


def checked_option(name: str, kind: str, value: Any) -> Any:
    """Return the value of an option, read if it is a text.

    Args:
        name: the option, for messages.
        kind: its annotation. It is one of those that ``kinds_of`` returns.

    Raises:
        InvalidOption: the value is not of this kind. No other value is converted: truthiness would read ``"false"`` as
            true.
    """
    value = read_option(kind, value)
    base = kind.removesuffix(_OR_NONE)
    if value is None and base != kind:
        return value
    if base == "bool":
        if not isinstance(value, bool):
            raise InvalidOption(f"{name} is {quoted(value)}; it must be true or false")
    elif base in _BOUNDS:
        bounds = _BOUNDS[base]
        if not is_whole_number(value) or not bounds.least <= value <= bounds.most:
            if bounds.most < LARGEST:
                raise InvalidOption(f"{name} must be {bounds.least} to {bounds.most}, not {quoted(value)}")
            form = "a whole number" if bounds.least < 0 else f"a whole number, {bounds.least} or more"
            raise InvalidOption(f"{name} is {quoted(value)}; it must be {form}")
    return value
