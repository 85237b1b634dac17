"""A token lies in one slot. Eight bytes of each are kept; only where these are the same both records are read again."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from eoslog.log.paths import slot_path
from eoslog.log.record import SlotRecord
from eoslog.store.object_store import ObjectStore
from eoslog.verification.finding import Finding
from eoslog.verification.records import token_of
from eoslog.verification.slots import Run

_BYTES_KEPT = 8
_NO_TOKEN = 0


class Tokens:
    """The tokens of slots, in their order."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept = array("Q")

    def add(self, record: SlotRecord | None) -> None:
        """The record of the next slot; None if it cannot be read."""
        self._kept.append(_NO_TOKEN if record is None else int(record.token[: 2 * _BYTES_KEPT], 16))

    def repeated(self, runs: list[Run]) -> Iterator[Finding]:
        """Records with the token of another.

        Args:
            runs: the slots whose records were added.
        """
        slots = np.concatenate([np.arange(run.first, run.last + 1, dtype=np.int64) for run in runs])
        tokens = np.frombuffer(self._kept, dtype=np.uint64)
        order = np.argsort(tokens, kind="stable")
        same = np.flatnonzero((tokens[order][1:] == tokens[order][:-1]) & (tokens[order][1:] != _NO_TOKEN))
        for index in same.tolist():
            first, second = int(slots[order[index]]), int(slots[order[index + 1]])
            if token_of(self._store, first) == token_of(self._store, second) is not None:
                problem = f"the record has the token of slot {first}"
                yield Finding(kind="slot-token-repeated", problem=problem, slot=second, path=slot_path(second))
