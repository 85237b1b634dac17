"""Metrics by Kafka's names: of the store's state, of the log, and of the calls of this process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from eoslog.state.names import TopicPartition
from eoslog.state.partition_state import Outcome, Partition
from eoslog.state.store_state import StoreState, Topic, TransactionState

_DURATION = re.compile(
    r"P(?=[0-9T])(?:(?P<days>[0-9]+)D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+(?:\.[0-9]{1,6})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


def parse_duration(text: str) -> timedelta:
    """Parse a duration of days, hours, minutes and seconds (ISO 8601).

    Raises:
        ValueError: the text is not a duration, or it is too long.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration such as PT1H30M or P7D (ISO 8601)")
    try:
        return timedelta(**{unit: float(count) for unit, count in found.groupdict().items() if count is not None})
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None


LATE_TRANSACTION_BUFFER_MS = 5 * 60_000
"""A transaction is late if it is open for longer than the maximum timeout plus this (Kafka's
``ProducerStateManager``)."""

AGES_MS = (0, 10_000, 60_000, 5 * 60_000, 15 * 60_000, 60 * 60_000)
"""Open transactions are counted by these ages (ms)."""

CALL_TIMES = {
    "init_transactions()": "txn-init-time-ns-total",
    "begin_transaction()": "txn-begin-time-ns-total",
    "send_offsets_to_transaction()": "txn-send-offsets-time-ns-total",
    "commit_transaction()": "txn-commit-time-ns-total",
    "abort_transaction()": "txn-abort-time-ns-total",
    "flush()": "flush-time-ns-total",
}
"""The measured calls of the producer, with Kafka's name of each metric (``KafkaProducerMetrics``)."""


_ENDS = (("commit", "client"), ("abort", "client"), ("abort", "timeout"), ("abort", "fence"), ("abort", "admin"))


def _add(counts: dict[Any, int], key: Any, number: int = 1) -> None:
    counts.setdefault(key, 0)
    # Between the read and the write of an addition no Python code runs, so no count of another thread is lost.
    # A lock could be held forever: by this thread below a signal handler, or in a forked child.
    counts[key] += number


class LogCounts:
    """Counts of the log's entries, of all processes, since this process opened the log.

    So the counts of two processes that follow one store must not be added. An opening that skips records, because
    this process was far behind, skips their events.
    """

    def __init__(self) -> None:
        self.transactions_ended: dict[tuple[str, str], int] = dict.fromkeys(_ENDS, 0)
        """Ended transactions by outcome and reason, as in ``TransactionEnded``."""
        self.inits = 0
        """Producer ids and epochs that were assigned."""
        self.rows_in: dict[str, int] = {}
        """Appended rows by topic id, whatever became of their transactions."""
        self.bytes_in: dict[str, int] = {}
        """The bytes of their files by topic id."""

    def add(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Count the entries of a valid record. The log calls it once for each record."""
        for entry in entries:
            match entry["type"]:
                case "batch":
                    self._add_batch(entry)
                case "end":
                    _add(self.transactions_ended, (entry["outcome"], entry.get("reason", "client")))
                    for batch in entry.get("batches", ()):
                        self._add_batch(batch)
                case "init":
                    self.inits += 1

    def _add_batch(self, batch: Mapping[str, Any]) -> None:
        _add(self.rows_in, batch["topic_id"], batch["record_count"])
        _add(self.bytes_in, batch["topic_id"], batch["file"]["length"])


class CallCounts:
    """Counts of the calls of this process since it connected to the store. Threads may share it."""

    def __init__(self) -> None:
        self.append_errors: dict[str, int] = {}
        """Appends that raised an error, and refused batches of ``append_many``, by the name of the error."""
        self.duplicate_batches = 0
        """Batches of this process that the log had already."""
        self.rows_out: dict[str, int] = {}
        """Rows that scans and consumers read, by topic."""
        self.bytes_out: dict[str, int] = {}
        """Their size in memory, by topic (bytes)."""

    def failed(self, error: BaseException) -> None:
        """Count an append that raised an error."""
        _add(self.append_errors, type(error).__name__)

    def read(self, topic: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows of a topic, and count them."""
        for batch in batches:
            _add(self.rows_out, topic, batch.num_rows)
            _add(self.bytes_out, topic, batch.nbytes)
            yield batch


@dataclass(frozen=True, slots=True)
class StoreMetrics:
    """Metrics of a store at one slot of its log, and of the work of this process."""

    slot: int
    """The newest slot."""
    slots_since_checkpoint: int
    """The number of slots since the checkpoint. A process that opens the log reads the slots that the newest record
    does not repeat."""
    partitions_with_late_transactions_count: int
    """The number of partitions whose readers are held back by a late transaction."""
    last_stable_offset_lag: Mapping[TopicPartition, int]
    """The offsets that open transactions hold back, by partition: high watermark minus last stable offset."""
    producer_id_count: int
    """The number of producers that partitions know. A producer counts once in each partition."""
    transactions_by_state: Mapping[str, int]
    """The number of transactional ids in each state; states without any are left out."""
    prepared_transactions: int
    """The number of prepared transactions (KIP-939)."""
    longest_open_transaction_ms: int
    """The age of the oldest open transaction; 0 if none is open."""
    open_transactions_by_age_ms: Mapping[int, int]
    """By age (ms), the number of open transactions of this age or older."""
    consumer_lag: Mapping[str, Mapping[TopicPartition, int]]
    """By consumer group, for each partition with a committed offset: last stable offset minus that offset."""
    publication_lag_ms: Mapping[str, int]
    """By published topic, the age of the newest version of its table (ms), if the topic has newer committed rows.
    0 if the table shows all rows."""
    end_offsets: Mapping[TopicPartition, int]
    """The high watermark by partition: the offset of the next row."""
    group_members: Mapping[str, int]
    """The number of members by consumer group."""
    topic_bytes: Mapping[str, int]
    """The size of the data files that the log names, by topic. Files that wait for vacuum do not count."""
    transactions_ended: Mapping[str, Mapping[str, int]]
    """Transactions of all processes that have ended since this process opened the log. By outcome (``commit``,
    ``abort``), then by reason (``client``, ``timeout``, ``fence``, ``admin``)."""
    inits: int
    """Producer ids and epochs that were assigned to all processes since this process opened the log."""
    rows_in: Mapping[str, int]
    """By topic, rows that all processes have appended since this process opened the log. Aborted rows count, too."""
    bytes_in: Mapping[str, int]
    """By topic, the size of the files of these rows."""
    rows_out: Mapping[str, int]
    """By topic, rows that scans and consumers of this process have read."""
    bytes_out: Mapping[str, int]
    """By topic, the size of these rows in memory."""
    append_errors: Mapping[str, int]
    """By the name of the error, requests and batches of this process that raised it, such as ``OutOfOrderSequence``."""
    duplicate_batches: int
    """Batches that this process appended again, and that the log recognized."""
    requests: Mapping[str, int]
    """Requests that this process has sent to the object store, by kind."""
    appends: Mapping[str, int]
    """Counts of this process's appends since it opened the store; see ``AppendCounts``."""
    call_times_ns: Mapping[str, int]
    """The time that this process's producers have spent in their calls, by Kafka's name of the metric."""


class Published(NamedTuple):
    """The slot that the newest version of a published table shows."""

    slot: int
    """The table shows the topic's ``snapshot`` at this slot."""
    time_ms: int
    """The log's time at the slot (ms)."""


class CallTimes:
    """Sums of the durations of calls, also added to ``within``. Threads may share it."""

    def __init__(self, within: CallTimes | None = None) -> None:
        self._within = within
        self._total_ns = dict.fromkeys(CALL_TIMES.values(), 0)

    def add(self, name: str, duration_ns: int) -> None:
        """Count a call by Kafka's name of its metric."""
        # No lock, which an interrupt could leave locked: no other thread runs within this addition (``calls.py``).
        self._total_ns[name] += duration_ns
        if self._within is not None:
            self._within.add(name, duration_ns)

    def totals(self) -> dict[str, int]:
        """Return the sums (ns) by Kafka's name of the metric; 0 for calls that were not made."""
        return self._total_ns.copy()


def store_metrics(
    state: StoreState,
    slot: int,
    now_ms: int,
    *,
    slots_since_checkpoint: int,
    publications: Mapping[str, Published],
    log_counts: LogCounts,
    call_counts: CallCounts,
    requests: Mapping[str, int],
    appends: Mapping[str, int],
    call_times_ns: Mapping[str, int],
) -> StoreMetrics:
    """Return the metrics of a state at the time ``now_ms`` of the store's clock.

    Args:
        publications: what the tables of published topics show, by topic; topics without a table are left out.
    """
    starts_ms = {state.transactions[name].open_producer_id: start_ms for name, start_ms in state.ongoing.items()}
    longest_ms = state.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS
    named = (
        (TopicPartition(state.topics[partition_id.topic_id].topic, partition_id.partition), partition)
        for partition_id, partition in state.partitions.items()
    )
    partitions = dict(sorted(named, key=lambda each: each[0]))
    by_state = Counter(transaction.state for transaction in state.transactions.values())
    return StoreMetrics(
        slot=slot,
        slots_since_checkpoint=slots_since_checkpoint,
        partitions_with_late_transactions_count=sum(
            _has_late_transaction(partition, starts_ms, now_ms - longest_ms) for partition in state.partitions.values()
        ),
        last_stable_offset_lag={
            key: partition.high_watermark - partition.last_stable_offset for key, partition in partitions.items()
        },
        producer_id_count=sum(len(partition.producers) for partition in state.partitions.values()),
        transactions_by_state={each.name: by_state[each] for each in TransactionState if by_state[each]},
        prepared_transactions=sum(state.transactions[name].prepared is not None for name in state.ongoing),
        longest_open_transaction_ms=max((now_ms - start_ms for start_ms in state.ongoing.values()), default=0),
        open_transactions_by_age_ms={
            age_ms: sum(now_ms - start_ms >= age_ms for start_ms in state.ongoing.values()) for age_ms in AGES_MS
        },
        consumer_lag={
            group_id: {
                TopicPartition(state.topics[partition_id.topic_id].topic, partition_id.partition): max(
                    0, state.partitions[partition_id].last_stable_offset - committed.offset
                )
                for partition_id, committed in sorted(group.offsets.items())
            }
            for group_id, group in sorted(state.groups.items())
        },
        publication_lag_ms={
            topic.topic: _publication_lag_ms(state, topic, publications.get(topic.topic), now_ms)
            for topic in state.topics.values()
            if topic.config.is_published
        },
        end_offsets={key: partition.high_watermark for key, partition in partitions.items()},
        group_members={group_id: len(group.members) for group_id, group in sorted(state.groups.items())},
        topic_bytes={
            topic.topic: sum(_bytes(state.partitions[partition_id]) for partition_id in topic.partition_ids())
            for topic in state.topics.values()
        },
        transactions_ended=_by_outcome(log_counts.transactions_ended),
        inits=log_counts.inits,
        rows_in=_by_topic(state, log_counts.rows_in),
        bytes_in=_by_topic(state, log_counts.bytes_in),
        rows_out=call_counts.rows_out.copy(),
        bytes_out=call_counts.bytes_out.copy(),
        append_errors=call_counts.append_errors.copy(),
        duplicate_batches=call_counts.duplicate_batches,
        requests=dict(requests),
        appends=dict(appends),
        call_times_ns=dict(call_times_ns),
    )


def _bytes(partition: Partition) -> int:
    return sum(segment.bytes for segment in partition.sealed) + partition.active_bytes


def _by_outcome(ended: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (outcome, reason), number in ended.items():
        found.setdefault(outcome, {})[reason] = number
    return found


def _by_topic(state: StoreState, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of topics that still exist, by name. Each existing topic has one."""
    return {topic.topic: counts.get(topic_id, 0) for topic_id, topic in state.topics.items()}


def _has_late_transaction(partition: Partition, starts_ms: Mapping[int, int], latest_start_ms: int) -> bool:
    """Return True if a transaction is late. One without a transactional id is always late: no process would end it."""
    return any(
        producer_id not in starts_ms or starts_ms[producer_id] < latest_start_ms
        for producer_id in partition.open_transactions
    )


def is_behind(state: StoreState, topic: Topic, published_slot: int) -> bool:
    """Return True if a topic has rows that were committed after the slot that its table shows."""
    partitions = [state.partitions[partition_id] for partition_id in topic.partition_ids()]
    return any(
        any(segment.max_end_slot > published_slot for segment in partition.sealed)
        or any(batch.end_slot > published_slot and batch.outcome is Outcome.COMMITTED for batch in partition.active)
        for partition in partitions
    )


def _publication_lag_ms(state: StoreState, topic: Topic, published: Published | None, now_ms: int) -> int:
    since = Published(topic.created_slot, topic.schema_versions[0].time_ms) if published is None else published
    return max(0, now_ms - since.time_ms) if is_behind(state, topic, since.slot) else 0
