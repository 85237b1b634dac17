"""The table of the page on Kafka's transaction flow says what each call appends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from eoslog import Producer, Store, TopicPartition
from eoslog.log.slots import first_line, slot_path
from tests.pages import REPOSITORY, table_rows
from tests.unit.support.world import World

PAGE = REPOSITORY / "docs/transaction-flow.md"
NO_CALL = ("none", "part of the `end`")
APPENDED = {call: appended for _, _, call, appended in table_rows(PAGE, "flow") if call not in NO_CALL}


def slot_of(store: Store) -> int:
    return store.read(lambda state, slot: slot)


def begun(world: World, *, staged: bool = False) -> Producer:
    producer = world.process().producer("etl-1", staged=staged)
    producer.init_transactions()
    producer.begin_transaction()
    for partition in range(2):
        producer.send("t", b"row", partition=partition)
    return producer


def init_after_an_open_transaction(world: World) -> Callable[[], object]:
    begun(world).flush()
    return world.process().producer("etl-1").init_transactions


def begin(world: World) -> Callable[[], object]:
    producer = world.process().producer("etl-1")
    producer.init_transactions()
    return producer.begin_transaction


def flushed(world: World, call: str) -> Callable[[], object]:
    producer = begun(world)
    producer.flush()
    end: Callable[[], object] = getattr(producer, call)
    return end


def send_offsets(world: World) -> Callable[[], object]:
    producer = begun(world)
    return lambda: producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "group")


def an_append_after_the_timeout(world: World) -> Callable[[], object]:
    begun(world).flush()
    world.pass_time(60_001)
    return lambda: world.process().admin.create_topic("other")


CALLS: dict[str, Callable[[World], Callable[[], object]]] = {
    "`init_transactions`, new id": lambda world: world.process().producer("etl-1").init_transactions,
    "`init_transactions`, open transaction": init_after_an_open_transaction,
    "`begin_transaction`": begin,
    "`flush`, two partitions": lambda world: begun(world).flush,
    "`flush`, staged producer": lambda world: begun(world, staged=True).flush,
    "`send_offsets_to_transaction`": send_offsets,
    "`commit_transaction`": lambda world: flushed(world, "commit_transaction"),
    "`abort_transaction`": lambda world: flushed(world, "abort_transaction"),
    "an append of any process, later": an_append_after_the_timeout,
    "`prepare_transaction`": lambda world: flushed(world, "prepare_transaction"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_appends_the_entries_of_the_table_in_one_slot(world: World, call: str) -> None:
    store = world.process()
    store.admin.create_topic("t", partitions=2)
    run = CALLS[call](world)
    before = slot_of(store)

    run()

    bodies = [store.object_store.get(slot_path(slot)).body for slot in range(before + 1, slot_of(store) + 1)]
    assert len(bodies) <= 1
    entries = [entry["type"] for body in bodies for entry in json.loads(first_line(body))["entries"]]
    told = re.findall(r"`(\w+)`", APPENDED[call])
    assert [entry for entry in entries if entry != "topic"] == told
    assert ("nothing" in APPENDED[call]) == (not told)


def test_each_call_of_the_table_is_tested() -> None:
    assert APPENDED.keys() == CALLS.keys()
