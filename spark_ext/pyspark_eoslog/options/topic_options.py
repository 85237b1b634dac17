"""The options that select the topics of a read: by name, by a pattern, or by partition, as in the Kafka connector."""

from __future__ import annotations

import re
from collections.abc import Mapping

from eoslog.errors import InvalidOption
from eoslog.read.topics_snapshot import TopicSelection
from pyspark_eoslog.options.values import json_object, names

OPTIONS = ("topic", "subscribe", "subscribePattern", "assign")


def topic_selection(options: Mapping[str, str]) -> TopicSelection:
    """Return the selection that options make, by their names in lower case; an empty one if none is given.

    Raises:
        InvalidOption: there is more than one, or a value is not allowed.
    """
    given = [name for name in OPTIONS if name.lower() in options]
    if len(given) > 1:
        raise InvalidOption(
            f"give either option {given[0]!r} or option {given[1]!r}, not both: one of {', '.join(OPTIONS)} says "
            "which topics are read"
        )
    if not given:
        return TopicSelection()
    value = options[given[0].lower()].strip()
    if not value:
        raise InvalidOption(f"option {given[0]!r} is empty; name what to read")
    if given[0] == "topic":
        return TopicSelection((value,))
    if given[0] == "subscribe":
        return TopicSelection(names(options, "subscribe") or ())
    if given[0] == "subscribePattern":
        return TopicSelection(pattern=_pattern(value))
    return TopicSelection(assigned=_assigned(value))


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidOption(
            f"option 'subscribePattern' is {value!r}, which is not a regular expression of Python: {error}"
        ) from None
    return value


def _assigned(value: str) -> dict[str, tuple[int, ...]]:
    wrong = InvalidOption(
        f"option 'assign' is {value!r}; valid are partitions by topic as JSON, for example "
        '{"flights": [0, 1], "carriers": [0]}'
    )
    found = json_object(value)
    if not found:
        raise wrong
    for partitions in found.values():
        if not isinstance(partitions, list) or not partitions:
            raise wrong
        if any(type(each) is not int or each < 0 for each in partitions):
            raise wrong
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in found.items()}
