"""In which order a consumer is shown a key: nothing is left out, and nothing comes again."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.history import History, Kind, Operation, Outcome, Value
from tests.checker.verdict import Anomaly
from tests.checker.version_order import VersionOrder

_POLLS = (Kind.POLL, Kind.TXN)


def internal_polls(order: VersionOrder) -> Iterator[Anomaly]:
    """Within an operation, key by key; keys that a rebalance took or gave while it lasted are left out."""
    for operation in order.history:
        if operation.kind not in _POLLS:
            continue
        last: dict[str, Value] = {}
        for key, _, value in operation.reads():
            if key in last and key not in operation.keys:
                yield from _step("int-", order, operation, key, last[key], value, is_legal=False)
            last[key] = value


def polls_of_processes(order: VersionOrder) -> Iterator[Anomaly]:
    """From one operation of a process to its next that read the key.

    A group gives partitions to others and back, so a process that subscribes may be shown gaps and old values; one that
    was assigned its partitions may not.
    """
    for operations in by_process(order.history).values():
        last: dict[str, Value] = {}
        subscribes = False
        for operation in operations:
            if operation.kind in (Kind.ASSIGN, Kind.SUBSCRIBE):
                subscribes = operation.kind is Kind.SUBSCRIBE
                last = {} if subscribes else {key: last[key] for key in operation.keys if key in last}
            elif operation.kind is Kind.SEEK:
                last = {key: value for key, value in last.items() if key not in operation.keys}
            elif operation.kind in _POLLS and operation.outcome is Outcome.OK:
                first_and_last: dict[str, tuple[Value, Value]] = {}
                for key, _, value in operation.reads():
                    first_and_last[key] = (first_and_last.get(key, (value, value))[0], value)
                for key, (first, newest) in first_and_last.items():
                    if key in last:
                        yield from _step("", order, operation, key, last[key], first, is_legal=subscribes)
                    last[key] = newest


def _step(
    prefix: str, order: VersionOrder, operation: Operation, key: str, before: Value, value: Value, *, is_legal: bool
) -> Iterator[Anomaly]:
    delta = order.first_index[key, value] - order.first_index[key, before]
    if delta > 1:
        yield Anomaly(f"{prefix}poll-skip", f"{operation} was shown {before!r}, then {value!r} of {key}", is_legal)
    elif delta < 1:
        yield Anomaly(
            f"{prefix}nonmonotonic-poll", f"{operation} was shown {before!r}, then {value!r} of {key}", is_legal
        )


def by_process(history: History) -> dict[str, list[Operation]]:
    """Each process's operations in the order in which it took them."""
    found: dict[str, list[Operation]] = {}
    for operation in sorted(history, key=lambda each: each.invoked):
        found.setdefault(operation.process, []).append(operation)
    return found


def consumed_again(order: VersionOrder) -> int:
    """How many values a process was shown more than once by operations that ended well: for information."""
    again = 0
    for operations in by_process(order.history).values():
        seen: set[tuple[str, Value]] = set()
        for operation in operations:
            if operation.outcome is Outcome.OK and operation.kind in _POLLS:
                for key, _, value in operation.reads():
                    again += (key, value) in seen
                    seen.add((key, value))
    return again
