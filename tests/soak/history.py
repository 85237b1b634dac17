"""What a process writes down of its operations: each before it begins, and again when its outcome is known."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import eoslog
from tests.checker import History, HistoryWriter, Kind, MicroOperation, Operation, Outcome, Poll, Send


def place_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def topic_of(place: str) -> str:
    return place.rpartition("-")[0]


def send_of(topic: str, partition: int, value: str, offset: int | None = None) -> Send:
    return Send(place_name(topic, partition), value, offset)


def poll_of(records: Iterable[eoslog.ConsumerRecord]) -> Poll:
    """What a poll has shown, in its order."""
    shown: dict[str, list[tuple[int, str]]] = {}
    for record in records:
        shown.setdefault(place_name(record.topic, record.partition), []).append((record.offset, record.value.decode()))
    return Poll(shown)


class ProcessHistory:
    """The history of one incarnation of a process, which is a process of its own to the checker.

    Every line is handed to the system at once, so a killed process leaves what it had begun.
    """

    def __init__(self, folder: Path, name: str, incarnation: int) -> None:
        self.process = f"{name}.{incarnation}"
        self._writer = HistoryWriter((folder / f"{self.process}.jsonl").open("a"))

    def begin(
        self,
        kind: Kind,
        micro_operations: Sequence[MicroOperation] = (),
        *,
        keys: Iterable[str] = (),
        staged: bool = False,
    ) -> Operation:
        now_ns = time.time_ns()
        operation = Operation(
            self.process, kind, Outcome.INFO, now_ns, now_ns, tuple(micro_operations), tuple(keys), staged
        )
        self._writer.invoke(operation)
        return operation

    def end(
        self,
        operation: Operation,
        outcome: Outcome,
        micro_operations: Sequence[MicroOperation] | None = None,
        *,
        keys: Iterable[str] = (),
    ) -> None:
        """The outcome is known, and perhaps more of what was done: offsets, and what a poll has shown."""
        ended = replace(operation, outcome=outcome, completed=time.time_ns())
        if micro_operations is not None:
            ended = replace(ended, micro_operations=tuple(micro_operations))
        if keys:
            ended = replace(ended, keys=tuple(keys))
        self._writer.complete(ended)


def write_history(path: Path, history: History) -> None:
    """A whole history in one file, as the checker's command reads it."""
    with path.open("w") as out:
        writer = HistoryWriter(out)
        for operation in history:
            writer.complete(operation)


def name_of(operation: Operation) -> str:
    """The process, whatever its incarnation."""
    return operation.process.rpartition(".")[0]
