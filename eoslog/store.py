"""A store, as its users hold it: the way to producers, consumers, scans and administration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from eoslog.errors import (
    InvalidRequest,
    quoted,
)
from eoslog.log.log import Log
from eoslog.log.replica import LogConfig
from eoslog.maintenance.sealing import seal_segments
from eoslog.producer import exit_flush  # noqa: F401 - must register its functions before the program registers its own
from eoslog.read.commits import Commit, read_commits
from eoslog.read.history import History
from eoslog.read.isolation import IsolationLevel
from eoslog.read.scan import Scan
from eoslog.read.scan_planning import plan_scan
from eoslog.session.metrics import StoreMetrics, store_metrics
from eoslog.session.session import Session
from eoslog.session.settings import Settings, load_settings
from eoslog.session.time_limits import DEFAULT_DELIVERY_TIMEOUT_MS, DEFAULT_MAX_BLOCK_MS
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.prepared import DEFAULT_PREPARED_TIMEOUT_MS
from eoslog.state.producer_ids import DEFAULT_TRANSACTION_TIMEOUT_MS
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Environment
from eoslog.storage.opening import open_object_store
from eoslog.storage.process import cannot_be_pickled

if TYPE_CHECKING:
    from eoslog.admin.admin import Admin
    from eoslog.consumer.consumer import Consumer
    from eoslog.producer.producer import Producer

T = TypeVar("T")


def connect(
    url: str | os.PathLike[str],
    *,
    log_config: LogConfig | None = None,
    settings: Settings | None = None,
    **options: Any,
) -> Store:
    """Hold a store. Nothing is read of it before the first use.

    Args:
        url: a local path (also a ``Path``), ``s3://bucket/prefix``, or ``memory://name`` (within this process).
        settings: give what is not given here; if None, those of the file that ``EOSLOG_CONFIG`` names and of the
            environment.
        options: those of the object store, as ``endpoint_url``, ``key``, ``secret`` for S3 or ``fsync`` for local disk.

    Raises:
        InvalidOption: an unknown scheme or option.
    """
    # Now, not at their first use. A thread may be in the middle of an import when another one forks, and then the child
    # would wait for ever for a lock that only the importing thread releases.
    import eoslog.admin.admin
    import eoslog.consumer.consumer
    import eoslog.maintenance.coordinator
    import eoslog.producer.producer  # noqa: F401

    if settings is None:
        settings = load_settings()
    url = os.fspath(url)
    environment = Environment()
    object_store = open_object_store(url, environment, **settings.store_options(url, options))
    return Store(object_store, environment, log_config or settings.log_config())


class Store(Session):
    """One eoslog store: topics, transactions and groups that one log orders.

    Threads may share it, and a forked child may go on with it. Producers and consumers are opened anew in the child.
    """

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "its URL and options, and call eoslog.connect() there")

    def metrics(self) -> StoreMetrics:
        """Numbers to watch, as of now: what open transactions hold back, and what this process does. One small read."""

        def look(state: StoreState, slot: int) -> StoreMetrics:
            return store_metrics(
                state,
                slot,
                self.now_ms(),
                slots_since_checkpoint=self.log.replica.slots_since_checkpoint(),
                requests=self.requests,
                appends=self.log.appender.counts.as_dict(),
                call_times_ns=self.call_times.totals(),
            )

        return self.read(look)

    @property
    def admin(self) -> Admin:
        """Topics, transactions, groups: look and change."""
        from eoslog.admin.admin import Admin

        return Admin(self)

    def producer(
        self,
        transactional_id: str | None = None,
        *,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        staged: bool = False,
        buffer_bytes: int | None = None,
        max_block_ms: int = DEFAULT_MAX_BLOCK_MS,
        delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS,
        prepared_timeout_ms: int | None = DEFAULT_PREPARED_TIMEOUT_MS,
    ) -> Producer:
        """A producer: transactional with a transactional id, else idempotent.

        Args:
            transaction_timeout_ms: anybody may abort a transaction that is open for longer.
            max_block_ms: a call tries for so long, then raises ``RequestTimedOut``; only that call may follow.
            delivery_timeout_ms: rows whose writing has failed for so long, over several calls, are given up.
            staged: rows get their offsets when the transaction commits, not when they are flushed: they hold nobody
                back meanwhile, and read_uncommitted does not show them.
            buffer_bytes: rows are flushed when so many bytes are collected.
            prepared_timeout_ms: anybody may abort a transaction that has been prepared for longer (KIP-939): then it
                does not count how long it has been open. None: nobody ever. Until its end one with flushed rows holds
                read_committed back, unless the producer is staged.
        """
        from eoslog.producer.producer import Producer

        return Producer(
            self,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            staged=staged,
            buffer_bytes=buffer_bytes,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            prepared_timeout_ms=prepared_timeout_ms,
        )

    def consumer(self, group_id: str | None = None, **options: Any) -> Consumer:
        """A consumer; see ``Consumer`` for the options."""
        from eoslog.consumer.consumer import Consumer

        return Consumer(self, group_id, **options)

    def scan(
        self,
        topic: str,
        *,
        isolation_level: str | IsolationLevel | None = None,
        columns: Sequence[str] | None = None,
        partitions: Sequence[int] | None = None,
        starting_offsets: Mapping[int, int] | None = None,
        ending_offsets: Mapping[int, int] | None = None,
        slot: int | None = None,
        timestamp: datetime | int | None = None,
        transaction_consistent: bool = False,
        include_control_rows: bool = False,
        predicate: str | None = None,
    ) -> Scan:
        """Plan a read of a topic's visible rows, as of now.

        Args:
            isolation_level: ``read_committed`` if None; ``snapshot`` if a slot or a timestamp is given.
            columns: the columns to read. Topics of columns have ``_topic, _partition, _offset, _timestamp`` too, and
                every topic ``_transactional_id, _producer_id, _producer_epoch, _sequence, _control, _slot,
                _commit_timestamp`` (see ``read.columns.TRANSACTION_COLUMNS``).
            partitions: all if None.
            starting_offsets: first offset by partition (inclusive); the log start where none is given.
            ending_offsets: end by partition (exclusive); all that is visible where none is given.
            slot: for ``snapshot``: the slot by which transactions had ended; the newest if None.
            timestamp: for ``snapshot``: the time by which transactions had ended, by the log's time: a datetime with a
                time zone, or ms since the epoch.
            transaction_consistent: under ``read_committed``: end where no committed transaction is split over the
                partitions that are read, at or before the ends.
            include_control_rows: control rows are rows too, with ``_control`` ``COMMIT`` or ``ABORT`` and nulls in the
                topic's own columns; those of aborted transactions where their rows are visible. Without ``columns``
                this adds the transaction columns.
            predicate: which rows to read, as SQL's WHERE has it: ``miles > 1000 AND carrier IN ('UA', 'B6')``. Columns
                are compared with literals, also ``_partition, _offset, _timestamp`` (of Kafka records ``partition,
                offset, timestamp``). Files without such rows, by the log's statistics, are not fetched. Texts are
                compared by their bytes, and a NaN is greater than other numbers, as in Spark.

        Raises:
            UnknownTopicOrPartition, OffsetOutOfRange, InvalidOption
        """
        return plan_scan(
            self,
            topic,
            isolation_level,
            columns=columns,
            partitions=partitions,
            starting_offsets=starting_offsets or {},
            ending_offsets=ending_offsets or {},
            slot=slot,
            timestamp=timestamp,
            transaction_consistent=transaction_consistent,
            include_control_rows=include_control_rows,
            predicate=predicate,
        )

    def commits(
        self, topics: str | Sequence[str], *, after_slot: int = NO_SLOT, until_slot: int | None = None
    ) -> Iterator[Commit]:
        """What was committed to these topics, slot by slot in the order of the decisions, each whole and once.

        The iterator ends with what is there now. To go on later, or elsewhere, give the last ``Commit.slot`` as
        ``after_slot``. An open transaction hides nobody else's, and comes when it commits. The iterator belongs to one
        thread at a time.

        Args:
            after_slot: begin behind this slot; -1 is the beginning of the log.
            until_slot: the last slot (inclusive); the newest if None.

        Raises:
            UnknownTopicOrPartition, InvalidOption
            OffsetOutOfRange: rows that were committed after ``after_slot`` have been deleted since.
            ConcurrentAccess: another thread advances the iterator.
        """
        if not isinstance(topics, Iterable):
            raise InvalidRequest(f"topics are given as a name or a list of names, not as {quoted(topics)}")
        return read_commits(self, [topics] if isinstance(topics, str) else topics, after_slot, until_slot)

    def history(
        self,
        topic: str | None = None,
        *,
        limit: int | None = None,
        transactional_id: str | None = None,
        include_aborts: bool = False,
    ) -> History:
        """What was done to topics, the newest first: commits, and whatever else changed a topic or its rows.

        It is read from the log as the iterator goes on: a request brings many slots. Old slots are deleted after a
        grace, and the history ends there; ``is_cut`` of what is returned tells that.

        Args:
            topic: only what touched this topic since it was created, with the numbers of its rows alone.
            limit: so many operations at most.
            transactional_id: only the transactions of this one.
            include_aborts: with the transactions that were aborted.

        Raises:
            UnknownTopicOrPartition, InvalidOption
            CorruptRecord, UnsupportedFormat: as the iterator comes to a slot that cannot be read.
            ConcurrentAccess: another thread advances the iterator.
        """
        return History(self, topic, limit=limit, transactional_id=transactional_id, include_aborts=include_aborts)

    def _before_checkpoint(self, log: Log[StoreState]) -> None:
        seal_segments(log, self.object_store, self.environment)
