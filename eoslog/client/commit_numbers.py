"""What a transaction wrote, counted for the summary of its commit. It is for people, and decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

from eoslog.rules.transaction_entries import BatchAppended, CommitSummary, StagedBatch, WrittenRows


class CommitNumbers:
    """The numbers of one transaction, of batches that the log has."""

    def __init__(self) -> None:
        self._topics: dict[str, WrittenRows] = {}

    def add(self, batches: Iterable[BatchAppended | StagedBatch]) -> None:
        """Count batches that were acknowledged, or that the commit is to append."""
        for batch in batches:
            before = self._topics.get(batch.topic_id) or WrittenRows(topic_id=batch.topic_id)
            self._topics[batch.topic_id] = WrittenRows(
                topic_id=batch.topic_id,
                rows=before.rows + batch.record_count,
                files=before.files + 1,
                bytes=before.bytes + batch.file.length,
            )

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
        written = tuple(all_of_it._topics.values())
        return CommitSummary(
            rows=sum(each.rows for each in written),
            files=sum(each.files for each in written),
            bytes=sum(each.bytes for each in written),
            duration_ms=max(0, duration_ms),
            # Of staged batches the commit's own entry tells.
            topics=written if len(self._topics) > 1 else None,
        )
