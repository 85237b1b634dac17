"""What planning a read asks of the log: one consistent look at the topics, and offsets as the options name them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eoslog.client import timeouts
from eoslog.client.store import Store
from eoslog.errors import InvalidOption, RetriableError, StoreAccessDenied
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.read.planner import PartitionPlan
from eoslog.rules.names import TopicPartition
from eoslog.rules.partition_state import Partition
from eoslog.rules.state import StoreState, Topic
from eoslog.rules.topics import topic_named
from pyspark_eoslog.options import EARLIEST, EARLIEST_OFFSET, LATEST, LATEST_OFFSET, OffsetsOption
from pyspark_eoslog.packing import Piece

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic and its partitions as they stood at the slot of the look."""

    topic: Topic
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """Some topics of a store at one slot."""

    store_id: str
    slot: int
    time_ms: int
    """The log's time at ``slot``."""
    topics: tuple[TopicView, ...]
    oldest_start_ms: int | None
    """When the oldest open transaction began."""

    def partitions(self) -> dict[TopicPartition, Partition]:
        return {
            TopicPartition(view.topic.topic, partition.id.partition): partition
            for view in self.topics
            for partition in view.partitions
        }


def look_at_topics(store: Store, names: Sequence[str], *, refresh: bool = True) -> Look:
    """One look at the named topics, by default as of now.

    Raises:
        UnknownTopicOrPartition: there is no such topic; the message names those there are.
    """

    def look(state: StoreState, slot: int) -> Look:
        views = []
        for name in names:
            topic = topic_named(state, name)
            views.append(TopicView(topic, tuple(state.partitions[place] for place in topic.partition_ids())))
        return Look(state.store_id, slot, state.time_ms, tuple(views), min(state.ongoing.values(), default=None))

    return store.read(look, refresh=refresh)


def end_timed_out(store: Store, look: Look) -> bool:
    """Abort what was left open past its time-out and holds these topics back. Whether anything was.

    Nobody is stuck behind a dead producer: whoever may write and meets its transaction ends it.
    """
    held = any(
        partition.last_stable_offset < partition.high_watermark for view in look.topics for partition in view.partitions
    )
    if not held or look.oldest_start_ms is None:
        return False
    try:
        return bool(timeouts.end_timed_out(store))
    except (StoreAccessDenied, RetriableError) as error:
        _logger.info("%s: a transaction past its time-out was left open: %s", store.url, error)
        return False


def resolve_offsets(
    option: OffsetsOption, look: Look, isolation: IsolationLevel, option_name: str
) -> dict[TopicPartition, int]:
    """An offset for each partition of the topics that are read.

    Raises:
        InvalidOption: the option names other partitions than the topics have.
    """
    partitions = look.partitions()
    if not isinstance(option, str):
        _check_complete(option, partitions, option_name)
    resolved = {}
    for place, partition in partitions.items():
        offset = (
            {EARLIEST: EARLIEST_OFFSET, LATEST: LATEST_OFFSET}[option]
            if isinstance(option, str)
            else (option[place.topic][place.partition])
        )
        if offset == EARLIEST_OFFSET:
            offset = partition.log_start_offset
        elif offset == LATEST_OFFSET:
            offset = visible_end(partition, isolation)
        resolved[place] = offset
    return resolved


def piece_of(topic: Topic, plan: PartitionPlan) -> Piece:
    return Piece(topic.topic, plan.partition, topic.topic_schema.arrow, plan.slices)


def _check_complete(
    option: Mapping[str, Mapping[int, int]], partitions: Mapping[TopicPartition, Partition], option_name: str
) -> None:
    named = {TopicPartition(topic, partition) for topic, offsets in option.items() for partition in offsets}
    for problem, places in (
        ("lacks", partitions.keys() - named),
        ("names, but nobody reads,", named - partitions.keys()),
    ):
        if places:
            listed = ", ".join(f"{place.topic}-{place.partition}" for place in sorted(places))
            raise InvalidOption(
                f"option {option_name!r} {problem} {listed}; give an offset for each partition that is read"
            )
