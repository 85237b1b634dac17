"""Names: which may become paths, and which strings an id may be."""

from __future__ import annotations

import re
from typing import NamedTuple

from eoslog.errors import InvalidRequest, InvalidTopic, quoted

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LONGEST_ID = 1024
_DESCRIPTION = "eoslog.json"


class TopicPartition(NamedTuple):
    """A partition, by its topic's name."""

    topic: str
    partition: int


def topic_partition(place: object) -> TopicPartition:
    """A partition as callers give it: a ``TopicPartition``, or a tuple of a topic and a number.

    Raises:
        InvalidRequest: anything else.
    """
    if isinstance(place, tuple) and len(place) == 2:
        return TopicPartition(*place)
    raise InvalidRequest(f"a partition is TopicPartition(topic, partition), not {quoted(place)}")


class PartitionId(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic_id: str
    partition: int


def check_topic_name(topic: str) -> None:
    """Kafka's rule (``Topic.validate``). Names that begin with ``__``, and ``eoslog.json``, are the store's own.

    Raises:
        InvalidTopic: if the name may not become a path.
    """
    if not isinstance(topic, str) or not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise InvalidTopic(
            f"topic name {quoted(topic)} is not allowed: use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and "
            "'-', and neither '.' nor '..'"
        )
    if topic.startswith(("__", ".")) or topic.lower() == _DESCRIPTION:
        raise InvalidTopic(
            f"topic name {quoted(topic)} is not allowed: names that begin with '__' or '.' and {_DESCRIPTION!r} are "
            "reserved"
        )


def check_id(kind: str, value: str) -> None:
    """A transactional id, group id or the like: any printable text that is not too long.

    Raises:
        InvalidRequest: if it is empty, too long, or holds control characters.
    """
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{kind} must be a string that is not empty")
    if len(value.encode()) > _LONGEST_ID:
        raise InvalidRequest(f"{kind} {quoted(value)} is longer than {_LONGEST_ID} bytes")
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise InvalidRequest(f"{kind} {quoted(value)} holds control characters")
