"""What must hold of a topic that is deleted and created again: the rows of each of its lives stay there.

When a life began and ended the log says. A row that was handed over within a life, and acknowledged, is there as long
as that lasts; one that was acknowledged before it began never shows in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eoslog.log.slots import decode_line, first_line
from tests.simulation.ledger import Ledger, Outcome, Sent
from tests.simulation.world import Violation, World

RECREATED = "recreated"
PARTITION_COUNT = 2


class Life(NamedTuple):
    """The topic from one creation to the next deletion."""

    topic_id: str
    created_slot: int
    deleted_slot: float
    """Infinite while it is there."""
    loses_rows: bool
    """Whether retention is at work in it."""


def lives(world: World) -> Sequence[Life]:
    """All that the topic ever had, as the log says."""
    found: list[Life] = []
    for slot, body in sorted(world.every_slot.items()):
        for entry in decode_line(first_line(body), slot).entries:
            if entry["type"] == "topic" and entry["topic"] == RECREATED:
                loses_rows = entry.get("config", {}).get("retention_ms", -1) >= 0
                found.append(Life(entry["topic_id"], slot, math.inf, loses_rows))
            elif entry["type"] == "delete_topic" and entry["topic"] == RECREATED:
                found[-1] = found[-1]._replace(deleted_slot=slot)
    return found


def life_during(world: World, first_slot: int, last_slot: int) -> Life | None:
    """The life that lasted all the time between two slots."""
    for life in lives(world):
        if life.created_slot <= first_slot and last_slot < life.deleted_slot:
            return life
    return None


def check_shown(
    ledger: Ledger, life: Life, rows: Iterable[tuple[int, bytes]], first_slot: int, *, whole: bool = False
) -> None:
    """What a committed read of one life has shown.

    Args:
        rows: partition and value of each.
        first_slot: the newest slot when the read began.
        whole: it shows all that is committed, and transactions whole: no open one holds it back.

    Raises:
        Violation
    """
    shown: set[bytes] = set()
    for partition, value in rows:
        sent = ledger.sent.get(value)
        if sent is None or sent.partition != partition:
            raise Violation(f"{RECREATED}-{partition} shows {value!r}, which nobody sent there")
        if value in shown:
            raise Violation(f"{RECREATED}-{partition} shows {value!r} twice")
        if sent.work.outcome is Outcome.ABORTED:
            raise Violation(f"{RECREATED}-{partition} shows {value!r}, though its transaction was aborted")
        if sent.ended_slot is not None and sent.ended_slot < life.created_slot:
            raise Violation(f"{value!r}, acknowledged at slot {sent.ended_slot}, shows in a later life: {life}")
        sent.shown_in = sent.shown_in or life.topic_id
        if sent.shown_in != life.topic_id:
            raise Violation(f"{value!r} shows in two lives of its topic, {sent.shown_in} and {life.topic_id}")
        shown.add(value)
    if life.loses_rows or not whole:
        return
    lacking = {value: sent for value, sent in ledger.sent.items() if value not in shown and _was_sent_in(life, sent)}
    for value, sent in lacking.items():
        if sent.work.outcome is Outcome.COMMITTED and sent.ended_slot is not None and sent.ended_slot <= first_slot:
            raise Violation(f"{value!r}, sent at slot {sent.sent_slot} and acknowledged, is lost from {life}")
    torn = {sent.work.name for sent in lacking.values()} & {ledger.sent[value].work.name for value in shown}
    if torn:
        raise Violation(f"of {sorted(torn)} a part shows, and not {sorted(lacking)}")


def _was_sent_in(life: Life, sent: Sent) -> bool:
    return life.created_slot <= sent.sent_slot


def check_copied(consumed: Sequence[bytes], copies: Counter[bytes], there: set[bytes]) -> None:
    """A copy of each row that a group has consumed of the last life, and none twice of any.

    Args:
        consumed: the rows below the group's offsets.
        copies: how often each row was copied, those of earlier lives too.
        there: all rows of the last life.

    Raises:
        Violation
    """
    doubled = [value for value, count in copies.items() if count > 1]
    if doubled:
        raise Violation(f"rows of {RECREATED} were copied more than once: {doubled}")
    copied = copies.keys() & there
    if copied != set(consumed):
        raise Violation(
            f"of {RECREATED} {sorted(set(consumed) - copied)} were consumed and not copied, and "
            f"{sorted(copied - set(consumed))} copied and not consumed"
        )
