"""Calls of a producer take a time limit, in the place where Kafka's Python clients have it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import errors
from eoslog.producer.producer import Producer
from eoslog.store import Store
from tests.unit.support.reading import T0
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World, faulty, values

CALLS: dict[str, Callable[[Producer, float], object]] = {
    "flush": lambda producer, timeout: producer.flush(timeout),
    "commit": lambda producer, timeout: producer.commit_transaction(timeout),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("timeout", "longest_ms"), [(3, 5_000), (0.5, 2_000), (0, 1_000)])
def test_a_call_ends_after_its_own_timeout_and_may_be_repeated(
    store: Store, world: World, call: str, timeout: float, longest_ms: int
) -> None:
    producer = store.producer("tx")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send("t", b"v")
    faulty(store).go_down()
    since = world.time_ms

    with pytest.raises(errors.RequestTimedOut):
        CALLS[call](producer, timeout)

    assert timeout * 1000 <= world.time_ms - since < longest_ms
    faulty(store).heal()
    CALLS[call](producer, -1)
    if call == "flush":
        producer.commit_transaction()
    assert values(world.process()) == [b"v"]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("call", CALLS)
def test_without_a_limit_a_call_waits_for_as_long_as_it_takes(store: Store, world: World, call: str) -> None:
    producer = open_transaction(store, "tx", max_block_ms=1_000, delivery_timeout_ms=10**9)
    producer.send("t", b"v")
    faulty(store).go_down()
    since = world.time_ms

    def heal() -> None:
        if world.time_ms - since > 600_000:
            faulty(store).heal()

    world.while_asleep = heal
    CALLS[call](producer, -1)

    assert world.time_ms - since > 600_000


def test_every_call_of_a_transaction_takes_a_timeout(store: Store, world: World) -> None:
    producer = store.producer("tx")
    producer.init_transactions(5.0)
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.send_offsets_to_transaction({T0: 1}, "g", 5.0)
    producer.abort_transaction(5.0)

    assert values(world.process()) == []


@pytest.mark.parametrize("wrong", ["3", True, float("nan")])
def test_a_timeout_is_a_number(store: Store, wrong: float) -> None:
    with pytest.raises(errors.InvalidRequest, match="it must be a number of seconds"):
        store.producer().flush(wrong)


def test_a_timeout_may_be_any_whole_number(store: Store) -> None:
    producer = store.producer()
    producer.send("t", b"v")

    producer.flush(10**400)

    assert values(store) == [b"v"]
