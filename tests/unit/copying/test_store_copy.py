"""A copy has the state and the rows of one slot. It refuses what it must not replace, and damaged sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import eoslog
from eoslog import Store, TopicPartition
from eoslog.copying import file_copy, store_copy
from eoslog.errors import (
    CorruptRecord,
    InvalidRequest,
    NotAStore,
    PutIfAbsentUnsupported,
    StoreAlreadyExists,
    StoreUnavailable,
)
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.entry_fields import FileReference
from eoslog.state.store_state import StoreState
from eoslog.state.topics import topic_named
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectStore, PutOutcome
from eoslog.verification.findings import Kind
from tests.depth import sweep
from tests.unit.copying.copies import Place, busy_store, check_copy, rewrite_everything, state_of
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World
from tests.unit.verification.histories import small_history

DAMAGES = ("changed", "cut", "longer", "missing")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def source(world: World) -> Store:
    return busy_store(world)


@pytest.fixture
def place(world: World) -> Place:
    return Place(world)


def is_store(place: Place) -> bool:
    try:
        place.process().describe()
    except NotAStore:
        return False
    return True


def test_a_copy_has_the_state_and_the_rows_of_the_newest_slot(source: Store, place: Place) -> None:
    state, slot = state_of(source)

    report = source.admin.copy(place.process())

    check_copy(place.process(), state, slot, source)
    assert (report.slot, report.store_id, report.was_complete) == (slot, source.describe().store_id, False)
    assert [each.kind for each in report.findings] == [Kind.TRANSACTION_PREPARED]
    assert report.files == sum(
        path.endswith((".parquet", ".txnindex", ".snapshot"))
        for path in (info.path for info in place.process().object_store.list(""))
    )


def test_a_copy_continues_as_the_source_would(source: Store, place: Place, world: World) -> None:
    source.admin.copy(place.process())
    target = place.process()

    etl = open_transaction(target, "etl")
    etl.send("t", b"further", partition=0)
    etl.commit_transaction()
    consumer = target.consumer("g", auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])
    world.pass_time(3_600_000)
    aborted = [each.transactional_id for each in target.admin.list_transactions() if each.transactional_id == "waiting"]
    reports = list(Coordinator(target).run_once())

    assert consumer.committed([TopicPartition("t", 0)]) == source.consumer("g").committed([TopicPartition("t", 0)])
    assert aborted == ["waiting"]
    assert all(report.error is None for report in reports)
    assert "waiting" not in target.read(lambda state, slot: state.ongoing)
    assert b"further" in target.scan("t").to_table().column("value").to_pylist()
    assert not [each for each in target.admin.verify(data=True) if each.severity.value == "error"]


def test_an_empty_store_is_copied(place: Place, world: World) -> None:
    source = world.process()
    source.create()

    source.admin.copy(place.process())

    check_copy(place.process(), *state_of(source))


def test_a_copy_is_copied_again(source: Store, place: Place, world: World) -> None:
    source.admin.copy(place.process())
    second = Place(world)

    place.process().admin.copy(second.process())

    check_copy(second.process(), *state_of(place.process()))


def test_if_the_source_deletes_files_meanwhile_a_newer_slot_is_copied(
    source: Store, place: Place, world: World
) -> None:
    _, slot = state_of(source)
    points = []

    def meanwhile(point: str) -> None:
        points.append(point)
        if points.count("store.copy.file_put") == 1 and point == "store.copy.file_put":
            rewrite_everything(world.process(), world)

    report = source.admin.copy(place.hooked(meanwhile))

    assert points.count("store.copy.planned") == 2
    assert report.slot > slot
    check_copy(place.process(), *state_of(source), source)


def test_if_the_source_deletes_a_topic_meanwhile_a_newer_slot_is_copied(
    source: Store, place: Place, world: World
) -> None:
    points = []

    def meanwhile(point: str) -> None:
        points.append(point)
        if points.count("store.copy.planned") == 1 and point == "store.copy.planned":
            writer = world.process()
            writer.admin.delete_topic("k")
            world.pass_time(1_000)
            writer.producer().send("t", b"after", partition=0)
            writer.admin.create_topic("k")
            world.pass_time(1_000)
            writer.admin.vacuum(staged_max_age_ms=0, deleted_file_retention_ms=0)

    source.admin.copy(place.hooked(meanwhile))

    assert points.count("store.copy.planned") == 2
    check_copy(place.process(), *state_of(source), source)


@pytest.mark.usefixtures("files_are_objects")
def test_a_source_that_deletes_files_too_fast_is_no_endless_copy(
    source: Store, place: Place, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copy, "_MOST_PLANS", 3)

    def meanwhile(point: str) -> None:
        if point == "store.copy.planned":
            rewrite_everything(world.process(), world)

    with pytest.raises(StoreUnavailable, match="deleted_file_retention_ms"):
        source.admin.copy(place.hooked(meanwhile))

    assert not is_store(place)
    source.admin.copy(place.process())
    check_copy(place.process(), *state_of(source), source)


@pytest.mark.usefixtures("files_are_objects")
def test_a_source_that_stops_deleting_files_in_time_is_copied(
    source: Store, place: Place, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copy, "_MOST_PLANS", 3)
    plans = []

    def meanwhile(point: str) -> None:
        if point == "store.copy.planned":
            plans.append(point)
            if len(plans) < 3:
                rewrite_everything(world.process(), world)

    source.admin.copy(place.hooked(meanwhile))

    assert len(plans) == 3
    check_copy(place.process(), *state_of(source), source)


def test_a_slot_whose_files_are_still_there_is_copied_while_the_source_goes_on(
    source: Store, place: Place, world: World
) -> None:
    state, slot = state_of(source)
    expected = source.scan("t", isolation_level="snapshot", slot=slot).to_table()

    def meanwhile(point: str) -> None:
        writer = world.process()
        writer.producer().send("t", b"later", partition=0)
        writer.admin.compact_files("t", now=True)
        Coordinator(writer).run_once()

    source.admin.copy(place.hooked(lambda point: meanwhile(point) if point == "store.copy.planned" else None))

    check_copy(place.process(), state, slot)
    assert place.process().scan("t", isolation_level="snapshot").to_table().equals(expected)


def test_a_complete_copy_says_so_and_another_store_is_refused(source: Store, place: Place, world: World) -> None:
    first = source.admin.copy(place.process())
    source.producer().send("t", b"more", partition=0)

    again = source.admin.copy(place.process())

    assert again.was_complete
    assert (again.slot, again.files) == (first.slot, 0)
    with pytest.raises(StoreAlreadyExists, match="its id is"):
        source.admin.copy(place.process(), new_identity=True)
    other = World()
    small_history(other.process())
    with pytest.raises(StoreAlreadyExists, match="Choose an empty URL"):
        source.admin.copy(other.process())
    with pytest.raises(StoreAlreadyExists, match="Choose an empty URL"):
        other.process().admin.copy(place.process())


def test_a_copy_that_is_older_than_the_source_is_none_of_it(source: Store, place: Place, world: World) -> None:
    """Both have one identity, because both are copies of one store."""
    old, new = place, Place(world)
    source.admin.copy(old.process())
    source.producer().send("t", b"more", partition=0)
    source.admin.copy(new.process())

    with pytest.raises(StoreAlreadyExists, match="no copy of"):
        new.process().admin.copy(old.process())


def test_a_copy_is_no_copy_of_itself(source: Store, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another endpoint of S3 may lead to the same objects."""
    source.admin.copy(place.process())
    monkeypatch.setattr(MemoryStore, "holds", lambda self, other: False)

    with pytest.raises(StoreAlreadyExists, match="no copy of"):
        place.process().admin.copy(place.process())


def test_a_place_with_other_objects_is_refused(source: Store, place: Place) -> None:
    place.process().object_store.put("notes.txt", b"mine")

    with pytest.raises(NotAStore, match="belong to no store"):
        source.admin.copy(place.process())

    assert [info.path for info in place.process().object_store.list("")] == ["notes.txt"]


@pytest.mark.parametrize("path", ["", "backup", "t/backup"])
def test_a_target_in_the_source_is_refused(path: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    source = Store(LocalStore(root, Environment(), fsync=False), Environment())
    source.create()
    (tmp_path / "link").symlink_to(root)

    for target in (root / path, tmp_path / "link" / path):
        with pytest.raises(InvalidRequest, match="lies in the source"):
            source.admin.copy(eoslog.connect(target))


def test_a_sibling_whose_name_begins_alike_is_no_target_in_the_source(tmp_path: Path) -> None:
    source = eoslog.connect(tmp_path / "store")
    source.create()

    assert source.admin.copy(eoslog.connect(tmp_path / "store2")).slot == 0


def test_a_target_that_is_no_store_is_refused(source: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"as eoslog\.connect"):
        source.admin.copy(str(tmp_path))  # type: ignore[arg-type]


def test_there_is_nothing_to_copy_where_no_store_is(place: Place, world: World) -> None:
    with pytest.raises(NotAStore):
        world.process().admin.copy(place.process())

    assert list(place.process().object_store.list("")) == []


def test_a_target_without_put_if_absent_is_refused(source: Store) -> None:
    class Careless(MemoryStore):
        def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
            super().put(path, body)
            return PutOutcome.CREATED

    with pytest.raises(PutIfAbsentUnsupported):
        source.admin.copy(Store(Careless(Environment()), Environment()))


def files_of(store: Store, suffix: str) -> list[str]:
    found = (info.path for info in store.object_store.list("t/"))
    return [path for path in found if path.endswith(suffix) and (suffix == ".index.parquet") == ("index" in path)]


@pytest.mark.parametrize(
    ("suffix", "damage"),
    sweep(
        [(suffix, damage) for suffix in (".parquet", ".index.parquet") for damage in DAMAGES],
        quick=[(".parquet", "changed"), (".parquet", "missing"), (".index.parquet", "missing")],
    ),
)
def test_a_damaged_file_of_the_source_is_refused_until_it_is_back(
    source: Store, place: Place, suffix: str, damage: str
) -> None:
    objects = source.object_store
    path = files_of(source, suffix)[0]
    body = objects.get(path).body
    damaged = {"changed": body[:-20] + bytes(20), "cut": body[:-1], "longer": body + b"x", "missing": None}[damage]
    objects.delete([path])
    if damaged is not None:
        objects.put(path, damaged)

    with pytest.raises(CorruptRecord, match=f"{path}.*eoslog verify"):
        source.admin.copy(place.process())

    assert not is_store(place)
    objects.put(path, body)
    assert source.admin.copy(place.process()).files_reused > 0
    check_copy(place.process(), *state_of(source), source)


def test_files_for_tools_of_kafka_may_be_missing(source: Store, place: Place) -> None:
    lost = files_of(source, ".snapshot")[0]
    source.object_store.delete([lost])

    report = source.admin.copy(place.process())

    assert [each.path for each in report.findings if each.kind is Kind.SNAPSHOT_MISSING] == [lost]
    assert place.process().scan("t").to_table().equals(source.scan("t").to_table())


ELSEWHERE = ["eoslog.json", "__transaction_state/slot/9999999999/00000000000000000000.json", "k/x"]


@pytest.mark.parametrize("path", ELSEWHERE)
@pytest.mark.parametrize("named", ["by a batch", "by a prepared transaction"])
def test_a_state_that_names_a_file_elsewhere_is_refused(source: Store, place: Place, path: str, named: str) -> None:
    def forge(state: StoreState, slot: int) -> None:
        if named == "by a batch":
            partition = state.partitions[topic_named(state, "t").partition_ids()[1]]
            at = next(number for number, batch in enumerate(partition.active) if batch.file is not None)
            partition.active[at] = partition.active[at]._replace(file=elsewhere(partition.active[at].file))
            return
        transaction = state.transactions["prepared"]
        assert transaction.prepared is not None
        batches = tuple(each.model_copy(update={"file": elsewhere(each.file)}) for each in transaction.prepared.batches)
        prepared = transaction.prepared.model_copy(update={"batches": batches})
        state.transactions["prepared"] = replace(transaction, prepared=prepared)

    def elsewhere(file: FileReference | None) -> FileReference:
        assert file is not None
        return file.model_copy(update={"path": path})

    source.read(forge)

    with pytest.raises(CorruptRecord, match="lies outside partition t-"):
        source.admin.copy(place.process())

    assert not is_store(place)
    assert not [info for info in place.process().object_store.list("") if info.path == path]


def test_a_source_with_an_invalid_record_is_refused(source: Store, place: Place) -> None:
    source.log.replica.invalid = "slot 3 holds an invalid record: no such topic"

    with pytest.raises(CorruptRecord, match="invalid record"):
        source.admin.copy(place.process())

    assert not is_store(place)


def test_an_unsound_copy_is_no_store(source: Store, place: Place) -> None:
    def lose(point: str) -> None:
        if point == "store.copy.files_copied":
            objects = place.process().object_store
            objects.delete([info.path for info in objects.list("t/") if info.path.endswith(".parquet")][:1])

    with pytest.raises(CorruptRecord, match="the copy has 1 errors"):
        source.admin.copy(place.hooked(lose))

    assert not is_store(place)


def test_the_clock_of_the_target_may_be_behind_the_horizon_of_the_source(source: Store, world: World) -> None:
    world.pass_time(1_000_000)
    source.admin.vacuum(staged_max_age_ms=0)
    late = MemoryStore(Environment(), wall_clock=lambda: 1_600_000_000_000)

    source.admin.copy(Store(late, Environment()))

    state, slot = state_of(source)
    check_copy(Store(late, Environment()), state, slot, source)


def counted(store: ObjectStore) -> dict[str, int]:
    return dict(store.requests)


def test_each_file_costs_one_get_and_one_put(world: World) -> None:
    source = world.process()
    source.admin.create_topic("t")
    producer = source.producer()
    costs = []
    for _ in range(2):
        for number in range(20):
            producer.send("t", b"%d" % number)
            producer.flush()
        target = Place(world).process()
        before = counted(source.object_store)
        source.admin.copy(target)
        gets = source.object_store.requests["GET"] - before["GET"]
        costs.append((gets, target.object_store.requests["PUT"]))

    assert costs[1][0] - costs[0][0] == 20
    assert costs[1][1] - costs[0][1] == 20


def test_a_first_copy_lists_each_partition_once(world: World) -> None:
    source = world.process()
    source.admin.create_topic("t", partitions=20)
    for partition in range(20):
        source.producer().send("t", b"x", partition=partition)
    target = Place(world).process()

    source.admin.copy(target)

    # The verification lists the partitions. The rest does not depend on their number.
    assert target.object_store.requests["LIST"] <= 20 + 15


def test_memory_holds_a_limited_number_of_bytes(
    source: Store, place: Place, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [len(source.object_store.get(info.path).body) for info in source.object_store.list("t/")]
    limit = 3 * max(sizes)
    monkeypatch.setattr(file_copy, "MOST_BYTES", limit)
    groups: list[int] = []
    real = file_copy.FileCopy._copy_group

    def counted_group(copy: file_copy.FileCopy, threads: object, group: list[file_copy._Item]) -> list[bytes]:
        groups.append(sum(item.file.length for item in group))
        return real(copy, threads, group)  # type: ignore[arg-type]

    monkeypatch.setattr(file_copy.FileCopy, "_copy_group", counted_group)

    source.admin.copy(place.process())

    assert len(groups) > 4
    assert max(groups) <= limit


def test_a_large_file_is_read_in_parts(source: Store, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_copy, "_PART_BYTES", 100)
    asked: list[int] = []
    real = type(source.object_store).get_range
    monkeypatch.setattr(
        type(source.object_store),
        "get_range",
        lambda store, path, start, length: asked.append(length) or real(store, path, start, length),
    )

    source.admin.copy(place.process())

    assert max(asked) == 100
    check_copy(place.process(), *state_of(source), source)


def test_a_length_that_no_file_has_is_not_read_in_parts(
    source: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of a hostile source may name any length below 2**53."""
    asked: list[int] = []

    def counted(store: ObjectStore, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        asked.append(len(ranges))
        return real(store, path, ranges)

    real = ObjectStore.get_ranges
    monkeypatch.setattr(ObjectStore, "get_ranges", counted)
    file = FileReference(path="eoslog.json", length=1 << 36, crc32c=0)

    assert file_copy._read(source.object_store, file) is None
    assert set(asked) == {1}


def test_a_newer_decision_is_refused(source: Store, place: Place) -> None:
    source_id = source.describe().store_id
    newer = f'{{"format": 2, "type": "begun", "source_store_id": "{source_id}"}}'
    place.process().object_store.put(".copy/0000.json", newer.encode())

    with pytest.raises(eoslog.errors.UnsupportedFormat, match="format version 2"):
        source.admin.copy(place.process())


@pytest.mark.parametrize("body", [b"", b"{}", b'{"type": "planned"}', b'{"type": "completed"}', b"\xff"])
def test_a_malformed_decision_is_refused(source: Store, place: Place, body: bytes) -> None:
    place.process().object_store.put(".copy/0000.json", body)

    with pytest.raises(CorruptRecord, match="0000"):
        source.admin.copy(place.process())


def test_the_source_is_only_read_as_a_reader_may(
    source: Store, place: Place, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = world.process()
    listed: list[str] = []
    real = reader.object_store.list
    monkeypatch.setattr(
        reader.object_store, "list", lambda prefix, **options: listed.append(prefix) or real(prefix, **options)
    )
    before = counted(reader.object_store)

    reader.admin.copy(place.process())

    assert set(listed) <= {"__transaction_state/slot/"}
    after = counted(reader.object_store)
    assert (after["PUT"], after["DELETE"]) == (before["PUT"], before["DELETE"])
