"""Mutations of streaming queries: what the offsets in a checkpoint tell."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark_eoslog.stream.stream_offsets import Began
from tests.simulation.mutations.mutation import Focus, method, mutation

LATEST = Focus(("spark-latest0", "writer0", "writer1"), {"lost_worker": 0.3, "death": 0.01}, steps=300)


@mutation(LATEST)
def beginning_not_remembered() -> Iterator[None]:
    """Offsets do not say where a stream began: if its first micro-batch is planned again, rows are skipped."""
    with method(Began, "as_json", lambda self: {"topics": {}}):
        yield
