"""What the log costs in requests: they are its latency and its price."""

from __future__ import annotations

from collections import Counter

import pytest

from eoslog.log.log import Log
from eoslog.session.store_machine import StoreMachine
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import StoreCreated, TopicCreated, TopicSchema
from eoslog.state.entry_fields import FileReference
from eoslog.state.store_state import StoreState
from eoslog.state.transaction_entries import BatchAppended
from eoslog.state.transaction_requests import InitProducerId
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.requests import Applying
from tests.unit.log.ledger import add
from tests.unit.log.world import World, names, script

TAIL = 64 << 10
TOPIC_ID = "a" * 32


class InlineEnvironment(Environment):
    def background(self, work: object) -> None:
        work()  # type: ignore[operator]


def test_a_warm_append_is_one_put() -> None:
    log = World(tail_bytes=TAIL).created()
    log.append(add("x"))
    before = script(log).requests.copy()

    log.append(add("y"))

    assert script(log).requests - before == {"PUT": 1}


def test_a_refresh_with_nothing_new_is_one_get() -> None:
    log = World(tail_bytes=TAIL).created()
    names(log)
    before = script(log).requests.copy()

    names(log)

    assert script(log).requests - before == {"GET": 1}


@pytest.mark.parametrize("tail_bytes", [0, TAIL])
def test_a_follower_that_is_one_slot_behind_asks_for_one_more(tail_bytes: int) -> None:
    world = World(tail_bytes=tail_bytes)
    log, follower = world.created(), world.process()
    names(follower)
    log.append(add("x"))
    before = script(follower).requests.copy()

    assert names(follower) == names(log)

    assert script(follower).requests - before == {"GET": 2}


def test_a_follower_a_few_slots_behind_reads_them_without_a_list() -> None:
    world = World(tail_bytes=TAIL)
    log, follower = world.created(), world.process()
    names(follower)
    for number in range(30):
        log.append(add(f"n{number}"))
    before = script(follower).requests.copy()

    assert names(follower) == names(log)

    # Rounds of 1, 1, 2, 1, 2, 4, 8 and 16 slots, and one look further ahead.
    assert script(follower).requests - before == {"GET": 36}


@pytest.mark.parametrize(("tail_bytes", "most_gets"), [(0, 70), (TAIL, 8)])
@pytest.mark.parametrize("slots", [200, 1500])
def test_a_follower_that_is_far_behind_opens_the_log_anew(slots: int, tail_bytes: int, most_gets: int) -> None:
    world = World(tail_bytes=tail_bytes)
    log, follower = world.created(), world.process()
    names(follower)
    for number in range(slots):
        log.append(add(f"n{number}"))
    before = script(follower).requests.copy()

    assert names(follower) == names(log)

    sent = script(follower).requests - before
    assert sent["LIST"] == 1
    assert sent["GET"] <= most_gets


def test_a_follower_reads_every_slot_where_there_is_no_newer_checkpoint() -> None:
    world = World(tail_bytes=TAIL)
    log, follower = world.created(checkpoint_slots=5000), world.process()
    names(follower)
    for number in range(200):
        log.append(add(f"n{number}"))
    before = script(follower).requests.copy()

    assert names(follower) == names(log)

    assert script(follower).requests["LIST"] == before["LIST"]


def test_a_lost_race_costs_one_get_and_one_put() -> None:
    world = World(tail_bytes=TAIL)
    log, other = world.created(), world.process()
    names(other)
    other.append(add("o"))
    before = script(log).requests.copy()

    log.append(add("x"))

    assert script(log).requests - before == {"PUT": 2, "GET": 1}


def test_an_append_that_adds_nothing_is_one_get() -> None:
    log = World(tail_bytes=TAIL).created()
    before = script(log).requests.copy()

    log.append(Applying(lambda draft: None))

    assert script(log).requests - before == {"GET": 1}


def test_resolving_costs_no_list() -> None:
    log = World(tail_bytes=TAIL).created()
    log.append(add("x"))
    before = script(log).requests.copy()

    log.resolve(1, "0" * 32)

    assert script(log).requests - before == {"GET": 2}


@pytest.mark.parametrize("slots", [10, 1500])
def test_a_cold_open_is_always_a_list_and_two_gets(slots: int) -> None:
    environment = InlineEnvironment()
    name = f"cold-open-{slots}-{environment.new_id()}"
    log: Log[StoreState] = Log(MemoryStore(environment, name, tail_bytes=TAIL), StoreMachine(), environment)
    grow(log, slots)

    cold: Log[StoreState] = Log(MemoryStore(environment, name, tail_bytes=TAIL), StoreMachine(), environment)
    cold.read(lambda state, slot: None, refresh=False)

    expected = Counter({"LIST": 1, "GET": 2} if slots > 64 else {"LIST": 1, "GET": 1})
    assert cold.store.requests == expected
    assert cold.replica.state == log.replica.state


def grow(log: Log[StoreState], slots: int) -> None:
    """Producers come, and each appends batches of its own."""
    log.create(AppendEntry(StoreCreated(store_id="5" * 32, time_ms=1)))
    topic = TopicCreated(
        topic="t", topic_id=TOPIC_ID, partitions=64, topic_schema=TopicSchema(kind="records"), time_ms=1
    )
    log.append(AppendEntry(topic))
    # Transactions that stay open: none is past its time-out.
    now_ms = log.store.clock.now_ms()
    sequence = 0
    identity = log.append(Applying(lambda draft: InitProducerId("tx0", timeout_ms=900_000, time_ms=now_ms).take(draft)))
    name = "tx0"
    while log.replica.slot < slots:
        if sequence == 20:
            sequence, name = 0, f"tx{log.replica.slot}"
            identity = log.append(
                Applying(lambda draft, n=name: InitProducerId(n, timeout_ms=900_000, time_ms=now_ms).take(draft))
            )
        partition = log.replica.slot % 64
        batch = BatchAppended(
            topic_id=TOPIC_ID,
            partition=partition,
            base_offset=0,
            record_count=1000,
            file=FileReference(path=f"t/{TOPIC_ID}/{partition}/{log.replica.slot:020d}.parquet", length=1, crc32c=0),
            upload_ms=1,
            transactional_id=name,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=0,
            min_timestamp=0,
            max_timestamp=0,
            time_ms=now_ms,
        )
        log.append(Applying(lambda draft, b=batch: draft.append(b).base_offset))
        sequence += 1
