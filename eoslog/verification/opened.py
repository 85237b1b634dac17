"""The log as any process opens it, and the checkpoints that it names."""

from __future__ import annotations

from typing import Any

from eoslog.errors import CorruptRecord, InvalidEntry, NotAStore, without_code
from eoslog.log.log import Log
from eoslog.log.paths import slot_path
from eoslog.log.record import CheckpointReference, decode_line, first_line
from eoslog.log.view import CHECKPOINT_ENTRY, View, decode_checkpoint_entry
from eoslog.rules.state import StoreState
from eoslog.verification.finding import READS_BEFORE_REPORT
from eoslog.verification.slots import Run


def opened(log: Log[StoreState]) -> tuple[View[StoreState] | None, str]:
    """A view of its own, or None and why the log cannot be opened."""
    problem = ""
    for _ in range(READS_BEFORE_REPORT):
        view = View(log.store, log.machine, log.environment, log.config)
        try:
            view.open()
        except (CorruptRecord, NotAStore) as error:
            problem = without_code(error)
        else:
            return view, ""
    return None, problem


def named_checkpoints(log: Log[StoreState], found: list[Run]) -> list[CheckpointReference]:
    """The two checkpoints that the log names, the newest first: as it is opened, or by its newest record.

    Args:
        found: the slots that there are, ascending.
    """
    view, _ = opened(log)
    if view is None:
        return _named_by_records(log, found)
    return [each for each in (view.checkpoint, view.previous_checkpoint) if each is not None]


def is_checkpoint(entry: dict[str, Any]) -> bool:
    """Whether an entry of a record names a checkpoint, and is none of the rules'."""
    return entry.get("type") == CHECKPOINT_ENTRY


def _named_by_records(log: Log[StoreState], found: list[Run]) -> list[CheckpointReference]:
    for run in reversed(found):
        for slot in range(run.last, run.first - 1, -1):
            stored = log.store.get_many([slot_path(slot)])[0]
            try:
                record = decode_line(first_line(stored.body if stored is not None else b""), slot)
                own = [decode_checkpoint_entry(each).reference for each in record.entries if is_checkpoint(each)]
            except (CorruptRecord, InvalidEntry):
                continue
            named = {each for each in (*own, record.checkpoint, record.previous_checkpoint) if each is not None}
            return sorted(named, key=lambda each: -each.slot)[:2]
    return []
