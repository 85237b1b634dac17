"""Topics: their list, and one topic with its partitions, segments, settings and schemas."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from eoslog.admin.topic_admin import describe_partition, kafka_spelling, schema_history
from eoslog.admin.transaction_descriptions import HangingTransaction, holding_transactions
from eoslog.format.topic_schemas import stored_schema
from eoslog.session.session import partition_named
from eoslog.state.entries import TopicConfig
from eoslog.state.names import TopicPartition
from eoslog.state.partition_state import Partition, SealedSegment
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.ui.amounts import Amount, amount_of, sum_of
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.display import NONE, duration, size
from eoslog.ui.pages import Listing, Page, Query

_MOST_COLUMNS = 1_000
_ORDERS = ("name", "offsets", "bytes")


class TopicLine(NamedTuple):
    """A topic in the list."""

    topic: Topic
    amount: Amount
    held_back: int
    """The number of partitions that an open transaction holds back."""


class Setting(NamedTuple):
    """A setting of a topic."""

    name: str
    value: Any
    default: Any

    @property
    def in_units(self) -> str:
        """The value as people read it, if it is a time or a size; otherwise empty."""
        if not isinstance(self.value, int) or self.value < 1_000:
            return ""
        return duration(self.value) if self.name.endswith(".ms") else size(self.value) if "bytes" in self.name else ""


def topic_lines(state: StoreState) -> list[TopicLine]:
    """Return all topics by name, with what they hold."""
    found = []
    for name in sorted(state.topic_ids):
        topic = state.topics[state.topic_ids[name]]
        partitions = [state.partitions[each] for each in topic.partition_ids()]
        found.append(
            TopicLine(
                topic, sum_of([amount_of(each) for each in partitions]), sum(each.is_held_back for each in partitions)
            )
        )
    return found


def topics(console: ConsoleStore, query: Query) -> Page:
    """Return the list of topics."""
    lines = console.total(topic_lines)
    wanted, order = query.text("q"), query.text("sort") or "name"
    if wanted:
        lines = [each for each in lines if wanted.lower() in each.topic.topic.lower()]
    if order in _ORDERS[1:]:
        lines = sorted(lines, key=lambda each: -getattr(each.amount, order))
    return Page("topics.html", "Topics", {"topics": Listing(lines, query), "wanted": wanted, "order": order})


def topic(console: ConsoleStore, query: Query) -> Page:
    """Return the page of one topic."""
    name, now_ms = query.text("topic"), console.now_ms()

    def snapshot(
        state: StoreState, slot: int
    ) -> tuple[Topic, Sequence[Partition], dict[TopicPartition, HangingTransaction]]:
        found = topic_named(state, name)
        partitions = [state.partitions[each] for each in found.partition_ids()]
        return found, partitions, holding_transactions(state, now_ms, topic=name)

    found, partitions, holders = console.store.read(snapshot)
    schema = stored_schema(found)
    return Page(
        "topic.html",
        name,
        {
            "topic": found,
            "amount": sum_of([amount_of(each) for each in partitions]),
            "partitions": Listing(partitions, query).map(describe_partition),
            "held": {each.partition: holder for each, holder in holders.items()},
            "schema": [(field.name, str(field.type), field.nullable) for field in islice(schema, _MOST_COLUMNS)],
            "more_columns": max(0, len(schema) - _MOST_COLUMNS),
            "versions": [
                (each.version, each.slot, each.timestamp, [".".join(path) for path in each.added])
                for each in reversed(schema_history(found))
            ],
            "settings": settings_of(found.config),
        },
    )


def settings_of(config: TopicConfig) -> list[Setting]:
    """Return the settings of a topic, those that differ from their defaults first."""
    found = [
        Setting(kafka_spelling(name), _shown(getattr(config, name)), _shown(field.default))
        for name, field in TopicConfig.model_fields.items()
    ]
    return sorted(found, key=lambda each: each.value == each.default)


def _shown(value: Any) -> Any:
    return NONE if value is None else value


def segments(console: ConsoleStore, query: Query) -> Page:
    """Return the sealed segments of a partition, the newest first."""
    name, number = query.text("topic"), query.partition()

    def snapshot(state: StoreState, slot: int) -> tuple[Sequence[SealedSegment], Partition]:
        partition = partition_named(state, TopicPartition(name, number))[1]
        return partition.sealed, partition.copy()

    sealed, partition = console.store.read(snapshot)
    return Page(
        "segments.html",
        f"Segments of {name}-{number}",
        {
            "topic": name,
            "partition": partition,
            "amount": amount_of(partition),
            "segments": Listing(sealed[::-1], query),
        },
    )
