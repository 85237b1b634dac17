"""A snapshot of several topics at one slot, chosen by name, by a pattern, or partition by partition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eoslog.session.session import Session, check_partition
from eoslog.state.names import PartitionId, TopicPartition
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics by their names, by a pattern, or partition by partition. An empty selection is false."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression that must match a topic's whole name."""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The partitions to read, ascending, by topic. Other partitions of these topics are not read."""

    def __bool__(self) -> bool:
        return bool(self.names or self.pattern or self.assigned)


@dataclass(frozen=True, slots=True)
class SelectedTopic:
    """A topic at the slot of the snapshot, with the partitions to read."""

    topic: Topic
    partitions: tuple[Partition, ...]

    def by_topic_partition(self) -> dict[TopicPartition, Partition]:
        """Return the partitions by the topic's name and the partition's number."""
        return {TopicPartition(self.topic.topic, each.id.partition): each for each in self.partitions}


@dataclass(frozen=True, slots=True)
class TopicsSnapshot:
    """A snapshot of some topics of a store at one slot."""

    store_id: str
    slot: int
    time_ms: int
    """The log's time at ``slot``."""
    topics: tuple[SelectedTopic, ...]
    oldest_start_ms: int | None
    """The start of the oldest open transaction (ms by the store's clock); None if none is open."""
    is_complete: bool = True
    """False if a topic or partition that the selection names does not exist."""

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics by name."""
        return {selected.topic.topic: selected.topic.topic_id for selected in self.topics}

    def partitions(self) -> dict[TopicPartition, Partition]:
        """Return the partitions that are read."""
        return {key: each for selected in self.topics for key, each in selected.by_topic_partition().items()}

    def only(self, topics: Iterable[str]) -> TopicsSnapshot:
        """Return the snapshot without other topics."""
        return replace(self, topics=tuple(selected for selected in self.topics if selected.topic.topic in topics))

    def abort_overdue(self, store: Session) -> bool:
        """Abort the transactions past their timeouts if open transactions hide rows of these topics.

        Returns:
            True if a transaction was aborted: then more rows are visible.
        """
        is_held_back = self.oldest_start_ms is not None and any(
            partition.is_held_back for selected in self.topics for partition in selected.partitions
        )
        return is_held_back and store.overdue_transactions.abort_for_reader()


def topics_snapshot(
    store: Session,
    selection: TopicSelection,
    *,
    refresh: bool = True,
    existing_only: bool = False,
    known: TopicsSnapshot | None = None,
) -> TopicsSnapshot:
    """Return a snapshot of the selected topics, by default of the newest state. A pattern may match no topic.

    Args:
        existing_only: leave out named topics and partitions that do not exist.
        known: an earlier answer for this selection. It is returned again if it is of the same slot.

    Raises:
        UnknownTopicOrPartition: a named topic or partition does not exist. The message names the existing ones.
    """

    def find(state: StoreState, slot: int) -> TopicsSnapshot:
        if known is not None and (known.store_id, known.slot) == (state.store_id, slot):
            return known
        wanted = _existing(selection, state) if existing_only else selection
        views = tuple(
            SelectedTopic(topic, tuple(state.partitions[each] for each in partition_ids))
            for topic, partition_ids in _selected(state, wanted)
        )
        oldest_start_ms = min(state.ongoing.values(), default=None)
        return TopicsSnapshot(
            store_id=state.store_id,
            slot=slot,
            time_ms=state.time_ms,
            topics=views,
            oldest_start_ms=oldest_start_ms,
            is_complete=wanted == selection,
        )

    return store.read(find, refresh=refresh)


def _existing(selection: TopicSelection, state: StoreState) -> TopicSelection:
    """Return the selection without named topics and partitions that do not exist."""
    assigned = {}
    for name, partitions in selection.assigned.items():
        if name in state.topic_ids:
            count = state.topics[state.topic_ids[name]].partitions
            assigned[name] = tuple(partition for partition in partitions if partition < count)
    names = tuple(name for name in selection.names if name in state.topic_ids)
    return replace(selection, names=names, assigned=assigned)


def _selected(state: StoreState, selection: TopicSelection) -> Iterator[tuple[Topic, Sequence[PartitionId]]]:
    names = selection.names
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        names = tuple(name for name in sorted(state.topic_ids) if pattern.fullmatch(name))
    for name in names:
        topic = topic_named(state, name)
        yield topic, topic.partition_ids()
    for name, partitions in selection.assigned.items():
        topic = topic_named(state, name)
        yield topic, [PartitionId(topic.topic_id, check_partition(topic, each)) for each in partitions]
