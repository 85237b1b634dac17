"""The state machine: it applies the entries of the log one by one to the state of a store.

To apply an entry means to validate it, then to change the state. Nothing is guessed. An entry of an unknown type and an
unknown feature raise ``UnsupportedFormat``. An entry that contradicts the state raises another error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from eoslog.errors import EosLogError, InvalidEntry, UnsupportedFormat
from eoslog.state import expiry as group_deletion
from eoslog.state import group_members as members
from eoslog.state import groups, partitions, prepared, producer_ids, topics, transaction_ends, transactions
from eoslog.state.draft import AddedColumns, Draft
from eoslog.state.entries import ENTRY, Entry, StoreCreated
from eoslog.state.expiry import drop_pending_deletions, expire, move_horizon
from eoslog.state.features import add_features, check_features
from eoslog.state.group_entries import OffsetsCommitted
from eoslog.state.log_start import move_log_start
from eoslog.state.segment_replacement import clean_log, replace_segments
from eoslog.state.sequences import DuplicateBatch
from eoslog.state.skipped_files import skip_files
from eoslog.state.store_state import StoreState
from eoslog.wording import first_problem


def _create_store(draft: Draft, entry: StoreCreated) -> None:
    if draft.store_id or draft.slot != 0:
        raise InvalidEntry("a store is created once, at slot 0")
    check_features(entry.reader_features, entry.writer_features)
    draft.store_id = entry.store_id
    draft.reader_features = entry.reader_features
    draft.writer_features = entry.writer_features


def _commit_offsets(draft: Draft, entry: OffsetsCommitted) -> None:
    groups.check_plain_offsets(draft, entry.committed)
    groups.commit_offsets(draft, entry.committed, draft.slot)


_APPLY: dict[str, Callable[[Draft, Any], Entry | None]] = {
    # A rule returns None if its entry has no results. The log then has the entry as it was requested.
    "store": _create_store,
    "features": add_features,
    "store_config": producer_ids.change_store_config,
    "topic": topics.create_topic,
    "topic_config": topics.change_config,
    "topic_schema": topics.change_schema,
    "create_partitions": topics.create_partitions,
    "delete_topic": topics.delete_topic,
    "init": producer_ids.apply_init,
    "batch": transactions.apply_batch,
    "add_to_transaction": transactions.apply_addition,
    "prepare": prepared.apply_prepare,
    "end": transaction_ends.apply_end,
    "offsets": _commit_offsets,
    "group": members.change_group,
    "delete_offsets": group_deletion.delete_offsets,
    "delete_group": group_deletion.delete_group,
    "seal": partitions.seal,
    "replace": replace_segments,
    "skip": skip_files,
    "clean": clean_log,
    "log_start": move_log_start,
    "horizon": move_horizon,
    "pending_deletions_done": drop_pending_deletions,
    "expire": expire,
}


_RESULTS = {
    "init": frozenset({"producer_id", "producer_epoch"}),
    "end": frozenset({"next_producer_id", "next_producer_epoch"}),
}
"""Fields that a request may leave out, and an entry in the log may not."""


def apply_entry(draft: Draft, entry: Entry) -> Entry:
    """Validate an entry against the draft, then change the draft.

    A writer passes an entry without results. ``fold`` passes an entry of the log, which has them.

    Returns:
        The entry with its results at this slot: offsets, markers, identities.

    Raises:
        The error of the rule that refuses the entry.
    """
    before_ms = draft.time_ms
    draft.time_ms = max(before_ms, getattr(entry, "time_ms", 0))
    try:
        return _APPLY[entry.type](draft, entry) or entry
    except BaseException:
        # A request may continue after a refusal, for example of a duplicate. The refused entry is not in the record, so
        # its time must not count.
        draft.time_ms = before_ms
        raise


def new_draft(state: StoreState, slot: int, added_columns: AddedColumns) -> Draft:
    """Return an empty draft for the record of ``slot``, on the state after the slot before."""
    return Draft(state, slot, apply_entry, added_columns)


def decode_entry(value: object) -> Entry:
    """Return an entry from its JSON in the log.

    Raises:
        UnsupportedFormat: its type is unknown.
        InvalidEntry: its fields do not match its type.
    """
    if isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] not in _APPLY:
        raise UnsupportedFormat(f"the log holds an entry of the unknown type {value['type']!r}. Upgrade eoslog")
    try:
        return ENTRY.validate_python(value)
    except ValidationError as error:
        raise InvalidEntry(f"malformed entry: {first_problem(error)}") from None


def fold(state: StoreState, slot: int, entries: Sequence[object], added_columns: AddedColumns) -> str | None:
    """Apply all entries of a record, or none if one of them is invalid.

    Returns:
        The reason why the record is invalid and was skipped; None if it was applied.

    Raises:
        UnsupportedFormat: a newer version of eoslog wrote the record.
    """
    draft = Draft(state, slot, apply_entry, added_columns, is_folded=True)
    try:
        for value in entries:
            entry = decode_entry(value)
            if not _RESULTS.get(entry.type, frozenset()) <= entry.model_fields_set:
                raise InvalidEntry(f"an entry of type {entry.type!r} at slot {slot} lacks its results")
            applied = apply_entry(draft, entry)
            # Most rules return the same object. To compare it with itself would take longer than the rest of the fold.
            if applied is not entry and applied != entry:
                raise InvalidEntry(
                    f"an entry of the type {entry.type!r} at slot {slot} states other results than its rule gives"
                )
    except (UnsupportedFormat, MemoryError, RecursionError):  # the fault of this process, not of the record
        raise
    except (EosLogError, DuplicateBatch, transaction_ends.EndRepeated, prepared.PrepareRepeated) as error:
        return str(error)
    except Exception as error:  # the fold is total: no content of a slot may stop a reader
        return f"{type(error).__name__}: {error}"
    draft.merge()
    return None


def encode_entry(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON for the log."""
    return entry.model_dump(mode="json", exclude_none=True)
