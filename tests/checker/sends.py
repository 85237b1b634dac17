"""In which order a producer's values lie: that in which it sent them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.history import Operation, Outcome, Value
from tests.checker.polls import by_process
from tests.checker.verdict import Anomaly
from tests.checker.version_order import VersionOrder


def internal_sends(order: VersionOrder) -> Iterator[Anomaly]:
    """Within an operation. Foreign rows may lie between, unless it got all offsets in one slot."""
    for operation in order.history:
        last: dict[str, int] = {}
        for key, value, index in _indexes(order, operation):
            if key in last:
                witness = f"{operation} sent {value!r} of {key} {index - last[key]} places after the one before"
                if index <= last[key]:
                    yield Anomaly("int-nonmonotonic-send", witness)
                elif index > last[key] + 1:
                    yield Anomaly("int-send-skip", witness, is_legal=not operation.staged)
            last[key] = index


def sends_of_processes(order: VersionOrder) -> Iterator[Anomaly]:
    """From one operation of a process to the next."""
    for operations in by_process(order.history).values():
        last: dict[str, tuple[int, Value]] = {}
        for operation in operations:
            sent: dict[str, list[tuple[int, Value]]] = {}
            for key, value, index in _indexes(order, operation):
                sent.setdefault(key, []).append((index, value))
            for key, places in sent.items():
                if key in last and min(places) <= last[key]:
                    yield Anomaly(
                        "nonmonotonic-send",
                        f"{operation} sent {min(places)[1]!r} of {key}, which lies before the older {last[key][1]!r}",
                    )
                last[key] = max([*places, last[key]] if key in last else places)


def _indexes(order: VersionOrder, operation: Operation) -> Iterator[tuple[str, Value, int]]:
    if operation.outcome is not Outcome.FAIL:
        for send in operation.sends():
            if (send.key, send.value) in order.first_index:
                yield send.key, send.value, order.first_index[send.key, send.value]
