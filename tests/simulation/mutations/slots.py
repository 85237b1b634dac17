"""Mutations of the append: the put into a slot, and the conclusions from its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from eoslog.errors import CommitStateUnknown, EosLogError, StoreUnavailable
from eoslog.log import record_put
from eoslog.log.log import Log
from eoslog.log.next_record import NextRecord
from eoslog.log.record_put import ConditionalAppend, PutResult, RecordPut
from eoslog.log.replica import Replica
from eoslog.log.slots import SLOTS, SlotRecord, decode_line, decode_tail, first_line, slot_of, slot_path
from eoslog.producer.transaction_manager import TransactionManager
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.storage.clock import Moment, StoreClock
from eoslog.storage.object_store import ObjectNotFound, ObjectStore, PutOutcome
from tests.simulation.focus import FOCUSES
from tests.simulation.mutations.mutation import Focus, method, mutation

RETRIES = Focus(("notary0", "writer0", "idempotent0"), {"twice": 0.1, "lost_answer": 0.1}, steps=300)
UNKNOWN = Focus(("notary0", "idempotent0"), {"late_put": 0.2, "lost_answer": 0.1, "pause": 0.05}, steps=500)
PAUSED_TOO_LONG = Focus(("log-writer0", "log-writer1", "log-upkeep0"), {"pause": 0.05}, steps=200)
PAUSED = Focus(("notary0", "writer0", "idempotent0", "daemon0"), {"pause": 0.03, "late_put": 0.1}, steps=1_000)

TWICE = r"one append stands in the slots \[\d+, "
GAP = r"is missing, though the log goes on|does not continue that of slot"
"""What errors say of an append that stands in two slots, and of a log with a gap."""


def _is_absent(store: ObjectStore, path: str) -> bool:
    """Whether the store says that nothing is there; no answer says nothing."""
    try:
        store.get(path)
    except ObjectNotFound:
        return True
    except StoreUnavailable:
        pass
    return False


class _SlotLeft(Exception):
    """A slot is given up, though its fate is not known."""


class _Asking:
    """A store that is asked after an unclear put: a 404 means that nothing will land."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        try:
            return self._store.put_if_absent(path, body)
        except StoreUnavailable:
            if _is_absent(self._store, path):
                raise _SlotLeft from None
            raise


class _Conflicting(_Asking):
    """A store whose 409 means that somebody has the slot."""

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        outcome = self._store.put_if_absent(path, body)
        if outcome is PutOutcome.CONFLICT:
            raise _SlotLeft
        return outcome


@contextmanager
def _slots_left(seen_as: type[_Asking], then: Callable[[Replica[Any]], PutResult]) -> Iterator[None]:
    """Appends see the store as ``seen_as``. ``then`` gives the result of an append that has left a slot."""
    put_record, put_until_known = RecordPut.put, ConditionalAppend.put_until_known

    def put(self: ConditionalAppend, *arguments: Any, **named: Any) -> bytes | None:
        seen: Any = seen_as(self._store)
        return put_until_known(ConditionalAppend(seen, self._environment, self._timeout_ms), *arguments, **named)

    def put_or_leave(self: RecordPut[Any], record: NextRecord) -> PutResult:
        try:
            return put_record(self, record)
        except _SlotLeft:
            for proposal in record.taken:
                proposal.in_flight = None
            return then(self._replica)

    with method(ConditionalAppend, "put_until_known", put), method(RecordPut, "put", put_or_leave):
        yield


def _with_another_append_id(replica: Replica[Any]) -> PutResult:
    """The same slot is tried again."""
    return PutResult.REOPENED


def _in_the_next_slot(replica: Replica[Any]) -> PutResult:
    """The append id stays, and this slot counts as another's."""
    replica.slot += 1
    return PutResult.LOST


@mutation(RETRIES)
def no_append_id_after_412() -> Iterator[None]:
    """After a 412 a writer does not look for its append id in the slot: an appended record is appended again."""

    def without_append_id(line: bytes, slot: int) -> SlotRecord:
        return decode_line(line, slot).model_copy(update={"append_id": "0" * 32})

    with method(record_put, "decode_line", without_append_id):
        yield


@mutation(RETRIES)
def another_append_id_for_each_attempt() -> Iterator[None]:
    """One append has a new append id for each attempt: a writer takes its own record for another's."""
    original = ConditionalAppend.put_until_known

    def put_until_known(
        self: ConditionalAppend, slot: int, body: bytes, append_id: str, *, deadline_ms: int | None = None
    ) -> Any:
        try:
            if self._store.put_if_absent(slot_path(slot), body) is PutOutcome.CREATED:
                return None
        except StoreUnavailable:
            another = self._environment.new_id()
            return original(self, slot, body.replace(append_id.encode(), another.encode(), 1), another)
        return original(self, slot, body, append_id, deadline_ms=deadline_ms)

    with method(ConditionalAppend, "put_until_known", put_until_known):
        yield


@mutation(Focus(("notary0",), {"late_put": 0.5, "pause": 0.1}, steps=400))
def not_found_taken_for_failed() -> Iterator[None]:
    """A writer takes a 404 after an unclear put for a failure: it reports the failure, and the put lands later."""
    original = ConditionalAppend.unknown

    def unknown(self: ConditionalAppend, slot: int, append_id: str) -> EosLogError:
        if _is_absent(self._store, slot_path(slot)):
            return StoreUnavailable("nothing was appended")
        return original(self, slot, append_id)

    with method(ConditionalAppend, "unknown", unknown):
        yield


@mutation(UNKNOWN, shows=TWICE)
def not_found_taken_for_absent() -> Iterator[None]:
    """A 404 after an unclear put frees the writer for another append id: one append stands in two slots."""
    with _slots_left(_Asking, _with_another_append_id):
        yield


@mutation(UNKNOWN, shows=f"{GAP}|{TWICE}")
def moves_on_to_the_next_slot() -> Iterator[None]:
    """After an unclear put a writer tries the next slot: the log has a gap, or one append in two slots."""
    with _slots_left(_Asking, _in_the_next_slot):
        yield


@mutation(Focus(("notary0", "idempotent0"), {"conflict": 0.1}, steps=200), shows=GAP)
def conflict_taken_for_exists() -> Iterator[None]:
    """A writer takes a 409 for an occupied slot, and tries the next slot: the log has a gap."""
    with _slots_left(_Conflicting, _in_the_next_slot):
        yield


@mutation(Focus(("notary0", "idempotent0", "writer0"), {"twice": 0.2, "lost_answer": 0.1}, steps=400))
def append_id_looked_for_in_the_newest_record() -> Iterator[None]:
    """After a 412 a writer reads the newest record instead of the slot: an appended record is appended again."""

    def mine_in_the_newest(store: ObjectStore, append_id: str) -> bool:
        newest = max(slot for info in store.list(SLOTS) if (slot := slot_of(info.path)) is not None)
        body = store.get(slot_path(newest)).body
        records = [decode_line(first_line(body), newest), *(record for _, record in decode_tail(body, newest))]
        return append_id in [record.append_id for record in records]

    original = ConditionalAppend.put_until_known

    def put_until_known(
        self: ConditionalAppend, slot: int, body: bytes, append_id: str, *, deadline_ms: int | None = None
    ) -> Any:
        try:
            outcome = self._store.put_if_absent(slot_path(slot), body)
        except StoreUnavailable:
            outcome = PutOutcome.CONFLICT
        if outcome is PutOutcome.CREATED:
            return None
        if outcome is PutOutcome.EXISTS:
            return None if mine_in_the_newest(self._store, append_id) else self._store.get(slot_path(slot)).body
        return original(self, slot, body, append_id, deadline_ms=deadline_ms)

    with method(ConditionalAppend, "put_until_known", put_until_known):
        yield


@mutation(Focus(("focus-writer0", "focus-writer0", "focus-writer0"), {"pause": 0.1}, steps=500))
def answer_from_the_newest_state() -> Iterator[None]:
    """The answer to an init is read from the newest state, not at its own slot: two producers hold one epoch."""
    original = TransactionManager.initialize

    def initialize(self: TransactionManager, *, keep_prepared: bool = False) -> None:
        original(self, keep_prepared=keep_prepared)
        name = self._transactional_id
        if name is not None:
            held = self._store.read(lambda state, slot: state.transactions[name])
            self.identity = ProducerIdentity(held.producer_id, held.producer_epoch)

    with method(TransactionManager, "initialize", initialize):
        yield


@mutation(PAUSED_TOO_LONG)
def stale_win_believed() -> Iterator[None]:
    """A stale replica believes its put: the put may be in a deleted slot's name, and its rows are lost."""
    with method(RecordPut, "_is_part_of_log", lambda self, base, slot, append_id: True):
        yield


@mutation(PAUSED_TOO_LONG)
def unconfirmed_date_not_heeded() -> Iterator[None]:
    """The first date counts before a second answer confirms it: a resumed process believes an old date."""
    with method(StoreClock, "latest_claim_ms", StoreClock.last_date_ms):
        yield


@mutation(
    Focus(
        ("log-writer0", "log-writer1", "log-upkeep0", "log-upkeep1"),
        {"pause": 0.05, "lost_answer": 0.6, "death": 0.0},
        steps=400,
    )
)
def appended_again_behind_a_deleted_slot() -> Iterator[None]:
    """A put in a deleted name proves that nothing landed: a record that landed before is appended again."""
    original = Replica.is_long_after

    class Asked(Moment):
        """When a put was sent."""

    def is_long_after(self: Replica[Any], moment: Moment) -> bool:
        return not isinstance(moment, Asked) and original(self, moment)

    with (
        method(StoreClock, "dated", lambda self, asked: Asked(*asked)),
        method(Replica, "is_long_after", is_long_after),
    ):
        yield


@mutation(PAUSED)
def stale_view_continued() -> Iterator[None]:
    """A replica counts as fresh at any age: a paused process continues behind deleted slots."""
    with method(Replica, "is_expired", lambda self: False):
        yield


@mutation(FOCUSES["replicas"])
def stale_replica_read() -> Iterator[None]:
    """A reader continues from a replica of any age: a deleted slot looks like the end of the log."""
    original = Replica.refresh

    def refresh(self: Replica[Any]) -> None:
        with method(self, "is_expired", lambda: False) if self.is_open else nullcontext():
            original(self)

    with method(Replica, "refresh", refresh):
        yield


@mutation(Focus(("notary0",), {"late_put": 0.5, "pause": 0.1}, steps=400))
def resolved_by_a_404() -> Iterator[None]:
    """Resolving reads the slot without fencing it: a record that was reported as failed lands later."""

    def resolve(self: Log[Any], slot: int, append_id: str, *, timeout_ms: int | None = None) -> bool:
        try:
            body = self.store.get(slot_path(slot)).body
        except ObjectNotFound:
            return False
        except EosLogError as error:
            raise CommitStateUnknown(str(error), slot=slot, append_id=append_id) from error
        return decode_line(first_line(body), slot).append_id == append_id

    with method(Log, "resolve", resolve):
        yield
