"""The coordinator's work for what nobody asks for. It is code, not a place: any number of processes may run it at once.

Nothing depends on it being run. Each step is an entry that validates against the log's tail, so whoever was overtaken
changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eoslog.client.heartbeats import Heartbeats
from eoslog.client.timeouts import end_timed_out
from eoslog.log.deletion import delete_old_checkpoints, delete_old_slots
from eoslog.rules.draft import Draft
from eoslog.rules.entries import Expired
from eoslog.rules.forgetting import (
    OFFSETS_RETENTION_MS,
    PRODUCER_ID_EXPIRATION_MS,
    STAGED_MAX_AGE_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
    plan_expiry,
)
from eoslog.rules.members import plan_group_change
from eoslog.rules.names import TopicPartition
from eoslog.rules.state import StoreState
from eoslog.segment.retention import DroppedRows, apply_retention
from eoslog.segment.sealing import seal_segments
from eoslog.segment.vacuum import READER_GRACE_MS, VacuumReport, vacuum

if TYPE_CHECKING:
    from eoslog.client.store import Store


@dataclass(frozen=True, slots=True)
class CoordinatorReport:
    """What one round did."""

    aborted_transactions: list[str] = field(default_factory=list)
    """Transactional ids."""
    evicted_members: list[str] = field(default_factory=list)
    """Member ids of consumers that fell silent."""
    expired_transactional_ids: list[str] = field(default_factory=list)
    expired_producer_ids: list[int] = field(default_factory=list)
    expired_offsets: dict[str, int] = field(default_factory=dict)
    """How many, by group id."""
    sealed_segments: list[TopicPartition] = field(default_factory=list)
    dropped_rows: list[DroppedRows] = field(default_factory=list)
    """What topics no longer keep, by ``retention_ms`` and ``retention_bytes``."""
    vacuum: VacuumReport | None = None
    deleted_slots: int = 0
    deleted_checkpoint_objects: int = 0


class Coordinator:
    """Looks after one store."""

    def __init__(
        self,
        store: Store,
        *,
        transactional_id_expiration_ms: int = TRANSACTIONAL_ID_EXPIRATION_MS,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        offsets_retention_ms: int = OFFSETS_RETENTION_MS,
        staged_max_age_ms: int = STAGED_MAX_AGE_MS,
        reader_grace_ms: int = READER_GRACE_MS,
    ) -> None:
        """
        Args:
            offsets_retention_ms: how long a group's offsets are kept after it became empty; -1 for ever.
            staged_max_age_ms, reader_grace_ms: those of ``vacuum``.
        """
        self._store = store
        self._transactional_id_expiration_ms = transactional_id_expiration_ms
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._offsets_retention_ms = offsets_retention_ms
        self._staged_max_age_ms = staged_max_age_ms
        self._reader_grace_ms = reader_grace_ms

    def run_once(self, *, with_vacuum: bool = True) -> CoordinatorReport:
        """One round of everything. A vacuum lists every file of the store: do it now and then.

        Raises:
            RetriableError, StoreAccessDenied, CorruptRecord: what was done until then stays done.
        """
        aborted = self.abort_timed_out_transactions()
        evicted = self.evict_silent_members()
        expired = self.expire()
        sealed = self.seal()
        dropped = self.apply_retention()
        vacuumed = self._vacuum() if with_vacuum else None
        slots = delete_old_slots(self._store.log) if with_vacuum else 0
        checkpoints = delete_old_checkpoints(self._store.log) if with_vacuum else 0
        return CoordinatorReport(
            aborted_transactions=aborted,
            evicted_members=evicted,
            expired_transactional_ids=[each.transactional_id for each in expired.transactional_ids] if expired else [],
            expired_producer_ids=[each.producer_id for each in expired.producers] if expired else [],
            expired_offsets={each.group: len(each.offsets) for each in expired.groups} if expired else {},
            sealed_segments=sealed,
            dropped_rows=dropped,
            vacuum=vacuumed,
            deleted_slots=slots,
            deleted_checkpoint_objects=checkpoints,
        )

    def _vacuum(self) -> VacuumReport:
        return vacuum(
            self._store.log,
            self._store.object_store,
            staged_max_age_ms=self._staged_max_age_ms,
            reader_grace_ms=self._reader_grace_ms,
        )

    def abort_timed_out_transactions(self) -> list[str]:
        """Abort every transaction that is open for longer than its time-out. Returns the transactional ids."""
        self._store.read(lambda state, slot: None)
        aborted: list[str] = []
        while True:
            ended = end_timed_out(self._store)
            if not ended:
                return aborted
            aborted += ended

    def expire(self) -> Expired | None:
        """Forget transactional ids, producer ids and offsets that nobody used for long. None if there are none."""
        now_ms = self._store.now_ms()

        def propose(draft: Draft) -> Expired | None:
            expired = plan_expiry(
                draft,
                now_ms,
                transactional_id_expiration_ms=self._transactional_id_expiration_ms,
                producer_id_expiration_ms=self._producer_id_expiration_ms,
                offsets_retention_ms=self._offsets_retention_ms,
            )
            if expired is not None:
                draft.append(expired)
            return expired

        return self._store.append(propose)

    def evict_silent_members(self) -> list[str]:
        """Evict consumers that are silent for longer than their session time-out. Returns the member ids."""

        def look(state: StoreState, slot: int) -> dict[str, list[str]]:
            return {name: list(group.members) for name, group in state.groups.items() if group.members}

        evicted: list[str] = []
        for group_id, members in self._store.read(look).items():
            heartbeats = Heartbeats(self._store.object_store, group_id)
            silent = heartbeats.silent(members)
            if silent:
                evicted += self._evict(group_id, silent)
                heartbeats.delete(silent)
        return evicted

    def _evict(self, group_id: str, silent: set[str]) -> list[str]:
        now_ms = self._store.now_ms()

        def propose(draft: Draft) -> list[str]:
            entry = plan_group_change(draft, group_id, left=silent, time_ms=now_ms)
            if entry is None or not entry.left:
                return []
            draft.append(entry)
            return list(entry.left)

        return self._store.append(propose)

    def apply_retention(self) -> list[DroppedRows]:
        """Drop what ``retention_ms`` and ``retention_bytes`` of the topics no longer keep. Files go by vacuum."""
        store = self._store
        store.describe()
        return apply_retention(store.log, store.object_store, store.environment)

    def seal(self) -> list[TopicPartition]:
        """Seal segments that are large or old enough. Returns their partitions."""
        store = self._store
        store.describe()
        sealed = seal_segments(store.log, store.object_store, store.environment)
        return store.read(
            lambda state, slot: [
                TopicPartition(state.topics[each.topic_id].topic, each.partition)
                for each in sealed
                if each.topic_id in state.topics
            ],
            refresh=False,
        )
