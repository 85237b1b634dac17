"""The history of a store: each commit and each change of a topic once, the newest first, with its numbers."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog import (
    InvalidOption,
    Operation,
    Store,
    StoreUnavailable,
    TopicConfig,
    TopicPartition,
    UnknownTopicOrPartition,
)
from eoslog.log.replica import LogConfig
from eoslog.log.slot_deletion import delete_old_slots
from eoslog.log.slots import SlotRecord, decode_line, encode_line, first_line, slot_path
from eoslog.maintenance.sealing import seal_segments
from tests.depth import examples
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World, faulty

TOPICS = ("a", "b")
DAY_MS = 24 * 3600 * 1000


def new_store(world: World, **config: Any) -> Store:
    store = world.process(LogConfig(**config))
    for topic in TOPICS:
        store.admin.create_topic(topic, partitions=2, config=TopicConfig(segment_batches=3))
    return store


@pytest.fixture
def store(world: World) -> Store:
    return new_store(world)


def write(store: Store, *topics: str, name: str = "etl", **options: Any) -> int:
    """One transaction with a row for each topic. Returns its slot."""
    with open_transaction(store, name, **options) as producer:
        for topic in topics:
            producer.send(topic, b"x", partition=0)
        producer.commit_transaction()
        return store.read(lambda state, slot: slot)


def words(store: Store, topic: str | None = None) -> list[str]:
    return [each.operation for each in store.history(topic)]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("staged", [False, True])
def test_a_commit_tells_who_wrote_how_much_and_when(store: Store, world: World, staged: bool) -> None:
    with open_transaction(store, "etl", staged=staged) as producer:
        identity = (producer.producer_id, producer.producer_epoch)
        for number in range(5):
            producer.send("a", b"%d" % number, partition=number % 2)
        producer.flush()
        producer.send("a", b"more", partition=0)
        world.pass_time(250)
        producer.commit_transaction(version=7)
        slot = store.read(lambda state, newest: newest)

    (commit,) = store.history("a", limit=1)

    assert (commit.slot, commit.timestamp) == (slot, world.time_ms)
    assert (commit.operation, commit.outcome, commit.reason, commit.topics) == ("append", "commit", "client", ("a",))
    assert (commit.transactional_id, commit.producer_id, commit.producer_epoch) == ("etl", *identity)
    assert (commit.rows, commit.files, commit.duration_ms) == (6, 3, 250)
    assert commit.bytes == sum(info.size for info in store.object_store.list("a/") if info.path.endswith(".parquet"))
    assert (commit.application_id, commit.version) == ("etl", 7)
    assert commit.task_count is commit.query_id is None


@pytest.mark.parametrize("staged", [False, True])
def test_of_a_transaction_over_several_topics_each_has_its_own_numbers(store: Store, staged: bool) -> None:
    write(store, "a", "b", "b", staged=staged)

    (whole,), (of_a,), (of_b,) = (list(store.history(topic, limit=1)) for topic in (None, "a", "b"))

    assert whole.topics == of_a.topics == of_b.topics == ("a", "b")
    assert (whole.rows, of_a.rows, of_b.rows) == (3, 1, 2)
    assert whole.bytes == (of_a.bytes or 0) + (of_b.bytes or 0)


def test_a_commit_tells_nothing_of_topics_that_were_deleted_before_it(store: Store) -> None:
    producer = open_transaction(store, "tx")
    for topic, value in (("a", b"1"), ("b", b"2"), ("b", b"3")):
        producer.send(topic, value, partition=0)
    producer.flush()
    store.admin.delete_topic("b")
    producer.commit_transaction()

    (commit,) = [each for each in store.history() if each.outcome == "commit"]
    assert (commit.topics, commit.rows, commit.files) == (("a",), 1, 1)


def test_rows_without_a_transaction_are_a_commit_of_their_producer(store: Store) -> None:
    with store.producer() as producer:
        producer.send("a", b"1", partition=0)
        producer.send("a", b"2", partition=1)
        producer.flush()
        producer_id = producer.producer_id

    (commit,) = store.history("a", limit=1)

    assert (commit.operation, commit.rows, commit.files) == ("append", 2, 2)
    assert (commit.transactional_id, commit.producer_id) == (None, producer_id)


def test_a_prepared_transaction_has_the_numbers_of_its_prepare(store: Store) -> None:
    producer = open_transaction(store, "etl")
    producer.send("a", b"x")
    named = producer.prepare_transaction()
    later = store.producer("etl")
    later.init_transactions(keep_prepared=True)
    assert words(store, "a") == ["create_topic"]

    later.complete_transaction(named)

    (commit,) = store.history("a", limit=1)
    assert (commit.operation, commit.rows, commit.files) == ("append", 1, 1)


def test_aborts_are_told_on_request_with_who_did_it(store: Store, world: World) -> None:
    for reason in ("client", "admin", "timeout", "fence"):
        producer = open_transaction(store, reason, transaction_timeout_ms=1000)
        producer.send("a", b"x")
        producer.flush()
        match reason:
            case "client":
                producer.abort_transaction()
            case "admin":
                store.admin.abort_transaction(reason)
            case "timeout":
                world.pass_time(2000)
                store.producer("other").init_transactions()
            case "fence":
                store.producer(reason).init_transactions()

    assert words(store, "a") == ["create_topic"]
    *aborts, _ = store.history("a", include_aborts=True)
    assert [(each.operation, each.outcome, each.reason, each.transactional_id, each.rows) for each in aborts] == [
        ("abort", "abort", reason, reason, None) for reason in ("fence", "timeout", "admin", "client")
    ]


def test_a_commit_of_offsets_alone_touches_no_topic(store: Store) -> None:
    with open_transaction(store, "etl") as producer:
        producer.send_offsets_to_transaction({TopicPartition("a", 0): 0}, "g")
        producer.commit_transaction()

    (commit,) = store.history(limit=1)

    assert (commit.operation, commit.topics, commit.rows, commit.parameters) == ("commit", (), 0, {"groups": ["g"]})
    assert words(store, "a") == ["create_topic"]


def test_the_history_has_every_change_of_a_topic(store: Store, world: World) -> None:
    for _ in range(8):
        write(store, "a")
    store.admin.alter_topic("a", retention_ms=1000)
    store.admin.alter_topic("a", retention_ms=None)
    store.admin.create_partitions("a", 3)
    assert seal_segments(store)
    assert store.admin.delete_records({TopicPartition("a", 0): 2}) == {TopicPartition("a", 0): 2}
    before = [each for each in store.history("a") if each.operation != "append"]
    store.admin.delete_topic("a")
    after = list(store.history(limit=1))

    assert [(each.operation, each.parameters) for each in before] == [
        ("delete_records", {"offsets": {"0": 2}}),
        ("create_partitions", {"partitions": 3}),
        ("topic_config", {"config": {"retention_ms": -1}}),
        ("topic_config", {"config": {"retention_ms": 1000}}),
        ("create_topic", {"partitions": 2, "kind": "records", "config": {"segment_batches": 3}}),
    ]
    assert [(each.operation, each.topics) for each in after] == [("delete_topic", ("a",))]
    assert {each.topics for each in store.history() if each.operation == "append"} == {("a",)}


def test_a_topic_that_was_created_again_has_a_new_history(store: Store) -> None:
    write(store, "a")
    store.admin.delete_topic("a")
    store.admin.create_topic("a")
    write(store, "a")

    history = store.history("a")

    assert [each.operation for each in history] == ["append", "create_topic"]
    assert not history.is_cut
    assert words(store) == ["append", "create_topic", "delete_topic", "append", "create_topic", "create_topic"]


def test_the_time_is_the_logs_which_never_runs_backwards(store: Store, world: World) -> None:
    """Writers' clocks differ a little, and some entries tell no time at all."""
    first = write(store, "a", name="ahead")
    world.time_ms -= 40
    write(store, "a", name="behind")
    store.admin.create_partitions("a", 3)
    times = {commit.slot: commit.timestamp for commit in store.commits("a")}

    history = list(store.history("a"))

    assert {each.slot: each.timestamp for each in history if each.operation == "append"} == times
    assert history[0].operation == "create_partitions"
    assert history[0].timestamp == times[first] == world.time_ms + 40


def test_a_limit_and_a_transactional_id_choose(store: Store) -> None:
    slots = [write(store, "a", name=name) for name in ("x", "y", "x", "y", "x")]

    assert [each.slot for each in store.history("a", limit=2)] == slots[:2:-1]
    assert [each.slot for each in store.history(transactional_id="x", limit=2)] == [slots[4], slots[2]]
    with pytest.raises(InvalidOption, match="1 or more, not 0"):
        store.history(limit=0)
    with pytest.raises(UnknownTopicOrPartition, match="The store has: a, b"):
        store.history("c")


def test_a_few_commits_of_a_long_log_cost_a_few_slots(store: Store, world: World) -> None:
    for _ in range(60):
        world.pass_time(5_000)
        write(store, "a")
    before = len(faulty(store).gets)

    assert len(list(store.history("a", limit=3))) == 3

    log, one_batch = 1, 32
    assert len(faulty(store).gets) - before <= log + one_batch


def test_the_history_may_begin_and_end_at_a_slot(store: Store) -> None:
    slots = [write(store, "a", "b") for _ in range(5)]

    part = store.history("a", after_slot=slots[0], until_slot=slots[3])

    assert [each.slot for each in part] == [slots[3], slots[2], slots[1]]
    assert not part.is_cut
    assert [each.slot for each in store.history("a", until_slot=slots[0])] == [slots[0], 1]
    assert [each.slot for each in store.history(after_slot=slots[3], until_slot=slots[4] + 100)] == [slots[4]]
    assert list(store.history(after_slot=slots[4])) == []


def test_a_part_of_the_history_reads_no_other_slots(store: Store) -> None:
    slots = [write(store, "a") for _ in range(20)]
    before = store.requests["GET"]

    assert [each.slot for each in store.history(after_slot=slots[15], until_slot=slots[16])] == [slots[16]]

    assert store.requests["GET"] - before <= slots[16] - slots[15] + 2


@pytest.mark.parametrize("bounds", [{"after_slot": "1"}, {"until_slot": 1.5}, {"until_slot": True}])
def test_a_bound_of_the_history_is_a_number(store: Store, bounds: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="is a number of the log"):
        store.history(**bounds)


def test_the_history_ends_where_slots_were_deleted_and_says_so(world: World) -> None:
    store = new_store(world, slot_retention_ms=DAY_MS, checkpoint_slots=10)
    for _ in range(20):
        write(store, "a")
    whole = list(store.history("a"))
    world.pass_time(2 * DAY_MS)
    store.log.replica.open()
    assert delete_old_slots(store.log) > 0

    history = store.history("a")
    rest = list(history)

    assert history.is_cut
    assert rest == whole[: len(rest)]
    assert 0 < len(rest) < len(whole)
    assert history.oldest_slot is not None
    assert all(each.slot < history.oldest_slot for each in whole[len(rest) :])
    assert not store.history("a", limit=1).is_cut


def put_next(store: Store, *entries: dict[str, Any]) -> None:
    """Another program's record at the end of the log."""
    store.read(lambda state, slot: None)
    replica = store.log.replica
    record = SlotRecord(slot=replica.slot + 1, append_id="f" * 32, prev=replica.append_id, entries=entries)
    store.object_store.put(slot_path(replica.slot + 1), encode_line(record) + b"\n")


def test_an_entry_of_an_unknown_type_is_told_by_its_type(store: Store) -> None:
    """A newer version wrote it, before the checkpoint at which this one begins."""
    slot = write(store, "a")
    write(store, "a")
    record = decode_line(first_line(store.object_store.get(slot_path(slot)).body), slot)
    topic_id = store.admin.describe_topic("a").topic_id
    foreign = ({"type": "repainted", "topic_id": topic_id}, {"type": "of_no_topic"}, {"type": "odd", "topic_id": 3})
    store.object_store.put(slot_path(slot), encode_line(record.model_copy(update={"entries": foreign})) + b"\n")

    assert words(store, "a") == ["append", "repainted", "create_topic"]


def test_a_malformed_record_changed_nothing(store: Store) -> None:
    write(store, "a")
    topic_id = store.admin.describe_topic("a").topic_id
    put_next(store, {"type": "delete_topic", "topic": "a", "topic_id": topic_id}, {"type": "batch", "partition": "?"})

    assert words(store, "a") == ["append", "create_topic"]


def test_an_unavailable_store_is_told_and_the_history_begun_anew(store: Store) -> None:
    write(store, "a")
    history = store.history("a")
    faulty(store).go_down()
    with pytest.raises(StoreUnavailable):
        next(history)
    faulty(store).heal()

    assert words(store, "a") == ["append", "create_topic"]


def numbers(operations: list[Operation]) -> int:
    return sum(each.rows or 0 for each in operations if each.outcome == "commit")


STEP = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(["x", "y", "z"]), st.sampled_from(TOPICS), st.integers(0, 1)),
    st.tuples(st.just("commit"), st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("abort"), st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("fence"), st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("prepare"), st.sampled_from(["x", "y", "z"]), st.booleans()),
    st.tuples(st.just("plain"), st.sampled_from(TOPICS), st.integers(1, 3)),
    st.tuples(st.just("seal")),
    st.tuples(st.just("replay"), st.sampled_from(["x", "y", "z"])),
)


def run(store: Store, steps: list[tuple[Any, ...]]) -> None:
    def opened(name: str) -> Any:
        producer = store.producer(name, staged=name == "z")
        producer.init_transactions()
        return producer

    producers = {name: opened(name) for name in ("x", "y", "z")}
    begun: set[str] = set()
    for number, step in enumerate(steps):
        match step:
            case ("send", name, topic, partition):
                if name not in begun:
                    producers[name].begin_transaction()
                    begun.add(name)
                producers[name].send(topic, b"%d" % number, partition=partition)
                if number % 2:
                    producers[name].flush()
            case (("commit" | "abort") as end, name) if name in begun:
                getattr(producers[name], f"{end}_transaction")()
                begun.discard(name)
            case ("replay", name) if name in begun:
                producers[name].commit_transaction(version=3)
                begun.discard(name)
            case ("fence", name):
                producers[name] = opened(name)
                begun.discard(name)
            case ("prepare", name, commits) if name in begun:
                prepared = producers[name].prepare_transaction()
                producers[name].complete_transaction(prepared if commits else "")
                begun.discard(name)
            case ("plain", topic, count):
                with store.producer() as producer:
                    producer.send_table(topic, pa.table({"value": pa.array([b"v"] * count, pa.binary())}))
            case ("seal",):
                seal_segments(store)


@examples(12)
@given(st.lists(STEP, min_size=2, max_size=25))
def test_the_rows_of_all_commits_are_the_rows_that_are_there(steps: list[tuple[Any, ...]]) -> None:
    store = new_store(World())
    run(store, steps)

    visible = {topic: store.scan(topic, isolation_level="snapshot").record_count for topic in TOPICS}

    assert {topic: numbers(list(store.history(topic))) for topic in TOPICS} == visible
    whole = list(store.history(include_aborts=True))
    assert numbers(whole) == sum(visible.values())
    assert [each.slot for each in whole] == sorted((each.slot for each in whole), reverse=True)
    assert {each.slot for each in whole if each.rows} == {each.slot for each in store.commits(TOPICS)}
    assert list(islice(store.history(include_aborts=True), 3)) == whole[:3]
    assert list(store.history(include_aborts=True, limit=3)) == whole[:3]
