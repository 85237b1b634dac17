"""The put of a record into the next slot. Its outcome moves the replica of this process."""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeVar

from eoslog.errors import CommitStateUnknown, EosLogError, StoreVanished, UnsupportedFormat
from eoslog.log.append_queue import InFlight, OwnCheckpoint, earliest_deadline
from eoslog.log.next_record import Base, NextRecord
from eoslog.log.replica import Replica
from eoslog.log.slots import SlotRecord, decode_line, first_line, slot_path
from eoslog.storage.clock import Moment
from eoslog.storage.conditional_put import Lost, Unknown, Won, put_next, read_until_whole
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

S = TypeVar("S")


class ConditionalAppend:
    """Puts records into slots of one log, and reads which record has a slot (see ``storage.conditional_put``)."""

    def __init__(self, store: ObjectStore, environment: Environment, timeout_ms: int) -> None:
        self._store = store
        self._environment = environment
        self._timeout_ms = timeout_ms

    def put_until_known(
        self, slot: int, body: bytes, append_id: str, *, deadline_ms: int | None = None
    ) -> bytes | None:
        """Put a record into a slot, again and again until the outcome is known.

        Args:
            deadline_ms: when the callers give up (elapsed time, ms). ``LogConfig.commit_timeout_ms`` applies, too. At
                least one put is sent.

        Returns:
            None if this record has the slot; otherwise the bytes of the record that has it.

        Raises:
            CommitStateUnknown: the record may have landed, or may land later.
            StoreUnavailable: the record has not landed, and will not.
        """
        self._environment.reached("log.slot.before_put")
        outcome = put_next(
            self._store,
            self._environment,
            slot_path(slot),
            body,
            deadline_ms=self._deadline(deadline_ms),
            is_own=lambda found: _decoded(found, slot).append_id == append_id,
        )
        match outcome:
            case Won(was_found=False):
                self._environment.reached("log.slot.claimed")
                return None
            case Won():
                self._environment.reached("log.slot.own_record_found")
                return None
            case Lost(winner):
                self._environment.reached("log.slot.lost")
                return winner
            case Unknown(error):
                raise self.unknown(slot, append_id) from error

    def append_id_of(self, slot: int, deadline_ms: int | None = None) -> str | None:
        """Return the append id of the record in a slot; None if the slot is empty."""
        record = self._record_in(slot, deadline_ms)
        return None if record is None else record.append_id

    def continues(self, replica: Replica[Any], slot: int, append_id: str, deadline_ms: int | None = None) -> bool:
        """Return True if the record in ``slot`` is part of the log.

        It is not, if an earlier record of this slot was deleted before this one was put. Then the next slots continue
        the deleted record, not this one.
        """
        slots = replica.reader.slots_from(slot)
        if slots != list(range(slot, slot + len(slots))):
            return False
        if len(slots) == 1:
            return True
        successor = self._record_in(slot + 1, deadline_ms)
        return successor is not None and successor.prev == append_id

    def unknown(self, slot: int, append_id: str) -> CommitStateUnknown:
        return CommitStateUnknown(
            f"{self._store.url}: it is not known whether the put of slot {slot} landed; it may land later. After a "
            "producer's call, repeat that call: its work is never done twice. After any other append, call "
            "Store.resolve(error)",
            slot=slot,
            append_id=append_id,
        )

    def _record_in(self, slot: int, deadline_ms: int | None) -> SlotRecord | None:
        """Return the record in a slot; None if the slot is empty."""
        deadline = self._deadline(deadline_ms)
        decode = partial(_decoded, slot=slot)
        found = read_until_whole(self._store, self._environment, slot_path(slot), decode=decode, deadline_ms=deadline)
        return None if found is None else found[1]

    def _deadline(self, deadline_ms: int | None) -> int:
        """Return the earlier of the callers' deadline and the log's own limit (elapsed time, ms)."""
        own_ms = self._environment.monotonic_ms() + self._timeout_ms
        return own_ms if deadline_ms is None else min(own_ms, deadline_ms)


def _decoded(body: bytes, slot: int) -> SlotRecord:
    return decode_line(first_line(body), slot)


class PutResult(Enum):
    """The outcome of the put of a record."""

    LANDED = auto()
    """It is part of the log, and the replica has it."""
    LOST = auto()
    """Another record has the slot, and the replica has that one."""
    REOPENED = auto()
    """It is not part of the log. The replica was too old to tell which slot is the next, and was opened again."""


class RecordPut(Generic[S]):
    """Puts the records of one process."""

    def __init__(
        self,
        store: ObjectStore,
        environment: Environment,
        replica: Replica[S],
        conditional_append: ConditionalAppend,
    ) -> None:
        self._store = store
        self._environment = environment
        self._replica = replica
        self._conditional_append = conditional_append

    def put(self, record: NextRecord) -> PutResult:
        """Put a record into its slot, until it is known which record has the slot.

        Another thread may refresh the replica meanwhile, and so fold this record or the winner's.

        Raises:
            CommitStateUnknown: the record may have landed, or may land later. Its proposals stay in flight.
            StoreVanished: another store has replaced this one.
            StoreUnavailable, StoreAccessDenied, CorruptRecord, UnsupportedFormat: the record has not landed.
        """
        replica = self._replica
        slot, append_id = record.slot_record.slot, record.slot_record.append_id
        asked = self._store.clock.moment()
        if (
            slot > 0
            and self._store.is_missing(slot_path(slot - 1))
            and not replica.is_long_after(record.base.last_check)
        ):
            # No process deletes the newest slot. A record after a missing one would make the store unreadable.
            raise StoreVanished(
                f"{self._store.url}: slot {slot - 1} is missing, although this process has read it: an earlier state "
                "replaced the store. Nothing was written. Call eoslog.connect() again to continue from that state"
            )
        for proposal in record.taken:
            proposal.in_flight = InFlight(slot, append_id)
            proposal.attempts.puts[proposal.in_flight] = proposal.answer
        try:
            winner = self._conditional_append.put_until_known(
                slot, record.body, append_id, deadline_ms=earliest_deadline(record.taken)
            )
        except UnsupportedFormat as error:
            if replica.is_long_after(self._store.clock.dated(asked)):
                raise self._conditional_append.unknown(slot, append_id) from error
            raise
        if winner is None and self._is_part_of_log(record.base, slot, append_id):
            self._adopt(record, asked)
            return PutResult.LANDED
        if replica.is_long_after(self._store.clock.dated(asked)):
            # This record may have landed, and may have been deleted before the present record was put there.
            raise self._conditional_append.unknown(slot, append_id)
        if winner is None:
            try:
                replica.open()
            except EosLogError as error:
                raise self._conditional_append.unknown(slot, append_id) from error
        for proposal in record.taken:
            proposal.in_flight = None
        if winner is not None and not replica.is_expired() and replica.fold_body(slot, winner):
            return PutResult.LOST
        if winner is not None:
            replica.open()
        return PutResult.REOPENED

    def _adopt(self, record: NextRecord, asked: Moment) -> None:
        """Move the replica to a record that landed, unless another thread has folded it.

        Args:
            asked: the time before the record was put.
        """
        replica = self._replica
        with replica.changing():
            if replica.state is record.base.state and replica.slot == record.base.slot:
                record.draft.merge()
                for proposal in record.taken:
                    if isinstance(proposal.content, OwnCheckpoint):
                        replica.adopt_own_checkpoint(proposal.content.entry.reference, proposal.content.root)
                replica.adopt(record.slot_record, record.body, asked)
            elif replica.slot == record.base.slot:
                # Another thread reopened the replica. The draft belongs to the replaced state, so fold the record.
                replica.fold_body(record.slot_record.slot, record.body)

    def _is_part_of_log(self, base: Base, slot: int, append_id: str) -> bool:
        """Return True if the record that this process has just put is part of the log.

        It is, if the replica was fresh when the draft was made. Otherwise an earlier record of this slot may have been
        deleted before the put. Then the new record is not part of the log. Only ``base`` has the time of that check:
        another thread may have opened the replica again since.

        Raises:
            CommitStateUnknown: the object store did not answer.
        """
        if base.slot >= 0 and not self._replica.is_long_after(base.last_check):
            return True
        try:
            if self._conditional_append.continues(self._replica, slot, append_id):
                return True
        except EosLogError as error:
            raise self._conditional_append.unknown(slot, append_id) from error
        self._environment.reached("log.slot.stale_win_refused")
        return False
