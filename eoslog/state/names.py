"""Names of topics, partitions and ids, and the checks of names that callers give."""

from __future__ import annotations

import re
from collections.abc import Iterable
from numbers import Integral
from typing import NamedTuple

from eoslog.arguments import is_whole_number
from eoslog.errors import InvalidRequest, InvalidTopic
from eoslog.wording import quoted

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LONGEST_ID = 1024
_DESCRIPTION = "eoslog.json"


class TopicPartition(NamedTuple):
    """A partition, given by the name of its topic."""

    topic: str
    partition: int


def topic_partition(given: object) -> TopicPartition:
    """Return the partition that a caller gives as a ``TopicPartition``, or as a tuple of topic name and number.

    The number may be one of NumPy's.

    Raises:
        InvalidRequest: the caller gives something else.
    """
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        number = int(number) if isinstance(number, Integral) and not isinstance(number, bool) else None
        if isinstance(topic, str) and is_whole_number(number):
            return TopicPartition(topic, number)
    raise InvalidRequest(f"a partition is TopicPartition(topic, partition), not {quoted(given)}")


def topic_partitions(given: object) -> list[TopicPartition]:
    """Return the partitions that a caller gives: several, or a single one.

    Raises:
        InvalidRequest: the caller gives something else.
    """
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return [topic_partition(given)]
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise InvalidRequest(f"partitions are one or more TopicPartition(topic, partition), not {quoted(given)}")
    return [topic_partition(each) for each in given]


def names_given(what: str, given: object) -> tuple[str, ...]:
    """Return the names that a caller gives: several, or a single one. Each name is returned once, in the given order.

    Args:
        what: the argument, for messages.

    Raises:
        InvalidRequest: the caller gives something else.
    """
    names = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(name, str) for name in names):
        raise InvalidRequest(f"{what} must be a name or a list of names, not {quoted(given)}")
    return tuple(sorted(set(names)))


class PartitionId(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic_id: str
    partition: int


def check_topic_name(topic: str) -> None:
    """Check a topic name, which becomes part of paths. The rule is Kafka's (``Topic.validate``).

    The store reserves ``eoslog.json`` and the names that begin with ``__`` or ``.``.

    Raises:
        InvalidTopic: the name breaks the rule or is reserved.
    """
    if not isinstance(topic, str) or not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise InvalidTopic(
            f"topic name {quoted(topic)} is not allowed. Use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and "
            "'-', and neither '.' nor '..'"
        )
    if topic.startswith(("__", ".")) or topic.lower() == _DESCRIPTION:
        raise InvalidTopic(
            f"topic name {quoted(topic)} is not allowed: names that begin with '__' or '.' and {_DESCRIPTION!r} are "
            "reserved"
        )


def is_text(value: str) -> bool:
    """Return True if UTF-8 can encode a string. It cannot encode half a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_id(kind: str, value: str) -> None:
    """Check a transactional id, group id or similar: any text without control characters that is not too long.

    Raises:
        InvalidRequest: the value is empty or too long, or holds control characters or half a surrogate pair.
    """
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{kind} must be a string that is not empty")
    if not is_text(value):
        raise InvalidRequest(f"{kind} {quoted(value)} holds half a surrogate pair, which UTF-8 cannot encode")
    if len(value.encode()) > _LONGEST_ID:
        raise InvalidRequest(f"{kind} {quoted(value)} is longer than {_LONGEST_ID} bytes")
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise InvalidRequest(f"{kind} {quoted(value)} holds control characters")
