"""Two-phase commit in the producer (KIP-939): what a prepared transaction allows, and what decides it."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.errors import IllegalState, InvalidRequest, ProducerFenced
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.world import CALLS, World, values

PLACE = TopicPartition("t", 0)


def prepared(store: Store, *, staged: bool = False) -> tuple[Producer, str]:
    producer = store.producer("tx", staged=staged)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.send_offsets_to_transaction({PLACE: 7}, "g")
    return producer, producer.prepare_transaction()


def offset(store: Store) -> int | None:
    found = store.consumer("g").committed([PLACE])[PLACE]
    return found and found.offset


@pytest.mark.scenario(157)
def test_an_init_that_keeps_finds_what_was_prepared_and_its_identity_is_another(store: Store, world: World) -> None:
    """Kafka's answer carries the ongoing identity beside the new one; the producer is prepared with it."""
    first, name = prepared(store)

    second = world.process().producer("tx")
    second.init_transactions(keep_prepared=True)

    assert name == f"{first.producer_id}:{first.producer_epoch}"
    assert second.prepared_transaction == name
    assert (second.producer_id, second.producer_epoch) > (first.producer_id, first.producer_epoch)
    with pytest.raises(IllegalState):
        second.begin_transaction()


@pytest.mark.scenario(157)
@pytest.mark.parametrize("before", ["nothing", "a commit", "an abort"])
def test_an_init_that_keeps_is_ready_where_nothing_is_prepared(store: Store, world: World, before: str) -> None:
    if before != "nothing":
        first, name = prepared(store)
        first.complete_transaction(name if before == "a commit" else "")

    second = world.process().producer("tx")
    second.init_transactions(keep_prepared=True)

    assert second.prepared_transaction is None
    second.begin_transaction()
    second.send("t", b"next")
    second.commit_transaction()
    assert b"next" in values(store)


@pytest.mark.scenario(157)
def test_an_init_that_keeps_aborts_what_is_open_and_not_prepared(store: Store, world: World) -> None:
    first = store.producer("tx")
    first.init_transactions()
    first.begin_transaction()
    first.send("t", b"open")
    first.flush()

    second = world.process().producer("tx")
    second.init_transactions(keep_prepared=True)

    assert second.prepared_transaction is None
    assert store.admin.describe_transaction("tx").transaction_state == "EMPTY"
    with pytest.raises(ProducerFenced):
        first.prepare_transaction()
    assert values(store) == []
    second.begin_transaction()
    second.commit_transaction()


@pytest.mark.scenario(157)
@pytest.mark.parametrize("holder", ["who prepared it", "who kept it"])
@pytest.mark.parametrize("call", ["init", "begin", "send", "table", "offsets", "prepare"])
def test_a_prepared_transaction_allows_nothing_but_its_end(store: Store, world: World, holder: str, call: str) -> None:
    producer, name = prepared(store)
    if holder == "who kept it":
        producer = world.process().producer("tx")
        producer.init_transactions(keep_prepared=True)

    with pytest.raises(IllegalState):
        CALLS[call](producer)

    assert producer.prepared_transaction == name
    producer.flush()
    producer.complete_transaction(name)
    assert values(store) == [b"v"]
    assert offset(store) == 7


@pytest.mark.scenario(157)
@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("holder", ["who prepared it", "who kept it"])
@pytest.mark.parametrize(
    ("end", "commits"),
    [
        ("its name", True),
        ("commit", True),
        ("another epoch", False),
        ("another id", False),
        ("", False),
        ("abort", False),
    ],
)
def test_its_name_commits_it_and_any_other_aborts_it(
    store: Store, world: World, holder: str, staged: bool, end: str, commits: bool
) -> None:
    producer, name = prepared(store, staged=staged)
    if holder == "who kept it":
        producer = world.process().producer("tx", staged=staged)
        producer.init_transactions(keep_prepared=True)
    producer_id, epoch = (int(part) for part in name.split(":"))
    names = {
        "its name": name,
        "another epoch": f"{producer_id}:{epoch + 1}",
        "another id": f"{producer_id + 1}:{epoch}",
        "": "",
    }

    if end in names:
        producer.complete_transaction(names[end])
    else:
        CALLS[end](producer)

    assert values(store) == ([b"v"] if commits else [])
    assert offset(store) == (7 if commits else None)
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))
    producer.begin_transaction()
    producer.send("t", b"next")
    producer.commit_transaction()
    assert b"next" in values(store)


@pytest.mark.scenario(157)
@pytest.mark.parametrize(
    "calls",
    [
        "prepare",
        "complete",
        "init prepare",
        "init complete",
        "init begin complete",
        "init begin commit prepare",
        "init begin prepare complete complete",
        "init begin prepare abort complete",
        "init begin prepare commit commit",
        "init close prepare",
    ],
)
def test_nothing_is_prepared_or_completed_out_of_order(store: Store, calls: str) -> None:
    producer = store.producer("tx")
    *before, last = calls.split()
    for call in before:
        CALLS[call](producer)

    with pytest.raises(IllegalState):
        CALLS[last](producer)


@pytest.mark.scenario(157)
@pytest.mark.parametrize("name", ["5", "5:", ":5", "a:b", "5:6:7", "5: 6", "-5:6", "nonsense", None])
def test_a_name_that_nobody_gave_neither_commits_nor_aborts(store: Store, name: Any) -> None:
    producer, own = prepared(store)

    with pytest.raises(InvalidRequest):
        producer.complete_transaction(name)

    producer.complete_transaction(own)
    assert values(store) == [b"v"]


@pytest.mark.further("Producer client")
def test_a_producer_that_completes_what_it_prepared_goes_on_with_the_next_epoch(store: Store) -> None:
    producer, name = prepared(store)
    epochs = [producer.producer_epoch]
    for number in range(3):
        producer.complete_transaction(name)
        epochs.append(producer.producer_epoch)
        producer.begin_transaction()
        producer.send("t", b"%d" % number)
        name = producer.prepare_transaction()
    producer.complete_transaction("")

    assert epochs == [0, 1, 2, 3]
    assert values(store) == [b"0", b"1", b"v"]
