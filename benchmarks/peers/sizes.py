"""How much work a run does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    name: str
    rounds: int
    rows: int
    """Rows of a batch."""
    commits: int
    """Small commits of each round."""
    threads: Sequence[int]
    """Numbers of concurrent writers that are threads of one process."""
    processes: Sequence[int]
    """Numbers of concurrent writers that are processes."""
    writer_rounds: int
    writer_s: float
    """How long concurrent writers write (s)."""
    history: Sequence[int]
    """Transactions of a table's history."""
    stream_rounds: int
    batches: int
    """Micro-batches of each round."""
    batch_rows: int
    records: int
    """Records of producers and consumers."""
    limit_s: float
    """How long one part may take (s)."""


SIZES: Mapping[str, Sizes] = {
    # For a check that everything runs. Its numbers say nothing.
    "smoke": Sizes(
        name="smoke",
        rounds=2,
        rows=20_000,
        commits=4,
        threads=(1, 4),
        processes=(2,),
        writer_rounds=1,
        writer_s=0.5,
        history=(10, 30),
        stream_rounds=1,
        batches=4,
        batch_rows=1_000,
        records=5_000,
        limit_s=300,
    ),
    "quick": Sizes(
        name="quick",
        rounds=3,
        rows=1_000_000,
        commits=15,
        threads=(1, 8, 64),
        processes=(8,),
        writer_rounds=1,
        writer_s=2,
        history=(100, 1_000),
        stream_rounds=2,
        batches=6,
        batch_rows=10_000,
        records=100_000,
        limit_s=600,
    ),
    "full": Sizes(
        name="full",
        rounds=5,
        rows=5_000_000,
        commits=40,
        threads=(1, 8, 64),
        processes=(8, 64),
        writer_rounds=2,
        writer_s=4,
        history=(100, 1_000, 3_000),
        stream_rounds=3,
        batches=10,
        batch_rows=100_000,
        records=500_000,
        limit_s=2_700,
    ),
}
DELAYS_MS = (0, 10, 100)
"""Delays of each request to S3."""
HISTORY_DELAYS_MS = (0, 10)
ABORTED_PERCENT = (0, 10, 50)
COMMIT_ROWS = (1, 100, 10_000)
