"""Options of Spark's Kafka connector for the connection to a broker. They are accepted and ignored."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache

from eoslog.errors import InvalidOption

KAFKA_PREFIX = "kafka."
ISOLATION_LEVEL = "kafka.isolation.level"
_WITHOUT_MEANING = frozenset(
    {"groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms"}
)
_REFUSED = {
    # The Kafka connector refuses these, too.
    "kafka.auto.offset.reset": "say where to begin with option 'startingOffsets'",
    "kafka.key.deserializer": "keys are bytes; cast the column",
    "kafka.value.deserializer": "values are bytes; cast the column",
    "kafka.key.serializer": "keys are bytes or strings; cast the column",
    "kafka.value.serializer": "values are bytes or strings; cast the column",
    "kafka.enable.auto.commit": "a stream keeps its offsets in its checkpoint",
    "kafka.interceptor.classes": "change rows with operations of the DataFrame",
    # No job can have given this one: the connector would never begin the transaction.
    "kafka.transactional.id": "every write is a transaction; name the job with option 'transactionalId'",
    # It would choose the partition of rows.
    "kafka.partitioner.class": "rows go by Kafka's hash of their key, or to the partition in their column 'partition'",
}
_logger = logging.getLogger(__name__)


def is_of_kafka(name: str) -> bool:
    """Return True if an option (in lower case) configures the Kafka connector's clients."""
    return name.startswith(KAFKA_PREFIX) or name in _WITHOUT_MEANING


def pass_over(options: Mapping[str, str]) -> None:
    """Tell once in the log which options of Kafka clients are given and ignored; never their values.

    Raises:
        InvalidOption: ignoring one would change what the job does; the message says what to give in its place.
    """
    for name, advice in _REFUSED.items():
        if name in options:
            raise InvalidOption(f"option {name!r} is not supported: {advice}")
    ignored = sorted(name for name in options if is_of_kafka(name) and name != ISOLATION_LEVEL)
    if ignored:
        _tell_ignored(tuple(ignored))


@cache
def _tell_ignored(names: tuple[str, ...]) -> None:
    _logger.warning("there is no broker to which these options could apply, so they are ignored: %s", ", ".join(names))
