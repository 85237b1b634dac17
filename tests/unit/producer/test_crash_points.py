"""A process dies at a named point; a fresh one finds a legal state and goes on, and no row is lost, doubled or torn."""

from __future__ import annotations

import contextlib
import itertools
import re
from pathlib import Path

import pytest

from eoslog import Store, TopicConfig
from eoslog.log.replica import LogConfig
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.names import TopicPartition
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.depth import sweep
from tests.unit.support.clock import Clock
from tests.unit.support.paused_processes import Died, Mortal
from tests.unit.support.transactions import open_transaction

DAY_MS = 24 * 3600 * 1000
POINTS = (
    "log.slot.before_put",
    "log.slot.claimed",
    "log.checkpoint.parts_written",
    "log.checkpoint.root_written",
    "segment.seal.files_written",
    "segment.seal.sealed",
    "segment.compact_files.files_written",
    "segment.compact_files.index_written",
    "segment.compact_files.replaced",
    "segment.compact_keys.files_written",
    "segment.compact_keys.index_written",
    "segment.compact_keys.replaced",
    "segment.compact_keys.cleaned",
    "segment.vacuum.horizon_moved",
    "segment.vacuum.files_deleted",
    "client.producer.files_uploaded",
    "store.create.probed",
    "store.create.described",
)


def _life(store: Store, clock: Clock, committed: list[bytes]) -> None:
    """Everything that a process does; ``committed`` is what it was told to be committed."""
    store.ensure_created()
    if "t" not in store.admin.list_topics():
        store.admin.create_topic("t", config=TopicConfig(segment_batches=4, cleanup_policy="compact"))
    producer = store.producer("etl")
    producer.init_transactions()
    for _ in range(4):
        value = b"%d" % len(committed)
        for outcome in ("abort", "commit"):
            producer.begin_transaction()
            key = b"%d" % clock()
            producer.send("t", value, key=key)
            producer.flush()
            producer.send("t", value + b"'", key=key + b"'")
            getattr(producer, f"{outcome}_transaction")()
        committed.append(value)
    seal_segments(store)
    store.admin.compact_files()
    store.admin.compact_keys("t")
    store.admin.compact_files("t", now=True)
    store.log.checkpoint()
    clock.now_ms += 8 * DAY_MS
    vacuum(store)


@pytest.mark.parametrize("times", [2, *(pytest.param(times, marks=pytest.mark.slow) for times in (1, 5))])
@pytest.mark.parametrize("point", sweep(POINTS, quick=[point for point in POINTS if not point.startswith("segment.")]))
def test_a_process_that_dies_leaves_nothing_half_done(point: str, times: int) -> None:
    clock, committed = Clock(), list[bytes]()
    objects = MemoryStore(Environment(), wall_clock=clock)
    config = LogConfig(checkpoint_slots=8)
    with contextlib.suppress(Died):
        _life(Store(objects, Mortal(point, times), config), clock, committed)
    told = list(committed)

    survivor = Store(objects, Mortal(), config)
    survivor.ensure_created()
    _life(survivor, clock, committed)

    rows = survivor.scan("t", columns=["value"]).to_table()["value"].to_pylist()
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    assert all(second == first + b"'" for first, second in pairs)
    assert {first for first, _ in pairs} >= set(told)
    # A commit that was sent and not answered may have landed; then its value comes once more, from the survivor.
    assert len(pairs) - len(committed) in (0, 1)
    cold = Store(objects, Environment(), config)
    assert cold.read(lambda state, slot: state) == survivor.log.replica.state
    assert cold.log.replica.invalid is None
    assert all(each.last_stable_offset == each.high_watermark for each in cold.admin.offsets("t"))


# What clients do


ORDERS = [b"%d" % number for number in range(6)]


def _client_life(store: Store, clock: Clock) -> None:
    """Everything that producers, consumers and administrators do. Begun again at any time, it ends the same."""
    store.ensure_created()
    for name in {"in", "out", "scratch"} - set(store.admin.list_topics()):
        store.admin.create_topic(name, partitions=2)
    with store.producer("input", staged=True) as producer:
        producer.init_transactions()
        if not store.scan("in").record_count:
            producer.begin_transaction()
            for order in ORDERS:
                producer.send("in", order, key=order)
            producer.commit_transaction()
    silent = store.consumer("g", auto_offset_reset="earliest", session_timeout_ms=6_000)
    silent.subscribe("in")
    silent.poll(0)
    clock.now_ms += 7_000
    with (
        store.consumer("g", auto_offset_reset="earliest", session_timeout_ms=6_000, max_poll_records=2) as consumer,
        store.producer("worker") as producer,
    ):
        producer.init_transactions()
        consumer.subscribe("in")
        for outcome in itertools.cycle(("abort", "commit", "commit")):
            records = consumer.poll(0)
            if not records and store.scan("out").record_count >= len(ORDERS):
                break
            clock.now_ms += 3_000
            producer.begin_transaction()
            for record in records:
                producer.send("out", record.value)
                producer.flush()
            positions = {place: consumer.position(place) for place in consumer.assignment()}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            getattr(producer, f"{outcome}_transaction")()
            if outcome == "abort":
                for place, committed in consumer.committed(consumer.assignment()).items():
                    consumer.seek(place, committed.offset if committed else 0)
        consumer.commit()
        with store.consumer("g", session_timeout_ms=6_000) as newcomer:
            newcomer.subscribe("in")
            newcomer.poll(0)
            consumer.poll(0)
    left_open = open_transaction(store, "left open")
    left_open.send("scratch", b"never to be seen")
    left_open.flush()
    store.admin.abort_transaction("left open")
    store.admin.delete_topic("scratch")


CLIENT_POINTS = (
    "log.slot.before_put",
    "log.slot.claimed",
    "client.producer.files_uploaded",
    "client.group.heartbeat_written",
    "client.group.members_changed",
    "client.group.left",
    "client.group.given_up",
)


# A client appends so often that some of the times tell enough.
@pytest.mark.parametrize("stride", sweep([3, 7, 15], quick=[15]))
@pytest.mark.parametrize("point", CLIENT_POINTS)
def test_clients_that_die_at_any_of_their_steps_leave_nothing_half_done(point: str, stride: int) -> None:
    deaths = 0
    for times in itertools.count(1, stride if point.startswith("log.") else 1):
        clock = Clock()
        objects = MemoryStore(Environment(), wall_clock=clock)
        died = True
        with contextlib.suppress(Died):
            _client_life(Store(objects, Mortal(point, times, clock)), clock)
            died = False
        survivor = Store(objects, Mortal(clock=clock))
        _client_life(survivor, clock)

        assert sorted(survivor.scan("out").to_table()["value"].to_pylist()) == ORDERS
        ends = {each.partition: each.last_stable_offset for each in survivor.admin.offsets("in")}
        committed = survivor.consumer("g").committed([TopicPartition("in", number) for number in ends])
        assert {place.partition: each.offset if each else None for place, each in committed.items()} == ends
        assert not survivor.admin.list_transactions(states=["Ongoing"])
        cold = Store(objects, Environment())
        assert cold.read(lambda state, slot: state) == survivor.log.replica.state
        if not died:
            break
        deaths += 1
    assert deaths > 0


def test_a_test_names_every_crash_point() -> None:
    root = Path(__file__).resolve().parents[3]
    sources = [path.read_text(encoding="utf-8") for path in root.glob("eoslog/**/*.py")]
    points = {point for text in sources for point in re.findall(r'reached\("([\w.]+)"\)', text)}

    tests = "".join(path.read_text(encoding="utf-8") for path in root.glob("tests/**/*.py"))

    assert len(points) > 10
    assert {point for point in points if f'"{point}"' not in tests} == set()
