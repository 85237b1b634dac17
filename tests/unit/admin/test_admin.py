"""What administration shows of topics and changes in them, as of the end of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.store import Store
from tests.unit.support.transactions import begun
from tests.unit.support.world import World


def test_topics_are_created_listed_described_and_deleted(store: Store) -> None:
    store.admin.create_topic("a", partitions=3)
    described = store.admin.describe_topic("a")
    assert (described.topic, described.partitions, described.topic_schema.kind) == ("a", 3, "records")
    assert store.admin.list_topics() == ["a", "t"]

    store.admin.delete_topic("a")

    assert store.admin.list_topics() == ["t"]
    for call in (store.admin.delete_topic, store.admin.describe_topic, store.admin.offsets):
        with pytest.raises(errors.UnknownTopicOrPartition, match="t"):
            call("a")


def test_a_topic_created_again_is_another_and_empty(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"old")
    before = store.admin.describe_topic("t")
    store.admin.delete_topic("t")

    after = store.admin.create_topic("t", partitions=2)

    assert after.topic_id != before.topic_id
    assert store.scan("t").record_count == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "t"}, errors.TopicAlreadyExists),
        ({"topic": "T"}, errors.InvalidTopic),
        ({"topic": ""}, errors.InvalidTopic),
        ({"topic": ".."}, errors.InvalidTopic),
        ({"topic": "a/b"}, errors.InvalidTopic),
        ({"topic": "__own"}, errors.InvalidTopic),
        ({"topic": "x" * 250}, errors.InvalidTopic),
        ({"topic": "x", "partitions": 0}, errors.InvalidTopic),
        ({"topic": "x", "partitions": 10_001}, errors.InvalidTopic),
        ({"topic": "x", "partitions": "2"}, errors.InvalidTopic),
        ({"topic": "x", "key": "id"}, errors.InvalidTopic),
        ({"topic": "x", "schema": pa.schema([("a", pa.int64())]), "key": "id"}, errors.InvalidTopic),
        ({"topic": "x", "schema": {"a": "number"}}, errors.UnsupportedSchema),
        ({"topic": "x", "schema": "a int"}, errors.InvalidRequest),
    ],
)
def test_a_topic_that_cannot_be_is_refused(store: Store, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        store.admin.create_topic(**arguments)
    assert store.admin.list_topics() == ["t"]


def test_offsets_are_earliest_last_stable_and_high_watermark(store: Store) -> None:
    begun(store, "done", 0, 0).commit_transaction()
    begun(store, "open", 0)

    assert store.admin.offsets("t") == [(0, 0, 3, 4), (1, 0, 0, 0)]


def test_every_answer_is_as_of_the_logs_tail(store: Store, world: World) -> None:
    other = world.process()
    looks: list[Callable[[], object]] = [
        other.admin.list_topics,
        lambda: other.admin.offsets("t"),
        other.admin.list_transactions,
    ]
    before = [look() for look in looks]
    store.admin.create_topic("new")
    begun(store, "tx", 0)

    assert all(look() != seen for look, seen in zip(looks, before, strict=True))
