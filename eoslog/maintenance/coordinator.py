"""The coordinator: a store's background maintenance, in steps that repeat at intervals.

Several processes may run a coordinator for one store at once. Each step appends an entry, which is validated against
the newest state. A step that lost a race therefore changes nothing. Exactly-once does not depend on a running
coordinator.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eoslog.arguments import Integer, Natural, checked_option
from eoslog.errors import (
    EosLogError,
    InvalidOption,
    NotAStore,
    PutIfAbsentUnsupported,
    RetriableError,
    UnsupportedFormat,
)
from eoslog.log.slot_deletion import delete_old_checkpoints, delete_old_slots
from eoslog.log.slots import CheckpointReference
from eoslog.maintenance.file_compaction import CompactedSegments, compact_files
from eoslog.maintenance.key_compaction import CompactedPartition, compact_keys
from eoslog.maintenance.publication import Publication, Publisher
from eoslog.maintenance.retention import DroppedRows, apply_retention
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import VacuumReport, vacuum
from eoslog.session.client_options import named_options
from eoslog.session.heartbeats import Heartbeats
from eoslog.session.serializers import check_callable
from eoslog.session.session import Session
from eoslog.session.settings import CoordinatorSettings
from eoslog.state.entries import Expired
from eoslog.state.expiry import (
    DELETED_FILE_RETENTION_MS,
    NEVER,
    OFFSETS_RETENTION_MS,
    PRODUCER_ID_EXPIRATION_MS,
    STAGED_MAX_AGE_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
    ExpireUnused,
)
from eoslog.state.group_members import ChangeGroup
from eoslog.state.names import TopicPartition, names_given
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Backoff
from eoslog.wording import quoted

_logger = logging.getLogger(__name__)
RETRY = Backoff(first_ms=1_000, longest_ms=60_000)


class Schedule:
    """The time at which each step is due next. At first, all steps are due immediately.

    Times are in ms, by any clock that does not run backwards.
    """

    def __init__(self, intervals_ms: Mapping[str, int], now_ms: int) -> None:
        self._intervals_ms = dict(intervals_ms)
        self._due_ms = dict.fromkeys(intervals_ms, now_ms)
        self._retries = dict.fromkeys(intervals_ms, 0)

    def next_due(self) -> tuple[str, int]:
        """Return the step that is due first and its time. Among equals, the step that was given first wins."""
        name = min(self._due_ms, key=lambda each: self._due_ms[each])
        return name, self._due_ms[name]

    def done(self, name: str, started_ms: int, now_ms: int) -> None:
        """Schedule a finished step again: one interval after its start, or now if that time has passed."""
        self._retries[name] = 0
        self._due_ms[name] = max(now_ms, started_ms + self._intervals_ms[name])

    def failed(self, name: str, now_ms: int) -> None:
        """Schedule a failed step again. The delay doubles with each failure, up to a minute or the step's interval."""
        self._retries[name] += 1
        self._due_ms[name] = now_ms + min(int(RETRY.pause_ms(self._retries[name])), self._intervals_ms[name])


_ENDS_THE_RUN = (NotAStore, UnsupportedFormat, InvalidOption, PutIfAbsentUnsupported)
"""After one of these errors no step can succeed, even if it is repeated."""


class Step(NamedTuple):
    """A task that a coordinator repeats at an interval."""

    name: str
    setting: str
    """The field of ``CoordinatorSettings`` that holds the interval (ms)."""
    run: Callable[[Coordinator], Mapping[str, Any]]
    """Does the work and returns its results by name. An empty or zero result means that there was nothing to do."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """The results of one run of a step."""

    step: str
    time_ms: int
    """The end of the step by the store's clock (ms); 0 if the store has not answered yet."""
    did: Mapping[str, Any] = field(default_factory=dict)
    """The results by name, without empty and zero results."""
    duration_ms: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    """The number of requests that the step sent, by kind."""
    error: Exception | None = None
    """The error that stopped the step. Work that it did before stays done."""


def _vacuumed(coordinator: Coordinator) -> Mapping[str, Any]:
    report = coordinator.vacuum()
    return {
        "deleted_files": len(report.paths),
        "deleted_bytes": report.bytes,
        "unreadable_indexes": report.unreadable_indexes,
    }


def _files_compacted(coordinator: Coordinator) -> Mapping[str, Any]:
    compacted = coordinator.compact_files()
    return {
        "compacted_segments": [f"{each.topic}-{each.partition}" for each in compacted],
        "compacted_files": sum(each.files_before for each in compacted),
        "written_files": sum(each.files_after for each in compacted),
        "written_bytes": sum(each.bytes_written for each in compacted),
    }


def _published(coordinator: Coordinator) -> Mapping[str, Any]:
    return {"published": [f"{each.topic} {each.format} version {each.version}" for each in coordinator.publish()]}


def _keys_compacted(coordinator: Coordinator) -> Mapping[str, Any]:
    compacted = coordinator.compact_keys()
    return {
        "compacted_partitions": [f"{each.topic}-{each.partition} up to {each.cleaned_offset}" for each in compacted],
        "removed_rows": sum(each.rows_removed for each in compacted),
        "freed_bytes": sum(each.bytes_before - each.bytes_after for each in compacted),
    }


def _retained(coordinator: Coordinator) -> Mapping[str, Any]:
    dropped = coordinator.apply_retention()
    return {
        "dropped_rows": [
            f"{each.topic}-{each.partition} {each.start_offset}..{each.end_offset - 1}" for each in dropped
        ]
    }


def _slots_deleted(coordinator: Coordinator) -> Mapping[str, Any]:
    slots, checkpoint_objects = coordinator.delete_old_slots()
    return {"deleted_slots": slots, "deleted_checkpoint_objects": checkpoint_objects}


def _checkpoint_written(coordinator: Coordinator) -> Mapping[str, Any]:
    reference = coordinator.checkpoint()
    return {"checkpoint": reference.path if reference is not None else None}


STEPS = (
    Step(
        "abort-timed-out-transactions",
        "transaction_abort_timed_out_transaction_cleanup_interval_ms",
        lambda coordinator: {"aborted_transactions": coordinator.abort_timed_out_transactions()},
    ),
    Step(
        "evict-silent-members",
        "group_session_check_interval_ms",
        lambda coordinator: {"evicted_members": coordinator.evict_silent_members()},
    ),
    Step(
        "expire-offsets",
        "offsets_retention_check_interval_ms",
        lambda coordinator: {"expired_offsets": coordinator.expire_offsets()},
    ),
    Step(
        "expire-producer-ids",
        "producer_id_expiration_check_interval_ms",
        lambda coordinator: {"expired_producer_ids": coordinator.expire_producer_ids()},
    ),
    Step(
        "expire-transactional-ids",
        "transaction_remove_expired_transaction_cleanup_interval_ms",
        lambda coordinator: {"expired_transactional_ids": coordinator.expire_transactional_ids()},
    ),
    Step(
        "seal-segments",
        "segment_check_interval_ms",
        lambda coordinator: {"sealed_segments": [f"{topic}-{number}" for topic, number in coordinator.seal()]},
    ),
    Step("apply-retention", "log_retention_check_interval_ms", _retained),
    Step("publish", "publication_interval_ms", _published),
    Step("compact-keys", "log_cleaner_backoff_ms", _keys_compacted),
    Step("compact-files", "file_compaction_interval_ms", _files_compacted),
    Step("write-checkpoint", "checkpoint_check_interval_ms", _checkpoint_written),
    Step("vacuum", "vacuum_interval_ms", _vacuumed),
    Step("delete-old-slots", "slot_deletion_interval_ms", _slots_deleted),
)
"""The steps of a coordinator. If several are due, it runs them in this order."""


def chosen_steps(names: Collection[str] | None) -> list[Step]:
    """Return the steps of these names in the order of ``STEPS``; None returns all.

    Raises:
        InvalidOption: no step has this name.
    """
    known = [step.name for step in STEPS]
    names = None if names is None else names_given("steps", names)
    for name in names or ():
        if name not in known:
            raise InvalidOption(f"the coordinator has no step {quoted(name)}. Use one of: {', '.join(known)}")
    return [step for step in STEPS if names is None or step.name in names]


def _check_intervals(intervals_ms: object) -> None:
    """Raises: InvalidOption: they are not intervals by step, or no step has this name."""
    if not isinstance(intervals_ms, Mapping):
        raise InvalidOption(f"intervals_ms are times by step, such as {{'vacuum': 60000}}, not {quoted(intervals_ms)}")
    chosen_steps(intervals_ms)
    for name, interval_ms in intervals_ms.items():
        checked_option(f"the interval of {name}", "Natural", interval_ms)


def run_step(step: Step, coordinator: Coordinator, store: Session) -> StepReport:
    """Run a step and report its results. Most errors become part of the report.

    Raises:
        NotAStore, UnsupportedFormat, InvalidOption, PutIfAbsentUnsupported: no other step can succeed either.
    """
    environment = store.environment
    started_ms, before = environment.monotonic_ms(), Counter(store.requests)
    did: dict[str, Any] = {}
    error: Exception | None = None
    try:
        did = {name: value for name, value in step.run(coordinator).items() if value}
    except _ENDS_THE_RUN:
        raise
    except EosLogError as problem:
        error = problem
    except Exception as problem:  # A defect in one step must not keep the other steps from running.
        _logger.exception("%s: the coordinator's step %s failed unexpectedly", store.url, step.name)
        error = problem
    return StepReport(
        step=step.name,
        time_ms=store.object_store.clock.now_ms(),
        did=did,
        duration_ms=environment.monotonic_ms() - started_ms,
        requests=dict(Counter(store.requests) - before),
        error=error,
    )


_LONGEST_SLEEP_MS = 500


class Coordinator:
    """The background maintenance of one store. Threads may share it."""

    @named_options("a coordinator")
    def __init__(
        self,
        store: Session,
        *,
        transactional_id_expiration_ms: Natural = TRANSACTIONAL_ID_EXPIRATION_MS,
        producer_id_expiration_ms: Natural = PRODUCER_ID_EXPIRATION_MS,
        offsets_retention_ms: Integer = OFFSETS_RETENTION_MS,
        staged_max_age_ms: Natural = STAGED_MAX_AGE_MS,
        deleted_file_retention_ms: Natural = DELETED_FILE_RETENTION_MS,
        intervals_ms: Mapping[str, int] | None = None,
    ) -> None:
        """Set up the maintenance of a store.

        Args:
            transactional_id_expiration_ms, producer_id_expiration_ms: an id expires after this time without use (ms).
            offsets_retention_ms: a group's offsets expire this long after the group became empty (ms); -1 keeps them.
            staged_max_age_ms, deleted_file_retention_ms: see ``vacuum``.
            intervals_ms: intervals of steps by name (ms). Other steps have the interval of ``CoordinatorSettings``.

        Raises:
            InvalidOption: no step has this name.
        """
        if not isinstance(store, Session):
            raise InvalidOption(f"a coordinator needs a store, as eoslog.connect(url) returns it, not {quoted(store)}")
        if intervals_ms is not None:
            _check_intervals(intervals_ms)
        defaults = CoordinatorSettings()
        self._store = store
        self._intervals_ms = {step.name: getattr(defaults, step.setting) for step in STEPS} | dict(intervals_ms or {})
        self._transactional_id_expiration_ms = transactional_id_expiration_ms
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._offsets_retention_ms = offsets_retention_ms
        self._staged_max_age_ms = staged_max_age_ms
        self._deleted_file_retention_ms = deleted_file_retention_ms
        self._unreadable_indexes: frozenset[str] = frozenset()
        """The paths of the indexes that the last vacuum could not read."""

    def __repr__(self) -> str:
        return f"Coordinator({self._store.url!r})"

    def run_once(
        self, *, steps: Collection[str] | None = None, report: Callable[[StepReport], None] | None = None
    ) -> list[StepReport]:
        """Run each step once. A step that fails does not stop the others. Vacuum lists every file of the store.

        Args:
            steps: the names of the steps to run; None runs all.
            report: called after each step.

        Returns:
            The reports in the order of the steps.

        Raises:
            NotAStore, UnsupportedFormat
            InvalidOption: no step has this name.
        """
        check_callable("report", report)
        reports = []
        for step in chosen_steps(steps):
            reports.append(run_step(step, self, self._store))
            if report is not None:
                report(reports[-1])
        return reports

    def run(
        self,
        *,
        steps: Collection[str] | None = None,
        report: Callable[[StepReport], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run each step at its interval until ``stop`` returns True.

        A step that fails stops neither the others nor the run. After a retriable error it is repeated soon, after
        another error at its interval.

        Args:
            steps: as in ``run_once``.
            report: as in ``run_once``.
            stop: called between two steps and while the coordinator waits.

        Raises:
            NotAStore, UnsupportedFormat, StoreAccessDenied: the store cannot be read.
            InvalidOption: no step has this name.
        """
        environment = self._store.environment
        chosen = {step.name: step for step in chosen_steps(steps)}
        self._check_store()
        schedule = Schedule({name: self._intervals_ms[name] for name in chosen}, environment.monotonic_ms())
        while not stop():
            name, due_ms = schedule.next_due()
            now_ms = environment.monotonic_ms()
            if due_ms > now_ms:
                environment.sleep_ms(min(due_ms - now_ms, _LONGEST_SLEEP_MS))
                continue
            found = run_step(chosen[name], self, self._store)
            if isinstance(found.error, RetriableError):
                schedule.failed(name, environment.monotonic_ms())
            else:
                schedule.done(name, now_ms, environment.monotonic_ms())
            if report is not None:
                report(found)

    def _check_store(self) -> None:
        """Check that there is a store. An object store that does not answer now may answer later."""
        try:
            self._store.describe()
        except RetriableError as error:
            _logger.warning("%s: the store does not answer yet; the coordinator will retry: %s", self._store.url, error)

    def abort_timed_out_transactions(self) -> list[str]:
        """Abort every transaction that has been open for longer than its timeout. Return their transactional ids."""
        self._store.read(lambda state, slot: None)
        return self._store.overdue_transactions.abort()

    def expire(self) -> Expired | None:
        """Expire unused transactional ids, producer ids and group offsets. Return them, or None if there are none."""
        return self._expire(
            self._transactional_id_expiration_ms, self._producer_id_expiration_ms, self._offsets_retention_ms
        )

    def expire_transactional_ids(self) -> list[str]:
        """Expire unused transactional ids and return them. Their application versions stay."""
        expired = self._expire(self._transactional_id_expiration_ms, NEVER, NEVER)
        return [each.transactional_id for each in expired.transactional_ids] if expired is not None else []

    def expire_producer_ids(self) -> list[int]:
        """Expire unused producer ids that have no transactional id, and return them."""
        expired = self._expire(NEVER, self._producer_id_expiration_ms, NEVER)
        return [each.producer_id for each in expired.producers] if expired is not None else []

    def expire_offsets(self) -> dict[str, int]:
        """Expire the offsets of groups that have been empty for too long. Return the number of offsets by group id."""
        expired = self._expire(NEVER, NEVER, self._offsets_retention_ms)
        # The offsets of a group may have expired in several records.
        counts: Counter[str] = Counter()
        for each in expired.groups if expired is not None else ():
            counts[each.group] += len(each.offsets)
        return dict(counts)

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
        """Evict consumers and group coordinators without a heartbeat for longer than their session timeout.

        Returns their member ids.
        """

        def members_by_group(state: StoreState, slot: int) -> dict[str, list[str]]:
            return {name: list(group.members) for name, group in state.groups.items() if group.members}

        evicted: list[str] = []
        for group_id, members in self._store.read(members_by_group).items():
            heartbeats = Heartbeats(self._store.object_store, group_id)
            silent = heartbeats.silent(members)
            if silent:
                evicted += self._store.append(ChangeGroup(group_id, self._store.now_ms(), left=silent))
                heartbeats.delete(silent)
        return evicted

    def apply_retention(self) -> list[DroppedRows]:
        """Drop rows beyond the topics' ``retention_ms`` and ``retention_bytes``. Vacuum deletes their files later."""
        store = self._store
        store.describe()
        return apply_retention(store)

    def seal(self) -> list[TopicPartition]:
        """Seal segments that are large or old enough. Return their partitions."""
        store = self._store
        store.describe()
        sealed = seal_segments(store)
        return store.read(
            lambda state, slot: [
                TopicPartition(state.topics[each.topic_id].topic, each.partition)
                for each in sealed
                if each.topic_id in state.topics
            ],
            refresh=False,
        )

    def compact_files(self) -> list[CompactedSegments]:
        """Compact small data files and small segments into large ones. Rows, offsets and outcomes do not change."""
        store = self._store
        store.describe()
        return compact_files(store).compacted

    def compact_keys(self) -> list[CompactedPartition]:
        """Compact by key the topics whose ``cleanup_policy`` includes ``compact``, where compaction is due."""
        store = self._store
        store.describe()
        return compact_keys(store).partitions

    def publish(self) -> list[Publication]:
        """Publish the topics whose setting ``publish`` names a format. Return the tables whose files have changed."""
        self._store.describe()
        return Publisher.of(self._store).publish_all()

    def checkpoint(self) -> CheckpointReference | None:
        """Write a checkpoint if one is due. Return it, or None if none was due.

        Usually the process whose append makes a checkpoint due writes it. This step covers a process that died before.
        """
        store = self._store
        if (
            store.read(lambda state, slot: store.log.replica.slots_since_checkpoint())
            < store.log.config.checkpoint_slots
        ):
            return None
        return store.log.checkpoint()

    def vacuum(self) -> VacuumReport:
        """Delete files that no entry names and that no later entry can name."""
        store = self._store
        store.describe()
        report = vacuum(
            store,
            staged_max_age_ms=self._staged_max_age_ms,
            deleted_file_retention_ms=self._deleted_file_retention_ms,
            known_unreadable=self._unreadable_indexes,
        )
        self._unreadable_indexes = frozenset(report.unreadable_indexes)
        return report

    def delete_old_slots(self) -> tuple[int, int]:
        """Delete expired slots and objects of old checkpoints. Return the number of each."""
        self._store.describe()
        return delete_old_slots(self._store.log), delete_old_checkpoints(self._store.log)
