"""The offsets that a consumer commits for its group outside of transactions, when told to or as time passes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from eoslog.client.assigned import AssignedPartitions
from eoslog.client.group import group_offsets
from eoslog.client.positions import OffsetAndMetadata
from eoslog.client.subscription import Subscription
from eoslog.client.topics import partition_named
from eoslog.errors import (
    AbortableError,
    FencedInstanceId,
    RetriableError,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from eoslog.rules.draft import Draft
from eoslog.rules.group_entries import OffsetsCommitted
from eoslog.rules.groups import committed_offset
from eoslog.rules.names import TopicPartition, topic_partition
from eoslog.rules.prepared import pending_partitions
from eoslog.rules.state import StoreState

if TYPE_CHECKING:
    from eoslog.client.store import Store

_logger = logging.getLogger(__name__)
_Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class OffsetCommits:
    """Commits for one consumer. Every call but ``commit_automatically`` needs a group.

    Args:
        auto_commit_interval_ms: never commit unless told to if None.
    """

    def __init__(
        self,
        store: Store,
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

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None) -> None:
        """Commit these offsets, the positions of all assigned partitions if None. See ``Consumer.commit``."""

        def check(draft: Draft, chosen: _Offsets) -> _Offsets:
            for place in self._gone(draft, chosen):
                raise UnknownTopicOrPartition(
                    f"topic {place[0]} was deleted, or created again, since its records were read"
                )
            return chosen

        self._commit(self._assigned.positions() if offsets is None else offsets, check)

    def _commit(self, offsets: _Offsets, choose: Callable[[Draft, _Offsets], _Offsets]) -> None:
        metadata = self._subscription.group_metadata()
        if not offsets:
            return
        now_ms = self._store.now_ms()

        def propose(draft: Draft) -> None:
            chosen = choose(draft, offsets)
            if chosen:
                draft.append(OffsetsCommitted(committed=group_offsets(draft, chosen, metadata), time_ms=now_ms))

        self._store.append(propose)
        self._subscription.keep_alive()

    def _gone(self, draft: Draft, offsets: _Offsets) -> set[TopicPartition]:
        """Those of the partitions whose topic was deleted, or created again, since their records were read."""
        fetches = {topic_partition(place): self._assigned.get(place) for place in offsets}
        return {
            place
            for place, fetch in fetches.items()
            if fetch is not None and fetch.partition_id not in draft.partitions
        }

    def commit_automatically(self, *, only_if_due: bool) -> None:
        """Commit the positions if that is wanted and they have moved. What is refused is logged and tried again.

        Of topics that were deleted there is nothing to commit.
        """
        if self._interval_ms is None:
            return
        now_ms = self._store.environment.monotonic_ms()
        if only_if_due and now_ms - self._auto_committed_at_ms < self._interval_ms:
            return
        positions = self._assigned.positions()
        if positions == self._auto_committed:
            return

        def of_topics_there(draft: Draft, offsets: _Offsets) -> _Offsets:
            gone = self._gone(draft, offsets)
            return {place: offset for place, offset in offsets.items() if place not in gone}

        try:
            self._commit(positions, of_topics_there)
        except (AbortableError, FencedInstanceId, RetriableError) as error:
            group_id = self._subscription.group_metadata().group_id
            _logger.info("%s: offsets of group %r were not committed: %s", self._store, group_id, error)
            return
        self._auto_committed = positions
        self._auto_committed_at_ms = now_ms

    def forget_positions(self) -> None:
        """The partitions are others now."""
        self._auto_committed = {}

    def committed(
        self, partitions: Iterable[TopicPartition], *, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, as of now. See ``Consumer.committed``."""
        group_id = self._subscription.group_metadata().group_id
        places = [topic_partition(place) for place in partitions]

        def look(state: StoreState, slot: int) -> dict[TopicPartition, OffsetAndMetadata | None]:
            found: dict[TopicPartition, OffsetAndMetadata | None] = {}
            pending = pending_partitions(state, group_id) if require_stable else set()
            for place in places:
                _, partition = partition_named(state, place)
                if partition.id in pending:
                    raise UnstableOffsetCommit(
                        f"a prepared transaction may still set the offset of group {group_id!r} of "
                        f"{place.topic}-{place.partition}; ask again when it has ended"
                    )
                known = committed_offset(state, group_id, partition.id)
                found[place] = OffsetAndMetadata(known.offset, known.metadata, known.leader_epoch) if known else None
            return found

        return self._store.read(look)
