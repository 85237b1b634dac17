"""Mutations of topics that are deleted and created again: what was meant for one meets the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eoslog.consumer.assigned_partitions import AssignedPartitions
from eoslog.state.draft import Draft
from eoslog.state.partitions import check_file_place
from eoslog.state.transactions import apply_batch
from tests.simulation.mutations.mutation import Focus, instead_of, method, mutation

WRITERS = Focus(("topic-admin0", "topic-writer0", "topic-reader0"), {"death": 0.0}, steps=400)
PIPELINES = Focus(("topic-admin0", "topic-idempotent0", "topic-pipeline0"), {"death": 0.0}, steps=600)


@mutation(WRITERS)
def topic_id_not_checked() -> Iterator[None]:
    """A batch goes to any topic that has the name at its slot: a successor gets rows for the deleted topic."""

    def planned(draft: Draft, entry: Any) -> Any:
        name = entry.file.path.partition("/")[0]
        if entry.topic_id not in draft.topics and name in draft.topic_ids:
            entry = entry.model_copy(update={"topic_id": draft.topic_ids[name]})
        return apply_batch(draft, entry)

    with instead_of(apply_batch, planned), instead_of(check_file_place, lambda topic, partition_id, file: None):
        yield


@mutation(PIPELINES)
def offsets_not_told_from_the_successors() -> Iterator[None]:
    """A transaction's offsets go to any topic with the name: rows of the successor are never read."""
    with method(AssignedPartitions, "topic_ids", lambda self: ()):
        yield
