"""The steps of a coordinator: what it does now and then, how often, and what it tells of it.

Another one is a method of ``Coordinator``, a line in ``STEPS`` and a setting.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.errors import EosLogError, InvalidOption, NotAStore, PutIfAbsentUnsupported, UnsupportedFormat, quoted

if TYPE_CHECKING:
    from eoslog.client.coordinator import Coordinator
    from eoslog.client.store import Store

_logger = logging.getLogger(__name__)
_ENDS_THE_RUN = (NotAStore, UnsupportedFormat, InvalidOption, PutIfAbsentUnsupported)
"""After these no step of the coordinator can succeed, however often it is repeated."""


class Step(NamedTuple):
    """Something that a coordinator does now and then."""

    name: str
    setting: str
    """The one of ``CoordinatorSettings`` that says how often (ms)."""
    run: Callable[[Coordinator], Mapping[str, Any]]
    """Does it, and tells what was done; whatever is empty or zero was not there to do."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did."""

    step: str
    time_ms: int
    """When it was done, by the store's clock; 0 if the store has not answered yet."""
    did: Mapping[str, Any] = field(default_factory=dict)
    """By name; nothing that there was nothing of."""
    duration_ms: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    """Requests that it sent, by kind."""
    error: Exception | None = None
    """Why it could not be finished; what it had done until then stays done."""


def _vacuumed(coordinator: Coordinator) -> Mapping[str, Any]:
    report = coordinator.vacuum()
    return {"deleted_files": len(report.paths), "deleted_bytes": report.bytes}


def _merged(coordinator: Coordinator) -> Mapping[str, Any]:
    merged = coordinator.merge()
    return {
        "merged_segments": [f"{each.topic}-{each.partition}" for each in merged],
        "merged_files": sum(each.files_before for each in merged),
        "written_files": sum(each.files_after for each in merged),
        "written_bytes": sum(each.bytes_written for each in merged),
    }


def _compacted(coordinator: Coordinator) -> Mapping[str, Any]:
    compacted = coordinator.compact()
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
    return {
        "deleted_slots": slots,
        "deleted_checkpoint_objects": checkpoint_objects,
        "deleted_publications": coordinator.delete_old_publications(),
    }


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
    Step("compact-topics", "log_cleaner_backoff_ms", _compacted),
    Step("merge-files", "merge_interval_ms", _merged),
    Step("write-checkpoint", "checkpoint_check_interval_ms", _checkpoint_written),
    Step("vacuum", "vacuum_interval_ms", _vacuumed),
    Step("delete-old-slots", "slot_deletion_interval_ms", _slots_deleted),
)
"""What a coordinator does, in the order in which it does it where several things are due."""


def chosen_steps(names: Collection[str] | None) -> list[Step]:
    """The steps of these names, in their order; all if None.

    Raises:
        InvalidOption: no step has this name.
    """
    known = [step.name for step in STEPS]
    for name in names or ():
        if name not in known:
            raise InvalidOption(f"the coordinator has no step {quoted(name)}; its steps are: {', '.join(known)}")
    return [step for step in STEPS if names is None or step.name in names]


def take(step: Step, coordinator: Coordinator, store: Store) -> StepReport:
    """Take a step, and tell what came of it.

    Raises:
        NotAStore, UnsupportedFormat
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
    except Exception as problem:  # a fault in one step is no reason to leave the others undone
        _logger.exception("%s: step %s", store.url, step.name)
        error = problem
    return StepReport(
        step.name,
        store.object_store.clock.now_ms(),
        did,
        environment.monotonic_ms() - started_ms,
        dict(Counter(store.requests) - before),
        error,
    )
