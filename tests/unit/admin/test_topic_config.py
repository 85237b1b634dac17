"""A topic's settings and number of partitions change by entries; what is not named stays."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog import errors
from eoslog.admin.topic_admin import parsed_settings
from eoslog.state.entries import TopicConfig, TopicConfigChanged
from eoslog.state.features import MAX_MESSAGE_BYTES, STATISTICS_COLUMNS
from eoslog.state.state_machine import encode_entry
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World


def newest_slot(store: Store) -> int:
    return store.read(lambda state, slot: slot)


def test_a_topic_keeps_its_rows_for_ever_unless_told_otherwise(store: Store) -> None:
    config = store.admin.describe_topic("t").config

    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    assert config.segment_ms == 7 * 24 * 3600 * 1000


def test_settings_change_one_by_one_and_other_processes_see_it(store: Store, world: World) -> None:
    store.admin.alter_topic("t", retention_ms=1000)
    altered = store.admin.alter_topic("t", retention_bytes=5, segment_ms=7)

    assert altered.config == TopicConfig(retention_ms=1000, retention_bytes=5, segment_ms=7)
    assert world.process().admin.describe_topic("t") == altered


def test_none_sets_the_default_again(store: Store) -> None:
    store.admin.alter_topic("t", retention_ms=1000, segment_batches=3)

    assert store.admin.alter_topic("t", retention_ms=None).config == TopicConfig(segment_batches=3)


def test_settings_that_are_there_already_take_no_slot(store: Store) -> None:
    store.admin.alter_topic("t", retention_ms=1000)
    slot = newest_slot(store)

    store.admin.alter_topic("t", retention_ms=1000)
    store.admin.alter_topic("t")

    assert newest_slot(store) == slot


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retention": 1}, "setting 'retention' is unknown. Did you mean 'retention_ms'.*Valid are segment_bytes"),
        ({"retention_ms": -2}, "setting retention_ms cannot be -2"),
        ({"retention_ms": "1000"}, "setting retention_ms cannot be '1000'"),
        ({"segment_ms": 0}, "setting segment_ms cannot be 0"),
        ({"retention_bytes": 5, "segment_bytes": 0}, "setting segment_bytes cannot be 0"),
    ],
)
def test_wrong_settings_change_nothing(store: Store, settings: dict[str, Any], message: str) -> None:
    before, slot = store.admin.describe_topic("t"), newest_slot(store)

    with pytest.raises(errors.InvalidTopic, match=message):
        store.admin.alter_topic("t", **settings)

    assert (store.admin.describe_topic("t"), newest_slot(store)) == (before, slot)


def test_settings_are_given_in_kafkas_spelling_too() -> None:
    assert parsed_settings("t", ["retention.ms=86400000", "segment_bytes = 10"]) == {
        "retention_ms": 86400000,
        "segment_bytes": 10,
    }
    assert parsed_settings("t", ["cleanup.policy=[compact,delete]"]) == {"cleanup_policy": "compact,delete"}


def test_a_topic_is_created_with_the_mapping_of_a_kafka_client(store: Store) -> None:
    created = store.admin.create_topic(
        "m", config={"cleanup.policy": "compact,delete", "retention.ms": "1000", "segment_bytes": 10}
    )

    assert created.config.cleanup_policy == "compact,delete"
    assert (created.config.retention_ms, created.config.segment_bytes) == (1000, 10)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"retention.sm": 1}, "setting 'retention.sm' is unknown. Did you mean 'retention.ms'"),
        ({"message.timestamp.type": "LogAppendTime"}, "each row keeps the time that its producer gives it. Leave"),
        (
            {"retention.ms": "7d"},
            r"setting retention\.ms cannot be '7d'\. It must be a whole number of ms, -1 or more$",
        ),
        ({"retention_bytes": "1G"}, r"setting retention_bytes cannot be '1G'\. It must be a whole number of bytes, -1"),
        ({"segment.batches": 0}, r"It must be a whole number from 1 to 1000000$"),
        ({"min.cleanable.dirty.ratio": 2}, r"It must be a number from 0 to 1$"),
        ({"cleanup.policy": "remove"}, r"cannot be 'remove'\. It must be one of delete, compact, compact,delete$"),
        ({1: 1}, "setting '1' is unknown"),
        ("retention.ms=1", "config must be a TopicConfig"),
    ],
)
def test_a_wrong_mapping_creates_no_topic(store: Store, config: Any, message: str) -> None:
    with pytest.raises(errors.InvalidTopic, match=message):
        store.admin.create_topic("m", config=config)

    assert "m" not in store.admin.list_topics()


def test_a_wrong_setting_of_a_config_is_an_error_of_eoslog() -> None:
    with pytest.raises(
        errors.InvalidTopic, match=r"setting retention_ms cannot be 'abc'\. It must be a whole number of ms"
    ):
        TopicConfig(retention_ms="abc")  # type: ignore[arg-type]


def test_settings_with_commas_between_are_refused_with_what_to_do() -> None:
    with pytest.raises(errors.InvalidTopic, match="more than one setting: give each by itself"):
        parsed_settings("t", ["segment.ms=1000,retention.ms=1000"])


@pytest.mark.parametrize("text", ["retention.ms", "retention.ms=soon", "retention.ms=", "retain.ms=1", "segment.ms=0"])
def test_a_setting_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidTopic, match=r"topic t: setting"):
        parsed_settings("t", [text])


def test_a_topic_gets_more_partitions_and_keeps_its_rows(store: Store, world: World) -> None:
    with store.producer() as producer:
        producer.send("t", b"1", partition=1)

    assert store.admin.create_partitions("t", 4).partitions == 4

    with world.process().producer() as producer:
        producer.send("t", b"3", partition=3)
    assert [each.high_watermark for each in store.admin.offsets("t")] == [0, 1, 0, 1]
    assert sorted(store.scan("t").to_table()["value"].to_pylist()) == [b"1", b"3"]


@pytest.mark.parametrize("total", [1, 2, 0, -1, 10_001, "3", None])
def test_the_number_of_partitions_only_rises(store: Store, total: Any) -> None:
    with pytest.raises(errors.InvalidTopic):
        store.admin.create_partitions("t", total)

    assert store.admin.describe_topic("t").partitions == 2


def test_a_topic_that_is_not_there_is_not_changed(store: Store) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition):
        store.admin.alter_topic("absent", retention_ms=1)
    with pytest.raises(errors.UnknownTopicOrPartition):
        store.admin.create_partitions("absent", 5)


def test_only_the_next_transaction_has_partitions_added_during_this_one(store: Store, world: World) -> None:
    producer = open_transaction(store, "etl")
    producer.send("t", b"before", partition=0)
    world.process().admin.create_partitions("t", 3)
    producer.flush()
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.send("t", b"after", partition=2)
    producer.commit_transaction()

    producer.begin_transaction()
    producer.send("t", b"after", partition=2)
    producer.commit_transaction()

    assert sorted(store.scan("t").to_table()["value"].to_pylist()) == [b"after", b"before"]


def test_statistics_alone_change_only_for_those_who_know_them(store: Store) -> None:
    """Who does not know that setting would find that nothing changed, and leave out the whole record."""
    store.admin.alter_topic("t", statistics_columns=3, retention_ms=5)
    before = store.read(lambda state, slot: state.reader_features)
    store.admin.alter_topic("t", statistics_columns=4)

    assert before == ()
    assert store.read(lambda state, slot: state.reader_features) == (STATISTICS_COLUMNS,)
    assert store.admin.alter_topic("t", statistics_columns=5).config.statistics_columns == 5


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({"max_message_bytes": 5}, (MAX_MESSAGE_BYTES,)),
        ({"statistics_columns": 3, "max_message_bytes": 5}, (STATISTICS_COLUMNS, MAX_MESSAGE_BYTES)),
        ({"retention_ms": 7, "max_message_bytes": 5}, ()),
    ],
)
def test_a_limit_of_batches_alone_changes_only_for_processes_that_know_it(
    store: Store, settings: dict[str, int], needed: tuple[str, ...]
) -> None:
    store.admin.alter_topic("t", **settings)

    assert store.read(lambda state, slot: state.reader_features) == needed


def test_without_a_limit_of_batches_an_entry_is_as_for_processes_that_do_not_know_it(store: Store) -> None:
    def encoded(config: TopicConfig) -> dict[str, Any]:
        entry = TopicConfigChanged(topic="t", topic_id="0" * 32, config=config)
        found: dict[str, Any] = encode_entry(entry)["config"]
        return found

    assert "max_message_bytes" not in encoded(TopicConfig(retention_ms=5))
    assert encoded(TopicConfig(max_message_bytes=5))["max_message_bytes"] == 5


def test_a_limit_of_batches_is_kept_in_checkpoints_and_reset(store: Store, world: World) -> None:
    store.admin.create_topic("m", config={"max.message.bytes": "1000"})
    store.log.checkpoint()
    assert world.process().admin.describe_topic("m").config == TopicConfig(max_message_bytes=1000)

    store.admin.alter_topic("m", max_message_bytes=None)
    store.log.checkpoint()
    assert world.process().admin.describe_topic("m").config == TopicConfig()


@pytest.mark.parametrize("value", [-1, 1 << 31, "5", True])
def test_a_limit_of_batches_is_a_size(store: Store, value: Any) -> None:
    with pytest.raises(errors.InvalidTopic, match="must be a whole number of bytes from 0 to 2147483647"):
        store.admin.alter_topic("t", max_message_bytes=value)
