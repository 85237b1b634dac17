"""The end of a transaction while other requests, lost answers or other writers meet it."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from eoslog.errors import (
    InvalidProducerEpoch,
    TransactionAborted,
)
from eoslog.store import Store
from tests.unit.support.partitions import read, write
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.world import World


@pytest.mark.scenario(106, 104)
@pytest.mark.parametrize("late", ["commit_transaction", "abort_transaction", "flush"])
def test_a_request_that_comes_while_an_end_is_put_is_validated_after_it(store: Store, world: World, late: str) -> None:
    zombie = world.process()
    producer = write(zombie, "t", "open")
    producer.send("t", b"late", partition=0)
    slept = asleep_at(zombie, "log.slot.before_put", lambda: store.admin.abort_transaction("tx"))

    refused = pytest.raises((InvalidProducerEpoch, TransactionAborted))
    with nullcontext() if late == "abort_transaction" else refused:
        getattr(producer, late)()

    assert slept
    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_ABORT"
    assert store.admin.offsets("t")[0].high_watermark == 2
    assert read(store, "t") == []
