"""The larger batches of one flush share an object: fewer requests, and every reader and tool still sees the rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import eoslog
from eoslog import Store, TopicConfig, TopicPartition
from eoslog.cli.dump import _batch_line
from eoslog.errors import CorruptRecord, StagedFilesExpired
from eoslog.format.checked_files import read_ranges
from eoslog.format.file_writer import MOST_INLINE_BYTES, MOST_SHARED_BYTES
from eoslog.log.replica import LogConfig
from eoslog.maintenance.sealing import seal_now
from eoslog.state.entry_fields import SHARED_OBJECTS
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.verification.findings import Kind
from tests.unit.session.clock import Clock
from tests.unit.support.transactions import open_transaction

HOUR_MS = 3_600_000
PARTITIONS = 3
ROW_BYTES = 40_000
"""Larger than the limit for files in records."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    store = Store(MemoryStore(clock, clock.new_id(), wall_clock=clock.now_ms), clock)
    store.admin.create_topic("t", partitions=PARTITIONS)
    return store


def again(store: Store, **config: int) -> Store:
    """The same store in a process that knows nothing yet."""
    objects, clock = store.object_store, store.environment
    assert isinstance(clock, Clock)
    name = objects.url.removeprefix("memory://")
    return Store(MemoryStore(clock, name, wall_clock=clock.now_ms), clock, LogConfig(**config))


def send(store: Store, *topics: str, staged: bool = False) -> list[bytes]:
    """Send a row to each partition of the topics in one transaction. Return the rows."""
    rows = []
    with open_transaction(store, "p", staged=staged) as producer:
        for topic in topics or ("t",):
            for number in range(PARTITIONS):
                rows.append(os.urandom(ROW_BYTES))
                producer.send(topic, rows[-1], partition=number)
        producer.commit_transaction()
    return rows


def values(store: Store, topic: str = "t", **options: object) -> list[bytes]:
    found: list[bytes] = store.scan(topic, **options).to_table().column("value").to_pylist()
    return found


def shared_objects(store: Store) -> list[str]:
    return [info.path for info in store.object_store.list(SHARED_OBJECTS)]


def own_files(store: Store, topic: str = "t") -> list[str]:
    names = [info.path for info in store.object_store.list(f"{topic}/")]
    return [name for name in names if name.endswith(".parquet") and not name.endswith(".index.parquet")]


def requests(store: Store, call: Callable[[], object]) -> dict[str, int]:
    """The requests of a call by kind, without kinds that it does not send."""
    before = dict(store.requests)
    call()
    return {kind: count - before[kind] for kind, count in store.requests.items() if count > before[kind]}


def seal(store: Store, topic: str = "t") -> int:
    return len(seal_now(store, [topic]))


def pass_time(store: Store, hours: int) -> None:
    """Let time pass at the store and, by an entry, in the log."""
    assert isinstance(store.environment, Clock)
    store.environment.now += hours * HOUR_MS
    store.admin.create_topic(f"at-{store.environment.now}")


# Requests


@pytest.mark.parametrize("staged", [False, True])
def test_a_flush_over_100_partitions_is_two_requests(staged: bool, store: Store) -> None:
    store.admin.create_topic("wide", partitions=100)
    rows = [os.urandom(100_000) for _ in range(100)]
    with open_transaction(store, "p", staged=staged) as producer:
        producer.send("t", b"so that the transaction has begun")
        producer.flush()
        for number, row in enumerate(rows):
            producer.send("wide", row, partition=number)

        assert requests(store, producer.commit_transaction if staged else producer.flush) == {"PUT": 2}
        if not staged:
            producer.commit_transaction()
    assert sorted(values(again(store), "wide")) == sorted(rows)
    assert not list(store.admin.verify(data=True))


def test_a_flush_of_small_and_large_batches_is_two_requests(store: Store) -> None:
    store.admin.create_topic("wide", partitions=100)
    rows = [os.urandom(20_000 if number % 2 else 50_000) for number in range(100)]
    with store.producer() as producer:
        producer.send("t", b"so that the producer has its id")
        producer.flush()
        for number, row in enumerate(rows):
            producer.send("wide", row, partition=number)

        assert requests(store, producer.flush) == {"PUT": 2}
    files = store.read(lambda state, slot: [b.file for each in state.partitions.values() for b in each.active])
    in_record = [file.length for file in files if file is not None and file.in_record]
    assert len(in_record) > 40
    assert sum(in_record) <= MOST_INLINE_BYTES
    assert sorted(values(again(store), "wide")) == sorted(rows)


def test_one_file_beyond_the_limit_is_an_object_of_its_own(store: Store) -> None:
    small = again(store, shared_limit_bytes=50_000)
    with small.producer() as producer:
        for number, size in enumerate((40_000, 40_000, 60_000)):
            producer.send("t", os.urandom(size), partition=number)

    assert (len(shared_objects(store)), len(own_files(store))) == (1, 1)
    assert len(values(again(store))) == 3


def test_a_file_without_others_is_an_object_of_its_own(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", os.urandom(ROW_BYTES), partition=0)

    assert (len(shared_objects(store)), len(own_files(store))) == (0, 1)


def test_shared_objects_have_a_limited_size(store: Store) -> None:
    row = os.urandom(7 << 20)
    with store.producer() as producer:
        for number in range(PARTITIONS):
            producer.send("t", row, partition=number)

    (info,) = store.object_store.list(SHARED_OBJECTS)
    assert 14 << 20 < info.size <= MOST_SHARED_BYTES
    assert len(own_files(store)) == 1
    assert values(again(store)) == [row] * PARTITIONS


def test_without_a_limit_each_file_is_an_object(store: Store) -> None:
    send(again(store, shared_limit_bytes=0))

    assert (len(shared_objects(store)), len(own_files(store))) == (0, PARTITIONS)


def test_files_of_a_published_topic_share_no_object(store: Store) -> None:
    store.admin.create_topic("u", partitions=PARTITIONS, config=TopicConfig(publish="delta"))
    send(store, "t", "u")

    assert (len(shared_objects(store)), len(own_files(store)), len(own_files(store, "u"))) == (1, 0, PARTITIONS)


def test_a_prepared_transaction_keeps_its_shared_object(store: Store) -> None:
    producer = open_transaction(store, "p", staged=True)
    for number in range(PARTITIONS):
        producer.send("t", os.urandom(ROW_BYTES), partition=number)
        # This one was to travel in the record.
        producer.send("t", b"%d" % number, partition=number)
    prepared = producer.prepare_transaction()
    assert len(shared_objects(store)) == 1
    pass_time(store, 100)

    assert not [path for path in store.admin.vacuum().paths if path.startswith(SHARED_OBJECTS)]
    assert {each.kind for each in store.admin.verify(data=True)} == {Kind.TRANSACTION_PREPARED}
    producer.complete_transaction(prepared)
    assert len(values(again(store))) == 2 * PARTITIONS


def test_rows_keep_their_order_whatever_place_their_files_have(store: Store) -> None:
    large = os.urandom(ROW_BYTES)
    producer = open_transaction(store, "p", staged=True)
    for rows in (["0"], [large, "other"], ["1"], [large, "other"], ["2"]):
        for row in rows:
            value = row if isinstance(row, bytes) else row.encode()
            producer.send("t", os.urandom(ROW_BYTES) if row == "other" else value, partition=int(row == "other"))
        producer.flush()
    producer.complete_transaction(producer.prepare_transaction())

    assert values(again(store), partitions=[0]) == [b"0", large, b"1", large, b"2"]
    assert len(shared_objects(store)) == 3


# Sealing and deletion


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted", "snapshot"])
def test_a_seal_moves_the_rows_to_data_files_of_each_partition(isolation_level: str, store: Store) -> None:
    with store.producer("p") as producer:
        producer.init_transactions()
        for work in range(4):
            producer.begin_transaction()
            for number in range(PARTITIONS):
                producer.send("t", os.urandom(ROW_BYTES), partition=number, headers=[("work", b"%d" % work)])
            producer.flush()
            producer.abort_transaction() if work == 1 else producer.commit_transaction()
    columns = ["partition", "offset", "timestamp", "value", "headers"]
    before = store.scan("t", isolation_level=isolation_level, columns=columns).to_table()

    assert seal(store) == PARTITIONS

    assert again(store).scan("t", isolation_level=isolation_level, columns=columns).to_table().equals(before)
    assert len(own_files(store)) == PARTITIONS
    assert not list(store.admin.verify(data=True))


def test_a_seal_of_many_large_batches_writes_files_of_limited_size(store: Store) -> None:
    rows = [os.urandom(7 << 20) for _ in range(6)]
    store.admin.create_topic("u", partitions=2)
    with store.producer() as producer:
        for row in rows:
            producer.send("u", row, partition=0)
            producer.send("u", os.urandom(ROW_BYTES), partition=1)
            producer.flush()
    assert len(shared_objects(store)) == 6

    assert seal(store, "u") == 2

    assert len(own_files(store, "u")) == 3
    assert max(info.size for info in store.object_store.list("u/")) < 40 << 20
    assert values(again(store), "u", partitions=[0]) == rows
    assert not list(store.admin.verify(data=True))


def test_a_shared_object_stays_while_one_of_its_files_does(store: Store) -> None:
    """The partitions of one topic are sealed, those of another one are not."""
    store.admin.create_topic("u", partitions=PARTITIONS)
    rows = send(store, "t", "u")
    seal(store)
    pass_time(store, 200)

    store.admin.vacuum()
    pass_time(store, 200)
    store.admin.vacuum()

    assert len(shared_objects(store)) == 1
    assert sorted(values(again(store)) + values(again(store), "u")) == sorted(rows)


@pytest.mark.parametrize("how", ["seal", "delete_records", "delete_topic"])
def test_a_shared_object_goes_a_day_after_its_last_file(how: str, store: Store) -> None:
    rows = send(store)
    pass_time(store, 30)
    plan = store.scan("t")
    if how == "seal":
        seal(store)
    elif how == "delete_records":
        store.admin.delete_records({TopicPartition("t", number): -1 for number in range(PARTITIONS)})
    else:
        store.admin.delete_topic("t")

    store.admin.vacuum()
    pass_time(store, 23)
    store.admin.vacuum()
    assert sorted(plan.to_table().column("value").to_pylist()) == sorted(rows)

    pass_time(store, 2)
    store.admin.vacuum()
    assert shared_objects(store) == []
    if how == "seal":
        assert sorted(values(again(store))) == sorted(rows)
    assert not list(store.admin.verify(data=True))


def test_a_shared_object_that_nothing_named_goes_after_a_day(store: Store) -> None:
    producer = open_transaction(store, "dead", staged=True)
    for number in range(PARTITIONS):
        producer.send("t", os.urandom(ROW_BYTES), partition=number)
    producer.flush()
    pass_time(store, 23)
    assert store.admin.vacuum().paths == []

    pass_time(store, 2)
    assert store.admin.vacuum().paths != []

    with pytest.raises(StagedFilesExpired, match="shared objects"):
        producer.commit_transaction()
    assert values(again(store)) == []


def test_rows_of_a_host_that_was_suspended_for_days_are_taken(store: Store) -> None:
    class Suspended(Environment):
        """Its clock of elapsed time does not count the suspension."""

        def monotonic_ms(self) -> int:
            return 0

    suspended, clock = Suspended(), store.environment
    assert isinstance(clock, Clock)
    name = store.url.removeprefix("memory://")
    awake = Store(MemoryStore(suspended, name, wall_clock=clock.now_ms), suspended)
    with awake.producer() as producer:
        for _ in range(2):
            for number in range(PARTITIONS):
                producer.send("t", os.urandom(ROW_BYTES), partition=number)
            producer.flush()
            pass_time(store, 100)

    assert len(values(again(store))) == 2 * PARTITIONS


def test_a_horizon_at_the_newest_time_refuses_no_shared_object(store: Store) -> None:
    store.admin.vacuum(staged_max_age_ms=0)
    assert isinstance(store.environment, Clock)
    store.environment.now += 1

    assert len(send(store)) == len(values(again(store)))


def test_verify_knows_the_objects_that_readers_may_need(store: Store) -> None:
    send(store)
    pass_time(store, 200)
    seal(store)

    assert not list(store.admin.verify())
    pass_time(store, 25)
    assert not list(store.admin.verify())
    store.admin.vacuum()
    assert shared_objects(store) == []


def test_a_dry_run_of_vacuum_names_the_shared_objects_that_it_would_delete(store: Store) -> None:
    send(store)
    seal(store)
    pass_time(store, 2)
    ages = {"staged_max_age_ms": HOUR_MS, "deleted_file_retention_ms": HOUR_MS}

    planned = store.admin.vacuum(dry_run=True, **ages)

    assert shared_objects(store)[0] in planned.paths
    assert store.admin.vacuum(**ages).paths == planned.paths


def test_a_footer_does_not_lead_to_the_next_file_of_a_shared_object(store: Store) -> None:
    send(store)
    (first, second, _) = store.read(lambda state, slot: [each.active[0].file for each in state.partitions.values()])
    assert first is not None
    assert second is not None

    ranges = [(0, first.length + second.length), (first.length + 8, 8)]

    assert [len(part) for part in read_ranges(store.object_store, first, ranges)] == [first.length, 0]


def test_a_log_whose_time_is_ahead_still_takes_shared_objects(store: Store, clock: Clock) -> None:
    pass_time(store, 1_000)
    clock.now -= 1_000 * HOUR_MS

    rows = send(again(store))

    assert sorted(values(again(store))) == sorted(rows)
    assert store.admin.vacuum().paths == []


# Tools


@pytest.mark.parametrize(
    ("damage", "kind", "with_data"),
    [
        (lambda body: None, Kind.DATA_MISSING, False),
        (lambda body: body[:-1], Kind.DATA_DAMAGED, False),
        (lambda body: b"x" + body[1:], Kind.DATA_DAMAGED, True),
        (lambda body: b"x" + body, Kind.DATA_DAMAGED, True),
    ],
)
def test_verify_finds_damage_of_a_shared_object(
    damage: Callable[[bytes], bytes | None], kind: Kind, with_data: bool, store: Store
) -> None:
    send(store)
    (path,) = shared_objects(store)
    body = damage(store.object_store.get(path).body)
    store.object_store.delete_many([path])
    if body is not None:
        store.object_store.put(path, body)

    found = list(again(store).admin.verify(data=with_data))

    assert {(each.kind, each.path) for each in found} == {(kind, path)}
    with pytest.raises(CorruptRecord, match=SHARED_OBJECTS if body is None else "t/"):
        values(again(store))


def test_verify_counts_old_shared_objects_without_a_name(store: Store) -> None:
    store.object_store.put_new([(f"{SHARED_OBJECTS}{0:016d}-{'a' * 32}", b"x"), (f"{SHARED_OBJECTS}mine", b"x")])
    pass_time(store, 200)

    found = {each.path: each.kind for each in store.admin.verify()}

    assert found == {SHARED_OBJECTS: Kind.FILES_UNREFERENCED, f"{SHARED_OBJECTS}mine": Kind.FILES_UNKNOWN}
    store.admin.vacuum()
    assert shared_objects(store) == [f"{SHARED_OBJECTS}mine"]


def test_the_files_of_a_scan_are_objects(store: Store) -> None:
    rows = send(store)

    files = again(store).scan("t").files()

    assert sorted(file.path for file in files) == own_files(store)
    assert not list(store.admin.verify(data=True))
    assert sorted(values(again(store))) == sorted(rows)
    assert store.admin.vacuum(staged_max_age_ms=1, deleted_file_retention_ms=1).paths == []


def test_the_first_publication_has_the_rows_in_files(store: Store) -> None:
    send(store)
    store.admin.alter_topic("t", publish="delta")

    assert store.admin.publish("t")[0].files_added == PARTITIONS
    assert len(own_files(store)) == PARTITIONS


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_copy_has_the_rows_in_files(
    is_sealed: bool, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = send(store)
    producer = open_transaction(store, "prepared", staged=True)
    for number in range(PARTITIONS):
        producer.send("t", os.urandom(ROW_BYTES), partition=number)
    producer.prepare_transaction()
    target = eoslog.connect(tmp_path / "copy", fsync=False)
    if is_sealed:
        # After the plan of the copy, before its files.
        reached = {"store.copy.planned": lambda: seal(store)}
        monkeypatch.setattr(target.environment, "reached", lambda name: reached.get(name, int)())

    store.admin.copy(target)

    copy = eoslog.connect(tmp_path / "copy")
    assert sorted(values(copy)) == sorted(rows)
    assert not (tmp_path / "copy" / SHARED_OBJECTS).exists()
    assert len(list((tmp_path / "copy" / "t").rglob("*.parquet"))) == 2 * PARTITIONS
    # By the real clock of the copy, the transaction of the source has been open for years.
    assert {each.kind for each in copy.admin.verify(data=True)} == {Kind.TRANSACTION_OVERDUE}


def test_dump_log_shows_where_a_file_is(store: Store) -> None:
    send(store)
    partition = store.read(lambda state, slot: next(iter(state.partitions.values())))
    assert partition.id.partition == 0

    line = _batch_line(partition.active[0])

    assert line.fields["shared_object"] == shared_objects(store)[0]
    assert line.fields["position"] == 0
