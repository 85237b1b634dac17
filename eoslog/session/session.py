"""One process's connection to a store: its log, its clock, its settings, and what they cost."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from eoslog.errors import (
    CommitStateUnknown,
    EosLogError,
    InvalidEntry,
    NotAStore,
    RetriableError,
    StoreAlreadyExists,
    quoted,
    shortened,
)
from eoslog.format.segment_index_cache import SegmentIndexes
from eoslog.log.log import Log
from eoslog.log.machine import Request
from eoslog.log.proposals import AppendAttempts
from eoslog.log.replica import LogConfig
from eoslog.session.description import (
    DESCRIPTION_PATH,
    ProbeRecord,
    StoreDescription,
    decode_description,
    read_description,
)
from eoslog.session.metrics import CallTimes
from eoslog.session.store_machine import StoreMachine
from eoslog.state.append_entry import AppendEntry
from eoslog.state.entries import StoreCreated
from eoslog.state.store_state import StoreState, Transaction
from eoslog.state.transaction_requests import AbortOverdueTransactions
from eoslog.state.transactions import overdue_transactions
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore, PutOutcome
from eoslog.storage.probe import PROBE_DIRECTORY, probe_put_if_absent
from eoslog.storage.process import HomeProcess

T = TypeVar("T")
_LARGEST_PROBE = 100
_logger = logging.getLogger(__name__)
_READER_PATIENCE_MS = 5_000
"""A reader does not wait longer for an abort."""
_PAUSE_AFTER_REFUSAL_MS = 300_000
"""A process that may not write does not try again with every read."""
_MOST_NAMED = 5
_MOST_PARTITIONS_NAMED = 10


class _Opened(NamedTuple):
    """A log, as the process follows it that opened it."""

    home: HomeProcess
    log: Log[StoreState]


class Session:
    """A store as one process is connected to it: snapshots of its state, and appends.

    Threads may share it, and a forked child may go on with it.
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
        return f"{type(self).__name__}({self.url!r})"

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
        log.before_checkpoint = lambda: self._before_checkpoint(log)
        return log

    @property
    def url(self) -> str:
        """Where the store lies, without credentials."""
        return self.object_store.url

    @property
    def requests(self) -> Counter[str]:
        """Requests sent to the object store so far, by kind: PUT, GET, LIST, DELETE."""
        return self.object_store.requests

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
            self.log.replica.newest_slot()
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
            if self.log.appender.find_request(error.slot, error.token) is not None:
                return True
            raise CommitStateUnknown(str(error), slot=error.slot, token=error.token, is_published=True)
        return self.log.resolve(error.slot, error.token, timeout_ms=timeout_ms)

    def _before_checkpoint(self, log: Log[StoreState]) -> None:
        """Make the state smaller before it is checkpointed."""


class OverdueTransactions:
    """The transactions of one store that are open for longer than their timeouts."""

    def __init__(self, store: Session) -> None:
        self._store = store
        self._refused_until_ms = 0

    def abort(self, *, timeout_ms: int | None = None) -> list[str]:
        """Abort them. A transaction whose commit lands first stays committed.

        If the newest known state has none of them, no request is sent.

        Args:
            timeout_ms: start no further attempt after this time; None: as long as the log's settings say.

        Returns:
            The transactional ids that were aborted.

        Raises:
            StoreAccessDenied: this process may not write.
            RetriableError
        """
        now_ms = self._store.now_ms()
        aborted: list[str] = []
        while self._store.read(lambda state, slot: bool(overdue_transactions(state, now_ms)), refresh=False):
            # A record holds a limited number of aborts, and one new producer id.
            ended = self._store.append(AbortOverdueTransactions(now_ms), timeout_ms=timeout_ms)
            if not ended:
                break
            aborted += ended
        return aborted

    def abort_for_reader(self) -> bool:
        """Abort them for a reader whose rows they may hide, and raise nothing.

        A process that may not write logs a warning, at most once in five minutes, and leaves the aborts to others.

        Returns:
            True if any was aborted: then more rows are visible.
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

        If ``is_held_back`` says of its answer that open transactions hide rows, the overdue ones are aborted if that is
        possible, and ``function`` is called again.
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
    places = [
        f"{state.topics[place.topic_id].topic}-{place.partition}"
        for place in sorted(transaction.partitions)
        if place.topic_id in state.topics
    ]
    if len(places) > _MOST_PARTITIONS_NAMED:
        places = [*places[:_MOST_PARTITIONS_NAMED], "..."]
    where = f" in {', '.join(places)}" if places else ""
    age_s = (now_ms - transaction.start_ms) // 1000
    return f"transactional id {quoted(transaction.transactional_id)}{shortened(where)}, open for {age_s} s"
