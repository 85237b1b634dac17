"""Single lies in a true history: a row lost, doubled, moved, shown too early or too much. None if there is no room."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.checker import History, Kind, MicroOperation, Operation, Outcome, Poll, Send, Value

Record = tuple[int, Value]
Place = tuple[int, int, str, int]
"""Of a record that was shown: operation, micro-operation, key, place among the records."""


def lose_a_row(history: History, chance: random.Random) -> History | None:
    """A row that was acknowledged is shown to nobody."""
    found = _acknowledged(history, _records(history, lambda each: each.process == "last"))
    if not found:
        return None
    _, _, key, _ = place = chance.choice(found)
    lost = _record(history, place)
    return [
        replace(each, micro_operations=tuple(_without(micro, key, lost) for micro in each.micro_operations))
        for each in history
    ]


def double_a_row(history: History, chance: random.Random) -> History | None:
    """The last polls show a row a second time, where nothing was."""
    found = _records(history, lambda each: each.process == "last")
    if not found:
        return None
    _, _, key, _ = place = chance.choice(found)
    _, value = _record(history, place)
    return _with_last(history, key, value)


def show_what_was_aborted(history: History, chance: random.Random) -> History | None:
    """The last polls show a row of a transaction that failed."""
    sends = [send for each in history if each.outcome is Outcome.FAIL for send in each.sends()]
    if not sends:
        return None
    send = chance.choice(sends)
    return _with_last(history, send.key, send.value)


def swap_two_rows(history: History, chance: random.Random) -> History | None:
    """A poll shows two rows at each other's offsets; others saw them where they are."""
    told = Counter((key, record) for key, record in _told(history))
    found = [
        place
        for place in _records(history, lambda each: each.process != "last" and each.kind is not Kind.SNAPSHOT)
        if place[3] > 0 and told[place[2], _record(history, place)] > 1
    ]
    if not found:
        return None
    number, micro, key, index = chance.choice(found)

    def swapped(records: Sequence[Record]) -> list[Record]:
        (first, one), (second, other) = records[index - 1], records[index]
        return [*records[: index - 1], (first, other), (second, one), *records[index + 1 :]]

    return _with_poll(history, number, micro, key, swapped)


def leave_a_row_out_of_a_poll(history: History, chance: random.Random) -> History | None:
    """One poll passes over an acknowledged row between two that it shows."""
    found = [
        (number, micro, key, index)
        for number, micro, key, index in _acknowledged(
            history, _records(history, lambda each: each.kind is not Kind.SNAPSHOT)
        )
        if 0 < index < len(_poll(history, number, micro).records[key]) - 1
    ]
    if not found:
        return None
    number, micro, key, index = chance.choice(found)
    return _with_poll(history, number, micro, key, lambda records: [*records[:index], *records[index + 1 :]])


def acknowledge_another_offset(history: History, chance: random.Random) -> History | None:
    """A producer is told another offset than its row has."""
    found = [
        (number, micro)
        for number, operation in enumerate(history)
        if operation.outcome is Outcome.OK
        for micro, each in enumerate(operation.micro_operations)
        if isinstance(each, Send) and each.offset is not None
    ]
    if not found:
        return None
    number, micro = chance.choice(found)
    send = history[number].micro_operations[micro]
    assert isinstance(send, Send)
    assert send.offset is not None
    return _with_micro(history, number, micro, replace(send, offset=send.offset + chance.choice((1, 1000))))


def show_a_transaction_its_own_row(history: History, chance: random.Random) -> History | None:
    """A transaction polls what it has just sent."""
    found = [
        (number, send)
        for number, operation in enumerate(history)
        if operation.kind is Kind.TXN and operation.outcome is Outcome.OK
        for send in operation.sends()
        if send.offset is not None
    ]
    if not found:
        return None
    number, send = chance.choice(found)
    shown = Poll({send.key: ((send.offset or 0, send.value),)})
    operation = history[number]
    return _replaced(history, number, replace(operation, micro_operations=(*operation.micro_operations, shown)))


def tear_a_transaction_in_a_snapshot(history: History, chance: random.Random) -> History | None:
    """A snapshot lacks one of the rows of a transaction that it shows."""
    size = {
        (send.key, send.value): len(list(each.sends()))
        for each in history
        if each.kind is Kind.TXN
        for send in each.sends()
    }
    found = [
        place
        for place in _records(history, lambda each: each.kind is Kind.SNAPSHOT)
        if size[place[2], _record(history, place)[1]] > 1
    ]
    if not found:
        return None
    number, micro, key, index = chance.choice(found)
    return _with_poll(history, number, micro, key, lambda records: [*records[:index], *records[index + 1 :]])


def show_a_row_before_it_was_sent(history: History, chance: random.Random) -> History | None:
    """A transaction is shown a row whose operation began after it was over."""
    rows = [
        (operation.invoked, send)
        for operation in history
        if operation.outcome is Outcome.OK
        for send in operation.sends()
        if send.offset is not None
    ]
    found = [
        (number, send)
        for number, operation in enumerate(history)
        if operation.kind is Kind.TXN and operation.outcome is Outcome.OK
        for invoked, send in rows
        if invoked > operation.completed
    ]
    if not found:
        return None
    number, send = chance.choice(found)
    shown = Poll({send.key: ((send.offset or 0, send.value),)})
    operation = history[number]
    return _replaced(history, number, replace(operation, micro_operations=(*operation.micro_operations, shown)))


CORRUPTIONS: tuple[Callable[[History, random.Random], History | None], ...] = (
    lose_a_row,
    double_a_row,
    show_what_was_aborted,
    swap_two_rows,
    leave_a_row_out_of_a_poll,
    acknowledge_another_offset,
    show_a_transaction_its_own_row,
    tear_a_transaction_in_a_snapshot,
    show_a_row_before_it_was_sent,
)


def _told(history: History) -> list[tuple[str, Record]]:
    shown = [(key, (offset, value)) for each in history for key, offset, value in each.reads()]
    acknowledged = [
        (send.key, (send.offset, send.value))
        for each in history
        if each.outcome is Outcome.OK
        for send in each.sends()
        if send.offset is not None
    ]
    return shown + acknowledged


def _records(history: History, where: Callable[[Operation], bool]) -> list[Place]:
    return [
        (number, micro, key, index)
        for number, operation in enumerate(history)
        if where(operation)
        for micro, each in enumerate(operation.micro_operations)
        if isinstance(each, Poll)
        for key, records in each.records.items()
        for index in range(len(records))
    ]


def _acknowledged(history: History, places: Sequence[Place]) -> list[Place]:
    """Nobody misses the only row of a transaction of unknown outcome that nobody else saw."""
    sent = {(send.key, send.value) for each in history if each.outcome is Outcome.OK for send in each.sends()}
    return [place for place in places if (place[2], _record(history, place)[1]) in sent]


def _poll(history: History, number: int, micro: int) -> Poll:
    found = history[number].micro_operations[micro]
    assert isinstance(found, Poll)
    return found


def _record(history: History, place: Place) -> Record:
    number, micro, key, index = place
    return _poll(history, number, micro).records[key][index]


def _replaced(history: History, number: int, operation: Operation) -> History:
    return [*history[:number], operation, *history[number + 1 :]]


def _with_micro(history: History, number: int, micro: int, changed: Send | Poll) -> History:
    done = history[number].micro_operations
    return _replaced(
        history, number, replace(history[number], micro_operations=(*done[:micro], changed, *done[micro + 1 :]))
    )


def _with_poll(
    history: History, number: int, micro: int, key: str, change: Callable[[Sequence[Record]], Sequence[Record]]
) -> History:
    records = _poll(history, number, micro).records
    return _with_micro(history, number, micro, Poll({**records, key: tuple(change(records[key]))}))


def _without(micro: MicroOperation, key: str, record: Record) -> MicroOperation:
    if isinstance(micro, Send):
        return micro
    return Poll({**micro.records, key: tuple(each for each in micro.records.get(key, ()) if each != record)})


def _with_last(history: History, key: str, value: Value) -> History:
    """One more poll at the end, of a row behind all others."""
    end = max((offset for each in history for of, offset, _ in each.reads() if of == key), default=0)
    moment = max(each.invoked for each in history) + 1
    shown = Poll({key: ((end + 1, value),)})
    return [*history, Operation("last", Kind.POLL, Outcome.OK, moment, moment + 1, (shown,))]
