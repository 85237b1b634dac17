"""Option ``groupId``: the lag of a consumer group shows how far a stream has come, and decides nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import eoslog
from eoslog import InvalidOption, InvalidRequest, TopicPartition
from eoslog.errors import GroupIdNotFound, StoreAccessDenied, StoreUnavailable
from eoslog.storage.environment import Environment
from tests.unit.pyspark_eoslog.stream.world import held, produce, reader, rows, step
from tests.unit.support.paused_processes import Died

GROUP = "trips"


def group_offsets(store: eoslog.Store) -> dict[int, int]:
    try:
        found = store.admin.list_consumer_group_offsets(GROUP)
    except GroupIdNotFound:
        return {}
    return {each.partition: position.offset for each, position in found.items()}


def ends(offsets: Any) -> dict[int, int]:
    """The offsets of a position of the stream, as Spark keeps it."""
    return {int(key): offset for key, offset in offsets["topics"]["in"].items() if key != "topic_id"}


def lag(store: eoslog.Store) -> int:
    return sum(each.lag or 0 for each in store.admin.describe_consumer_group(GROUP).partitions)


def slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


def test_the_group_has_the_end_of_the_last_finished_micro_batch(store: eoslog.Store) -> None:
    produce(store, 1, 2, 3)
    stream = reader(store, groupId=GROUP)
    initial = stream.initialOffset()
    first = step(stream, initial)
    rows(stream, initial, first)
    assert group_offsets(store) == {}

    step(stream, first)

    assert group_offsets(store) == ends(first)
    assert lag(store) == 0
    produce(store, 4)
    assert lag(store) > 0
    second = step(stream, first)
    assert group_offsets(store) == ends(first)
    stream.commit(second)
    assert group_offsets(store) == ends(second)


def test_offsets_of_the_group_are_not_committed_again(store: eoslog.Store) -> None:
    produce(store, 1)
    stream = reader(store, groupId=GROUP)
    end = step(stream, stream.initialOffset())
    stream.commit(end)
    before = slot(store)

    stream.commit(end)
    step(stream, end)
    reader(store, groupId=GROUP).commit(end)

    assert slot(store) == before


def test_a_stream_that_died_before_shows_its_progress_at_the_next_start(store: eoslog.Store) -> None:
    produce(store, 1)
    stream = reader(store, groupId=GROUP)
    end = step(stream, stream.initialOffset())

    step(reader(store, groupId=GROUP), end)

    assert group_offsets(store) == ends(end)


@pytest.mark.parametrize("point", ["log.slot.before_put", "log.slot.claimed"])
def test_a_source_that_dies_in_the_commit_leaves_it_done_or_to_the_next(
    store: eoslog.Store, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    produce(store, 1)
    stream = reader(store, groupId=GROUP)
    end = step(stream, stream.initialOffset())

    def die(environment: Environment, crash_point: str) -> None:
        if crash_point == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Environment, "reached", die)
        with pytest.raises(Died):
            step(stream, end)
    landed = group_offsets(store)

    step(reader(store, groupId=GROUP), end)

    assert landed == (ends(end) if point == "log.slot.claimed" else {})
    assert group_offsets(store) == ends(end)


def test_the_offsets_never_go_back(store: eoslog.Store) -> None:
    produce(store, 1)
    stream = reader(store, groupId=GROUP)
    early = step(stream, stream.initialOffset())
    produce(store, 2)
    late = step(stream, early)
    stream.commit(late)

    reader(store, groupId=GROUP).commit(early)

    assert group_offsets(store) == ends(late)


def test_offsets_of_a_topic_that_was_created_again_are_left_out(store: eoslog.Store) -> None:
    produce(store, 1)
    stream = reader(store, groupId=GROUP)
    end = step(stream, stream.initialOffset())
    schema = store.admin.schema_history("in")[0].schema
    store.admin.delete_topic("in")
    store.admin.create_topic("in", partitions=2, schema=schema)

    stream.commit(end)

    assert group_offsets(store) == {}


def test_a_group_with_members_is_left_alone_with_one_warning(
    store: eoslog.Store, caplog: pytest.LogCaptureFixture
) -> None:
    produce(store, 1)
    stream = reader(store, groupId=GROUP)
    first = step(stream, stream.initialOffset())
    with store.consumer(GROUP) as consumer, caplog.at_level(logging.WARNING):
        consumer.subscribe(["in"])
        consumer.poll(timeout=0)
        stream.commit(first)
        produce(store, 2)
        second = step(stream, first)
        stream.commit(second)

    assert [each for each in caplog.messages if "EOSLOG_GROUP_NOT_EMPTY" in each and "stream continues" in each]
    assert len([each for each in caplog.messages if "stream continues" in each]) == 1


@pytest.mark.parametrize(("error", "shown"), [(StoreUnavailable("away"), True), (StoreAccessDenied("no"), False)])
def test_a_failed_commit_does_not_end_the_stream(
    store: eoslog.Store, monkeypatch: pytest.MonkeyPatch, error: Exception, shown: bool
) -> None:
    produce(store, 1)
    stream = reader(store, groupId=GROUP)
    end = step(stream, stream.initialOffset())

    def fail(*arguments: object, **options: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(type(held(stream)), "append", fail)
        assert step(stream, end) == end

    step(stream, end)
    assert (group_offsets(store) == ends(end)) is shown  # After an outage it is tried again at the next poll.


def test_without_a_group_nothing_is_appended(store: eoslog.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(store, 1)
    before = slot(store)
    stream = reader(store)
    end = step(stream, stream.initialOffset())

    stream.commit(end)
    step(stream, end)

    assert slot(store) == before


def test_a_stream_of_slots_is_refused(store: eoslog.Store) -> None:
    with pytest.raises(InvalidOption, match=r"option 'groupId' counts offsets, but isolation level 'snapshot'"):
        reader(store, groupId=GROUP, isolationLevel="snapshot")


def test_an_administrator_raises_offsets_and_gets_the_raised_ones(store: eoslog.Store) -> None:
    topic_id = store.admin.create_partitions("in", 2).topic_id
    places = [TopicPartition("in", 0), TopicPartition("in", 1), TopicPartition("gone", 0)]
    offsets, ids = dict.fromkeys(places, 5), {"in": topic_id, "gone": "ab" * 16}
    store.admin.alter_consumer_group_offsets(GROUP, {places[0]: 7})

    raised = store.admin.advance_consumer_group_offsets(GROUP, offsets, topic_ids=ids)

    assert raised == {places[1]: 5}
    assert group_offsets(store) == {0: 7, 1: 5}
    with pytest.raises(InvalidRequest, match="topic_ids lacks the topic in"):
        store.admin.advance_consumer_group_offsets(GROUP, offsets, topic_ids={})
