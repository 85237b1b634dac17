"""An observer that follows the log from its first slot on: it folds every record itself, without checkpoints.

What it knows in the end is compared with what a fresh process opens. Its samples are the plot's LSO lag.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import NamedTuple

import eoslog
from eoslog.errors import EosLogError
from eoslog.log.slots import CHECKPOINT_ENTRY, decode_line, first_line, slot_path
from eoslog.session.store_machine import StoreMachine
from eoslog.state.names import PartitionId
from eoslog.state.store_state import TransactionState
from eoslog.storage.object_store import ObjectNotFound

_PAUSE_S = 0.25


class Sample(NamedTuple):
    time_s: float
    slot: int
    lag: int
    """By how many offsets open transactions hold readers back, over all partitions."""
    open_transactions: int


class Observer:
    """Follows a store in a thread, from ``start`` to ``stop``."""

    def __init__(self, store: eoslog.Store) -> None:
        self._objects = store.object_store
        self._machine = StoreMachine()
        self.state = self._machine.initial()
        self.slot = -1
        self._append_ids: dict[str, int] = {}
        self._stable: dict[PartitionId, int] = {}
        self.contradictions: list[str] = []
        """Records that are invalid, and append ids that lie in two slots."""
        self.samples: list[Sample] = []
        self.entries = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, with everything folded that is there."""
        self._stopped.set()
        self._thread.join()
        self.follow()

    def _run(self) -> None:
        while not self._stopped.wait(_PAUSE_S):
            try:
                self.follow()
            except EosLogError as error:
                logging.info("the observer waits: %s", error)
            self._sample()

    def follow(self) -> None:
        """Fold what is new."""
        while True:
            try:
                body = self._objects.get(slot_path(self.slot + 1)).body
            except ObjectNotFound:
                return
            self._fold(body)

    def _fold(self, body: bytes) -> None:
        slot = self.slot + 1
        record = decode_line(first_line(body), slot)
        if record.append_id in self._append_ids:
            self.contradictions.append(
                f"the append id of slot {slot} lies in slot {self._append_ids[record.append_id]} too"
            )
        self._append_ids[record.append_id] = slot
        entries = [entry for entry in record.entries if entry.get("type") != CHECKPOINT_ENTRY]
        reason = self._machine.fold(self.state, slot, entries)
        if reason is not None:
            self.contradictions.append(f"slot {slot} is invalid: {reason}")
        self.entries += len(record.entries)
        self.slot = slot
        self._check_stable_offsets()

    def _check_stable_offsets(self) -> None:
        now = {place: each.last_stable_offset for place, each in self.state.partitions.items()}
        for place, offset in now.items():
            if offset < self._stable.get(place, 0):
                self.contradictions.append(f"slot {self.slot}: the last stable offset of {place} went back to {offset}")
        self._stable = now

    def _sample(self) -> None:
        lag = sum(each.high_watermark - each.last_stable_offset for each in self.state.partitions.values())
        count = sum(each.state is TransactionState.ONGOING for each in self.state.transactions.values())
        self.samples.append(Sample(time.time(), self.slot, lag, count))
