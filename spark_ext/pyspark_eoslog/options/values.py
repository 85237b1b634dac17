"""Values of options: numbers, booleans, texts, sizes and durations, as in Spark and its Kafka connector."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from eoslog.errors import InvalidOption
from eoslog.wording import quoted

_LARGEST = 2**63 - 1
_MOST_DIGITS = 100
_WITH_UNIT = re.compile(r"([0-9]+)([a-z]*)", re.ASCII)
_MICROSECONDS = {
    "us": 1,
    "": 1_000,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_BYTES = {"": 1, "b": 1} | {
    prefix + suffix: 1024**power for power, prefix in enumerate("kmgtp", start=1) for suffix in ("", "b")
}


def whole_number(options: Mapping[str, str], name: str, *, at_least: int, unit: str = "") -> int | None:
    """Return a whole number, or None if the option is not given. ``unit`` is for the message.

    Raises:
        InvalidOption: the value is not a whole number of at least ``at_least`` and at most 63 bits.
    """
    value = options.get(name.lower())
    if value is None:
        return None
    number = plain_number(value.strip())
    if number is None or number < at_least:
        raise InvalidOption(
            f"option {name!r} is {quoted(value)}; it must be a whole number{unit and f' of {unit},'} "
            f"of at least {at_least}"
        )
    return number


def plain_number(text: str) -> int | None:
    """Return the number of a text that consists of digits; None for other texts and for more than 63 bits."""
    # Python raises an error of its own for thousands of digits.
    if not text.isdecimal() or not text.isascii() or len(text) > _MOST_DIGITS:
        return None
    return number if (number := int(text)) <= _LARGEST else None


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return a boolean. Raises: InvalidOption: the value is neither ``true`` nor ``false``."""
    value = options.get(name.lower())
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise InvalidOption(f"option {name!r} is {quoted(value)}; it must be true or false")
    return value.strip().lower() == "true"


def text(options: Mapping[str, str], name: str) -> str | None:
    """Return a text unchanged. Raises: InvalidOption: it is empty."""
    value = options.get(name.lower())
    if value is not None and not value.strip():
        raise InvalidOption(f"option {name!r} is empty. Leave it out or give a value")
    return value


def names(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Return names, each once, in their order: with commas between them, or as a JSON array of strings.

    The array is for names with a comma, or with a blank at an end.

    Raises:
        InvalidOption: the value has no name.
    """
    value = options.get(name.lower())
    if value is None:
        return None
    listed = _strings(value)
    if listed is None:
        listed = [each.strip() for each in value.split(",") if each.strip()]
    if not listed:
        raise InvalidOption(
            f"option {name!r} is {quoted(value)}. Give names with commas between them, or as a JSON array"
        )
    return tuple(dict.fromkeys(listed))


def _strings(value: str) -> list[str] | None:
    """Return a JSON array of strings; None for other texts."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        return None
    return found


def size_bytes(options: Mapping[str, str], name: str) -> int | None:
    """Return a size in bytes, such as ``500k`` or ``64m``. Raises: InvalidOption: the value is not a size, or 0."""
    number = _with_unit(options, name, _BYTES, "a size such as 500k, 64m or 1g, or a number of bytes")
    if number == 0:
        raise InvalidOption(f"option {name!r} is {options[name.lower()]!r}; it must be at least one byte")
    return number


def duration_ms(options: Mapping[str, str], name: str) -> int | None:
    """Return a duration in ms, such as ``500ms`` or ``15m``. Raises: InvalidOption: the value is not a duration."""
    microseconds = _with_unit(
        options, name, _MICROSECONDS, "a time such as 500ms, 50s, 15m, 2h or 1d, or a number of ms"
    )
    return None if microseconds is None else microseconds // 1_000


def json_object(value: str) -> dict[str, Any] | None:
    """Return a JSON object; None for other texts and for an object with the same name twice."""
    try:
        found = json.loads(value, object_pairs_hook=_each_name_once)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def numbers_by_partition(value: str, *, at_least: int) -> dict[str, dict[int, int]] | None:
    """Return whole numbers by topic and partition, as in ``{"flights": {"0": 23}}``; None for other texts."""
    found = json_object(value)
    if found is None:
        return None
    numbers: dict[str, dict[int, int]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            return None
        numbers[topic] = {}
        for partition, number in partitions.items():
            index = plain_number(partition)
            if index is None or index in numbers[topic]:
                return None
            if type(number) is not int or not at_least <= number <= _LARGEST:
                return None
            numbers[topic][index] = number
    return numbers


def _with_unit(options: Mapping[str, str], name: str, units: Mapping[str, int], valid: str) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    found = _WITH_UNIT.fullmatch(value.strip().lower())
    number = None if found is None else plain_number(found[1])
    unit = None if found is None else units.get(found[2])
    if number is None or unit is None or number * unit > _LARGEST:
        raise InvalidOption(f"option {name!r} is {quoted(value)}. Give {valid}")
    return number * unit


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found
