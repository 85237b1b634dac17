"""Time-outs and expiry of transactional ids, as producers and the coordinator of a store apply them."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    InvalidTransactionTimeout,
)
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.producer_ids import MAX_TRANSACTION_TIMEOUT_MS
from eoslog.store import Store
from tests.unit.state.histories import History
from tests.unit.support.world import World

DAY_MS = 24 * 3600 * 1000


@pytest.mark.scenario(87)
@pytest.mark.parametrize("timeout_ms", [1, MAX_TRANSACTION_TIMEOUT_MS])
def test_a_time_out_may_be_one_millisecond_and_the_maximum(store: Store, timeout_ms: int) -> None:
    store.producer("tx", transaction_timeout_ms=timeout_ms).init_transactions()

    assert store.admin.describe_transaction("tx").transaction_timeout_ms == timeout_ms


@pytest.mark.scenario(87)
@pytest.mark.parametrize("timeout_ms", [0, -1, MAX_TRANSACTION_TIMEOUT_MS + 1])
def test_any_other_time_out_is_refused_and_nothing_is_done(store: Store, history: History, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout):
        store.producer("tx", transaction_timeout_ms=timeout_ms).init_transactions()
    with pytest.raises(InvalidTransactionTimeout):
        history.init(timeout_ms=timeout_ms)

    assert store.admin.list_transactions() == []
    assert history.state.transactions == {}


@pytest.mark.scenario(98)
def test_an_id_that_never_had_a_transaction_expires(store: Store, world: World) -> None:
    store.producer("tx").init_transactions()
    world.pass_time(8 * DAY_MS)

    expired = Coordinator(store).expire()

    assert expired is not None
    assert [each.transactional_id for each in expired.transactional_ids] == ["tx"]
