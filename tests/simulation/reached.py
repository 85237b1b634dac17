"""What many seeds must have come by: a run that no longer reaches a fault, or what follows from it, shows nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.simulation.situations import SITUATIONS

FEWEST_SEEDS = 10_000
"""Fewer seeds, or shorter histories, may miss what is rare."""
FEWEST_FOCUSED_SEEDS = 200
"""A focus makes one situation common."""
FEWEST_STEPS = 100

_FAULTS = (
    "fault: 409",
    "fault: 500 after",
    "fault: 500 before",
    "fault: 503",
    "fault: answer lost",
    "fault: clock jump",
    "fault: death",
    "fault: own success told as another's",
    "fault: pause",
    "fault: put copied",
    "fault: put delayed",
    "fault: read cut",
    "fault: read failed",
    "late put found its place taken",
    "late put landed",
    "log.checkpoint.parts_written",
    "log.checkpoint.root_written",
    "log.slot.lost",
    "log.slot.own_record_found",
    "slots were deleted",
    "told: StoreUnavailable",
)
_CLIENTS = (
    "client.group.given_up",
    "client.group.heartbeat_written",
    "client.group.left",
    "client.group.members_changed",
    "client.producer.files_uploaded",
    "client.producer.prepared",
    "committed read compared below an open row",
    "consistent read",
    "cut read detected",
    "list: assign info",
    "list: assign ok",
    "list: poll ok",
    "list: send ok",
    "list: snapshot ok",
    "list: subscribe info",
    "list: subscribe ok",
    "list: txn fail",
    "list: txn info",
    "list: txn ok",
    "micro-batch replayed",
    "prepared transaction found after a restart",
    "producer id rolled over",
    "segment.compact_keys.cleaned",
    "segment.compact_keys.replaced",
    "segment.compact_files.replaced",
    "segment.seal.files_written",
    "segment.vacuum.files_deleted",
    "segment.vacuum.horizon_moved",
    "snapshot read",
    "told: GaveUp",
    "told: ProducerFenced",
    "unknown outcome resolved",
)
_TOPICS = (
    "recreated: acknowledged across lives",
    "recreated: copied",
    "recreated: read",
    "recreated: topic deleted",
    "recreated: topic found gone",
)
_SPARK = (
    "fault: commit worker lost",
    "fault: task's workers lost",
    "spark.job.replay_found",
    "spark.task.files_uploaded",
    "spark: abort after a commit that landed",
    "spark: abort after a failed commit",
    "spark: another beginning told than was planned from",
    "spark: attempt went on after the abort",
    "spark: attempt went on after the commit",
    "spark: checkpoint copied",
    "spark: checkpoint lost its newest entry",
    "spark: job aborted",
    "spark: micro-batch planned before run again",
    "spark: run fenced",
    "spark: sink changed",
    "spark: task tried again",
    "spark: transaction in a consistent micro-batch",
    "spark: versions of two applications under one id",
)
_LOG = (
    "append repeated",
    "append service: it has appended a request",
    "append service: it is silent",
    "append service: nobody listens",
    "append service: the announced one does not answer another one",
    "fault: connection cut",
    "cut read detected",
    "log.checkpoint.overtaken",
    "told: CommitStateUnknown",
    "unknown outcome resolved",
)
_RARE_IN_ANY = ("a deleted slot's name was taken", "log.checkpoint.overtaken")
"""Of mixed seeds, whoever brings it about."""


class Reach(NamedTuple):
    """What a run of ``FEWEST_SEEDS`` must have reached."""

    marks: tuple[str, ...]
    """Each occurs at least 20 times in so many mixed seeds, or in so many of a log alone."""
    acknowledged_rows: int = 0
    """Less than half of what there are."""
    fewest_seeds: int = FEWEST_SEEDS
    """Fewer seeds may miss what is rare."""


REACHED: Mapping[str, Reach] = {
    "clients": Reach(_FAULTS + _CLIENTS, 20_000),
    "topics": Reach(_FAULTS + _TOPICS, 1_000),
    "spark": Reach(_FAULTS + _SPARK, 10_000),
    "mixed": Reach(_FAULTS + _CLIENTS + _TOPICS + _SPARK + _RARE_IN_ANY, 20_000),
    "log": Reach(_FAULTS + _LOG),
    **{
        focus: Reach(("fault: death", "fault: pause", situation), fewest_seeds=FEWEST_FOCUSED_SEEDS)
        for focus, situation in SITUATIONS.items()
    },
}
"""By the services that ran."""


def not_reached(
    services: str, seeds: int, steps: int, marks: Mapping[str, int], acknowledged_rows: int
) -> Iterator[str]:
    """What a run should have come by, and did not. Of a small run nothing is asked.

    Args:
        steps: of each history, among faults.
        marks: how often rare things happened in all histories.
    """
    expected = REACHED[services]
    if seeds < expected.fewest_seeds or steps < FEWEST_STEPS:
        return
    yield from (mark for mark in expected.marks if not marks.get(mark))
    if acknowledged_rows < expected.acknowledged_rows:
        yield f"{expected.acknowledged_rows} acknowledged rows, there are {acknowledged_rows}"
