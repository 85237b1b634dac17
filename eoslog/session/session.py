"""The connection of one process to a store: it reads the state and appends requests, by the store's clock.

This module also creates a store, aborts overdue transactions, and finds topics and partitions by name.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from eoslog.arguments import is_whole_number
from eoslog.errors import (
    CommitStateUnknown,
    EosLogError,
    InvalidEntry,
    NotAStore,
    RetriableError,
    StoreAlreadyExists,
    UnknownTopicOrPartition,
)
from eoslog.format.segment_index import SegmentIndexes
from eoslog.log.append_queue import AppendAttempts
from eoslog.log.log import Log
from eoslog.log.machine import Request
from eoslog.log.replica import LogConfig
from eoslog.session.description import (
    DESCRIPTION_PATH,
    ProbeRecord,
    StoreDescription,
    decode_description,
    encode_description,
    find_description,
    no_store,
    shown_url,
)
from eoslog.session.metrics import CallCounts, CallTimes, LogCounts
from eoslog.session.settings import IcebergSettings
from eoslog.session.store_machine import StoreMachine
from eoslog.state.draft import AppendEntry, Draft
from eoslog.state.entries import StoreCreated
from eoslog.state.names import PartitionId, TopicPartition, topic_partition
from eoslog.state.partition_state import Partition
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import StoreState, Topic, Transaction
from eoslog.state.topics import topic_named
from eoslog.state.transaction_requests import AbortOverdueTransactions
from eoslog.state.transactions import overdue_transactions
from eoslog.storage.conditional_put import put_once
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.probe import PROBE_DIRECTORY, probe_put_if_absent
from eoslog.storage.process import HomeProcess
from eoslog.wording import counted, quoted, shortened

T = TypeVar("T")
_LARGEST_PROBE = 100
_logger = logging.getLogger(__name__)
_READER_PATIENCE_MS = 5_000
"""A reader waits at most this long for the abort of overdue transactions (ms)."""
_PAUSE_AFTER_REFUSAL_MS = 300_000
"""After a refused abort, a reader does not try again for this long (ms)."""
_MOST_NAMED = 5
_MOST_PARTITIONS_NAMED = 10


def _finish_imports() -> None:
    """Wait until pyarrow has imported pandas and the masked arrays of NumPy.

    It does so in its first conversions of Python's values and of NumPy's arrays, under locks. If a process forked
    meanwhile, the first conversion in the child would wait for ever for a thread that only the parent has.
    """
    # Without another thread no import can be in progress, and a fork need not pay for one.
    if threading.active_count() > 1:
        pa.array([])
        pa.array(np.empty(0))


os.register_at_fork(before=_finish_imports)


class _Opened(NamedTuple):
    """A log, the process that opened it, and further objects of this process."""

    home: HomeProcess
    log: Log[StoreState]
    kept: dict[type, Any]


class Session:
    """The connection of one process to a store: it reads the state and appends requests.

    Threads may share it, and a forked child may continue to use it.
    """

    def __init__(
        self,
        object_store: ObjectStore,
        environment: Environment,
        log_config: LogConfig | None = None,
        *,
        may_create: bool = True,
        iceberg_settings: IcebergSettings | None = None,
    ) -> None:
        """
        Args:
            may_create: False: an object store that holds no eoslog store stays as it is.
            iceberg_settings: the catalog of the published Iceberg tables; None: there is no catalog.
        """
        self.iceberg_settings = iceberg_settings or IcebergSettings()
        self.object_store = object_store
        self.environment = environment
        self.log_counts = LogCounts()
        """The appends of all processes since this process opened the log."""
        self.call_counts = CallCounts()
        """The work of the calls of this process."""
        self._opened = _Opened(HomeProcess("store"), self._open_log(log_config), {})
        self.call_times = CallTimes()
        """The total time that the calls of this store's producers took."""
        self.overdue_transactions = OverdueTransactions(self)
        self._description: StoreDescription | None = None
        self._may_create = may_create
        self.is_new = False
        """True if this object has created the store."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def log(self) -> Log[StoreState]:
        """The store's log, as this process sees it.

        A forked child opens the log again: in the parent, another thread may have held a lock or been in the middle of
        applying a record.
        """
        return self._opened_here().log

    def _opened_here(self) -> _Opened:
        opened = self._opened
        if not opened.home.is_this:
            opened = self._opened = _Opened(HomeProcess("store"), self._open_log(opened.log.config), {})
        return opened

    def kept(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return this process's object of a class for the store; the first call makes it.

        Packages above this one cache their reads in such objects. Threads share the object. A forked child makes its
        own object, as it opens its own log.
        """
        kept = self._opened_here().kept
        found = kept.get(kind)
        # If several threads make one, all of them get the first.
        return kept.setdefault(kind, make()) if found is None else found  # type: ignore[no-any-return]

    @property
    def indexes(self) -> SegmentIndexes:
        """This process's cache of segment indexes."""
        return self.kept(SegmentIndexes, lambda: SegmentIndexes(self.object_store))

    def _open_log(self, config: LogConfig | None) -> Log[StoreState]:
        log: Log[StoreState] = Log(
            self.object_store,
            StoreMachine(),
            self.environment,
            config,
            before_checkpoint=self._before_checkpoint,
        )
        log.replica.on_record = self.log_counts.add
        return log

    @property
    def url(self) -> str:
        """The URL of the store, without credentials."""
        return self.object_store.url

    @property
    def requests(self) -> Counter[str]:
        """Requests sent to the object store so far, by kind: PUT, GET, LIST, DELETE."""
        return self.object_store.requests

    def describe(self) -> StoreDescription:
        """Return the description of the store.

        Raises:
            NotAStore, UnsupportedFormat, CorruptRecord
        """
        found = self._description or self._find_description()
        if found is None:
            raise no_store(self.object_store)
        return found

    def _find_description(self) -> StoreDescription | None:
        if self._description is None:
            found = find_description(self.object_store)
            if found is not None:
                self.object_store.watch(DESCRIPTION_PATH, partial(self._is_store, found.store_id))
                self.object_store.share_turns(found.store_id)
                self.log.adopt_slot_retention(found.slot_retention_ms)
                # Last: after an interrupt above, the next call does it all again.
                self._description = found
                _logger.info("%s: connected to store %s", self.url, found.store_id)
        return self._description

    def _is_store(self, store_id: str, description: bytes) -> bool:
        """Return True if these are the bytes of the description of the store with this id."""
        try:
            return decode_description(description, self.url).store_id == store_id
        except EosLogError:
            return False

    def read(self, function: Callable[[StoreState, int], T], *, refresh: bool = True) -> T:
        """Call ``function`` with a state of the store and the slot of that state, and return its answer.

        Args:
            refresh: use the newest state; False: use the state that this process has, without a request.
        """
        self.describe()
        return self.log.read(function, refresh=refresh)

    @property
    def known_state(self) -> StoreState:
        """The newest state that this process knows, without a lock and without a request.

        Another thread may be folding a record into it. A record replaces topics and partitions as a whole, so read only
        single ones. Two of them may be of different slots.
        """
        return self.log.replica.state

    @property
    def known_slot(self) -> int:
        """The newest slot that this process knows."""
        return self.log.replica.slot

    def append(
        self,
        request: Request[T],
        *,
        timeout_ms: int | None = None,
        attempts: AppendAttempts | None = None,
    ) -> T:
        """Append a request to the store's log; see ``Log.append``."""
        self.describe()
        try:
            return self.log.append(request, timeout_ms=timeout_ms, attempts=attempts)
        except EosLogError as error:
            self.call_counts.failed(error)
            raise

    def now_ms(self) -> int:
        """Return the time of the object store's clock (ms since the epoch)."""
        clock = self.object_store.clock
        now_ms = clock.now_ms()
        if now_ms == 0:
            # No answer has arrived yet, so the clock does not know the time. Send a request.
            self.describe()
            now_ms = clock.now_ms()
        return now_ms

    def create(self) -> StoreDescription:
        """Create a store here, after a probe that the object store supports put-if-absent.

        A creation that was interrupted by a crash is continued.

        Raises:
            StoreAlreadyExists: a store exists here.
            NotAStore: the URL holds objects that do not belong to a store, or no store may be created.
            PutIfAbsentUnsupported: the object store cannot guarantee exactly-once.
        """
        existing = find_description(self.object_store)
        if existing is None and self.is_occupied():
            # Another process may have created the store between the two requests.
            existing = find_description(self.object_store)
            if existing is None:
                raise NotAStore(
                    f"{self.url} holds objects that belong to no store. Choose an empty URL for a new store"
                )
        if not self._may_create and (existing is None or not self._has_log()):
            raise NotAStore(
                f"there is no eoslog store at {shown_url(self.url)}, and this caller creates none (create=False, "
                "--no-create). Check the URL"
            )
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
            # Another process has appended the first entry. Check that its log can be read.
            self.read(lambda state, slot: None)
        else:
            # The store exists now, so an error of a log handler of the application must not reach the caller.
            with suppress(Exception):
                _logger.info("created a new store at %s, its id is %s", shown_url(self.url), existing.store_id)
            self.is_new = True
        return existing

    def ensure_created(self) -> None:
        """Create the store unless it exists."""
        try:
            if self._find_description() is not None:
                self.log.read(lambda state, slot: None)
                return
        except NotAStore:
            # Its description is here, but no slot is: its creation was interrupted.
            pass
        try:
            self.create()
        except StoreAlreadyExists:
            self.describe()

    def is_occupied(self) -> bool:
        """Return True if objects exist here.

        Objects of a probe do not count: another process may be creating the store now.
        """
        listed = self.object_store.list("", limit=_LARGEST_PROBE)
        return any(not info.path.startswith(PROBE_DIRECTORY) for info in listed)

    def _has_log(self) -> bool:
        try:
            self.log.replica.reader.newest_slot()
        except NotAStore:
            return False
        return True

    def _describe_anew(self) -> StoreDescription:
        now_ms = self.object_store.clock.now_ms()
        description = StoreDescription(
            store_id=self.environment.new_id(),
            created_ms=now_ms,
            slot_retention_ms=self.log.config.slot_retention_ms,
            probe=ProbeRecord(put_if_absent=True, time_ms=now_ms),
        )
        body = put_once(self.object_store, self.environment, DESCRIPTION_PATH, encode_description(description))
        return decode_description(body, self.object_store.url)

    def resolve(self, error: CommitStateUnknown, *, timeout_ms: int | None = None) -> bool:
        """Return True if the append that raised ``error`` has landed. After an answer of False it never lands.

        Do not use it for a call of a producer: repeat that call. The error names one attempt only, and an earlier
        attempt of the same call may have landed.

        Args:
            timeout_ms: start no further attempt after this time (ms); a minute if None.

        Raises:
            CommitStateUnknown: the store still does not answer. Or the request was sent to another process, and no
                record has it. That process may still append it: only the repeated call settles it.
            OutcomeLost: the slot has been deleted since.
        """
        self.describe()
        if error.is_sent:
            # Another process may append the request in any later slot. So fencing one slot cannot settle the outcome.
            if self.log.appender.find_request(error.slot, error.append_id) is not None:
                return True
            raise CommitStateUnknown(str(error), slot=error.slot, append_id=error.append_id, is_sent=True)
        return self.log.resolve(error.slot, error.append_id, timeout_ms=timeout_ms)

    def _before_checkpoint(self) -> None:
        """Make the state smaller. The log calls this before a checkpoint that is due."""


class OverdueTransactions:
    """Aborts the transactions of one store that have been open for longer than their timeouts."""

    def __init__(self, store: Session) -> None:
        self._store = store
        self._refused_until_ms = 0
        self.aborted = 0
        """The number of transactions that this process has aborted."""

    def abort(self, *, timeout_ms: int | None = None) -> list[str]:
        """Abort the overdue transactions. A transaction whose commit lands first stays committed.

        If the newest known state has none of them, no request is sent.

        Args:
            timeout_ms: start no further attempt after this time (ms). None: ``LogConfig.commit_timeout_ms``.

        Returns:
            The transactional ids that were aborted.

        Raises:
            StoreAccessDenied: this process may not write.
            RetriableError
        """
        now_ms = self._store.now_ms()
        aborted: list[str] = []
        while self._store.read(lambda state, slot: bool(overdue_transactions(state, now_ms)), refresh=False):
            # A record has room for a limited number of aborts and new producer ids.
            ended = self._store.append(AbortOverdueTransactions(now_ms), timeout_ms=timeout_ms)
            if not ended:
                break
            aborted += ended
            self.aborted += len(ended)
        if aborted:
            # They are aborted, whatever a handler of the application raises.
            with suppress(Exception):
                named = ", ".join(quoted(each) for each in aborted[:_MOST_NAMED])
                more = ", ..." if len(aborted) > _MOST_NAMED else ""
                timed_out = "%s: %s aborted after their timeouts: %s%s"
                _logger.warning(timed_out, self._store.url, counted(len(aborted), "transaction"), named, more)
        return aborted

    def abort_for_reader(self) -> bool:
        """Abort the overdue transactions for a reader, because they may hide rows. Never raise an error.

        A process that may not write logs a warning, at most once in five minutes, and leaves the aborts to others.

        Returns:
            True if a transaction was aborted: then more rows are visible.
        """
        elapsed_ms = self._store.environment.monotonic_ms()
        if elapsed_ms < self._refused_until_ms:
            return False
        try:
            return bool(self.abort(timeout_ms=_READER_PATIENCE_MS))
        except RetriableError as error:
            # No pause: the next read tries again.
            _logger.info("%s: an overdue transaction was not aborted: %s", self._store.url, error)
        except EosLogError as error:
            # Whatever the reason, a read does not fail because of an abort: it shows what is visible.
            self._refused_until_ms = elapsed_ms + _PAUSE_AFTER_REFUSAL_MS
            self._warn(error)
        return False

    def read_unblocked(self, function: Callable[[StoreState, int], T], is_held_back: Callable[[T], bool]) -> T:
        """Call ``function`` with the newest state and slot, as ``Store.read`` does.

        If ``is_held_back`` returns True for the answer, open transactions hide rows. Then the overdue transactions are
        aborted if possible, and ``function`` is called again.
        """
        found = self._store.read(function)
        if is_held_back(found) and self.abort_for_reader():
            return self._store.read(function, refresh=False)
        return found

    def _warn(self, error: EosLogError) -> None:
        now_ms = self._store.now_ms()
        described = self._store.read(
            lambda state, slot: [_described(state, each, now_ms) for each in overdue_transactions(state, now_ms)],
            refresh=False,
        )
        if not described:
            return
        if len(described) > _MOST_NAMED:
            described = [*described[:_MOST_NAMED], f"{len(described) - _MOST_NAMED} more"]
        _logger.warning(
            "%s: transactions are past their timeouts and may hide rows: %s. This process could not abort them (%s). "
            "Any process that appends to the store aborts them, and so does eoslog coordinator.",
            self._store.url,
            "; ".join(described),
            error,
        )


def _described(state: StoreState, transaction: Transaction, now_ms: int) -> str:
    names = [
        f"{state.topics[partition_id.topic_id].topic}-{partition_id.partition}"
        for partition_id in sorted(transaction.partitions)
        if partition_id.topic_id in state.topics
    ]
    if len(names) > _MOST_PARTITIONS_NAMED:
        names = [*names[:_MOST_PARTITIONS_NAMED], "..."]
    where = f" in {', '.join(names)}" if names else ""
    age_s = (now_ms - transaction.start_ms) // 1000
    return f"transactional id {quoted(transaction.transactional_id)}{shortened(where)}, open for {age_s} s"


def find_topic(store: Session, name: str) -> Topic:
    """Return a topic of the known state. Read the newest state only if the known state has no such topic.

    Raises:
        UnknownTopicOrPartition
    """

    def known(state: StoreState, slot: int) -> bool:
        return isinstance(name, str) and name in state.topic_ids

    is_known = store.read(known, refresh=False)
    return store.read(lambda state, slot: topic_named(state, name), refresh=not is_known)


def has_topic(store: Session, topic: Topic) -> bool:
    """Return True if the known state has this very object as a topic.

    This takes no lock, so it needs no step in a thread of the library. A topic that was deleted, created again or
    changed is another object.
    """
    return store.known_state.topics.get(topic.topic_id) is topic


def partition_named(state: StoreState | Draft, given: TopicPartition | tuple[str, int]) -> tuple[Topic, Partition]:
    """Return a topic and one of its partitions.

    Raises:
        UnknownTopicOrPartition
        InvalidRequest: the caller gives something else than a partition.
    """
    name, partition = topic_partition(given)
    topic = topic_named(state, name)
    return topic, partition_of(state, PartitionId(topic.topic_id, partition))


def check_partition(topic: Topic, partition: int) -> int:
    """Check a partition number, and return it.

    Raises:
        UnknownTopicOrPartition: the topic has no such partition.
    """
    if not is_whole_number(partition) or not 0 <= partition < topic.partitions:
        raise UnknownTopicOrPartition(
            f"topic {topic.topic} has partitions 0 to {topic.partitions - 1}, not {quoted(partition)}"
        )
    return partition
