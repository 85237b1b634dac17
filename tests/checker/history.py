"""What clients did and were told: operations of micro-operations, in memory and as JSON Lines.

A line is an operation as it begins (``"outcome": "invoke"``) or as it ends; who dies leaves the first alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

Value = int | str
"""What is sent: of one key no value is sent twice, except by a client that repeats the same operation."""

NEVER = 2**63 - 1
"""When an operation was over whose end nobody saw: it may take effect at any later time."""


class InvalidHistory(ValueError):
    """A line that is no operation, or an operation that cannot be."""


class Kind(Enum):
    SEND = "send"
    """Values, with no transaction around them."""
    POLL = "poll"
    """A consumer's poll, with no transaction around it."""
    TXN = "txn"
    """Sends and polls of one transaction."""
    SNAPSHOT = "snapshot"
    """A scan of ``keys`` as of one slot."""
    ASSIGN = "assign"
    """From here on the process reads ``keys``; it goes on where it stood in those that it has read before."""
    SUBSCRIBE = "subscribe"
    """From here on the process reads what its group gives it."""
    SEEK = "seek"
    """From here on the process may read ``keys`` from any offset."""
    COMMIT_OFFSETS = "commit-offsets"
    """The group's offsets, outside of a transaction."""


class Outcome(Enum):
    OK = "ok"
    FAIL = "fail"
    """It has not happened and never will."""
    INFO = "info"
    """It may have happened, or happen yet."""


@dataclass(frozen=True, slots=True)
class Send:
    """A value that was handed over for a key, and the offset that was told for it, if one was."""

    key: str
    value: Value
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll returned: offsets and values of each key in their order."""

    records: Mapping[str, Sequence[tuple[int, Value]]]


MicroOperation = Send | Poll


@dataclass(frozen=True, slots=True)
class Operation:
    """A step of a process, as it ended. A process takes one step after the other; a new client is a new process."""

    process: str
    kind: Kind
    outcome: Outcome
    invoked: int
    """When it began: any clock that all processes share."""
    completed: int
    """When it was over; ``NEVER`` if its outcome is unknown."""
    micro_operations: tuple[MicroOperation, ...] = ()
    keys: tuple[str, ...] = ()
    """Of an assignment, a seek and a snapshot; of others, what a rebalance took or gave while they lasted."""
    staged: bool = False
    """Whether all sends of this transaction got their offsets in one slot."""

    def __post_init__(self) -> None:
        if self.outcome is Outcome.INFO:
            object.__setattr__(self, "completed", NEVER)

    def sends(self) -> Iterable[Send]:
        return (each for each in self.micro_operations if isinstance(each, Send))

    def reads(self) -> Iterable[tuple[str, int, Value]]:
        """Key, offset and value of each record that it was shown, in this order."""
        for each in self.micro_operations:
            if isinstance(each, Poll):
                for key, records in each.records.items():
                    for offset, value in records:
                        yield key, offset, value

    def __str__(self) -> str:
        return f"{self.process}[{self.invoked}] {self.kind.value} {self.outcome.value}"


History = Sequence[Operation]
"""Operations in the order in which they were over."""


class HistoryWriter:
    """Writes a process's operations as they begin and end; each line is out of its hands when a call returns."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def invoke(self, operation: Operation) -> None:
        """Before anything of it is done: what it is about to send; its outcome and its end say nothing yet."""
        self._write(operation, "invoke")

    def complete(self, operation: Operation) -> None:
        self._write(operation, operation.outcome.value)

    def _write(self, operation: Operation, outcome: str) -> None:
        self._out.write(json.dumps({**_to_json(operation), "outcome": outcome}, separators=(",", ":")) + "\n")
        self._out.flush()


def read_history(paths: Iterable[Path | str]) -> History:
    """The operations of these files; of a directory, of each ``*.jsonl`` in it.

    Raises:
        InvalidHistory: a line is no operation. A last line that was cut off by the death of its writer is passed over.
        OSError
    """
    found: list[Operation] = []
    for path in map(Path, paths):
        for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
            found += _of_file(file)
    return in_order(found)


def in_order(operations: Iterable[Operation]) -> History:
    return sorted(operations, key=lambda each: (each.completed, each.invoked, each.process))


def _of_file(path: Path) -> list[Operation]:
    ended: list[Operation] = []
    begun: dict[str, Operation] = {}
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines, 1):
        if not line or number == len(lines):
            continue
        try:
            fields = json.loads(line)
            is_over = fields["outcome"] != "invoke"
            operation = _of_json(fields if is_over else {**fields, "outcome": "info", "completed": NEVER})
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidHistory(
                f"{path}:{number} is no operation ({type(error).__name__}: {error}): {line:.200}"
            ) from error
        before = begun.pop(operation.process, None)
        if is_over:
            ended.append(operation)
        else:
            if before is not None:
                ended.append(before)
            begun[operation.process] = operation
    return ended + list(begun.values())


def _to_json(operation: Operation) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "process": operation.process,
        "kind": operation.kind.value,
        "invoked": operation.invoked,
        "completed": operation.completed,
        "ops": [
            ["send", each.key, [each.offset, each.value]]
            if isinstance(each, Send)
            else ["poll", {key: [list(record) for record in records] for key, records in each.records.items()}]
            for each in operation.micro_operations
        ],
    }
    if operation.keys:
        fields["keys"] = list(operation.keys)
    if operation.staged:
        fields["staged"] = True
    return fields


def _of_json(fields: Mapping[str, Any]) -> Operation:
    return Operation(
        process=str(fields["process"]),
        kind=Kind(fields["kind"]),
        outcome=Outcome(fields["outcome"]),
        invoked=int(fields["invoked"]),
        completed=int(fields["completed"]),
        micro_operations=tuple(_micro_operation(each) for each in fields.get("ops", ())),
        keys=tuple(map(str, fields.get("keys", ()))),
        staged=bool(fields.get("staged", False)),
    )


def _micro_operation(fields: Sequence[Any]) -> MicroOperation:
    if fields[0] == "send":
        _, key, (offset, value) = fields
        return Send(str(key), value, offset)
    if fields[0] == "poll":
        records = fields[1] if len(fields) > 1 else {}
        return Poll({key: tuple((offset, value) for offset, value in found) for key, found in records.items()})
    raise InvalidHistory(f"{fields[0]!r} is neither send nor poll")
