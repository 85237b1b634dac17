"""Producer ids of a store: no id is given out twice, whatever becomes of the record that gives it out."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

import eoslog
from eoslog.errors import CommitStateUnknown, StoreAccessDenied
from eoslog.state.transaction_requests import InitProducerId
from eoslog.store import Store
from tests.requests import Applying
from tests.unit.support.world import FaultyStore, World

SLOTS = "__transaction_state/slot/"


def draw(store: Store) -> int:
    """A new producer id."""
    now_ms = store.now_ms()
    return store.append(
        Applying(lambda draft: InitProducerId(None, timeout_ms=60_000, time_ms=now_ms).take(draft))
    ).producer_id


@pytest.mark.scenario(120)
def test_no_producer_id_is_given_out_twice_however_many_ask_at_once() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    eoslog.connect(url).admin.create_topic("t")
    processes = [eoslog.connect(url) for _ in range(4)]

    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(draw, processes * 20))

    assert len(set(ids)) == len(ids) == 80


@pytest.mark.scenario(120)
def test_an_id_whose_record_was_refused_is_given_out_by_the_next_attempt(store: Store, world: World) -> None:
    process = world.process()
    process.read(lambda state, slot: None)
    assert isinstance(process.object_store, FaultyStore)
    process.object_store.deny(SLOTS)
    with pytest.raises(StoreAccessDenied):
        draw(process)
    process.object_store.heal()

    assert draw(process) != draw(store)


@pytest.mark.scenario(120)
@pytest.mark.parametrize("lands", [True, False])
def test_an_id_whose_record_may_have_landed_is_not_given_out_again(store: Store, world: World, lands: bool) -> None:
    process = world.process()
    process.read(lambda state, slot: None)
    assert isinstance(process.object_store, FaultyStore)
    process.object_store.lose_answers(SLOTS, lands=lands)
    with pytest.raises(CommitStateUnknown):
        draw(process)
    process.object_store.heal()

    ids = [draw(process), draw(store)]

    registered = store.read(lambda state, slot: set(state.producers))
    assert len(registered) == (3 if lands else 2)
    assert set(ids) <= registered
    assert ids[0] != ids[1]
