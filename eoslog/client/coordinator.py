"""The coordinator's work for what nobody asks for. It is code, not a place: any number of processes may run it at once.

Nothing depends on it being run. Each step is an entry that validates against the log's tail, so whoever was overtaken
changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from eoslog.client.coordinator_steps import STEPS, StepReport, chosen_steps, take
from eoslog.client.heartbeats import Heartbeats
from eoslog.client.schedule import Schedule
from eoslog.client.settings import CoordinatorSettings
from eoslog.errors import RetriableError
from eoslog.log.deletion import delete_old_checkpoints, delete_old_publications, delete_old_slots
from eoslog.log.record import CheckpointReference
from eoslog.rules.forgetting import (
    NEVER,
    OFFSETS_RETENTION_MS,
    PRODUCER_ID_EXPIRATION_MS,
    STAGED_MAX_AGE_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
    ExpireUnused,
)
from eoslog.rules.forgetting_entries import Expired
from eoslog.rules.members import ChangeGroup
from eoslog.rules.names import TopicPartition
from eoslog.rules.state import StoreState
from eoslog.segment.compaction import CompactedPartition
from eoslog.segment.merging import MergedSegments
from eoslog.segment.retention import DroppedRows, apply_retention
from eoslog.segment.sealing import seal_segments
from eoslog.segment.vacuum import READER_GRACE_MS, VacuumReport

if TYPE_CHECKING:
    from eoslog.client.store import Store

_logger = logging.getLogger(__name__)
_LONGEST_SLEEP_MS = 500


class Coordinator:
    """Looks after one store. Safe to share between threads."""

    def __init__(
        self,
        store: Store,
        *,
        transactional_id_expiration_ms: int = TRANSACTIONAL_ID_EXPIRATION_MS,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        offsets_retention_ms: int = OFFSETS_RETENTION_MS,
        staged_max_age_ms: int = STAGED_MAX_AGE_MS,
        reader_grace_ms: int = READER_GRACE_MS,
        intervals_ms: Mapping[str, int] | None = None,
    ) -> None:
        """
        Args:
            transactional_id_expiration_ms, producer_id_expiration_ms: ids that nobody used for longer are forgotten.
            offsets_retention_ms: how long a group's offsets are kept after it became empty; -1 for ever.
            staged_max_age_ms, reader_grace_ms: those of ``vacuum``.
            intervals_ms: how often ``run`` takes a step, by its name; else as ``CoordinatorSettings`` says.

        Raises:
            InvalidOption: no step has this name.
        """
        chosen_steps(intervals_ms)
        defaults = CoordinatorSettings()
        self._store = store
        self._intervals_ms = {step.name: getattr(defaults, step.setting) for step in STEPS} | dict(intervals_ms or {})
        self._transactional_id_expiration_ms = transactional_id_expiration_ms
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._offsets_retention_ms = offsets_retention_ms
        self._staged_max_age_ms = staged_max_age_ms
        self._reader_grace_ms = reader_grace_ms

    def run_once(
        self, *, steps: Collection[str] | None = None, report: Callable[[StepReport], None] = lambda _: None
    ) -> list[StepReport]:
        """Take each step once, whatever becomes of the others. Vacuum lists every file of the store.

        Args:
            steps: the names of those to take; all if None.
            report: is told of each step when it is done.

        Raises:
            NotAStore, UnsupportedFormat
            InvalidOption: no step has this name.
        """
        reports = []
        for step in chosen_steps(steps):
            reports.append(take(step, self, self._store))
            report(reports[-1])
        return reports

    def run(
        self,
        *,
        steps: Collection[str] | None = None,
        report: Callable[[StepReport], None] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take each step at its interval until ``stop`` says so, which is asked between two steps and while waiting.

        A step that fails stops neither the others nor the run: it is repeated, soon if that may help.

        Args:
            steps, report: as in ``run_once``.

        Raises:
            NotAStore, UnsupportedFormat, StoreAccessDenied: the store cannot be read.
            InvalidOption: no step has this name.
        """
        environment = self._store.environment
        chosen = {step.name: step for step in chosen_steps(steps)}
        self._look()
        schedule = Schedule({name: self._intervals_ms[name] for name in chosen}, environment.monotonic_ms())
        while not stop():
            name, due_ms = schedule.next_due()
            now_ms = environment.monotonic_ms()
            if due_ms > now_ms:
                environment.sleep_ms(min(due_ms - now_ms, _LONGEST_SLEEP_MS))
                continue
            found = take(chosen[name], self, self._store)
            if isinstance(found.error, RetriableError):
                schedule.failed(name, environment.monotonic_ms())
            else:
                schedule.done(name, now_ms, environment.monotonic_ms())
            report(found)

    def _look(self) -> None:
        """Whether there is a store. One that does not answer may do so later."""
        try:
            self._store.describe()
        except RetriableError as error:
            _logger.warning("%s: %s", self._store.url, error)

    def abort_timed_out_transactions(self) -> list[str]:
        """Abort every transaction that is open for longer than its time-out. Returns the transactional ids."""
        self._store.read(lambda state, slot: None)
        return self._store.overdue_transactions.abort()

    def expire(self) -> Expired | None:
        """Forget transactional ids, producer ids and offsets that nobody used for long. None if there are none."""
        return self._expire(
            self._transactional_id_expiration_ms, self._producer_id_expiration_ms, self._offsets_retention_ms
        )

    def expire_transactional_ids(self) -> list[str]:
        """Forget transactional ids that nobody used for long. Their application tokens stay."""
        expired = self._expire(self._transactional_id_expiration_ms, NEVER, NEVER)
        return [each.transactional_id for each in expired.transactional_ids] if expired is not None else []

    def expire_producer_ids(self) -> list[int]:
        """Forget producer ids without transactional id that nobody used for long."""
        expired = self._expire(NEVER, self._producer_id_expiration_ms, NEVER)
        return [each.producer_id for each in expired.producers] if expired is not None else []

    def expire_offsets(self) -> dict[str, int]:
        """Forget offsets of groups that have been empty for long. Returns how many, by group id."""
        expired = self._expire(NEVER, NEVER, self._offsets_retention_ms)
        return {each.group: len(each.offsets) for each in expired.groups} if expired is not None else {}

    def _expire(
        self, transactional_id_expiration_ms: int, producer_id_expiration_ms: int, offsets_retention_ms: int
    ) -> Expired | None:
        request = ExpireUnused(
            self._store.now_ms(), transactional_id_expiration_ms, producer_id_expiration_ms, offsets_retention_ms
        )
        found: Expired | None = None
        while (more := self._store.append(request)) is not None:
            found = (
                more
                if found is None
                else Expired(
                    transactional_ids=found.transactional_ids + more.transactional_ids,
                    producers=found.producers + more.producers,
                    groups=found.groups + more.groups,
                )
            )
        return found

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
        return list(self._store.append(ChangeGroup(group_id, self._store.now_ms(), left=silent)))

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

    def merge(self) -> list[MergedSegments]:
        """Merge small data files and small segments. No row, offset or verdict changes."""
        return self._store.admin.merge_files().merged

    def compact(self) -> list[CompactedPartition]:
        """Compact the topics whose ``cleanup_policy`` says so, where that is due."""
        return self._store.admin.compact().partitions

    def checkpoint(self) -> CheckpointReference | None:
        """Write the state down if that is due and whoever made it due has not done it. None if it was not due."""
        store = self._store
        if store.read(lambda state, slot: store.log.view.slots_since_checkpoint()) < store.log.config.checkpoint_slots:
            return None
        return store.log.checkpoint()

    def vacuum(self) -> VacuumReport:
        """Delete files that no entry names and none can name any more."""
        return self._store.admin.vacuum(
            staged_max_age_ms=self._staged_max_age_ms, reader_grace_ms=self._reader_grace_ms
        )

    def delete_old_slots(self) -> tuple[int, int]:
        """Delete slots and objects of checkpoints that nobody needs. Returns how many of each."""
        self._store.describe()
        return delete_old_slots(self._store.log), delete_old_checkpoints(self._store.log)

    def delete_old_publications(self) -> int:
        """Delete what writers published for each other and left behind. Returns how many publications."""
        self._store.describe()
        return delete_old_publications(self._store.log)
