"""The adapter between the log and the store's state machine, with its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from eoslog.format import checkpoint_codec as checkpoint
from eoslog.format.topic_schemas import added_columns
from eoslog.log.machine import Request
from eoslog.state import partitions
from eoslog.state.draft import Draft
from eoslog.state.entries import Entry
from eoslog.state.features import check_features
from eoslog.state.shared_entries import append_for_another
from eoslog.state.state_machine import encode_entry, fold, new_draft
from eoslog.state.store_state import StoreState
from eoslog.state.transaction_requests import AbortOverdueTransactions

T = TypeVar("T")


def answer_without_record(state: StoreState, slot: int, request: Request[T]) -> T:
    """Return the answer that a request would get in the record after this slot. Nothing is appended.

    Raises:
        The error with which the state refuses the request.
    """
    return request.apply(new_draft(state, slot + 1, added_columns))


class StoreMachine:
    """The state machine of a store in the form that the log needs."""

    def initial(self) -> StoreState:
        return StoreState()

    def frozen_copy(self, state: StoreState) -> StoreState:
        return state.frozen_copy()

    def new_draft(self, state: StoreState, slot: int) -> Draft:
        return new_draft(state, slot, added_columns)

    def add_overdue(self, draft: Draft, now_ms: int) -> None:
        AbortOverdueTransactions(now_ms).apply(draft)

    def append_for_another(self, draft: Draft, entries: Sequence[object], files: Mapping[str, bytes]) -> None:
        append_for_another(draft, entries, files)

    def encode_entry(self, entry: Entry) -> dict[str, Any]:
        return encode_entry(entry)

    def fold(self, state: StoreState, slot: int, entries: Sequence[object]) -> str | None:
        return fold(state, slot, entries, added_columns)

    def oldest_needed_slot(self, state: StoreState) -> int | None:
        return partitions.oldest_needed_record(state)

    def check_upload(self, state: StoreState, upload_ms: int) -> None:
        partitions.check_upload(state, upload_ms)

    def parts(self, state: StoreState, slot: int) -> Iterator[checkpoint.Part]:
        return checkpoint.parts(state, slot)

    def restore(self, parts: Mapping[str, bytes]) -> StoreState:
        state = checkpoint.restore(parts)
        check_features(state.reader_features, state.writer_features)
        return state
