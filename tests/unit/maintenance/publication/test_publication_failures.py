"""Publication: publishers that die or meet, checkpoints of the Delta log, and damaged Delta logs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog import CorruptRecord, Store, TopicConfig, TopicPartition
from eoslog.delta import delta_log
from eoslog.delta.delta_log import DeltaLog
from eoslog.maintenance.publication import Publisher
from eoslog.maintenance.vacuum import vacuum
from eoslog.storage.object_store import PutOutcome
from tests.delta_logs import rows_by_stream, versions
from tests.unit.maintenance.publication.published_topics import create, keys, write
from tests.unit.support.delta_tables import copy_to, rows_by_delta
from tests.unit.support.paused_processes import Died, asleep_at, dies_at
from tests.unit.support.world import World

EARLY = 10
"""The version of the first checkpoint, with ``early_checkpoints``."""


@pytest.fixture
def early_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Delta log has a checkpoint every ten versions, not every hundred."""
    monkeypatch.setattr(delta_log, "CHECKPOINT_VERSIONS", EARLY)


@pytest.mark.usefixtures("early_checkpoints")
@pytest.mark.parametrize("point", ["delta.version.planned", "delta.version.put", "delta.checkpoint.written"])
def test_a_publisher_that_dies_leaves_a_whole_table(world: World, tmp_path: Path, point: str) -> None:
    store, dying = world.process(), world.process()
    create(store)
    for key in range(EARLY):
        write(store, key)
        store.admin.publish("t")
    write(store, EARLY)
    dies_at(dying, point)

    with pytest.raises(Died):
        dying.admin.publish("t")
    write(store, EARLY + 1)
    (found,) = store.admin.publish("t")

    assert keys(store, tmp_path) == list(range(EARLY + 2))
    assert rows_by_stream(store.object_store, "t") == [(0, 2 * key) for key in range(EARLY + 2)]
    assert found.version == (EARLY if point == "delta.version.planned" else EARLY + 1)


def test_a_publisher_that_dies_while_it_rewrites_a_truncated_file_leaves_it_to_the_next(
    world: World, store: Store, tmp_path: Path
) -> None:
    write(store, 0, 1, 2)
    store.admin.publish("t")
    store.admin.delete_records({TopicPartition("t", 0): 2})
    for point in (
        "segment.hidden_rows.sealed",
        "segment.compact_files.files_written",
        "segment.compact_files.replaced",
    ):
        dying = world.process()
        dies_at(dying, point)
        with pytest.raises(Died):
            dying.admin.publish("t")
        assert keys(store, tmp_path) == [0, 1, 2]

    store.admin.publish("t")

    assert keys(store, tmp_path) == [2]


def test_a_publisher_that_dies_when_another_was_faster_leaves_its_rows_to_the_next(
    world: World, store: Store, tmp_path: Path
) -> None:
    dying = world.process()
    write(store, 1)

    def meanwhile() -> None:
        store.admin.publish("t")
        write(store, 2)

    asleep_at(dying, "delta.version.planned", meanwhile)
    dies_at(dying, "publication.version.overtaken")
    with pytest.raises(Died):
        dying.admin.publish("t")
    left = keys(store, tmp_path)
    store.admin.publish("t")

    assert left == [1]
    assert keys(store, tmp_path) == [1, 2]


def test_two_publishers_of_the_same_rows_are_told_apart(world: World, store: Store) -> None:
    """A put that finds the version of another publisher is no own put without an answer."""
    write(store, 1)
    slow = world.process()
    asleep_at(slow, "delta.version.planned", lambda: store.admin.publish("t"))

    (found,) = slow.admin.publish("t")

    assert (found.version, found.files_added) == (0, 0)


@pytest.mark.usefixtures("files_are_objects")
def test_a_checkpoint_opens_a_long_log_with_few_requests(world: World, tmp_path: Path) -> None:
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(120):
        write(store, key)
        store.admin.publish("t")
    other = world.process()
    other.read(lambda state, slot: slot)
    before = other.requests.copy()

    (found,) = other.admin.publish("t")

    assert found.version == 119
    sent = other.requests - before
    assert sent["LIST"] == 1
    assert sent["GET"] < 30
    root = Path(copy_to(tmp_path, store.object_store, "t"))
    for version in range(100):
        (root / "_delta_log" / f"{version:020d}.json").unlink()
    assert len(rows_by_delta(str(root))) == 120


@pytest.mark.usefixtures("early_checkpoints")
def test_old_versions_are_deleted_after_a_month(world: World, tmp_path: Path) -> None:
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(EARLY + 4):
        write(store, key)
        store.admin.publish("t")
    world.pass_time(31 * 24 * 3600 * 1000)

    vacuum(store)

    left = sorted(info.path.rpartition("/")[2] for info in store.object_store.list("t/_delta_log/"))
    assert next(name for name in left if name.endswith(".json")) == f"{EARLY:020d}.json"
    write(store, EARLY + 4)
    assert store.admin.publish("t")[0].version == EARLY + 4
    root = copy_to(tmp_path, store.object_store, "t")
    assert len(rows_by_delta(root)) == EARLY + 5
    assert len(rows_by_delta(root, EARLY + 2)) == EARLY + 3


@pytest.mark.parametrize("path", ["00000000000000000000.json", "_last_checkpoint"])
def test_a_damaged_delta_log_is_reported_and_does_not_touch_the_topic(world: World, store: Store, path: str) -> None:
    write(store, 1)
    store.admin.publish("t")
    store.object_store.put(f"t/_delta_log/{path}", b'{"add": {"path": 5}}')

    with pytest.raises(CorruptRecord, match="Delete the directory _delta_log"):
        world.process().admin.publish("t")

    assert store.scan("t").to_table()["key"].to_pylist() == [1]


@pytest.mark.usefixtures("early_checkpoints")
@pytest.mark.parametrize(
    "damaged",
    [b"", b"PAR1", b'{"version": 1e999}', b"[" * 100_000, b'{"version": 5}', b'{"version": -1}', b"page", b"columns"],
)
def test_a_damaged_checkpoint_stops_the_publication_of_no_other_topic(world: World, damaged: bytes) -> None:
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(EARLY + 1):
        write(store, key)
        store.admin.publish("t")
    write(store, EARLY + 1)
    store.admin.create_topic("u", config=TopicConfig(publish="delta"))
    checkpoint, last = f"t/_delta_log/{EARLY:020d}.checkpoint.parquet", "t/_delta_log/_last_checkpoint"
    if damaged == b"page":
        body = store.object_store.get(checkpoint).body
        store.object_store.put(checkpoint, body[:4] + bytes(100) + body[104:])
    elif damaged == b"columns":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({name: [1] for name in ("txn", "add", "remove", "metaData", "protocol")}), sink)
        store.object_store.put(checkpoint, bytes(sink.getvalue()))
    else:
        store.object_store.put(last if damaged[:1] in (b"{", b"[") else checkpoint, damaged)
    other = world.process()

    with pytest.raises(CorruptRecord, match="Delete the directory _delta_log"):
        Publisher.of(other).publish_all()

    assert len(list(versions(store.object_store, "u"))) == 1


@pytest.mark.usefixtures("early_checkpoints")
def test_a_checkpoint_that_another_process_is_putting_is_not_named_before_it_is_there(store: Store) -> None:
    put_if_absent = store.object_store.put_if_absent

    def conflict(path: str, body: bytes) -> PutOutcome:
        return PutOutcome.CONFLICT if path.endswith(".checkpoint.parquet") else put_if_absent(path, body)

    store.object_store.put_if_absent = conflict  # type: ignore[method-assign]
    for key in range(EARLY + 1):
        write(store, key)
        store.admin.publish("t")
    assert not [each.path for each in store.object_store.list("t/_delta_log/_last_checkpoint")]
    store.object_store.put_if_absent = put_if_absent  # type: ignore[method-assign]
    write(store, EARLY + 1)
    store.admin.publish("t")

    assert json.loads(store.object_store.get("t/_delta_log/_last_checkpoint").body)["version"] == EARLY + 1


@pytest.mark.usefixtures("early_checkpoints")
def test_a_checkpoint_stays_while_readers_start_there(world: World) -> None:
    """A process that was paused while it wrote the checkpoint of version 10 named it after that of 11."""
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(EARLY + 1):
        write(store, key)
        store.admin.publish("t")
    named = store.object_store.get("t/_delta_log/_last_checkpoint").body
    other = DeltaLog(store.object_store, store.environment, "t")
    other.refresh()
    write(store, EARLY + 1)
    store.admin.publish("t")
    other.refresh()
    other.write_checkpoint()
    store.object_store.put("t/_delta_log/_last_checkpoint", named)
    world.pass_time(31 * 24 * 3600 * 1000)

    vacuum(store)

    left = [info.path.rpartition("/")[2] for info in store.object_store.list("t/_delta_log/")]
    assert min(left) == f"{EARLY:020d}.checkpoint.parquet"
    write(store, EARLY + 2)
    assert world.process().admin.publish("t")[0].version == EARLY + 2


@pytest.mark.usefixtures("early_checkpoints")
def test_vacuum_keeps_a_damaged_delta_log_and_fails_for_no_other(world: World) -> None:
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(EARLY + 1):
        write(store, key)
        store.admin.publish("t")
    store.object_store.put("t/_delta_log/_last_checkpoint", b"damaged")
    before = [info.path for info in store.object_store.list("t/_delta_log/")]
    world.pass_time(31 * 24 * 3600 * 1000)

    vacuum(store)

    assert [info.path for info in store.object_store.list("t/_delta_log/")] == before


def test_a_delta_log_with_a_gap_is_reported_each_time(world: World, store: Store) -> None:
    for key in range(3):
        write(store, key)
        store.admin.publish("t")
    store.object_store.delete([f"t/_delta_log/{1:020d}.json"])
    other = world.process()

    for _ in range(2):
        with pytest.raises(CorruptRecord, match="is missing"):
            other.admin.publish("t")
