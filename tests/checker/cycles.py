"""G1c: information flows in no circle. Who reads a value comes after who wrote it; what begins, after what was over.

Writes of different transactions lie between one another in Kafka, so their order says nothing here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from tests.checker.history import NEVER, Outcome
from tests.checker.verdict import Anomaly
from tests.checker.version_order import VersionOrder

Edges = dict[int, set[int]]
"""By an operation's place in the history: those that come before it."""


def circular_information(order: VersionOrder) -> Iterator[Anomaly]:
    """One cycle, of the strongest kind there is: of reads alone, with processes, or with real time."""
    before = _reads_from(order)
    for rule, further in (
        ("G1c", {}),
        ("G1c-process", _processes(order)),
        ("G1c-realtime", _realtime(order)),
    ):
        for operation, earlier in further.items():
            before.setdefault(operation, set()).update(earlier)
        cycle = _cycle(before)
        if cycle:
            yield Anomaly(rule, " -> ".join(str(order.history[each]) for each in cycle))
            return


def _reads_from(order: VersionOrder) -> Edges:
    place = {id(operation): number for number, operation in enumerate(order.history)}
    edges: Edges = {}
    for (key, value), readers in order.readers.items():
        for writer in order.writers.get((key, value), ()):
            for reader in readers:
                if reader is not writer and reader.outcome is not Outcome.FAIL:
                    edges.setdefault(place[id(reader)], set()).add(place[id(writer)])
    return edges


def _processes(order: VersionOrder) -> Edges:
    edges: Edges = {}
    last: dict[str, int] = {}
    for number in sorted(range(len(order.history)), key=lambda each: order.history[each].invoked):
        operation = order.history[number]
        if operation.outcome is Outcome.FAIL:
            continue
        if operation.process in last:
            edges.setdefault(number, set()).add(last[operation.process])
        if operation.completed != NEVER:
            last[operation.process] = number
    return edges


def _realtime(order: VersionOrder) -> Edges:
    """Only from operations that no later one, which was over before this began, comes after already."""
    history = order.history
    edges: Edges = {}
    done: set[int] = set()
    happened = [number for number, operation in enumerate(history) if operation.outcome is not Outcome.FAIL]
    events = [(history[number].completed, 1, number) for number in happened if history[number].completed != NEVER]
    events += [(history[number].invoked, 0, number) for number in happened]
    for _, is_end, number in sorted(events):
        if is_end:
            done -= edges.get(number, set())
            done.add(number)
        else:
            edges[number] = set(done)
    return edges


def _cycle(before: Mapping[int, set[int]]) -> list[int]:
    """A short cycle, each operation before the next; empty if there is none."""
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        found: list[int] = error.args[1]
        return min((_shortest(before, each) for each in set(found)), key=len)
    return []


def _shortest(before: Mapping[int, set[int]], start: int) -> list[int]:
    """The shortest way from an operation that lies on a cycle back to itself."""
    paths = {start: [start]}
    queue = deque([start])
    while queue:
        number = queue.popleft()
        for earlier in sorted(before.get(number, ())):
            if earlier == start:
                return [start, *reversed(paths[number])]
            if earlier not in paths:
                paths[earlier] = [*paths[number], earlier]
                queue.append(earlier)
    raise AssertionError
