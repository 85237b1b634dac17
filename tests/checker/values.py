"""What becomes of values: none is lost, none is there twice, and in the end each that was acknowledged is seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.checker.history import NEVER, Kind, Outcome, Value
from tests.checker.verdict import Anomaly
from tests.checker.version_order import VersionOrder


def lost_writes(order: VersionOrder) -> Iterator[Anomaly]:
    """What lies before a value that was read is read, too, if it was committed."""
    for key, read in order.reads.items():
        bound = max((order.first_index[key, value] for value in read), default=-1)
        for (of, value), last in order.last_index.items():
            if of == key and last <= bound and value not in read:
                writer = order.committed_writer(key, value)
                if writer is not None:
                    yield Anomaly(
                        "lost-write", f"{value!r} of {key}, written by {writer}, was passed over by all polls"
                    )


def torn_transactions(order: VersionOrder) -> Iterator[Anomaly]:
    """What a transaction sent before a value of it that was read is there, too.

    Where nobody was told an offset for it the version order knows nothing of it, but the transaction's own order does.
    """
    for operation in order.history:
        if operation.kind is not Kind.TXN or operation.outcome is Outcome.FAIL:
            continue
        shown: set[str] = set()
        for send in reversed(list(operation.sends())):
            if send.value in order.reads[send.key]:
                shown.add(send.key)
            elif send.key in shown and (send.key, send.value) not in order.last_index:
                yield Anomaly(
                    "lost-write", f"{send.value!r} of {send.key} is missing, and {operation} shows all the same"
                )


def duplicates(order: VersionOrder) -> Iterator[Anomaly]:
    """A value lies at one offset."""
    offsets: dict[tuple[str, Value], list[int]] = defaultdict(list)
    for key, log in order.log.items():
        for offset, values in log.items():
            for value in values:
                offsets[key, value].append(offset)
    for (key, value), found in offsets.items():
        if len(found) > 1:
            yield Anomaly("duplicate", f"{value!r} lies at {key}@{sorted(found)}")


def unseen(order: VersionOrder) -> Mapping[str, Sequence[Value]]:
    """Of each key, what was acknowledged, or must have been committed, and was never polled."""
    found: dict[str, list[Value]] = defaultdict(list)
    for operation in order.history:
        for send in operation.sends():
            if send.value not in order.reads[send.key] and order.must_have_committed(operation, send):
                found[send.key].append(send.value)
    return found


def unseen_values(order: VersionOrder) -> Iterator[Anomaly]:
    """Of a history that ends with polls of everything: each acknowledged value was polled."""
    for key, values in unseen(order).items():
        yield Anomaly("unseen", f"{len(values)} values of {key} were acknowledged and never polled, as {values[:3]}")


def unseen_over_time(order: VersionOrder) -> Sequence[tuple[int, int]]:
    """At each moment at which it changes: how many acknowledged values nobody had polled yet."""
    changes: dict[int, int] = defaultdict(int)
    for acknowledged, polled in _waits(order).values():
        if polled > acknowledged:
            changes[acknowledged] += 1
            changes[polled] -= 1
    count = 0
    series = []
    for moment in sorted(changes.keys() - {NEVER}):
        count += changes[moment]
        series.append((moment, count))
    return series


def worst_lag(order: VersionOrder) -> Mapping[str, int]:
    """Of each key, how long a value was acknowledged and not polled, at most; values that never were do not count."""
    worst: dict[str, int] = {}
    for (key, _), (acknowledged, polled) in _waits(order).items():
        if polled != NEVER:
            worst[key] = max(worst.get(key, 0), polled - acknowledged)
    return worst


def _waits(order: VersionOrder) -> Mapping[tuple[str, Value], tuple[int, int]]:
    """When each value was acknowledged, and when a poll that showed it was over first."""
    polled: dict[tuple[str, Value], int] = {}
    for operation in order.history:
        if operation.outcome is Outcome.OK:
            for key, _, value in operation.reads():
                polled.setdefault((key, value), operation.completed)
    return {
        (send.key, send.value): (operation.completed, polled.get((send.key, send.value), NEVER))
        for operation in order.history
        if operation.outcome is Outcome.OK
        for send in operation.sends()
    }
