"""A store, as its users hold it: the way to producers, consumers, scans and administration."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from eoslog.client import exit_flush  # noqa: F401 - must register its functions before the program registers its own
from eoslog.client.commits import Commit, read_commits
from eoslog.client.description import (
    DESCRIPTION_PATH,
    ProbeRecord,
    StoreDescription,
    decode_description,
    read_description,
)
from eoslog.client.history import History
from eoslog.client.metrics import CallTimes, StoreMetrics, store_metrics
from eoslog.client.scans import plan_scan
from eoslog.client.settings import Settings, load_settings
from eoslog.client.time_limits import DEFAULT_DELIVERY_TIMEOUT_MS, DEFAULT_MAX_BLOCK_MS
from eoslog.client.timeouts import OverdueTransactions
from eoslog.errors import (
    CommitStateUnknown,
    EosLogError,
    InvalidEntry,
    InvalidRequest,
    NotAStore,
    StoreAlreadyExists,
    quoted,
)
from eoslog.log.log import Log
from eoslog.log.machine import Request
from eoslog.log.proposals import AppendAttempts
from eoslog.log.view import LogConfig
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import SegmentIndexes
from eoslog.read.scan import Scan
from eoslog.rules.entries import StoreCreated
from eoslog.rules.machine import StoreMachine
from eoslog.rules.partition_state import NO_SLOT
from eoslog.rules.prepared import DEFAULT_PREPARED_TIMEOUT_MS
from eoslog.rules.producer_ids import DEFAULT_TRANSACTION_TIMEOUT_MS
from eoslog.rules.requests import AppendEntry
from eoslog.rules.state import StoreState
from eoslog.segment.sealing import seal_segments
from eoslog.store.environment import Environment
from eoslog.store.object_store import ObjectNotFound, ObjectStore, PutOutcome
from eoslog.store.open import open_object_store
from eoslog.store.probe import PROBE_DIRECTORY, probe_put_if_absent
from eoslog.store.process import HomeProcess, cannot_be_pickled

if TYPE_CHECKING:
    from eoslog.client.admin import Admin
    from eoslog.client.consumer import Consumer
    from eoslog.client.producer import Producer

T = TypeVar("T")
_LARGEST_PROBE = 100


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
    import eoslog.client.admin
    import eoslog.client.consumer
    import eoslog.client.coordinator
    import eoslog.client.producer  # noqa: F401

    if settings is None:
        settings = load_settings()
    url = os.fspath(url)
    environment = Environment()
    object_store = open_object_store(url, environment, **settings.store_options(url, options))
    return Store(object_store, environment, log_config or settings.log_config())


class _Opened(NamedTuple):
    """A log, as the process follows it that opened it."""

    home: HomeProcess
    log: Log[StoreState]


class Store:
    """One eoslog store: topics, transactions and groups that one log orders.

    Threads may share it, and a forked child may go on with it. Producers and consumers are opened anew in the child.
    """

    def __init__(
        self, object_store: ObjectStore, environment: Environment, log_config: LogConfig | None = None
    ) -> None:
        self.object_store = object_store
        self.environment = environment
        self._opened = _Opened(HomeProcess("store"), self._open_log(log_config))
        self.indexes = SegmentIndexes(object_store)
        self.call_times = CallTimes()
        """How long the calls of this store's producers took, all together."""
        self.overdue_transactions = OverdueTransactions(self)
        self._description: StoreDescription | None = None

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "its URL and options, and call eoslog.connect() there")

    @property
    def log(self) -> Log[StoreState]:
        """The store's log, as this process follows it.

        A forked child opens the log again: in the parent, another thread may have held a lock or been in the middle of
        applying a record.
        """
        opened = self._opened
        if not opened.home.is_this:
            opened = self._opened = _Opened(HomeProcess("store"), self._open_log(opened.log.config))
        return opened.log

    def _open_log(self, config: LogConfig | None) -> Log[StoreState]:
        log: Log[StoreState] = Log(self.object_store, StoreMachine(), self.environment, config)
        log.before_checkpoint = lambda: seal_segments(log, self.object_store, self.environment)
        return log

    @property
    def url(self) -> str:
        """Where the store lies, without credentials."""
        return self.object_store.url

    @property
    def requests(self) -> Counter[str]:
        """Requests sent to the object store so far, by kind: PUT, GET, LIST, DELETE."""
        return self.object_store.requests

    def metrics(self) -> StoreMetrics:
        """Numbers to watch, as of now: what open transactions hold back, and what this process does. One small read."""

        def look(state: StoreState, slot: int) -> StoreMetrics:
            return store_metrics(
                state,
                slot,
                self.now_ms(),
                slots_since_checkpoint=self.log.view.slots_since_checkpoint(),
                requests=self.requests,
                appends=self.log.counts.as_dict(),
                call_times_ns=self.call_times.totals(),
            )

        return self.read(look)

    @property
    def admin(self) -> Admin:
        """Topics, transactions, groups: look and change."""
        from eoslog.client.admin import Admin

        return Admin(self)

    def describe(self) -> StoreDescription:
        """What the store is.

        Raises:
            NotAStore, UnsupportedFormat, CorruptRecord
        """
        if self._description is None:
            self._description = read_description(self.object_store)
            self.object_store.watch(DESCRIPTION_PATH, self._is_this_store)
            self.log.adopt_grace(self._description.slot_grace_ms)
        return self._description

    def _is_this_store(self, description: bytes) -> bool:
        try:
            found = decode_description(description, self.url)
        except EosLogError:
            return False
        return self._description is not None and found.store_id == self._description.store_id

    def read(self, function: Callable[[StoreState, int], T], *, refresh: bool = True) -> T:
        """Call ``function`` with the store's state and slot, by default as of now."""
        self.describe()
        return self.log.read(function, refresh=refresh)

    def append(
        self,
        request: Request[T],
        *,
        timeout_ms: int | None = None,
        attempts: AppendAttempts | None = None,
    ) -> T:
        """Append to the store's log; see ``Log.append``."""
        self.describe()
        return self.log.append(request, timeout_ms=timeout_ms, attempts=attempts)

    def now_ms(self) -> int:
        """The time by the object store's clock (ms since the epoch)."""
        clock = self.object_store.clock
        now_ms = clock.now_ms()
        if now_ms == 0:
            # No answer has told the time yet.
            self.describe()
            now_ms = clock.now_ms()
        return now_ms

    def create(self) -> StoreDescription:
        """Make a store here, after a probe that the object store honours put-if-absent. Goes on where a crash left off.

        Raises:
            StoreAlreadyExists: there is one.
            NotAStore: the place holds objects that are not a store's.
            PutIfAbsentUnsupported: no exactly-once promise could be kept here.
        """
        existing = self._existing_description()
        if existing is None and self._is_occupied():
            # Another process may have made the store between the two looks.
            existing = self._existing_description()
            if existing is None:
                raise NotAStore(f"{self.url} holds files that are not a store's; choose an empty place for a new store")
        if existing is None:
            probe_put_if_absent(self.object_store, self.environment)
            self.environment.reached("store.create.probed")
            existing = self._describe_anew()
            self.environment.reached("store.create.described")
        elif self._has_log():
            raise StoreAlreadyExists(f"there is a store at {self.url} already, its id is {existing.store_id}")
        first = StoreCreated(
            store_id=existing.store_id,
            reader_features=existing.reader_features,
            writer_features=existing.writer_features,
            time_ms=existing.created_ms,
        )
        try:
            self.log.create(AppendEntry(first))
        except InvalidEntry:
            self.read(lambda state, slot: None)
        return existing

    def ensure_created(self) -> None:
        """Make the store unless it exists."""
        try:
            self.describe()
            self.log.read(lambda state, slot: None)
        except NotAStore:
            try:
                self.create()
            except StoreAlreadyExists:
                self.describe()

    def _is_occupied(self) -> bool:
        """Whether something lies here. The probe of another process that makes the store just now does not count."""
        listed = self.object_store.list("", limit=_LARGEST_PROBE)
        return any(not info.path.startswith(PROBE_DIRECTORY) for info in listed)

    def _existing_description(self) -> StoreDescription | None:
        try:
            return decode_description(self.object_store.get(DESCRIPTION_PATH).body, self.url)
        except ObjectNotFound:
            return None

    def _has_log(self) -> bool:
        try:
            self.log.view.newest_slot()
        except NotAStore:
            return False
        return True

    def _describe_anew(self) -> StoreDescription:
        now_ms = self.object_store.clock.now_ms()
        description = StoreDescription(
            store_id=self.environment.new_token(),
            created_ms=now_ms,
            slot_grace_ms=self.log.config.grace_ms,
            probe=ProbeRecord(put_if_absent=True, time_ms=now_ms),
        )
        body = description.model_dump_json(indent=2).encode() + b"\n"
        if self.object_store.put_if_absent(DESCRIPTION_PATH, body) is PutOutcome.CREATED:
            return description
        return read_description(self.object_store)

    def resolve(self, error: CommitStateUnknown, *, timeout_ms: int | None = None) -> bool:
        """Whether the append that raised ``error`` landed after all. It can land no more once this has answered.

        A producer's call is repeated instead: this speaks of one attempt, and an earlier one may have landed.

        Args:
            timeout_ms: begin no further attempt after so long; a minute if None.

        Raises:
            CommitStateUnknown: the store still does not answer. Or the request was published, no record has it, and
                another process may still append it: only the repeated call settles it.
            OutcomeLost: the slot has been deleted since.
        """
        self.describe()
        if error.is_published:
            if self.log.find_request(error.slot, error.token) is not None:
                return True
            raise CommitStateUnknown(str(error), slot=error.slot, token=error.token, is_published=True)
        return self.log.resolve(error.slot, error.token, timeout_ms=timeout_ms)

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
        from eoslog.client.producer import Producer

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
        from eoslog.client.consumer import Consumer

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
