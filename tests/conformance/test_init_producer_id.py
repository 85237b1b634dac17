"""What the init of a producer does in a store: of new ids, without a log, without an answer, over others' time-outs."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidRequest, NotAStore, RequestTimedOut, StoreUnavailable
from eoslog.store import Store
from tests.unit.support.world import FaultyStore, World


@pytest.mark.scenario(101)
def test_an_empty_transactional_id_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest):
        store.producer("")


@pytest.mark.scenario(101)
def test_an_init_without_a_readable_log_fails_and_does_nothing(world: World) -> None:
    with pytest.raises(NotAStore):
        world.process().producer("tx").init_transactions()

    world.process().admin.create_topic("t")
    process = world.process()
    assert isinstance(process.object_store, FaultyStore)
    process.object_store.lose_answers("", lands=False)
    with pytest.raises(StoreUnavailable):
        process.object_store.put_if_absent("t/probe", b"")
    with pytest.raises(RequestTimedOut):
        process.producer("tx").init_transactions()

    assert world.process().admin.list_transactions() == []


@pytest.mark.further("Transaction coordinator")
def test_an_init_hears_of_its_time_out_from_the_newest_caller(store: Store) -> None:
    for timeout_ms in (60_000, 5_000):
        store.producer("tx", transaction_timeout_ms=timeout_ms).init_transactions()

    assert store.admin.describe_transaction("tx").transaction_timeout_ms == 5_000
