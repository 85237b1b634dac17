"""A broker that does everything right, and clients that die, abort and never hear: its histories break no rule."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.checker import History, Kind, MicroOperation, Operation, Outcome, Poll, Send, Value
from tests.checker.history import in_order

KEYS = ("i", "j", "k")
_STEPS = 100
_RECORDS_A_POLL = 3


@dataclass(eq=False)
class Transaction:
    """``None`` while it is open."""

    committed: bool | None = None


class Broker:
    """A log of each key: values with their transactions, and markers."""

    def __init__(self) -> None:
        self.logs: dict[str, list[tuple[Value | None, Transaction]]] = {key: [] for key in KEYS}

    def append(self, key: str, value: Value | None, transaction: Transaction) -> int:
        self.logs[key].append((value, transaction))
        return len(self.logs[key]) - 1

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        if transaction.committed is None:
            transaction.committed = commit
            for key, log in self.logs.items():
                if any(owner is transaction for _, owner in log):
                    self.append(key, None, transaction)

    def stable(self, key: str) -> list[tuple[int, Value | None]]:
        """Offsets and values up to the last stable offset; what does not show has no value."""
        found: list[tuple[int, Value | None]] = []
        for offset, (value, transaction) in enumerate(self.logs[key]):
            if transaction.committed is None:
                break
            found.append((offset, value if transaction.committed else None))
        return found

    def snapshot(self, key: str) -> tuple[tuple[int, Value], ...]:
        return tuple(
            (offset, value)
            for offset, (value, transaction) in enumerate(self.logs[key])
            if transaction.committed and value is not None
        )


class Model:
    """One run; ``history`` has what the clients were told."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = Broker()
        self.history: list[Operation] = []
        self._moment = 0
        self._values = 0
        self._clients = 0
        self._open: list[Transaction] = []
        """Of unknown outcome: they end when it pleases them."""

    def run(self) -> History:
        clients = [self._client() for _ in range(3)]
        for _ in range(_STEPS):
            number = self.random.randrange(len(clients))
            if next(clients[number], "gone") == "gone":
                clients[number] = self._client()
            if self._open and self.random.random() < 0.3:
                self.broker.end(self._open.pop(0), commit=self.random.random() < 0.5)
        for client in clients:
            for _ in client:
                pass
        for transaction in self._open:
            self.broker.end(transaction, commit=self.random.random() < 0.5)
        self._poll_all()
        return in_order(self.history)

    def _now(self) -> int:
        self._moment += 1
        return self._moment

    def _client(self) -> Iterator[None]:
        """A few operations of one process, which ends at the first of unknown outcome."""
        self._clients += 1
        process = f"client-{self._clients}"
        keys = tuple(sorted(self.random.sample(KEYS, 2)))
        positions = dict.fromkeys(keys, 0)
        subscribes = self.random.random() < 0.3
        self._add(process, Kind.SUBSCRIBE if subscribes else Kind.ASSIGN, keys=() if subscribes else keys)
        for _ in range(self.random.randrange(1, 8)):
            yield
            if subscribes and self.random.random() < 0.3:
                positions = {key: self.random.randrange(len(self.broker.logs[key]) + 1) for key in keys}
            draw = self.random.random()
            if draw < 0.1:
                shown = Poll({key: self.broker.snapshot(key) for key in KEYS})
                self._add(process, Kind.SNAPSHOT, (shown,), keys=KEYS)
            elif draw < 0.3:
                self._add(process, Kind.POLL, (self._poll(positions),))
            else:
                yield from self._transaction(process, positions)
                if self.history[-1].outcome is Outcome.INFO:
                    return

    def _transaction(self, process: str, positions: dict[str, int]) -> Iterator[None]:
        invoked = self._now()
        before = dict(positions)
        transaction = Transaction()
        outcome = self.random.choice((Outcome.OK, Outcome.OK, Outcome.OK, Outcome.FAIL, Outcome.INFO))
        done: list[MicroOperation] = []
        for _ in range(self.random.randrange(1, 5)):
            if self.random.random() < 0.4:
                done.append(self._poll(positions))
            else:
                key = self.random.choice(KEYS)
                self._values += 1
                offset = self.broker.append(key, self._values, transaction)
                done.append(Send(key, self._values, offset if self.random.random() < 0.8 else None))
            yield
        if outcome is Outcome.INFO:
            self._open.append(transaction)
        else:
            self.broker.end(transaction, commit=outcome is Outcome.OK)
        if outcome is Outcome.FAIL:
            positions.update(before)
        self.history.append(Operation(process, Kind.TXN, outcome, invoked, self._now(), tuple(done)))

    def _poll(self, positions: dict[str, int]) -> Poll:
        records: dict[str, tuple[tuple[int, Value], ...]] = {}
        for key in positions:
            found: list[tuple[int, Value]] = []
            for offset, value in self.broker.stable(key)[positions[key] :]:
                if len(found) == _RECORDS_A_POLL:
                    break
                positions[key] = offset + 1
                if value is not None:
                    found.append((offset, value))
            records[key] = tuple(found)
        return Poll(records)

    def _poll_all(self) -> None:
        positions = dict.fromkeys(KEYS, 0)
        self._add("last", Kind.ASSIGN, keys=KEYS)
        while any(positions[key] < len(self.broker.logs[key]) for key in KEYS):
            self._add("last", Kind.POLL, (self._poll(positions),))

    def _add(
        self, process: str, kind: Kind, done: Sequence[MicroOperation] = (), *, keys: tuple[str, ...] = ()
    ) -> None:
        self.history.append(Operation(process, kind, Outcome.OK, self._now(), self._now(), tuple(done), keys))
