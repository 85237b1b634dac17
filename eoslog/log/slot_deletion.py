"""Deletion of objects that the log no longer needs: old slots and replaced checkpoints.

A paused writer could put a record under the name of a deleted slot. Three rules make this harmless. Only slots older
than the retention of slots are deleted. They are deleted in ascending order. No process trusts its replica for longer
than half of the retention. A process may die after each step, and each step may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from eoslog.errors import CorruptRecord, EosLogError
from eoslog.log.checkpoint import CheckpointRoot, read_checkpoint, read_root
from eoslog.log.log import Log
from eoslog.log.slots import (
    CHECKPOINTS,
    SLOTS,
    CheckpointReference,
    slot_group,
    slot_of,
)
from eoslog.storage.object_store import ObjectInfo

S = TypeVar("S")
_logger = logging.getLogger(__name__)
_DELETED_AT_ONCE = 500


class _Named(NamedTuple):
    """The state after one slot, and the two checkpoints that the log names there."""

    state: Any
    current: CheckpointReference
    previous: CheckpointReference


def delete_old_slots(log: Log[S]) -> int:
    """Delete old slots. Return their number.

    A slot is deleted if it is below the older of the log's two checkpoints, and older than the retention. It stays
    while it or an older slot has rows that a reader may need. Slots are deleted only if both checkpoints can be read
    completely.
    """
    named = _named(log)
    if named is None:
        return 0
    floor = min(named.current.slot, named.previous.slot)
    needed = log.machine.oldest_needed_slot(named.state)
    floor = floor if needed is None else min(floor, needed)
    # The groups are numbered downwards: the groups of newer slots come before.
    listed = sorted(
        (slot, info)
        for info in log.store.list(SLOTS, start_after=slot_group(floor).rstrip("/"))
        if (slot := slot_of(info.path)) is not None and slot < floor
    )
    # Use the date of the store's last answer: it is never later than the store's time.
    newest_deletable_ms = log.store.clock.last_date_ms - log.config.slot_retention_ms
    paths = [info.path for _, info in _old_enough(listed, floor, newest_deletable_ms)]
    if not paths:
        return 0
    for reference in (named.current, named.previous):
        try:
            read_checkpoint(log.store, log.machine, reference)
        except CorruptRecord as error:
            _logger.warning("%s: no slot is deleted: %s", log.store.url, error)
            return 0
    for first in range(0, len(paths), _DELETED_AT_ONCE):
        log.store.delete(paths[first : first + _DELETED_AT_ONCE])
    return len(paths)


def _old_enough(
    listed: Sequence[tuple[int, ObjectInfo]], floor: int, newest_deletable_ms: int
) -> list[tuple[int, ObjectInfo]]:
    """Return the slots below ``floor`` to delete: orphans, then slots of the log up to the first that is too young.

    An orphan was put by a paused process under the name of a deleted slot. A gap follows it.
    """
    start = len(listed)
    while start > 0 and listed[start - 1][0] == floor - (len(listed) - start) - 1:
        start -= 1
    old = [(slot, info) for slot, info in listed[:start] if info.last_modified_ms < newest_deletable_ms]
    for slot, info in listed[start:]:
        if info.last_modified_ms >= newest_deletable_ms:
            break
        old.append((slot, info))
    return old


def delete_old_checkpoints(log: Log[S]) -> int:
    """Delete objects of checkpoints that the log no longer uses. Return the number of deleted objects.

    Neither of the log's two checkpoints names these objects, and no later entry can name them: they were uploaded at or
    before the state's horizon, so the state machine would refuse the entry.
    """
    named = _named(log)
    if named is None:
        return 0
    paths = {
        info.path
        for info in log.store.list(CHECKPOINTS)
        if _can_no_longer_be_named(log, named.state, info.last_modified_ms)
    } - {named.current.path, named.previous.path}
    if not paths:
        return 0
    for reference in (named.current, named.previous):
        try:
            paths -= _parts(read_root(log.store, reference))
        except CorruptRecord as error:
            _logger.warning("%s: no checkpoint is deleted: %s", log.store.url, error)
            return 0
    ordered = sorted(paths)
    for first in range(0, len(ordered), _DELETED_AT_ONCE):
        log.store.delete_many(ordered[first : first + _DELETED_AT_ONCE])
    return len(ordered)


def _named(log: Log[S]) -> _Named | None:
    """Return the newest state and the log's two checkpoints; None if the log has fewer than two."""

    def snapshot(state: S, slot: int) -> _Named | None:
        current, previous = log.replica.checkpoint, log.replica.previous_checkpoint
        if current is None or previous is None or log.replica.invalid is not None:
            return None
        return _Named(log.machine.frozen_copy(state), current, previous)

    return log.read(snapshot)


def _parts(root: CheckpointRoot) -> set[str]:
    return {part.path for part in root.parts if part.path is not None}


def _can_no_longer_be_named(log: Log[S], state: S, uploaded_ms: int) -> bool:
    try:
        log.machine.check_upload(state, uploaded_ms)
    except EosLogError:
        return True
    return False
