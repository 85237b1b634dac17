"""What a run has to have gone through, so that its promises were tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.checker import Kind, Outcome
from tests.delta_logs import versions
from tests.soak.checking import Evidence
from tests.soak.layout import BANK, COPIES, INVOICES, NEWEST, ORDERS, PUBLISHED, RECENT, RECOPIES
from tests.soak.supervisor import Event

MINUTES_LEFT_TO_CHANCE = 5.0
"""A run that is no longer may lack what chance brings about: that is told, and the verdict stands."""


def untried(evidence: Evidence, events: Sequence[Event], minutes: float) -> list[str]:
    """What leaves the verdict open: nothing to compare, or in a long run something that never came about."""
    by_chance = not_come_about(evidence, events) if minutes > MINUTES_LEFT_TO_CHANCE else ()
    return [*without_rows(evidence), *by_chance]


def without_rows(evidence: Evidence) -> Iterator[str]:
    """A promise that was compared over no rows is not kept: nobody tried it."""
    for topic in (ORDERS, INVOICES, BANK):
        if not evidence.rows[topic]:
            yield f"no row of {topic} was committed"
    for sink in (COPIES, RECOPIES) if evidence.has_streams else ():
        if not evidence.rows[sink]:
            yield f"the streaming query into {sink} committed no row"


def not_come_about(evidence: Evidence, events: Sequence[Event]) -> Iterator[str]:
    """What any run of some length meets, and a short one by chance."""
    offsets = evidence.store.admin.offsets
    if sum(each.high_watermark - each.earliest for each in offsets(NEWEST)) == len(evidence.rows[NEWEST]):
        yield f"compaction took no row of {NEWEST}"
    if not any(each.earliest for each in offsets(RECENT)):
        yield f"retention dropped no row of {RECENT}"
    for topic in PUBLISHED:
        # The check has put the last version.
        if len(list(versions(evidence.store.object_store, topic))) < 3:
            yield f"the coordinator published {topic} at most once"
    if not any(each.kind is Kind.TXN and each.outcome is Outcome.FAIL for each in evidence.operations):
        yield "no transaction was aborted"
    if not any(event.kind == "zombie ended" for event in events):
        yield "no zombie found out that it was fenced"
