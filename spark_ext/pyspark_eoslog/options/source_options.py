"""The options of ``format("eoslog")``. Names and values are those of the Kafka connector and of Delta Lake.

Options of the connector for its Kafka clients are accepted and ignored, because there is no broker. Options of Delta
Lake that eoslog lacks are refused with advice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from eoslog import IsolationLevel
from eoslog.errors import InvalidOption
from eoslog.producer.job import WorkVersion
from eoslog.read.time_travel import timestamp_ms
from eoslog.read.topics_snapshot import TopicSelection
from eoslog.session.client_options import warn_of_ignored
from eoslog.session.settings import load_settings
from eoslog.wording import unknown
from pyspark_eoslog.options.offset_options import OffsetsOption, ending_offsets, starting_offsets
from pyspark_eoslog.options.values import (
    boolean,
    duration_ms,
    json_object,
    names,
    plain_number,
    size_bytes,
    text,
    whole_number,
)

STORE_PREFIX = "store."
_SPARKS_OWN = frozenset({"paths", "queryname", "checkpointlocation", "outputmode", "serialization.format"})
_MAX_TRIGGER_DELAY_MS = 15 * 60_000
_LONGEST_QUERY_ID = 1024
TOPIC_OPTIONS = ("topic", "subscribe", "subscribePattern", "assign")
_KAFKA_PREFIX = "kafka."
_KAFKA_ISOLATION_LEVEL = "kafka.isolation.level"
_KAFKA_WITHOUT_MEANING = frozenset(
    {"groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms"}
)
_KAFKA_REFUSED = {
    # The Kafka connector refuses these, too.
    "kafka.auto.offset.reset": "say where to begin with option 'startingOffsets'",
    "kafka.key.deserializer": "keys are bytes. Cast the column",
    "kafka.value.deserializer": "values are bytes. Cast the column",
    "kafka.key.serializer": "keys are bytes or strings. Cast the column",
    "kafka.value.serializer": "values are bytes or strings. Cast the column",
    "kafka.enable.auto.commit": "a stream keeps its offsets in its checkpoint",
    "kafka.interceptor.classes": "change rows with operations of the DataFrame",
    # A job for the connector cannot have this option: the connector would never begin the transaction.
    "kafka.transactional.id": "every write is a transaction. Name the job with option 'transactionalId'",
    # If it were ignored, rows would go to other partitions.
    "kafka.partitioner.class": "rows go by Kafka's hash of their key, or to the partition in their column 'partition'",
}
_ROWS_NEVER_CHANGE = "leave it out: rows never change, and option 'failOnDataLoss' is for deleted rows"
_DELTA_ADVICE = {
    "startingVersion": "give 'startingOffsets'; whole commits in order come with 'isolationLevel=snapshot'",
    "endingVersion": "a batch ends at 'endingOffsets', or reads the state as of 'versionAsOf'",
    "ignoreChanges": _ROWS_NEVER_CHANGE,
    "ignoreDeletes": _ROWS_NEVER_CHANGE,
    "skipChangeCommits": _ROWS_NEVER_CHANGE,
    "readChangeFeed": "all rows are appended; option 'includeTransactionColumns' adds the commit of each row",
    "overwriteSchema": "columns are only added: option 'mergeSchema', or another topic",
    "replaceWhere": "mode('overwrite') replaces all rows of the topic",
    "partitionOverwriteMode": "mode('overwrite') replaces all rows of the topic",
    "optimizeWrite": "coalesce the DataFrame; the coordinator compacts small files",
    "withEventTimeOrder": "leave it out: rows come in the order of their offsets",
    "schemaTrackingLocation": "leave it out: the log keeps the schemas of a topic",
}
"""Options of Delta Lake that eoslog lacks, each with the option that replaces it or the reason to leave it out."""
_DELTA_NAMES = {name.lower(): name for name in _DELTA_ADVICE}


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The URL of a store and its connection options. The options may hold credentials, so they are never printed."""

    url: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def _check_known(options: Mapping[str, str]) -> None:
    known = {name.lower() for name in NAMES}
    for name in options:
        if name in known or name in _SPARKS_OWN or name.startswith(STORE_PREFIX) or _is_of_kafka(name):
            continue
        listed = [*NAMES, f"{STORE_PREFIX}<option of the store>"]
        raise InvalidOption(unknown(f"option {name!r}", name, NAMES, listed=listed))


def _isolation(options: Mapping[str, str]) -> IsolationLevel:
    """Return the isolation level. A slot or a timestamp implies ``snapshot``."""
    given = options.get("isolationlevel")
    of_kafka = options.get(_KAFKA_ISOLATION_LEVEL)
    if of_kafka is not None:
        if given is not None and given.strip().lower() != of_kafka.strip().lower():
            raise InvalidOption(
                f"option 'isolationLevel' is {given!r}, but option {_KAFKA_ISOLATION_LEVEL!r} is {of_kafka!r}. "
                "Give one of them"
            )
        given = of_kafka
    if given is not None:
        return IsolationLevel.of(given.strip())
    travels = any(name in options for name in ("slot", "versionasof", "timestampasof"))
    return IsolationLevel.SNAPSHOT if travels else IsolationLevel.READ_COMMITTED


def _slot(options: Mapping[str, str]) -> int | None:
    """Return the slot of option ``slot``, or of ``versionAsOf``, Delta's name for the same."""
    slot, version = (whole_number(options, name, at_least=0) for name in ("slot", "versionAsOf"))
    if slot is not None and version is not None:
        raise InvalidOption("give either option 'slot' or option 'versionAsOf', which mean the same, not both")
    return version if slot is None else slot


def _timestamp(options: Mapping[str, str]) -> int | None:
    value = options.get("timestampasof")
    return None if value is None else timestamp_ms(value)


def _max_trigger_delay_ms(options: Mapping[str, str]) -> int:
    given_ms = duration_ms(options, "maxTriggerDelay")
    return _MAX_TRIGGER_DELAY_MS if given_ms is None else given_ms


def _include_transaction_columns(options: Mapping[str, str]) -> bool:
    default = boolean(options, "includeControlRows", default=False)
    return boolean(options, "includeTransactionColumns", default=default)


def _query_version(options: Mapping[str, str]) -> WorkVersion | None:
    value = text(options, "startAnewAfter")
    if value is None:
        return None
    query_id, _, version = value.strip().rpartition(":")
    number = plain_number(version)
    if number is None or len(query_id) > _LONGEST_QUERY_ID:
        raise InvalidOption(
            f"option 'startAnewAfter' is {value!r}; it must be '<query id>:<batch id>', or a version alone. Copy the "
            "value from the message of CheckpointMismatch"
        )
    return WorkVersion(number, query_id or None)


def _location(options: Mapping[str, str]) -> StoreLocation:
    settings = load_settings()
    if not options.get("path") and options.get("paths"):
        raise InvalidOption("give the path of one store, not several")
    url = options.get("path") or settings.store
    if not url:
        raise InvalidOption(
            "option 'path' is missing: give the store's root, as in load(root), save(root) or start(root), or set "
            "EOSLOG_STORE for the driver. (Spark passes no options to a table of its catalog; in SQL use CREATE "
            "TEMPORARY VIEW v USING eoslog OPTIONS (path '…', topic '…'))"
        )
    if url.lower().startswith("memory:"):
        raise InvalidOption(
            "a memory:// store lives within one process, and Spark runs several. Use a path or the URL of a cloud"
        )
    given = {name[len(STORE_PREFIX) :]: value for name, value in options.items() if name.startswith(STORE_PREFIX)}
    # Read the settings in the driver and pass them to the tasks: their machines may have other settings or none.
    known = settings.store_options(url, given)
    return StoreLocation(url, tuple(sorted((name, str(value)) for name, value in known.items())))


def topic_selection(options: Mapping[str, str]) -> TopicSelection:
    """Return the selection that options make, by their names in lower case; an empty one if none is given.

    Raises:
        InvalidOption: there is more than one, or a value is not allowed.
    """
    given = [name for name in TOPIC_OPTIONS if name.lower() in options]
    if len(given) > 1:
        raise InvalidOption(
            f"give either option {given[0]!r} or option {given[1]!r}, not both: one of {', '.join(TOPIC_OPTIONS)} says "
            "which topics are read"
        )
    if not given:
        return TopicSelection()
    value = options[given[0].lower()].strip()
    if not value:
        raise InvalidOption(f"option {given[0]!r} is empty. Name what to read")
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
        f"option 'assign' is {value!r}. Valid are partitions by topic as JSON, for example "
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


def _is_of_kafka(name: str) -> bool:
    """Return True if an option (in lower case) configures the Kafka connector's clients."""
    return name.startswith(_KAFKA_PREFIX) or name in _KAFKA_WITHOUT_MEANING


def _pass_over_kafka(options: Mapping[str, str]) -> None:
    """Log once which options of Kafka clients are given and ignored. Their values are never logged.

    Raises:
        InvalidOption: the job would change if the option were ignored. The message says what to give in its place.
    """
    for name, advice in _KAFKA_REFUSED.items():
        if name in options:
            raise InvalidOption(f"option {name!r} is not supported: {advice}")
    ignored = sorted(name for name in options if _is_of_kafka(name) and name != _KAFKA_ISOLATION_LEVEL)
    if ignored:
        warn_of_ignored("options", tuple(ignored))


def _refuse_delta(options: Iterable[str]) -> None:
    """Refuse options that a job for Delta Lake may have. Their names are in lower case.

    Raises:
        InvalidOption: one of them is given. The message says what to give in its place.
    """
    for name in options:
        if name in _DELTA_NAMES:
            raise InvalidOption(
                f"option {_DELTA_NAMES[name]!r} of Delta Lake is not supported: {_DELTA_ADVICE[_DELTA_NAMES[name]]}"
            )


def _from(read: Callable[[Mapping[str, str]], Any], *names: str) -> dict[str, Any]:
    """Return the metadata of a field of ``Options``.

    Args:
        read: returns the value. It gets the options, with their names in lower case.
        names: the options from which the value comes, in their own spelling.
    """
    return {"read": read, "names": names}


def _boolean(name: str, *, default: bool) -> Any:
    return field(metadata=_from(lambda options: boolean(options, name, default=default), name))


def _whole_number(name: str, *, at_least: int) -> Any:
    return field(metadata=_from(lambda options: whole_number(options, name, at_least=at_least), name))


def _named(read: Callable[[Mapping[str, str], str], Any], name: str) -> Any:
    return field(metadata=_from(lambda options: read(options, name), name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of one read or write. Each is checked here; the reader or writer checks combinations."""

    location: StoreLocation = field(metadata=_from(_location, "path"))
    given: frozenset[str] = field(
        metadata=_from(lambda options: frozenset(name for name in NAMES if name.lower() in options))
    )
    """The names of the given options, in the spelling of ``NAMES``."""
    topics: TopicSelection = field(metadata=_from(topic_selection, *TOPIC_OPTIONS))
    starting_offsets: OffsetsOption | None = field(
        metadata=_from(
            starting_offsets,
            "startingOffsets",
            "startingOffsetsByTimestamp",
            "startingTimestamp",
            "startingOffsetsByTimestampStrategy",
        )
    )
    ending_offsets: OffsetsOption | None = field(
        metadata=_from(ending_offsets, "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
    )
    isolation: IsolationLevel = field(metadata=_from(_isolation, "isolationLevel"))
    slot: int | None = field(metadata=_from(_slot, "slot", "versionAsOf"))
    timestamp_ms: int | None = field(metadata=_from(_timestamp, "timestampAsOf"))
    transaction_consistent: bool = _boolean("transactionConsistent", default=False)
    columns: tuple[str, ...] | None = _named(names, "columns")
    """The columns to read, in this order; None: all."""
    predicate: str | None = _named(text, "predicate")
    latest_by_key: bool = _boolean("latestByKey", default=False)
    max_offsets_per_trigger: int | None = _whole_number("maxOffsetsPerTrigger", at_least=1)
    max_bytes_per_trigger: int | None = _named(size_bytes, "maxBytesPerTrigger")
    max_files_per_trigger: int | None = _whole_number("maxFilesPerTrigger", at_least=1)
    min_offsets_per_trigger: int | None = _whole_number("minOffsetsPerTrigger", at_least=1)
    max_trigger_delay_ms: int = field(metadata=_from(_max_trigger_delay_ms, "maxTriggerDelay"))
    """The longest wait of a stream for ``min_offsets_per_trigger`` (ms)."""
    group_id: str | None = _named(text, "groupId")
    """The consumer group that shows the progress of a stream."""
    min_partitions: int | None = _whole_number("minPartitions", at_least=1)
    max_records_per_partition: int | None = _whole_number("maxRecordsPerPartition", at_least=1)
    fail_on_data_loss: bool = _boolean("failOnDataLoss", default=True)
    include_headers: bool = _boolean("includeHeaders", default=False)
    metadata_columns: bool = _boolean("metadataColumns", default=True)
    include_transaction_columns: bool = field(metadata=_from(_include_transaction_columns, "includeTransactionColumns"))
    include_control_rows: bool = _boolean("includeControlRows", default=False)
    transactional_id: str | None = _named(text, "transactionalId")
    application_id: str | None = _named(text, "txnAppId")
    version: int | None = _whole_number("txnVersion", at_least=0)
    start_anew_after: WorkVersion | None = field(metadata=_from(_query_version, "startAnewAfter"))
    """The last committed version after which a stream restarts (``startAnewAfter``). The user copies it from the
    message of ``CheckpointMismatch``."""
    merge_schema: bool = _boolean("mergeSchema", default=False)
    create_topic: bool = _boolean("createTopic", default=False)
    partitions: int | None = _whole_number("partitions", at_least=1)
    key: tuple[str, ...] | None = _named(names, "key")
    publish_on_commit: bool = _boolean("publishOnCommit", default=False)
    checkpoint_location: str | None = field(metadata=_from(lambda options: options.get("checkpointlocation")))
    query_name: str | None = field(metadata=_from(lambda options: options.get("queryname")))

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Options:
        """Return the options as Spark hands them over, with their names in any case.

        Raises:
            InvalidOption: an option is unknown or has a value that is not allowed. The message names the known options,
                or the allowed values.
        """
        options = {name.lower(): value for name, value in given.items()}
        _refuse_delta(options)
        _check_known(options)
        _pass_over_kafka(options)
        return cls(**{each.name: each.metadata["read"](options) for each in fields(cls)})

    def refuse(self, refused: Collection[str], why: str) -> None:
        """Refuse options that would be ignored otherwise.

        Args:
            refused: names as they stand in ``NAMES``.
            why: the rest of the sentence that begins with "option 'name' ".

        Raises:
            InvalidOption: one of them is given.
        """
        for name in refused:
            if name in self.given:
                raise InvalidOption(f"option {name!r} {why}")

    def check_consistent_end(self) -> None:
        """Raises: InvalidOption: a transaction-consistent end is requested for a read that has none."""
        if self.transaction_consistent and self.isolation is not IsolationLevel.READ_COMMITTED:
            raise InvalidOption(
                "option 'transactionConsistent' is for isolation level 'read_committed'; a snapshot is always whole"
            )

    def topics_to_read(self) -> TopicSelection:
        """Raises: InvalidOption: no topic is named."""
        if not self.topics:
            raise InvalidOption('name what to read: option("topic", "flights") or option("subscribe", "a,b")')
        return self.topics

    def topic_to_write(self) -> str | None:
        """Return the topic of all rows; None if each row names its topic.

        Raises:
            InvalidOption: several topics are named.
        """
        if self.topics.pattern or self.topics.assigned or len(self.topics.names) > 1:
            raise InvalidOption(
                "rows go to one topic, or each row to the topic in its column 'topic'; options 'subscribe', "
                "'subscribePattern' and 'assign' are for reading"
            )
        return self.topics.names[0] if self.topics.names else None


NAMES: tuple[str, ...] = tuple(name for each in fields(Options) for name in each.metadata["names"])
"""The options of ``format("eoslog")``, beside those of the store."""
