"""What a transaction wrote, counted for the summary of its commit. It is for people, and decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eoslog.rules.transaction_entries import BatchAppended, CommitSummary, StagedBatch, WrittenRows


class _Written(NamedTuple):
    """What was written into one topic."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


class CommitNumbers:
    """The numbers of one transaction, of batches that the log has."""

    def __init__(self) -> None:
        self._topics: dict[str, _Written] = {}

    def add(self, batches: Iterable[BatchAppended | StagedBatch]) -> None:
        """Count batches that were acknowledged, or that the commit is to append."""
        for batch in batches:
            rows, files, size = self._topics.get(batch.topic_id, _Written())
            self._topics[batch.topic_id] = _Written(rows + batch.record_count, files + 1, size + batch.file.length)

    @property
    def rows(self) -> int:
        """The number of rows in the batches that were counted."""
        return sum(each.rows for each in self._topics.values())

    def summary(self, staged: Iterable[StagedBatch], duration_ms: int) -> CommitSummary:
        """The summary of a commit that appends ``staged`` too.

        Args:
            duration_ms: how long the transaction has been open.
        """
        all_of_it = CommitNumbers()
        all_of_it._topics = dict(self._topics)
        all_of_it.add(staged)
        written = all_of_it._topics.values()
        topics = None
        if len(self._topics) > 1:
            # Of staged batches the commit's own entry tells.
            topics = tuple(WrittenRows(topic_id=key, **each._asdict()) for key, each in all_of_it._topics.items())
        return CommitSummary(
            rows=sum(each.rows for each in written),
            files=sum(each.files for each in written),
            bytes=sum(each.bytes for each in written),
            duration_ms=max(0, duration_ms),
            topics=topics,
        )
