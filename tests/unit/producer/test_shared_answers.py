"""The answer to a shared request comes from the entries that a record names for it, if they are this request's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from eoslog import Store
from eoslog.state.append_requests import AppendBatches, AppendedRows
from eoslog.state.end_requests import EndTransaction
from eoslog.state.names import PartitionId
from eoslog.state.state_machine import encode_entry
from tests.unit.state.histories import TOPIC_ID, History
from tests.unit.support.transactions import open_transaction

Entries = Sequence[Mapping[str, Any]]


def answer_of_batches(history: History) -> tuple[Callable[[Entries, int], Any], list[dict[str, Any]]]:
    """How a producer answers for two batches in flight, and their entries as a record has them."""
    identity = history.init(None)
    batches = [history.batch(identity, transactional_id=None, partition=partition, count=3) for partition in (0, 1)]
    entries = [encode_entry(batch.model_copy(update={"base_offset": 40 + batch.partition})) for batch in batches]
    return AppendBatches(batches).shared_answer, entries


def test_batches_are_told_the_offsets_that_the_record_gave_them() -> None:
    answer, entries = answer_of_batches(History())

    assert answer(entries, 7) == [
        AppendedRows(PartitionId(TOPIC_ID, 0), 40, 3),
        AppendedRows(PartitionId(TOPIC_ID, 1), 41, 3),
    ]


@pytest.mark.parametrize(
    "forged",
    [
        lambda first, second: [],
        lambda first, second: [first],
        lambda first, second: [second, first],
        lambda first, second: [first | {"producer_epoch": 1}, second],
        lambda first, second: [first | {"base_sequence": 3}, second],
        lambda first, second: [first | {"file": second["file"]}, second],
        lambda first, second: [{"type": "end"}, second],
        lambda first, second: [{}, {}],
    ],
)
def test_entries_of_other_requests_answer_no_batches(forged: Callable[[Any, Any], Entries]) -> None:
    answer, entries = answer_of_batches(History())

    with pytest.raises((ValueError, LookupError)):
        answer(forged(*entries), 7)


@pytest.mark.parametrize("forged", [(), ({"outcome": "abort"},), ({"producer_epoch": 1},), ({}, {})])
def test_entries_of_other_ends_answer_no_end(store: Store, forged: tuple[dict[str, Any], ...]) -> None:
    shared: list[EndTransaction] = []
    with open_transaction(store, "tx", staged=True) as producer:
        producer.send("t", b"x")
        append = store.append

        def noted(request: Any, **options: Any) -> Any:
            shared.append(request)
            return append(request, **options)

        store.append = noted  # type: ignore[method-assign]
        producer.commit_transaction()
    request = shared[0]
    (entry,) = (encode_entry(each) for each in request.shared_entries)

    assert request.shared_answer([entry | {"next_producer_id": 5, "next_producer_epoch": 6}], 7) == ((5, 6), True)
    with pytest.raises((ValueError, LookupError)):
        request.shared_answer([entry | changed for changed in forged], 7)
