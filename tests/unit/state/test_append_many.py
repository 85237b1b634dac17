"""Requests of several producers in one request: each has an answer or an error of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from eoslog.errors import (
    EosLogError,
    InvalidEntry,
    InvalidProducerIdMapping,
    OutOfOrderSequence,
    RecordFull,
    UnknownProducerId,
)
from eoslog.log.machine import is_shareable
from eoslog.state.append_requests import AppendBatches, AppendedRows, AppendMany
from eoslog.state.draft import Draft
from eoslog.state.names import PartitionId
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.store_state import TransactionState
from eoslog.state.transaction_entries import BatchAppended
from tests.unit.state.histories import NOBODY, TOPIC_ID, History, in_record


def append_many(history: History, *batches: BatchAppended) -> list[Any]:
    """Append batches, each in a request of its own, and return the offsets or the kind of the error."""
    answers = history.append(AppendMany([AppendBatches([batch]) for batch in batches]).apply)
    return [type(answer) if isinstance(answer, EosLogError) else answer[0].base_offset for answer in answers]


def batch(history: History, identity: ProducerIdentity, base_sequence: int = 0, **options: Any) -> BatchAppended:
    return history.batch(identity, base_sequence, **{"transactional_id": None} | options)


def test_the_batches_of_several_producers_are_in_one_record_in_their_order(history: History) -> None:
    producers = [history.init(None) for _ in range(3)]
    slot = history.slot

    answers = append_many(history, *(batch(history, each, count=2) for each in producers))

    assert answers == [0, 2, 4]
    assert history.slot == slot + 1
    assert [entry["producer_id"] for entry in history.records[-1]] == [each.producer_id for each in producers]


def test_a_refused_batch_has_its_error_and_the_others_are_appended(history: History) -> None:
    first, second = history.init(None), history.init(None)

    answers = append_many(
        history,
        batch(history, first),
        batch(history, NOBODY),
        batch(history, second, 5),
        batch(history, first, transactional_id="unknown"),
        batch(history, second),
    )

    assert answers == [0, UnknownProducerId, OutOfOrderSequence, InvalidProducerIdMapping, 1]
    assert len(history.records[-1]) == 2


def test_a_refused_request_of_several_batches_leaves_nothing_behind(history: History) -> None:
    identity, other = history.init(None), history.init(None)
    half_good = AppendBatches([batch(history, identity), batch(history, identity, 7)])

    refused, appended = history.append(AppendMany([half_good, AppendBatches([batch(history, other)])]).apply)

    assert isinstance(refused, OutOfOrderSequence)
    assert appended == [AppendedRows(PartitionId(TOPIC_ID, 0), 0, 1)]
    assert set(history.partition().producers) == {other.producer_id}


def test_batches_of_one_producer_follow_each_other(history: History) -> None:
    identity = history.init(None)

    assert append_many(history, *(batch(history, identity, sequence, count=3) for sequence in (0, 3, 6))) == [0, 3, 6]


def test_behind_a_refused_batch_the_next_ones_of_its_producer_are_a_gap(history: History) -> None:
    identity = history.init(None)
    misplaced = batch(history, identity, 1, file=history.data_file(partition=1))

    answers = append_many(history, batch(history, identity, 0), misplaced, batch(history, identity, 2))

    assert answers == [0, InvalidEntry, OutOfOrderSequence]


def test_repeated_batches_get_their_offsets_and_no_record(history: History) -> None:
    producers = [history.init(None) for _ in range(3)]
    batches = [batch(history, each) for each in producers]
    answers = append_many(history, *batches)
    slot = history.slot

    assert append_many(history, *batches) == answers
    assert history.slot == slot


def test_batches_that_are_repeated_and_new_ones_share_a_record(history: History) -> None:
    first, second = history.init(None), history.init(None)
    append_many(history, batch(history, first))

    assert append_many(history, batch(history, first), batch(history, second), batch(history, first, 1)) == [0, 1, 2]
    assert len(history.records[-1]) == 2


def test_batches_with_and_without_a_transaction_share_a_record(history: History) -> None:
    transactional, idempotent = history.init("tx"), history.init(None)

    answers = append_many(
        history, batch(history, transactional, transactional_id="tx"), batch(history, idempotent, partition=1)
    )

    assert answers == [0, 0]
    assert history.transaction().state is TransactionState.ONGOING


def test_the_content_of_a_refused_batch_is_not_in_the_record(history: History) -> None:
    batches = [batch(history, history.init(None)), batch(history, NOBODY)]
    batches = [each.model_copy(update={"file": in_record(each.file)}) for each in batches]
    files = []

    def append(draft: Draft) -> None:
        AppendMany([AppendBatches([each], {each.file.path: bytes(each.file.length)}) for each in batches]).apply(draft)
        files.extend(draft.files)

    history.append(append)

    assert files == [batches[0].file.path]


@dataclass(frozen=True, kw_only=True)
class _Failing(AppendBatches):
    error: Exception

    def apply(self, draft: Draft) -> list[AppendedRows]:
        raise self.error


@pytest.mark.parametrize("error", [RecordFull(), ValueError("a fault of the code")])
def test_what_is_no_refusal_ends_the_whole_request(history: History, error: Exception) -> None:
    good = AppendBatches([batch(history, history.init(None))])

    assert history.refused(AppendMany([good, _Failing(batches=(), error=error)]).apply) is error


def test_only_its_own_process_appends_it() -> None:
    assert not is_shareable(AppendMany([]))
