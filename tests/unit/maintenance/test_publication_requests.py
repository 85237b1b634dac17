"""The requests of publication: unchanged topics cost none, and a process reads each Delta log once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.delta.actions import DeltaTable
from eoslog.delta.delta_log import DeltaLog
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.key_compaction import compact_keys
from eoslog.maintenance.publication import Publication, Publisher
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from tests.delta_logs import versions
from tests.unit.support.delta_tables import row_places
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World, faulty

COLUMNS = pa.schema([("key", pa.int64())])
TOPICS = [f"t{number:02d}" for number in range(50)]
REMOVING = TopicConfig(publish="delta", segment_batches=2, cleanup_policy="compact,delete")


def create(store: Store, topic: str, config: TopicConfig = REMOVING) -> None:
    store.admin.create_topic(topic, schema=COLUMNS, key="key", config=config)


def write(store: Store, topic: str, *keys: int, commit: bool = True) -> None:
    producer = open_transaction(store, f"writer of {topic}")
    producer.send_table(topic, pa.table({"key": keys}, schema=COLUMNS))
    producer.flush()
    (producer.commit_transaction if commit else producer.abort_transaction)()


def sent(store: Store, call: Callable[[], object]) -> dict[str, int]:
    before = store.requests.copy()
    call()
    return dict(store.requests - before)


def of_delta_log(store: Store, topic: str, call: Callable[[], object]) -> Counter[str]:
    """Count the GETs of objects of a Delta log during a call, by the object's name."""
    before, directory = len(faulty(store).gets), f"{topic}/_delta_log/"
    call()
    return Counter(path.removeprefix(directory) for path in faulty(store).gets[before:] if path.startswith(directory))


@pytest.fixture
def store(world: World) -> Store:
    """A store with 50 published topics, each of which has rows and a version of its table."""
    store = world.process()
    for topic in TOPICS:
        create(store, topic, TopicConfig(publish="delta"))
        write(store, topic, 1)
    Coordinator(store).publish()
    return store


@pytest.mark.usefixtures("files_are_objects")
def test_a_topic_that_did_not_change_costs_no_request(store: Store) -> None:
    coordinator = Coordinator(store)
    assert sent(store, coordinator.publish) == {"GET": 1}

    write(store, "t07", 2)

    # The newest slot; the newest version of the table and the next one, which does not exist; and the new version.
    assert sent(store, coordinator.publish) == {"GET": 3, "PUT": 1}
    assert sent(store, coordinator.publish) == {"GET": 1}
    assert len(list(versions(store.object_store, "t07"))) == 2


@pytest.mark.usefixtures("files_are_objects")
def test_a_new_process_reads_each_delta_log_once(world: World, store: Store) -> None:
    other = world.process()
    other.read(lambda state, slot: slot)
    coordinator = Coordinator(other)

    # Of each table: the hint at a checkpoint, the version, and the next one, which does not exist.
    assert sent(other, coordinator.publish) == {"GET": 1 + 3 * len(TOPICS), "LIST": len(TOPICS)}
    assert sent(other, coordinator.publish) == {"GET": 1}


def test_a_coordinator_that_only_publishes_sees_the_first_published_topic(world: World) -> None:
    store = world.process()
    create(store, "t07", TopicConfig())
    write(store, "t07", 1)
    coordinator = Coordinator(world.process())
    assert coordinator.publish() == []

    store.admin.alter_topic("t07", publish="delta")

    assert [each.topic for each in coordinator.publish()] == ["t07"]


@pytest.mark.usefixtures("files_are_objects")
def test_the_topics_of_one_step_are_compared_with_one_state(world: World, store: Store) -> None:
    for topic in TOPICS[:10]:
        write(store, topic, 2)

    assert sent(store, Coordinator(store).publish) == {"GET": 1 + 2 * 10, "PUT": 10}


def _compact_files(store: Store) -> None:
    seal_segments(store)
    assert compact_files(store, topic="t07").compacted


def _compact_keys(store: Store) -> None:
    seal_segments(store)
    compact_keys(store, topic="t07", force=True)


def _create_again(store: Store) -> None:
    store.admin.delete_topic("t07")
    create(store, "t07")


CHANGES: dict[str, Callable[[Store], object]] = {
    "rows": lambda store: write(store, "t07", 9),
    "an aborted transaction": lambda store: write(store, "t07", 9, commit=False),
    "truncation": lambda store: store.admin.delete_records({TopicPartition("t07", 0): 2}),
    "truncation within a file": lambda store: store.admin.delete_records({TopicPartition("t07", 0): 3}),
    "compaction": _compact_files,
    "compaction by key": _compact_keys,
    "a column": lambda store: store.admin.add_columns("t07", pa.schema([("more", pa.int32())])),
    "a setting": lambda store: store.admin.alter_topic("t07", retention_ms=10**12),
    "another topic of this name": _create_again,
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_of_a_topic_is_published(world: World, change: str) -> None:
    store, other = world.process(), world.process()
    create(store, "t07")
    write(store, "t07", 1)
    write(store, "t07", 1, 2, 3)
    write(store, "t07", 1)
    coordinator = Coordinator(store)
    coordinator.publish()
    coordinator.publish()

    CHANGES[change](other)
    coordinator.publish()

    (found,) = world.process().admin.publish("t07")
    assert (found.files_added, found.files_removed) == (0, 0)
    rows = store.scan("t07", isolation_level="snapshot", columns=["_partition", "_offset"]).to_table().to_pylist()
    assert row_places(store.object_store, "t07") == [tuple(row.values()) for row in rows]


def test_a_table_that_became_empty_while_its_topic_was_not_published_gets_its_rows_again(world: World) -> None:
    store, other = world.process(), world.process()
    create(store, "t07")
    coordinator = Coordinator(store)
    for key in range(3):
        write(store, "t07", key)
    coordinator.publish()
    _compact_files(store)
    coordinator.publish()

    other.admin.alter_topic("t07", publish="none")
    vacuum(other, deleted_file_retention_ms=0)
    emptied = row_places(store.object_store, "t07")
    other.admin.alter_topic("t07", publish="delta")
    coordinator.publish()

    assert emptied == []
    assert len(row_places(store.object_store, "t07")) == 3


@pytest.mark.parametrize("point", ["log.read", "delta.version.planned"])
def test_a_table_whose_topic_is_published_again_while_vacuum_empties_it_keeps_its_rows(
    world: World, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = world.process(), world.process()
    create(store, "t07")
    write(store, "t07", 1)
    coordinator = Coordinator(store)
    coordinator.publish()
    other.admin.alter_topic("t07", publish="none")

    def publish_again() -> None:
        store.admin.alter_topic("t07", publish="delta")
        coordinator.publish()

    publisher = Publisher.of(other)
    if point == "delta.version.planned":
        asleep_at(other, point, publish_again)
    else:
        put_next = publisher._put_next

        def late(*arguments: Any) -> Publication:
            publish_again()
            return put_next(*arguments)

        monkeypatch.setattr(publisher, "_put_next", late)
    publisher.release_files("t07", "delta")
    coordinator.publish()

    assert len(row_places(store.object_store, "t07")) == 1


def test_a_table_that_another_process_has_published_at_a_later_slot_is_left(world: World) -> None:
    store, other = world.process(), world.process()
    for topic in ("a", "b"):
        create(store, topic)
        write(store, topic, 1)

    def meanwhile() -> None:
        write(other, "b", 2)
        other.admin.publish("b")

    asleep_at(store, "delta.version.planned", meanwhile)
    Coordinator(store).publish()

    assert len(row_places(store.object_store, "a")) == 1
    assert len(row_places(store.object_store, "b")) == 2


@pytest.mark.parametrize("versions_meanwhile", [1, 3])
def test_a_table_that_others_publish_after_the_topic_was_read_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch, versions_meanwhile: int
) -> None:
    store, other = world.process(), world.process()
    create(store, "t07")
    write(store, "t07", 0)
    refresh, left = DeltaLog.refresh, list(range(versions_meanwhile))

    def refresh_late(self: DeltaLog, **options: Any) -> DeltaTable:
        monkeypatch.setattr(DeltaLog, "refresh", refresh)
        write(other, "t07", left.pop())
        other.admin.publish("t07")
        if left:
            monkeypatch.setattr(DeltaLog, "refresh", refresh_late)
        return refresh(self, **options)

    monkeypatch.setattr(DeltaLog, "refresh", refresh_late)
    (found,) = store.admin.publish("t07")

    assert (found.version, found.files_added) == (versions_meanwhile - 1, 0)
    assert len(row_places(store.object_store, "t07")) == 1 + versions_meanwhile


def test_metrics_ask_for_no_table_that_has_all_rows(world: World, store: Store) -> None:
    other = world.process()
    other.metrics()

    assert sent(store, store.metrics) == {"GET": 1}
    assert sent(other, other.metrics) == {"GET": 1}
    write(store, "t07", 2)
    assert sent(store, store.metrics) == {"GET": 2}
    other.read(lambda state, slot: slot)
    assert sent(other, other.metrics) == {"GET": 2}


def test_metrics_see_what_another_process_has_published(world: World, store: Store) -> None:
    other = world.process()
    write(store, "t07", 2)
    world.pass_time(5_000)
    behind = other.metrics().publication_lag_ms["t07"]

    Coordinator(store).publish()

    assert behind >= 5_000
    assert set(other.metrics().publication_lag_ms.values()) == {0}


def test_one_process_opens_a_delta_log_once(world: World) -> None:
    store = world.process()
    create(store, "t07")
    store.admin.publish("t07")
    for key in range(4):
        write(store, "t07", key)
    seal_segments(store)

    def publish() -> None:
        assert store.admin.publish("t07")[0].version == 1

    assert of_delta_log(store, "t07", publish) == {f"{0:020d}.json": 1, f"{1:020d}.json": 1}
    assert of_delta_log(store, "t07", lambda: store.admin.compact_files("t07")) == {f"{2:020d}.json": 1}
    assert of_delta_log(store, "t07", Coordinator(store).publish) == {f"{1:020d}.json": 1, f"{2:020d}.json": 1}
    assert of_delta_log(store, "t07", lambda: store.admin.vacuum(deleted_file_retention_ms=0)) == {
        f"{2:020d}.json": 1,
        f"{3:020d}.json": 1,
    }


def test_a_topic_that_fails_is_tried_again_and_stops_no_other(store: Store) -> None:
    coordinator = Coordinator(store)
    for topic in ("t07", "t08"):
        write(store, topic, 2)
    faulty(store).deny("t07/_delta_log/")
    with pytest.raises(Exception, match="not allowed"):
        coordinator.publish()
    faulty(store).heal()

    assert [each.topic for each in coordinator.publish()] == ["t07"]
    assert len(list(versions(store.object_store, "t08"))) == 2


@pytest.mark.parametrize("versions_again", [0, 1, 2, 3])
def test_a_delta_log_that_was_deleted_is_written_anew(world: World, versions_again: int) -> None:
    store, other = world.process(), world.process()
    create(store, "t07")
    for key in range(2):
        write(store, "t07", key)
        store.admin.publish("t07")
    store.object_store.delete([info.path for info in store.object_store.list("t07/_delta_log/")])
    for key in range(versions_again):
        write(other, "t07", 10 + key)
        world.process().admin.publish("t07")

    write(store, "t07", 20)
    (found,) = store.admin.publish("t07")

    assert found.version == versions_again
    assert len(row_places(store.object_store, "t07")) == 3 + versions_again


@pytest.mark.parametrize("look", ["compaction", "metrics"])
def test_a_process_does_not_mix_a_deleted_delta_log_with_the_one_written_since(world: World, look: str) -> None:
    store, other = world.process(), world.process()
    create(store, "t07")
    for key in range(4):
        write(store, "t07", key)
    other.admin.publish("t07")
    seal_segments(other)
    store.object_store.delete([info.path for info in store.object_store.list("t07/_delta_log/")])
    for key in range(3):
        write(store, "t07", 10 + key)
        store.admin.publish("t07")

    # It reads the version after the only one that it knows, which is of the new log.
    if look == "compaction":
        other.admin.compact_files("t07")
    else:
        other.metrics()
    write(store, "t07", 20)
    other.admin.publish("t07")

    rows = store.scan("t07", columns=["_partition", "_offset"]).to_table().to_pylist()
    assert row_places(store.object_store, "t07") == [tuple(row.values()) for row in rows]


def test_publish_writes_a_deleted_delta_log_anew_although_the_topic_did_not_change(store: Store) -> None:
    store.object_store.delete([info.path for info in store.object_store.list("t07/_delta_log/")])

    (found,) = store.admin.publish("t07")

    assert (found.version, found.files_added) == (0, 1)


def test_a_process_has_one_publisher_for_each_store(store: Store, world: World) -> None:
    assert Publisher.of(store) is Publisher.of(store)
    assert Publisher.of(store) is not Publisher.of(world.process())


@pytest.mark.parametrize("change", ["unpublished", "deleted"])
def test_a_topic_that_is_withdrawn_while_all_are_published_is_no_failure(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    for topic in ("t07", "t08"):
        write(store, topic, 2)
    other, publish = world.process(), Publisher._publish

    def withdrawn_first(self: Publisher, topic: str, *arguments: Any) -> Any:
        if topic == "t07":
            if change == "deleted":
                other.admin.delete_topic("t07")
            else:
                other.admin.alter_topic("t07", publish=None)
            store.read(lambda state, slot: slot)
        return publish(self, topic, *arguments)

    monkeypatch.setattr(Publisher, "_publish", withdrawn_first)

    assert [each.topic for each in Coordinator(store).publish()] == ["t08"]
