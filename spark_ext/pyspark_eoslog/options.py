"""The options of ``format("eoslog")``: names and values are those of the Kafka connector, and of Delta for writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from eoslog.client.settings import load_settings
from eoslog.errors import InvalidOption
from eoslog.read.isolation import IsolationLevel
from eoslog.read.time_travel import parse_timestamp

EARLIEST = "earliest"
LATEST = "latest"
EARLIEST_OFFSET = -2
LATEST_OFFSET = -1

OffsetsOption = str | Mapping[str, Mapping[int, int]]
"""``earliest``, ``latest``, or offsets by topic and partition, where -2 is the earliest and -1 the latest."""

NAMES = (
    "path",
    "topic",
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "isolationLevel",
    "slot",
    "versionAsOf",
    "timestampAsOf",
    "transactionConsistent",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "metadataColumns",
    "includeTransactionColumns",
    "includeControlRows",
    "transactionalId",
    "txnAppId",
    "txnVersion",
)
STORE_PREFIX = "store."
_SPARKS_OWN = frozenset({"paths", "queryname", "checkpointlocation", "outputmode", "serialization.format"})


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Where a store is and how to reach it. The options may hold credentials, so they are never printed."""

    url: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Options:
    """All options of one read or write, checked one by one; whether they fit together is for its reader or writer."""

    location: StoreLocation
    topics: tuple[str, ...]
    starting_offsets: OffsetsOption | None
    ending_offsets: OffsetsOption | None
    isolation: IsolationLevel
    slot: int | None
    timestamp_ms: int | None
    transaction_consistent: bool
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    include_headers: bool
    metadata_columns: bool
    include_transaction_columns: bool
    include_control_rows: bool
    transactional_id: str | None
    application_id: str | None
    version: int | None
    checkpoint_location: str | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Options as Spark hands them over.

        Raises:
            InvalidOption: one is unknown or has a value that is not allowed; the message names what is.
        """
        options = {name.lower(): value for name, value in given.items()}
        include_control_rows = _boolean(options, "includeControlRows", default=False)
        known = {name.lower(): name for name in NAMES}
        for name in options:
            if name not in known and name not in _SPARKS_OWN and not name.startswith(STORE_PREFIX):
                like = get_close_matches(name, known, n=1)
                hint = f"did you mean {known[like[0]]!r}? Valid are" if like else "valid are"
                raise InvalidOption(
                    f"option {name!r} is unknown; {hint} {', '.join(NAMES)}, and {STORE_PREFIX}<option of the store>"
                )
        return cls(
            location=_location(options),
            topics=_topics(options),
            starting_offsets=_offsets(options, "startingOffsets"),
            ending_offsets=_offsets(options, "endingOffsets"),
            isolation=_isolation(options),
            slot=_slot(options),
            timestamp_ms=_timestamp(options),
            transaction_consistent=_boolean(options, "transactionConsistent", default=False),
            max_offsets_per_trigger=_whole_number(options, "maxOffsetsPerTrigger", at_least=1),
            min_partitions=_whole_number(options, "minPartitions", at_least=1),
            fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
            include_headers=_boolean(options, "includeHeaders", default=False),
            metadata_columns=_boolean(options, "metadataColumns", default=True),
            include_transaction_columns=_boolean(options, "includeTransactionColumns", default=include_control_rows),
            include_control_rows=include_control_rows,
            transactional_id=_text(options, "transactionalId"),
            application_id=_text(options, "txnAppId"),
            version=_whole_number(options, "txnVersion", at_least=0),
            checkpoint_location=options.get("checkpointlocation"),
        )

    def check_consistent_end(self) -> None:
        """Raises: InvalidOption: a transaction-consistent end is asked for where there is none."""
        if self.transaction_consistent and self.isolation is not IsolationLevel.READ_COMMITTED:
            raise InvalidOption(
                "option 'transactionConsistent' is for isolation level 'read_committed'; a snapshot is always whole"
            )

    def topics_to_read(self) -> tuple[str, ...]:
        """Raises: InvalidOption: no topic is named."""
        if not self.topics:
            raise InvalidOption('name what to read: option("topic", "flights") or option("subscribe", "a,b")')
        return self.topics

    def topic_to_write(self) -> str | None:
        """The topic of all rows; None if each row names its own.

        Raises:
            InvalidOption: several topics are named.
        """
        if len(self.topics) > 1:
            raise InvalidOption(
                "rows go to one topic, or each to that of its column 'topic'; option 'subscribe' is for reading"
            )
        return self.topics[0] if self.topics else None


def _isolation(options: Mapping[str, str]) -> IsolationLevel:
    """A slot or a time to read as of asks for a snapshot."""
    given = options.get("isolationlevel")
    if given is not None:
        return IsolationLevel.of(given.lower())
    travels = any(name in options for name in ("slot", "versionasof", "timestampasof"))
    return IsolationLevel.SNAPSHOT if travels else IsolationLevel.READ_COMMITTED


def _slot(options: Mapping[str, str]) -> int | None:
    """Delta's ``versionAsOf`` is another name of ``slot``."""
    slot, version = (_whole_number(options, name, at_least=0) for name in ("slot", "versionAsOf"))
    if slot is not None and version is not None:
        raise InvalidOption("give either option 'slot' or option 'versionAsOf', which mean the same, not both")
    return version if slot is None else slot


def _timestamp(options: Mapping[str, str]) -> int | None:
    value = options.get("timestampasof")
    return None if value is None else parse_timestamp(value)


def _location(options: Mapping[str, str]) -> StoreLocation:
    url = options.get("path")
    if not url:
        if options.get("paths"):
            raise InvalidOption("give the path of one store, not several")
        raise InvalidOption(
            "option 'path' is missing: give the store's root, as in load(root), save(root) or start(root)"
        )
    if url.lower().startswith("memory:"):
        raise InvalidOption("a memory:// store lives within one process, and Spark runs several; use a path or s3://")
    given = {name[len(STORE_PREFIX) :]: value for name, value in options.items() if name.startswith(STORE_PREFIX)}
    # The settings are the driver's, and travel to the tasks, whose machines may have others or none.
    known = load_settings().store_options(url, given)
    return StoreLocation(url, tuple(sorted((name, str(value)) for name, value in known.items())))


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    topic, subscribe = options.get("topic"), options.get("subscribe")
    if topic is not None and subscribe is not None:
        raise InvalidOption("give either option 'topic' or option 'subscribe', not both")
    if topic is not None:
        if not topic.strip():
            raise InvalidOption("option 'topic' is empty; give the name of a topic")
        return (topic.strip(),)
    if subscribe is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in subscribe.split(",") if name.strip()))
    if not names:
        raise InvalidOption("option 'subscribe' names no topic; give names with commas between them")
    return names


def _offsets(options: Mapping[str, str], name: str) -> OffsetsOption | None:
    value = options.get(name.lower())
    if value is None:
        return None
    if value.strip().lower() in (EARLIEST, LATEST):
        return value.strip().lower()
    wrong = InvalidOption(
        f"option {name!r} is {value!r}; valid are {EARLIEST!r}, {LATEST!r} and offsets by topic and partition as JSON, "
        'for example {"flights": {"0": 23, "1": -2}}, where -2 is the earliest and -1 the latest'
    )
    try:
        parsed = json.loads(value)
    except ValueError:
        raise wrong from None
    if not isinstance(parsed, dict) or not all(isinstance(each, dict) for each in parsed.values()):
        raise wrong
    offsets: dict[str, dict[int, int]] = {}
    for topic, partitions in parsed.items():
        offsets[topic] = {}
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < EARLIEST_OFFSET:
                raise wrong
            offsets[topic][int(partition)] = offset
    return offsets


def _whole_number(options: Mapping[str, str], name: str, *, at_least: int) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    text = value.strip()
    if not text.isdecimal() or not text.isascii() or not at_least <= int(text) < 2**63:
        raise InvalidOption(f"option {name!r} is {value!r}; it must be a whole number of at least {at_least}")
    return int(text)


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name.lower())
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise InvalidOption(f"option {name!r} is {value!r}; it must be true or false")
    return value.strip().lower() == "true"


def _text(options: Mapping[str, str], name: str) -> str | None:
    value = options.get(name.lower())
    if value is not None and not value.strip():
        raise InvalidOption(f"option {name!r} is empty; leave it out or give an id")
    return value
