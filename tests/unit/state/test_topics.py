"""Topics: each incarnation has an id of its own, and a foreign id is refused."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidEntry, InvalidTopic, TopicAlreadyExists, UnknownTopicOrPartition
from eoslog.state.entries import PartitionsCreated, PendingDeletionsDone, TopicConfig, TopicConfigChanged, TopicDeleted
from eoslog.state.names import check_topic_name
from eoslog.state.topics import topic_named
from tests.unit.state.histories import OTHER_TOPIC_ID, TOPIC_ID, History, joining, topic_created


def test_a_topic_created_again_is_empty_and_refuses_what_was_meant_for_the_first() -> None:
    history = History()
    identity = history.init(None)
    history.send(identity, 0, 3, transactional_id=None)
    history.delete_topic()
    history.append(lambda draft: draft.append(topic_created("t", OTHER_TOPIC_ID)))

    assert topic_named(history.state, "t").topic_id == OTHER_TOPIC_ID
    assert history.partition(0, OTHER_TOPIC_ID).next_offset == 0
    late = history.batch(identity, 3, transactional_id=None)
    assert isinstance(history.refused(lambda draft: draft.append(late).base_offset), UnknownTopicOrPartition)


def test_the_deletion_of_an_earlier_incarnation_does_not_hit_the_later_one() -> None:
    history = History()
    history.delete_topic()
    history.append(lambda draft: draft.append(topic_created("t", OTHER_TOPIC_ID)))

    entry = TopicDeleted(topic="t", topic_id=TOPIC_ID)
    assert isinstance(history.refused(lambda draft: draft.append(entry)), UnknownTopicOrPartition)


def test_a_deleted_topics_id_is_not_reused_and_files_await_deletion() -> None:
    history = History()
    history.delete_topic()

    assert [(deletion.prefix, deletion.slot) for deletion in history.state.pending_deletions] == [
        (f"t/{TOPIC_ID}/", history.slot)
    ]
    assert isinstance(history.refused(lambda draft: draft.append(topic_created())), InvalidTopic)
    history.append(lambda draft: draft.append(PendingDeletionsDone(slot=history.slot)))
    assert history.state.pending_deletions == ()


def test_names_and_ids_are_unique() -> None:
    history = History()

    for entry, error in (
        (topic_created("t", OTHER_TOPIC_ID), TopicAlreadyExists),
        (topic_created("T", OTHER_TOPIC_ID), InvalidTopic),
        (topic_created("other", TOPIC_ID), InvalidTopic),
    ):
        assert isinstance(history.refused(lambda draft, e=entry: draft.append(e)), error)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "__consumer", ".tmp", "a\n", "eoslog.json", "EOSLOG.json"]
)
def test_a_name_that_may_not_become_a_path_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopic):
        check_topic_name(name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "_one", "x" * 249])
def test_kafkas_names_are_allowed(name: str) -> None:
    check_topic_name(name)


def test_a_topic_of_columns_needs_a_schema_and_one_of_records_has_its_own() -> None:
    from eoslog.state.entries import TopicSchema

    history = History()
    for schema in (TopicSchema(kind="columns"), TopicSchema(kind="records", arrow="AAAA")):
        entry = topic_created("other", OTHER_TOPIC_ID).model_copy(update={"topic_schema": schema})
        assert isinstance(history.refused(lambda draft, e=entry: draft.append(e)), InvalidTopic)


def config_entry(topic_id: str = TOPIC_ID, **settings: int) -> TopicConfigChanged:
    return TopicConfigChanged(topic="t", topic_id=topic_id, config=TopicConfig(**settings))


def partitions_entry(partitions: int, topic_id: str = TOPIC_ID) -> PartitionsCreated:
    return PartitionsCreated(topic="t", topic_id=topic_id, partitions=partitions)


def test_settings_change_as_a_whole_and_only_if_they_differ() -> None:
    history = History()
    history.append(lambda draft: draft.append(config_entry(retention_ms=5)))

    assert history.state.topics[TOPIC_ID].config == TopicConfig(retention_ms=5)
    assert isinstance(history.refused(lambda draft: draft.append(config_entry(retention_ms=5))), InvalidEntry)


def test_an_entry_for_another_incarnation_of_the_topic_changes_nothing() -> None:
    history = History()

    for entry in (config_entry(OTHER_TOPIC_ID, retention_ms=5), partitions_entry(5, OTHER_TOPIC_ID)):
        assert isinstance(history.refused(lambda draft, e=entry: draft.append(e)), UnknownTopicOrPartition)


def test_new_partitions_are_empty_and_the_old_ones_as_they_were() -> None:
    history = History(partitions=2)
    history.send(history.init(None), 0, 3, transactional_id=None)
    before = history.partition()
    history.append(lambda draft: draft.append(partitions_entry(4)))

    assert history.state.topics[TOPIC_ID].partitions == 4
    assert history.partition() == before
    assert [history.partition(partition).next_offset for partition in range(4)] == [3, 0, 0, 0]
    assert history.partition(3).changed_slot == history.slot


@pytest.mark.parametrize("partitions", [1, 2])
def test_partitions_never_become_fewer(partitions: int) -> None:
    history = History(partitions=2)

    assert isinstance(history.refused(lambda draft: draft.append(partitions_entry(partitions))), InvalidTopic)


def test_new_partitions_are_assigned_to_the_topics_readers() -> None:
    history = History()
    history.change_group(joining("m1"))
    history.append(lambda draft: draft.append(partitions_entry(3)))

    group = history.change_group()

    assert (group.generation, len(group.members["m1"].assigned)) == (1, 3)
