"""Offset commits of a consumer outside of transactions: on request, or automatically at an interval."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eoslog.consumer.assigned_partitions import AssignedPartitions
from eoslog.consumer.subscription import Subscription
from eoslog.errors import (
    AbortableError,
    FencedInstanceId,
    RetriableError,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from eoslog.session.positions import GroupMetadata, OffsetAndMetadata, group_offsets, offsets_given
from eoslog.session.session import Session, partition_named
from eoslog.state.draft import Draft
from eoslog.state.group_entries import OffsetsCommitted
from eoslog.state.groups import committed_offset
from eoslog.state.names import PartitionId, TopicPartition, topic_partition
from eoslog.state.pending_offsets import pending_partitions
from eoslog.state.store_state import StoreState

_logger = logging.getLogger(__name__)
_Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


@dataclass(frozen=True)
class _CommitOffsets:
    """Commit offsets of a consumer for its group."""

    group: GroupMetadata
    offsets: _Offsets
    read: Mapping[TopicPartition, PartitionId]
    """The partitions whose records the consumer has read. A topic may have been deleted and created again since."""
    skip_deleted_topics: bool
    """True: skip the offsets of topics that were deleted or created again, and commit the rest."""
    time_ms: int
    name: ClassVar = "offsets"

    def apply(self, draft: Draft) -> None:
        """
        Raises:
            UnknownTopicOrPartition
            UnknownMember, FencedInstanceId: the consumer is not a member of the group.
            IllegalGeneration: a partition has moved to another member since the consumer's generation.
        """
        deleted = {partition for partition, partition_id in self.read.items() if partition_id not in draft.partitions}
        for partition in deleted:
            if not self.skip_deleted_topics:
                raise UnknownTopicOrPartition(
                    f"topic {partition[0]} was deleted, or created again, since its records were read"
                )
        offsets = {partition: offset for partition, offset in self.offsets.items() if partition not in deleted}
        if offsets:
            committed = group_offsets(draft, offsets, self.group)
            draft.append(OffsetsCommitted(committed=committed, time_ms=self.time_ms))


class OffsetCommits:
    """The offset commits of one consumer. Every call except ``commit_automatically`` needs a group.

    Args:
        auto_commit_interval_ms: the interval of automatic commits (ms); None: no automatic commits.
    """

    def __init__(
        self,
        store: Session,
        subscription: Subscription,
        assigned: AssignedPartitions,
        auto_commit_interval_ms: int | None,
    ) -> None:
        self._store = store
        self._subscription = subscription
        self._assigned = assigned
        self._interval_ms = auto_commit_interval_ms
        self._auto_committed: dict[TopicPartition, int] = {}
        self._auto_committed_at_ms = store.environment.monotonic_ms()

    @property
    def is_automatic(self) -> bool:
        return self._interval_ms is not None

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None) -> None:
        """Commit these offsets; the positions of all assigned partitions if None. See ``Consumer.commit``."""
        given = self._assigned.positions() if offsets is None else offsets_given(offsets)
        self._commit(given, skip_deleted_topics=False)

    def _commit(self, offsets: _Offsets, *, skip_deleted_topics: bool) -> None:
        metadata = self._subscription.group_metadata()
        if not offsets:
            return
        fetches = {topic_partition(partition): self._assigned.get(partition) for partition in offsets}
        read = {partition: fetch.partition_id for partition, fetch in fetches.items() if fetch is not None}
        self._store.append(_CommitOffsets(metadata, offsets, read, skip_deleted_topics, self._store.now_ms()))
        self._subscription.keep_alive()

    def commit_automatically(self, *, only_if_due: bool) -> None:
        """Commit the positions if automatic commits are on and a position has moved.

        A refused commit is logged, and the next call tries again. Deleted topics are skipped.
        """
        if self._interval_ms is None:
            return
        now_ms = self._store.environment.monotonic_ms()
        if only_if_due and now_ms - self._auto_committed_at_ms < self._interval_ms:
            return
        positions = self._assigned.positions()
        if positions == self._auto_committed:
            return
        try:
            self._commit(positions, skip_deleted_topics=True)
        except (AbortableError, FencedInstanceId, RetriableError) as error:
            group_id = self._subscription.group_metadata().group_id
            _logger.info("%s: offsets of group %r were not committed: %s", self._store, group_id, error)
            return
        self._auto_committed = positions
        self._auto_committed_at_ms = now_ms

    def forget_positions(self) -> None:
        """Forget the last committed positions, because other partitions are assigned now."""
        self._auto_committed = {}

    def committed(
        self, partitions: Iterable[TopicPartition], *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the newest committed offsets of the group. See ``Consumer.committed``."""
        group_id = self._subscription.group_metadata().group_id
        wanted = list(partitions)

        def snapshot(state: StoreState, slot: int) -> dict[TopicPartition, OffsetAndMetadata | None]:
            found: dict[TopicPartition, OffsetAndMetadata | None] = {}
            pending = pending_partitions(state, group_id) if require_stable else set()
            for each in wanted:
                _, partition = partition_named(state, each)
                if partition.id in pending:
                    raise UnstableOffsetCommit(
                        f"an open transaction may still set the offset of group {group_id!r} for "
                        f"{each.topic}-{each.partition}. Ask again when it has ended"
                    )
                known = committed_offset(state, group_id, partition.id)
                found[each] = OffsetAndMetadata(known.offset, known.metadata, known.leader_epoch) if known else None
            return found

        try:
            return self._store.read(snapshot)
        except UnstableOffsetCommit:
            if not self._store.overdue_transactions.abort_for_reader():
                raise
            return self._store.read(snapshot, refresh=False)
