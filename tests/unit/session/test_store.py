"""What a store is, how it is made, and what a scan of it shows."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest

import eoslog
from eoslog import errors
from eoslog.log.replica import LogConfig
from eoslog.session.description import DESCRIPTION_PATH
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectNotFound, PutOutcome, StoredObject
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, FaultyStore, ManualEnvironment, World


class Crash(BaseException):
    """The process ends here."""


def _interrupt_creation(world: World) -> None:
    """Create a store, and crash between its description and its log."""

    class CrashingEnvironment(ManualEnvironment):
        def reached(self, point: str) -> None:
            if point == "store.create.described":
                raise Crash

    environment = CrashingEnvironment(world)
    crashing = Store(FaultyStore(world, environment), environment)
    with pytest.raises(Crash):
        crashing.create()


@pytest.fixture(params=["memory", "local"])
def empty(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Store:
    """A place without a store."""
    return world.process() if request.param == "memory" else eoslog.connect(str(tmp_path / "store"))


# Making a store


def test_a_new_store_has_an_id_a_format_and_passed_the_probe(empty: Store) -> None:
    made = empty.create()

    assert empty.describe() == made
    assert made.format_version == 1
    assert len(made.store_id) == 32
    assert made.probe.put_if_absent
    assert made.created_ms > 0
    assert empty.read(lambda state, slot: (state.store_id, slot)) == (made.store_id, 0)


def test_a_store_is_made_once(empty: Store) -> None:
    made = empty.create()
    with pytest.raises(errors.StoreAlreadyExists, match=made.store_id):
        empty.create()
    empty.ensure_created()

    assert empty.describe() == made


def test_the_first_topic_makes_the_store(empty: Store) -> None:
    empty.admin.create_topic("t")
    assert empty.admin.list_topics() == ["t"]


def test_the_first_topic_lists_the_place_once_and_the_new_log_once(world: World) -> None:
    store = world.process()
    store.admin.create_topic("t")
    assert store.requests["LIST"] == 2


def test_a_crash_between_the_description_and_the_log_is_gone_on_from(world: World) -> None:
    _interrupt_creation(world)
    after = world.process()
    assert [info.path for info in after.object_store.list("")] == [DESCRIPTION_PATH]
    described = after.describe()

    after.admin.create_topic("t")

    assert world.process().read(lambda state, slot: state.store_id) == described.store_id


@pytest.mark.parametrize("lands", [True, False])
def test_a_creation_without_an_answer_is_repeated(world: World, lands: bool) -> None:
    store = world.process()
    assert isinstance(store.object_store, FaultyStore)
    store.object_store.lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        store.create()
    store.object_store.heal()

    store.ensure_created()

    assert world.process().read(lambda state, slot: (state.store_id, slot)) == (store.describe().store_id, 0)


def test_a_creation_in_conflict_with_a_put_that_fails_goes_on(world: World) -> None:
    """S3 answers 409 while another put of the key is under way. That put may fail then."""
    store = world.process()
    put_if_absent = store.object_store.put_if_absent
    conflicts = iter([PutOutcome.CONFLICT] * 2)

    def conflict(path: str, body: bytes) -> PutOutcome:
        found = next(conflicts, None) if path == DESCRIPTION_PATH else None
        return put_if_absent(path, body) if found is None else found

    store.object_store.put_if_absent = conflict  # type: ignore[method-assign]

    store.admin.create_topic("t")

    assert world.process().admin.list_topics() == ["t"]


@pytest.mark.parametrize("attempt", range(5))
def test_processes_that_make_a_store_at_once_make_one(world: World, attempt: int) -> None:
    stores = [world.process() for _ in range(4)]
    start = Barrier(len(stores))

    def make(number: int) -> str:
        start.wait()
        stores[number].admin.create_topic(f"t{number}")
        return stores[number].describe().store_id

    with ThreadPoolExecutor(len(stores)) as threads:
        ids = set(threads.map(make, range(len(stores))))

    assert len(ids) == 1
    assert world.process().admin.list_topics() == ["t0", "t1", "t2", "t3"]


def test_a_process_that_meets_another_ones_probe_or_description_joins_in(world: World) -> None:
    first, second = world.process(), world.process()
    get = second.object_store.get
    reads = iter([ObjectNotFound(DESCRIPTION_PATH)])

    def before_the_other_wrote(path: str) -> StoredObject:
        for error in reads:
            raise error
        return get(path)

    second.object_store.get = before_the_other_wrote  # type: ignore[method-assign]
    made = first.create()
    first.admin.create_topic("t")

    with pytest.raises(errors.StoreAlreadyExists):
        second.create()
    assert second.describe() == made


def test_a_place_that_holds_something_else_is_left_alone(empty: Store) -> None:
    empty.object_store.put("somebody/elses.csv", b"1,2")
    for call in (empty.create, empty.ensure_created, lambda: empty.admin.create_topic("t")):
        with pytest.raises(errors.NotAStore, match="empty"):
            call()
    assert [info.path for info in empty.object_store.list("")] == ["somebody/elses.csv"]


def test_a_place_without_a_store_says_so(empty: Store) -> None:
    for call in (
        empty.describe,
        empty.admin.list_topics,
        lambda: empty.scan("t"),
        empty.producer("tx").init_transactions,
        lambda: empty.consumer("g").subscribe("t"),
    ):
        with pytest.raises(errors.NotAStore):
            call()


def test_a_store_without_put_if_absent_is_refused(world: World) -> None:
    class Careless(FaultyStore):
        def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
            self.put(path, body)
            return PutOutcome.CREATED

    environment = ManualEnvironment(world)
    with pytest.raises(errors.PutIfAbsentUnsupported):
        Store(Careless(world, environment), environment).create()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"format_version": 2}, errors.UnsupportedFormat),
        ({"reader_features": ["from the future"]}, errors.UnsupportedFormat),
        ({"writer_features": ["from the future"]}, errors.UnsupportedFormat),
        ({"format_version": "x"}, errors.CorruptRecord),
        ({"store_id": "short"}, errors.CorruptRecord),
        ({"created_ms": -1}, errors.CorruptRecord),
        ({"probe": None}, errors.CorruptRecord),
    ],
)
def test_a_description_that_is_newer_or_damaged_is_refused(
    empty: Store, change: dict[str, object], error: type[Exception]
) -> None:
    empty.create()
    body = json.loads(empty.object_store.get(DESCRIPTION_PATH).body) | change
    empty.object_store.put(DESCRIPTION_PATH, json.dumps(body).encode())
    fresh = Store(empty.object_store, empty.environment)

    for call in (fresh.describe, fresh.create, fresh.ensure_created, fresh.admin.list_topics):
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"store_id": 1}'])
def test_a_description_that_is_none_is_corrupt(empty: Store, body: bytes) -> None:
    empty.object_store.put(DESCRIPTION_PATH, body)
    with pytest.raises(errors.CorruptRecord, match=r"eoslog\.json"):
        empty.describe()


def test_a_path_object_names_a_place_as_its_text_does(tmp_path: Path) -> None:
    assert eoslog.connect(tmp_path / "store").url == eoslog.connect(str(tmp_path / "store")).url


def test_unknown_schemes_and_options_are_refused() -> None:
    with pytest.raises(errors.InvalidOption):
        eoslog.connect("gopher://place")
    with pytest.raises(errors.InvalidOption):
        eoslog.connect("memory://name", colour="blue")


# Scanning


@pytest.fixture
def scanned(store: Store) -> Store:
    """``t-0`` holds a committed transaction, an aborted one, an open one, and what an idempotent producer sent."""
    for transactional_id, outcome in (("c", "commit"), ("a", "abort"), ("o", "")):
        producer = open_transaction(store, transactional_id)
        producer.send("t", b"%s0" % transactional_id.encode(), partition=0)
        producer.send("t", b"%s1" % transactional_id.encode(), partition=0)
        producer.flush()
        {"commit": producer.commit_transaction, "abort": producer.abort_transaction}.get(outcome, lambda: None)()
    with store.producer() as idempotent:
        idempotent.send("t", b"i", partition=0)
    return store


@pytest.mark.parametrize(
    ("isolation_level", "expected"),
    [
        ("read_committed", [(0, b"c0"), (1, b"c1")]),
        ("snapshot", [(0, b"c0"), (1, b"c1"), (8, b"i")]),
        ("READ_COMMITTED", [(0, b"c0"), (1, b"c1")]),  # as Kafka's enumeration spells it
        (
            "read_uncommitted",
            [(0, b"c0"), (1, b"c1"), (3, b"a0"), (4, b"a1"), (6, b"o0"), (7, b"o1"), (8, b"i")],
        ),
    ],
)
def test_each_isolation_level_shows_its_rows_at_their_offsets(
    scanned: Store, isolation_level: str, expected: list[tuple[int, bytes]]
) -> None:
    scan = scanned.scan("t", isolation_level=isolation_level, partitions=[0])
    table = scan.to_table()

    assert list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)) == expected
    assert scan.record_count == len(expected)
    assert scan.to_table() == table


def test_a_snapshot_of_a_slot_that_is_not_there_is_refused(store: Store) -> None:
    newest = store.read(lambda state, slot: slot)

    for slot in (-1, newest + 1):
        with pytest.raises(errors.InvalidOption, match=f"slot {slot} is not there: the log holds slots 0 to {newest}"):
            store.scan("t", isolation_level="snapshot", slot=slot)


def test_offsets_bound_a_scan_within_files(scanned: Store) -> None:
    def offsets(**bounds: dict[int, int]) -> list[int]:
        scan = scanned.scan("t", isolation_level="read_uncommitted", **bounds)  # type: ignore[arg-type]
        return scan.to_table()["offset"].to_pylist()

    assert offsets(starting_offsets={0: 1}, ending_offsets={0: 4}) == [1, 3]
    assert offsets(starting_offsets={0: 9}) == []
    assert offsets(ending_offsets={0: 1_000_000})[-1] == 8
    for start in (-1, 10):
        with pytest.raises(errors.OffsetOutOfRange):
            offsets(starting_offsets={0: start})


def test_columns_are_chosen_by_name_in_the_order_given(store: Store) -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    store.admin.create_topic("rows", schema=schema)
    with store.producer() as producer:
        producer.send_table("rows", pa.table({"a": [1, 2], "b": ["x", "y"]}, schema=schema))

    chosen = store.scan("rows", columns=["_offset", "b"]).to_table()

    assert chosen.to_pydict() == {"_offset": [0, 1], "b": ["x", "y"]}
    assert store.scan("rows", columns=["_partition"]).to_table().to_pydict() == {"_partition": [0, 0]}
    assert store.scan("rows").schema == schema
    with pytest.raises(errors.InvalidOption, match="a, b"):
        store.scan("rows", columns=["c"])


@pytest.mark.usefixtures("files_are_objects")
def test_a_missing_or_changed_data_file_is_corrupt(scanned: Store) -> None:
    scan = scanned.scan("t")
    path = scan.planned_files()[0].path
    body = scanned.object_store.get(path).body
    for damaged in (body[:-1], body[:-1] + b"\x00", b""):
        scanned.object_store.put(path, damaged)
        with pytest.raises(errors.CorruptRecord, match=path):
            scan.to_table()
    scanned.object_store.delete([path])
    with pytest.raises(errors.CorruptRecord, match="missing"):
        scan.to_table()


def test_local_and_memory_stores_hold_the_same(empty: Store) -> None:
    empty.admin.create_topic("t")
    with open_transaction(empty, "tx") as producer:
        producer.send("t", b"v", key=b"k")
        producer.commit_transaction()
    consumer = empty.consumer("g", auto_offset_reset="earliest")
    consumer.subscribe("t")

    (record,) = consumer.poll(timeout=10)
    consumer.commit()
    consumer.close()

    assert (record.key, record.value) == (b"k", b"v")
    assert empty.scan("t").to_table()["value"].to_pylist() == [b"v"]


def test_a_stores_representation_names_its_place_only(tmp_path: Path) -> None:
    assert repr(eoslog.connect("memory://here")) == "Store('memory://here')"
    secret = eoslog.connect("s3://bucket/prefix", key="AKIA", secret="hush")
    assert "hush" not in repr(secret)
    assert "AKIA" not in repr(secret)


def test_the_grace_of_slots_is_the_stores_and_not_the_process(
    memory_store: MemoryStore, environment: Environment
) -> None:
    maker = Store(memory_store, environment, LogConfig(slot_retention_ms=5_000))
    maker.admin.create_topic("t")

    other = Store(memory_store, environment, LogConfig(slot_retention_ms=1))
    other.admin.list_topics()

    assert other.describe().slot_retention_ms == 5_000
    assert other.log.config.slot_retention_ms == other.log.replica.config.slot_retention_ms == 5_000


def test_a_caller_that_creates_no_store_leaves_the_place_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "mistyped"
    store = eoslog.connect(place, create=False)

    for call in (lambda: store.admin.create_topic("t"), store.create):
        with pytest.raises(
            errors.NotAStore, match=r"there is no eoslog store at .*mistyped, and this caller creates none"
        ):
            call()

    assert not place.exists()
    assert not store.is_new


def test_a_caller_that_creates_no_store_uses_one_that_is_there(tmp_path: Path) -> None:
    creator = eoslog.connect(tmp_path / "store")
    creator.admin.create_topic("t")
    store = eoslog.connect(tmp_path / "store", create=False)

    store.admin.create_topic("u")

    assert store.admin.list_topics() == ["t", "u"]
    assert (creator.is_new, store.is_new) == (True, False)


def test_a_creation_that_was_interrupted_is_not_continued_by_a_caller_that_creates_none(world: World) -> None:
    _interrupt_creation(world)
    process = world.process()
    store = Store(process.object_store, process.environment, may_create=False)

    with pytest.raises(errors.NotAStore, match="this caller creates none"):
        store.admin.create_topic("t")
