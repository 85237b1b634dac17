"""When a pass of compaction is due, how far it goes, and what it leaves alone."""

from __future__ import annotations

import pytest

from eoslog import CorruptRecord, InvalidTopic, Store, TopicConfig
from eoslog.state.names import PartitionId
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.unit.maintenance.compacted_log import CompactedLog
from tests.unit.support.paused_processes import At


def test_a_pass_is_due_above_the_dirty_ratio() -> None:
    log = CompactedLog(min_cleanable_dirty_ratio=0.5)
    for key in range(4):
        log.send("plain", key)
    assert log.compact(force=False).partitions
    for key in range(3):
        log.send("plain", key)
        assert log.compact(force=False).partitions == []

    log.send("plain", 3)
    log.send("plain", 4)

    assert log.compact(force=False).partitions


def test_a_pass_is_due_when_rows_outwait_the_largest_lag() -> None:
    log = CompactedLog(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=3_600_000)
    log.send("plain", 1)
    log.send("plain", 1)
    assert log.compact(force=False).partitions == []

    log.clock.now_ms += 3_600_001

    assert log.compact(force=False).partitions
    assert log.record_keys() == [1]


def test_a_compacted_topics_active_segment_is_sealed_within_the_largest_lag() -> None:
    log = CompactedLog(segment_batches=100, max_compaction_lag_ms=3_600_000)
    log.send("plain", 1)
    log.send("plain", 1)
    log.clock.now_ms += 3_600_000 + 60_000

    assert log.compact(force=False).partitions

    assert log.offsets() == [1]


def test_rows_younger_than_the_least_lag_are_neither_cleaned_nor_clean_others() -> None:
    log = CompactedLog(min_compaction_lag_ms=3_600_000)
    log.send("plain", 1)
    log.send("plain", 1)
    log.clock.now_ms += 3_600_001
    log.send("plain", 1)

    log.compact()

    assert log.offsets() == [1, 2]
    assert log.partition().cleaned_offset == 2


def test_keys_beyond_the_offset_map_wait_for_the_next_pass() -> None:
    log = CompactedLog()
    for _ in range(2):
        for key in range(4):
            log.send("plain", key)

    log.compact(offset_map_bytes=300)
    assert 0 < log.partition().cleaned_offset < 8
    while log.partition().cleaned_offset < 8:
        log.compact(offset_map_bytes=300)

    assert log.offsets() == [4, 5, 6, 7]


def test_a_topic_that_is_not_compacted_is_left_alone() -> None:
    log = CompactedLog(cleanup_policy="delete")
    log.send("plain", 1, 1)

    assert log.compact().partitions == []
    assert log.record_keys() == [1, 1]
    with pytest.raises(InvalidTopic, match="Set its cleanup_policy to compact"):
        log.store.admin.compact_keys("t")


def test_a_pass_does_not_rewrite_clean_segments() -> None:
    log = CompactedLog(segment_batches=3)
    for _ in range(4):
        log.send("plain", 1, 2)
    log.compact()
    slot = log.store.read(lambda state, slot: slot)
    files = {info.path for info in log.objects.list("t/")}

    report = log.compact()

    assert [each.segments_replaced for each in report.partitions] == [0]
    assert log.store.read(lambda state, slot: slot) == slot
    assert {info.path for info in log.objects.list("t/")} == files


def test_admin_compacts_one_topic_at_once_and_all_when_due(memory_store: MemoryStore) -> None:
    store = Store(memory_store, Environment())
    for topic, ratio in (("due", 0.0), ("later", 1.0)):
        config = TopicConfig(cleanup_policy="compact", segment_batches=1, min_cleanable_dirty_ratio=ratio)
        store.admin.create_topic(topic, config=config)
        producer = store.producer()
        for _ in range(2):
            producer.send(topic, b"value", key=b"key")
            producer.flush()
    store.log.before_checkpoint()

    assert [each.topic for each in store.admin.compact_keys().partitions] == ["due"]
    assert [each.topic for each in store.admin.compact_keys("later").partitions] == ["later"]
    assert store.admin.compact_files("due").compacted == []
    topic_id = store.admin.describe_topic("due").topic_id
    assert store.read(lambda state, slot: state.partitions[PartitionId(topic_id, 0)].cleaned_offset) == 2


def test_a_damaged_topic_keeps_no_other_from_being_compacted(memory_store: MemoryStore) -> None:
    store = Store(memory_store, Environment())
    config = TopicConfig(cleanup_policy="compact", segment_batches=1, min_cleanable_dirty_ratio=0)
    producer = store.producer()
    for topic in ("damaged", "sound"):
        store.admin.create_topic(topic, config=config)
        for key in (b"a", b"a", b"b"):
            producer.send(topic, b"value", key=key)
            producer.flush()
    store.log.before_checkpoint()
    victim = store.scan("damaged").planned_files()[1].path
    memory_store.delete([victim])

    for work in (store.admin.compact_files, store.admin.compact_keys):
        with pytest.raises(CorruptRecord, match=victim):
            work()

    assert store.scan("sound", columns=["offset"]).to_table()["offset"].to_pylist() == [1, 2]
    topic_id = store.admin.describe_topic("sound").topic_id
    assert len(store.read(lambda state, slot: state.partitions[PartitionId(topic_id, 0)].sealed)) == 1


def test_damage_is_told_also_after_segments_before_it_were_replaced() -> None:
    log = CompactedLog()
    log.send("plain", 1)
    log.send("plain", 1)
    log.send("plain", 2)
    log.seal()
    cleaned_before = log.batches()[2].file
    assert cleaned_before is not None

    with pytest.raises(CorruptRecord, match=cleaned_before.path):
        log.compact(At("segment.compact_keys.replaced", lambda: log.objects.delete([cleaned_before.path])))
