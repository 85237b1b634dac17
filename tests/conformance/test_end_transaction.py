"""The end of a transaction while other requests, lost answers or other writers meet it."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from eoslog.errors import (
    InvalidProducerEpoch,
    TransactionAborted,
)
from eoslog.store import Store
from tests.unit.support.partitions import partition_of, read, write
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


@pytest.mark.scenario(119)
@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_end_is_put_again_until_its_outcome_is_known_and_leaves_one_marker(
    store: Store, lands: bool, outcome: str
) -> None:
    producer = write(store, "t", "open")
    store.object_store.lose_one_answer("__transaction_state/slot/", lands=lands)  # type: ignore[attr-defined]

    getattr(producer, f"{outcome}_transaction")()

    assert [batch.control is not None for batch in partition_of(store, "t").active] == [False, True]
    assert partition_of(store, "t").last_stable_offset == 2


@pytest.mark.scenario(119)
def test_an_end_that_loses_its_slot_takes_the_next(store: Store, world: World) -> None:
    process = world.process()
    producer = write(process, "t", "open")
    slept = asleep_at(process, "log.slot.before_put", lambda: write(store, "t", "commit", transactional_id="other"))

    producer.commit_transaction()

    assert slept
    assert [batch.control is not None for batch in partition_of(store, "t").active] == [False, False, True, True]
    assert read(store, "t") == [(0, b"0"), (1, b"0")]
