"""The order of each key's values, as everything that clients saw or were told puts it."""

from __future__ import annotations

from collections import defaultdict

from tests.checker.history import History, Kind, Operation, Outcome, Send, Value


class VersionOrder:
    """Who wrote and who read each value, and each key's log: offsets that hold one are counted through from 0.

    An offset that nobody saw a value at is a marker or an aborted row, and no gap.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.writes: dict[Outcome, dict[str, set[Value]]] = {outcome: defaultdict(set) for outcome in Outcome}
        self.reads: dict[str, set[Value]] = defaultdict(set)
        """What polls that ended well returned."""
        self.writers: dict[tuple[str, Value], list[Operation]] = defaultdict(list)
        self.readers: dict[tuple[str, Value], list[Operation]] = defaultdict(list)
        self._look_at_operations()
        self.log: dict[str, dict[int, set[Value]]] = defaultdict(lambda: defaultdict(set))
        self._fill_log()
        self.first_index: dict[tuple[str, Value], int] = {}
        self.last_index: dict[tuple[str, Value], int] = {}
        for key, log in self.log.items():
            for index, (_, values) in enumerate(sorted(log.items())):
                for value in values:
                    self.first_index.setdefault((key, value), index)
                    self.last_index[key, value] = index

    def _look_at_operations(self) -> None:
        for operation in self.history:
            for send in operation.sends():
                self.writes[operation.outcome][send.key].add(send.value)
                self.writers[send.key, send.value].append(operation)
            for key, _, value in operation.reads():
                readers = self.readers[key, value]
                if not readers or readers[-1] is not operation:
                    readers.append(operation)
                if operation.outcome is Outcome.OK and operation.kind is not Kind.SNAPSHOT:
                    self.reads[key].add(value)

    def _fill_log(self) -> None:
        for operation in self.history:
            for send in operation.sends():
                if send.offset is not None and self.must_have_committed(operation, send):
                    self.log[send.key][send.offset].add(send.value)
            for key, offset, value in operation.reads():
                self.log[key][offset].add(value)

    def must_have_committed(self, operation: Operation, send: Send) -> bool:
        """Whether a send took effect: it was acknowledged, or somebody who ended well saw it.

        Of a transaction it is enough that he saw any of its sends.
        """
        if operation.outcome is not Outcome.INFO:
            return operation.outcome is Outcome.OK
        sends = operation.sends() if operation.kind is Kind.TXN else (send,)
        return any(
            reader.outcome is Outcome.OK for each in sends for reader in self.readers.get((each.key, each.value), ())
        )

    def committed_writer(self, key: str, value: Value) -> Operation | None:
        """Who wrote a value, if it must have been committed."""
        for operation in self.writers.get((key, value), ()):
            if any(self.must_have_committed(operation, each) for each in operation.sends() if each.value == value):
                return operation
        return None
