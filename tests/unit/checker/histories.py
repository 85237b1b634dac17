"""Histories by hand: operations one after the other, each over before the next begins unless it is told otherwise."""

from __future__ import annotations

from itertools import count

from tests.checker import Kind, MicroOperation, Operation, Outcome, Poll, Send, Value, check

_moments = count()


def sent(key: str, value: Value, offset: int | None = None) -> Send:
    return Send(key, value, offset)


def polled(**records: list[tuple[int, Value]]) -> Poll:
    return Poll({key: tuple(found) for key, found in records.items()})


def operation(
    process: str,
    *micro_operations: MicroOperation,
    outcome: Outcome = Outcome.OK,
    kind: Kind = Kind.TXN,
    keys: tuple[str, ...] = (),
    lasted: tuple[int, int] | None = None,
    staged: bool = False,
) -> Operation:
    invoked, completed = lasted or (next(_moments), next(_moments))
    return Operation(process, kind, outcome, invoked, completed, micro_operations, keys, staged)


def send(process: str, key: str, value: Value, offset: int | None, outcome: Outcome = Outcome.OK) -> Operation:
    return operation(process, sent(key, value, offset), kind=Kind.SEND, outcome=outcome)


def poll(process: str, **records: list[tuple[int, Value]]) -> Operation:
    return operation(process, polled(**records), kind=Kind.POLL)


def snapshot(process: str, keys: tuple[str, ...], **records: list[tuple[int, Value]]) -> Operation:
    return operation(process, polled(**records), kind=Kind.SNAPSHOT, keys=keys)


def assign(process: str, *keys: str) -> Operation:
    return operation(process, kind=Kind.ASSIGN, keys=keys)


def subscribe(process: str) -> Operation:
    return operation(process, kind=Kind.SUBSCRIBE)


def illegal(*history: Operation, all_was_polled: bool = True) -> set[str]:
    """The rules that a history breaks."""
    return {anomaly.rule for anomaly in check(history, all_was_polled=all_was_polled).illegal}


def legal(*history: Operation, all_was_polled: bool = True) -> set[str]:
    """What a history has that is odd and legal. It breaks no rule."""
    verdict = check(history, all_was_polled=all_was_polled)
    assert verdict.is_valid, str(verdict)
    return set(verdict.counts())
