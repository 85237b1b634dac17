"""The rules for the values of options: one rule for each kind of option.

The rule is the same for an argument, a key of a configuration and a setting. The annotation of an option names its
kind, as ``Count | None`` does. An option with the annotation ``int`` or ``str`` has no rule here. It names something in
the store, such as a slot or a topic, and the call checks it against the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard

from eoslog.errors import InvalidOption
from eoslog.wording import quoted

Count: TypeAlias = int
"""A whole number of 1 or more."""
Natural: TypeAlias = int
"""A whole number of 0 or more."""
Integer: TypeAlias = int
"""A whole number."""
SessionTimeout: TypeAlias = int
"""The time without a poll after which a member may be evicted (ms)."""
TimeLimit: TypeAlias = int
"""A time limit (ms), 1 or more. It may exceed 64 bits: a program may give a huge number for no limit."""
TransactionTimeout: TypeAlias = int
"""A timeout of transactions (ms). The rules of transactions limit it."""

DEFAULT_SESSION_TIMEOUT_MS = 45_000
SHORTEST_SESSION_TIMEOUT_MS = 6_000
LONGEST_SESSION_TIMEOUT_MS = 1_800_000


_LEAST = {"Count": 1, "Natural": 0, "Integer": None}
_OR_NONE = " | None"
_KINDS = frozenset({"bool", "SessionTimeout", "TimeLimit", "TransactionTimeout", *_LEAST})


def is_whole_number(value: object) -> TypeGuard[int]:
    """Return True for an integer of 64 bits. A boolean is none, although Python counts it as one."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def kinds_of(annotations: Mapping[str, object]) -> dict[str, str]:
    """Return the annotations of the options whose kind has a rule."""
    found = {name: str(annotation) for name, annotation in annotations.items()}
    return {name: kind for name, kind in found.items() if kind.removesuffix(_OR_NONE) in _KINDS}


def read_option(kind: str, value: Any) -> Any:
    """Return the value of a text, as Kafka's clients read numbers and booleans. Other values stay as they are.

    A configuration, a setting and an option of an object store may be texts.

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
    """Return the value of an option.

    Args:
        name: the option, for messages.
        kind: its annotation. It is one of those that ``kinds_of`` returns.

    Raises:
        InvalidOption: the value is not of this kind. Nothing is converted: truthiness would read ``"false"`` as true.
    """
    base = kind.removesuffix(_OR_NONE)
    if value is None and base != kind:
        return value
    match base:
        case "bool":
            if not isinstance(value, bool):
                raise InvalidOption(f"{name} is {quoted(value)}; it must be true or false")
        case "SessionTimeout":
            least, most = SHORTEST_SESSION_TIMEOUT_MS, LONGEST_SESSION_TIMEOUT_MS
            if not is_whole_number(value) or not least <= value <= most:
                raise InvalidOption(f"{name} must be {least} to {most}, not {quoted(value)}")
        case "TimeLimit":
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidOption(f"{name} is {quoted(value)}; it must be a whole number of ms, 1 or more")
        case "Count" | "Natural" | "Integer":
            at_least = _LEAST[base]
            if not is_whole_number(value) or (at_least is not None and value < at_least):
                more = "" if at_least is None else f", {at_least} or more"
                raise InvalidOption(f"{name} is {quoted(value)}; it must be a whole number{more}")
    return value
