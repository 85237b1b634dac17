"""Vacuum deletes what no entry names and none can name any more, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import CorruptRecord, StagedFilesExpired, Store, TopicConfig, TopicPartition
from eoslog.format.file_writer import DataFileWriter, TopicTarget
from eoslog.log.slot_deletion import delete_old_slots
from eoslog.log.slots import slot_path
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import VacuumReport, vacuum
from eoslog.producer.rows import records_table
from eoslog.session.heartbeats import Heartbeats
from eoslog.state.end_requests import TransactionContent, prepare_request
from eoslog.state.jobs import replace_rows
from eoslog.state.topics import topic_named
from eoslog.state.transaction_requests import ForceTerminateTransaction, InitProducerId, PrepareTransaction
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectNotFound, StoredObject
from tests.requests import Applying
from tests.unit.support.clock import Clock
from tests.unit.support.transactions import open_transaction

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    environment = Environment()
    store = Store(MemoryStore(environment, wall_clock=clock), environment)
    store.admin.create_topic("t", config=TopicConfig(segment_batches=4))
    return store


def _produce(store: Store, count: int) -> None:
    producer = store.producer("etl")
    producer.init_transactions()
    for number in range(count):
        producer.begin_transaction()
        producer.send("t", b"%d" % number)
        producer.commit_transaction()


def _orphan(store: Store) -> str:
    """Upload a file that no entry names, as a task that died does."""
    producer = open_transaction(store, "dead", staged=True)
    producer.send("t", b"orphan")
    before = _paths(store)
    producer.flush()
    (path,) = _paths(store) - before
    return path


def _paths(store: Store) -> set[str]:
    return {info.path for info in store.object_store.list("t/")}


def _vacuum(store: Store, **options: int | bool) -> VacuumReport:
    return vacuum(store, **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("files_are_objects")
def test_an_unreferenced_file_is_deleted_once_it_is_old_enough(store: Store, clock: Clock) -> None:
    _produce(store, 3)
    orphan = _orphan(store)
    assert _vacuum(store).paths == []

    clock.now_ms += 8 * DAY_MS

    assert _vacuum(store).paths == [orphan]
    assert orphan not in _paths(store)
    assert store.scan("t").to_table().num_rows == 3


def test_a_retention_that_may_break_reads_is_warned_of(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    _vacuum(store, deleted_file_retention_ms=3_600_000)
    _vacuum(store, deleted_file_retention_ms=0, dry_run=True)
    assert caplog.messages == []

    _vacuum(store, deleted_file_retention_ms=0)

    (warning,) = caplog.messages
    assert "dropped 0 ms ago or earlier. Reads that began before may still need them" in warning


def test_files_of_sealed_segments_and_their_indexes_are_kept(store: Store, clock: Clock) -> None:
    _produce(store, 10)
    assert len(seal_segments(store)) == 5
    clock.now_ms += 8 * DAY_MS

    assert _vacuum(store).paths == []

    assert store.scan("t").to_table().num_rows == 10


@pytest.mark.usefixtures("files_are_objects")
def test_a_dry_run_names_the_files_and_changes_nothing(store: Store, clock: Clock) -> None:
    orphan = _orphan(store)
    clock.now_ms += 8 * DAY_MS
    slot = store.read(lambda state, slot: slot)

    assert _vacuum(store, dry_run=True).paths == [orphan]

    assert orphan in _paths(store)
    assert store.read(lambda state, slot: slot) == slot


@pytest.mark.usefixtures("files_are_objects")
def test_a_transaction_whose_files_vacuum_may_have_deleted_is_refused(store: Store, clock: Clock) -> None:
    slow = open_transaction(store, "slow", staged=True)
    slow.send("t", b"late")
    slow.flush()
    clock.now_ms += 8 * DAY_MS
    _vacuum(store)

    with pytest.raises(StagedFilesExpired, match=r"\[EOSLOG_STAGED_FILES_EXPIRED\]"):
        slow.commit_transaction()

    slow.abort_transaction()
    assert store.scan("t").record_count == 0


def test_a_prepared_transactions_files_are_kept_until_its_end(store: Store, clock: Clock) -> None:
    (path,) = _prepare(store, "t")
    clock.now_ms += 30 * DAY_MS
    assert _vacuum(store).paths == []

    store.append(ForceTerminateTransaction("two-phase", time_ms=clock.now_ms))

    assert _vacuum(store).paths == [path]


def test_files_of_a_prepared_transaction_go_with_their_topic(store: Store, clock: Clock) -> None:
    store.admin.create_topic("u")
    (path,) = _prepare(store, "u")
    store.admin.delete_topic("u")
    clock.now_ms += 30 * DAY_MS

    assert _vacuum(store).paths == [path]


def _prepare(store: Store, topic: str) -> list[str]:
    """Prepare a transaction with a staged file. Returns its path."""
    writer = DataFileWriter(store.object_store, store.environment.new_id, buffer_bytes=1 << 20)
    target = store.read(lambda state, slot: TopicTarget.of(state, topic_named(state, topic)))
    uploaded_ms = store.now_ms()
    writer.add(target, 0, records_table([(None, b"v", None, uploaded_ms)]))
    files = writer.flush(uploaded_ms)
    identity = store.append(
        Applying(lambda draft: InitProducerId("two-phase", timeout_ms=1000, time_ms=uploaded_ms).take(draft))
    )
    content = TransactionContent(batches=[file.staged() for file in files], upload_ms=uploaded_ms)
    request = prepare_request("two-phase", identity, content=content, timeout_ms=None, time_ms=uploaded_ms)
    store.append(PrepareTransaction(request))
    return [file.reference.path for file in files]


@pytest.mark.usefixtures("files_are_objects")
def test_the_horizon_is_in_the_log_before_the_first_file_is_deleted(store: Store, clock: Clock) -> None:
    _orphan(store)
    clock.now_ms += 8 * DAY_MS
    seen: list[int] = []
    delete: Callable[..., None] = store.object_store.delete_many

    def watched(paths: list[str]) -> None:
        seen.append(Store(store.object_store, Environment()).read(lambda state, slot: state.horizon_ms))
        delete(paths)

    store.object_store.delete_many = watched  # type: ignore[method-assign]

    report = _vacuum(store)

    assert seen == [report.horizon_ms]
    assert report.horizon_ms > 0


@pytest.mark.usefixtures("files_are_objects")
def test_files_of_a_deleted_topic_wait_for_readers_that_planned_before(store: Store, clock: Clock) -> None:
    _produce(store, 2)
    store.admin.delete_topic("t")
    assert _vacuum(store).paths == []

    clock.now_ms += 2 * DAY_MS

    assert len(_vacuum(store).paths) == 2
    assert _paths(store) == set()
    assert store.read(lambda state, slot: state.pending_deletions) == ()


def test_files_of_refused_delta_writers_are_deleted_once_they_are_old_enough(store: Store, clock: Clock) -> None:
    _produce(store, 1)
    refused = "t/_partition=0/_base_offset=0/part-00000.parquet"
    others = ["t/_symlink_format_manifest/_partition=0/manifest", "no-topic/_partition=0/part-00000.parquet"]
    for path in (refused, *others):
        store.object_store.put(path, b"rows")
    young = _vacuum(store).paths
    clock.now_ms += 8 * DAY_MS
    later = "t/_partition=0/part-00001.parquet"
    store.object_store.put(later, b"rows")

    found = _vacuum(store, dry_run=True)
    assert _vacuum(store).paths == found.paths == [refused]

    assert young == []
    assert {*others, later} <= {info.path for info in store.object_store.list("")}
    assert store.scan("t").to_table().num_rows == 1


def test_vacuum_of_refused_files_leaves_a_table_that_is_no_longer_published(store: Store, clock: Clock) -> None:
    _produce(store, 1)
    store.admin.alter_topic("t", publish="delta")
    version = store.admin.publish("t")[0].version
    store.admin.alter_topic("t", publish="none")
    store.object_store.put("t/_partition=0/part-00000.parquet", b"rows")
    clock.now_ms += 8 * DAY_MS

    assert _vacuum(store).paths == ["t/_partition=0/part-00000.parquet"]

    assert f"t/_delta_log/{version + 1:020d}.json" not in _paths(store)


@pytest.mark.usefixtures("files_are_objects")
def test_vacuum_goes_on_where_an_earlier_one_died(store: Store, clock: Clock) -> None:
    orphans = {_orphan(store) for _ in range(3)}
    clock.now_ms += 8 * DAY_MS
    delete = store.object_store.delete_many

    def dying(paths: list[str]) -> None:
        delete(paths[:1])
        raise KeyboardInterrupt

    store.object_store.delete_many = dying  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        _vacuum(store)
    store.object_store.delete_many = delete  # type: ignore[method-assign]

    _vacuum(store)

    assert orphans.isdisjoint(_paths(store))


@pytest.mark.parametrize("deleted", [1, 4, 7])
def test_vacuum_of_an_overwritten_segment_goes_on_where_an_earlier_one_died(
    store: Store, clock: Clock, deleted: int
) -> None:
    _produce(store, 4)
    seal_segments(store)
    overwritten = _paths(store)
    topic_id = store.admin.describe_topic("t").topic_id
    store.append(Applying(lambda draft: replace_rows(draft, topic_id)))
    clock.now_ms += 2 * DAY_MS
    delete = store.object_store.delete_many

    def dying(paths: list[str]) -> None:
        delete(sorted(paths, key=lambda path: not path.endswith(".index.parquet"))[:deleted])
        raise KeyboardInterrupt

    store.object_store.delete_many = dying  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        _vacuum(store)
    store.object_store.delete_many = delete  # type: ignore[method-assign]

    _vacuum(store)
    clock.now_ms += 8 * DAY_MS
    _vacuum(store)

    assert overwritten.isdisjoint(_paths(store))
    assert store.read(lambda state, slot: state.pending_deletions) == ()


def _without_entry(store: Store, topic: str) -> str:
    """Put a file into partition 0 of a topic that no entry names."""
    path = f"{topic}/{store.admin.describe_topic(topic).topic_id}/0/{0:020d}/{'0' * 32}.parquet"
    store.object_store.put(path, b"of a writer that died")
    return path


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("damage", ["damaged", "missing"])
def test_an_unreadable_index_keeps_the_files_of_its_partition_and_no_others(
    store: Store, clock: Clock, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.admin.create_topic("u")
    _produce(store, 4)
    sealed, *_ = seal_segments(store)
    index = store.object_store.get(sealed.index.path).body
    kept, deleted = _without_entry(store, "t"), _without_entry(store, "u")
    if damage == "damaged":
        store.object_store.put(sealed.index.path, b"damaged")
    else:
        store.object_store.delete([sealed.index.path])
    before = _paths(store)
    clock.now_ms += 30 * DAY_MS

    report = _vacuum(store)

    assert (report.paths, report.unreadable_indexes) == ([deleted], [sealed.index.path])
    assert _paths(store) == before
    assert sealed.index.path in caplog.text
    store.object_store.delete([sealed.index.path])
    store.object_store.put(sealed.index.path, index)
    report = _vacuum(store)
    assert (report.paths, report.unreadable_indexes) == ([kept], [])
    assert store.scan("t").to_table().num_rows == 4


def test_a_scan_names_the_index_of_a_segment_that_is_missing(store: Store) -> None:
    _produce(store, 4)
    sealed, *_ = seal_segments(store)
    store.object_store.delete([sealed.index.path])

    with pytest.raises(CorruptRecord, match=sealed.index.path):
        store.scan("t")


@pytest.mark.usefixtures("files_are_objects")
def test_dropped_files_wait_for_readers_after_their_slot_is_gone(store: Store, clock: Clock) -> None:
    _produce(store, 2)
    planned = store.scan("t")
    store.admin.delete_records({TopicPartition("t", 0): -1})
    store.admin.create_topic("u")
    for _ in range(2):
        store.log.checkpoint()
    clock.now_ms += 2 * DAY_MS
    store.admin.create_topic("v")
    for _ in range(2):
        store.log.checkpoint()
    assert delete_old_slots(store.log)

    assert _vacuum(store, deleted_file_retention_ms=3 * DAY_MS).paths == []

    assert planned.to_table().num_rows == 2
    clock.now_ms += 3 * DAY_MS
    assert len(_vacuum(store, deleted_file_retention_ms=3 * DAY_MS).paths) == 2
    assert store.read(lambda state, slot: state.pending_deletions) == ()


@pytest.mark.parametrize("damage", ["damaged", "missing"])
def test_a_dropped_segment_without_its_index_goes_after_its_readers(store: Store, clock: Clock, damage: str) -> None:
    _produce(store, 4)
    sealed, *_ = seal_segments(store)
    planned = store.scan("t")
    everything = _paths(store)
    if damage == "damaged":
        store.object_store.put(sealed.index.path, b"damaged")
    else:
        store.object_store.delete([sealed.index.path])
    clock.now_ms += 8 * DAY_MS
    store.admin.delete_records({TopicPartition("t", 0): -1})

    assert _vacuum(store).paths == []

    assert planned.to_table().num_rows == 4
    clock.now_ms += 2 * DAY_MS
    _vacuum(store)
    assert _paths(store).isdisjoint(everything)
    assert store.read(lambda state, slot: state.pending_deletions) == ()


def test_vacuum_keeps_objects_that_are_not_the_stores(store: Store, clock: Clock) -> None:
    foreign = ["checkpoints/query/offsets/0", "t/README.txt", "table/part-0.parquet"]
    for path in foreign:
        store.object_store.put(path, b"foreign")
    clock.now_ms += 30 * DAY_MS

    assert _vacuum(store).paths == []


def test_one_answer_dated_far_ahead_expires_and_deletes_nothing_early(store: Store, clock: Clock) -> None:
    slow = open_transaction(store, "slow", staged=True)
    slow.send("t", b"staged")
    slow.flush()
    _produce(store, 2)
    planned = store.scan("t")
    store.admin.delete_records({TopicPartition("t", 0): -1})
    clock.now_ms += 3650 * DAY_MS
    store.object_store.list_directories("")
    clock.now_ms -= 3650 * DAY_MS

    assert _vacuum(store).paths == []

    assert planned.to_table().num_rows == 2
    slow.commit_transaction()
    assert store.scan("t").record_count == 1


def test_one_slot_removes_the_pending_deletions_of_many_entries(store: Store, clock: Clock) -> None:
    for number in range(4):
        store.admin.create_topic(f"u{number}")
        store.admin.delete_topic(f"u{number}")
    clock.now_ms += 2 * DAY_MS
    before = store.read(lambda state, slot: slot)

    _vacuum(store)

    horizon, forgotten = 1, 1
    assert store.read(lambda state, slot: (slot, state.pending_deletions)) == (before + horizon + forgotten, ())


@pytest.mark.usefixtures("files_are_objects")
def test_vacuum_goes_on_after_a_pause_in_which_others_deleted_the_newest_slot_that_it_knew(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = _orphan(store)
    clock.now_ms += 8 * DAY_MS
    known = slot_path(store.read(lambda state, slot: slot))
    deleted_before = [known]
    get = store.object_store.get

    def paused_before(path: str) -> StoredObject:
        if path in deleted_before:
            deleted_before.remove(path)
            _produce(Store(store.object_store, Environment()), 1)
            store.object_store.delete_many([path])
        return get(path)

    monkeypatch.setattr(store.object_store, "get", paused_before)

    assert _vacuum(store).paths == [orphan]
    assert store.object_store.get_many([known]) == [None]


def test_vacuum_names_the_newest_slot_that_is_missing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str) -> StoredObject:
        raise ObjectNotFound(path)

    monkeypatch.setattr(store.object_store, "get", missing)

    with pytest.raises(ObjectNotFound, match="__transaction_state/slot/"):
        _vacuum(store)


def test_old_heartbeats_of_processes_that_are_no_members_are_deleted(store: Store, clock: Clock) -> None:
    with store.consumer("g") as consumer:
        consumer.subscribe("t")
        consumer.poll()
        (member,) = store.admin.describe_consumer_group("g").members
        Heartbeats(store.object_store, "g").put("dead", 6_000)
        Heartbeats(store.object_store, "of no members").put("dead", 6_000)
        clock.now_ms += 10 * DAY_MS
        Heartbeats(store.object_store, "new").put("joining", 6_000)

        before = {info.path for info in store.object_store.list("__consumer_groups/")}
        report = _vacuum(store)
        after = {info.path for info in store.object_store.list("__consumer_groups/")}

    assert {path.rsplit("/", 1)[1] for path in after} == {member.member_id, "joining"}
    assert set(report.paths) == before - after
    assert len(before - after) == 2


def test_a_vacuum_of_everything_keeps_heartbeats_of_processes_that_may_be_alive(store: Store, clock: Clock) -> None:
    Heartbeats(store.object_store, "g").put("joining", 1_800_000)
    clock.now_ms += 1_700_000
    assert not _vacuum(store, staged_max_age_ms=0).paths
    clock.now_ms += 200_000
    assert len(_vacuum(store, staged_max_age_ms=0).paths) == 1
