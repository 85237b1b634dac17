"""Mutations of what readers are shown: the last stable offset, outcomes, and cuts that split no transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eoslog.read import consistent_ends
from eoslog.read.consistent_ends import transaction_consistent_ends
from eoslog.read.isolation import IsolationLevel, is_visible, visible_end
from eoslog.state import partitions
from eoslog.state.partition_state import Batch, Outcome, Partition
from tests.simulation.mutations.mutation import Focus, instead_of, method, mutation

READERS = Focus(("writer0", "reader0"), {"pause": 0.01}, steps=300)
CONSUMERS = Focus(("writer0", "pipeline0"), steps=400)
STREAMS = Focus(("spark-stream0", "writer0", "writer1", "writer2", "writer3"), {"death": 0.0, "pause": 0.0}, steps=800)


@mutation(CONSUMERS)
def last_stable_offset_one_too_high() -> Iterator[None]:
    """The last stable offset lies behind the first open row: a consumer skips the row for ever."""

    def one_more(self: Partition) -> int:
        return next((first + 1 for first in self.open_transactions.values()), self.next_offset)

    with method(Partition, "last_stable_offset", property(one_more)):
        yield


@mutation(READERS)
def last_stable_offset_one_too_low() -> Iterator[None]:
    """The last stable offset lies before the last stable row: readers never get this row."""
    with method(
        Partition,
        "last_stable_offset",
        property(lambda self: next(iter(self.open_transactions.values()), max(0, self.next_offset - 1))),
    ):
        yield


@mutation(CONSUMERS)
def read_up_to_the_high_watermark() -> Iterator[None]:
    """A committed read goes beyond the last stable offset: a consumer skips rows that commit later."""
    with instead_of(visible_end, lambda partition, isolation: partition.high_watermark):
        yield


@mutation(READERS)
def aborted_rows_shown() -> Iterator[None]:
    """A reader ignores outcomes below the last stable offset: it shows aborted rows."""

    def visible(batch: Batch, isolation: IsolationLevel, *bounds: Any) -> bool:
        if batch.outcome is Outcome.ABORTED:
            batch = batch._replace(outcome=Outcome.COMMITTED)
        return is_visible(batch, isolation, *bounds)

    with instead_of(is_visible, visible):
        yield


@mutation(READERS)
def undecided_rows_shown() -> Iterator[None]:
    """A snapshot shows rows whose transaction is open: some of them are aborted."""

    def visible(batch: Batch, isolation: IsolationLevel, *bounds: Any) -> bool:
        if batch.outcome is Outcome.OPEN and isolation is IsolationLevel.SNAPSHOT:
            return True
        return is_visible(batch, isolation, *bounds)

    with instead_of(is_visible, visible):
        yield


@mutation(STREAMS, shows="shows .* rows of")
def consistent_cut_is_the_last_stable_offset() -> Iterator[None]:
    """A consistent read ends at each partition's last stable offset: it shows transactions in part."""

    def uncut(indexes: Any, partitions: Mapping[Any, Any], starts: Mapping[Any, int], ends: Mapping[Any, int]) -> Any:
        return {place: max(starts[place], ends[place]) for place in partitions}

    with instead_of(transaction_consistent_ends, uncut):
        yield


@mutation(STREAMS, shows="shows .* rows of")
def consistent_cut_lowered_once() -> Iterator[None]:
    """Ends are lowered once, not until nothing changes: a lower end splits a transaction, and a part shows."""

    def lowered_once(
        indexes: Any, partitions: Mapping[Any, Any], starts: Mapping[Any, int], ends: Mapping[Any, int]
    ) -> Any:
        caps = {place: max(starts[place], ends[place]) for place in partitions}
        lowered = consistent_ends._lowered(indexes, partitions, starts, caps)
        return {place: max(starts[place], lowered.get(place, cap)) for place, cap in caps.items()}

    with instead_of(transaction_consistent_ends, lowered_once):
        yield


@mutation(Focus(("writer0", "reader0"), {"pause": 0.01}, steps=400))
def outcome_of_the_first_batch_only() -> Iterator[None]:
    """An end settles the first batch of its transaction only: the others are never decided."""
    original = partitions._settle

    def settle(partition: Partition, producer_id: int, first_offset: int, **outcome: Any) -> int:
        rest = [batch for batch in partition.active if batch.base_offset > first_offset]
        settled = original(partition, producer_id, first_offset, **outcome)
        partition.active[len(partition.active) - len(rest) :] = rest
        return settled

    with method(partitions, "_settle", settle):
        yield
