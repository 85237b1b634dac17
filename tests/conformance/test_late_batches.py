"""A batch or a commit that comes after a time-out is refused and leaves no hanging transaction."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    InvalidProducerEpoch,
    TransactionAborted,
)
from eoslog.maintenance.coordinator import Coordinator
from eoslog.store import Store
from tests.unit.support.partitions import partition_of, read, write
from tests.unit.support.world import World


@pytest.mark.scenario(68)
def test_a_late_batch_after_a_time_out_is_told_so(store: Store, world: World) -> None:
    producer = write(store, "t", "open", transaction_timeout_ms=1_000)
    world.pass_time(2_000)
    Coordinator(world.process()).abort_timed_out_transactions()

    producer.send("t", b"late", partition=0)
    with pytest.raises(InvalidProducerEpoch):
        producer.flush()

    assert read(store, "t") == []
    write(store, "t", "commit")
    assert read(store, "t") == [(2, b"0")]


@pytest.mark.scenario(68)
def test_a_late_commit_after_a_time_out_is_refused(store: Store, world: World) -> None:
    producer = write(store, "t", "open", transaction_timeout_ms=1_000)
    world.pass_time(2_000)
    Coordinator(world.process()).abort_timed_out_transactions()

    with pytest.raises(TransactionAborted, match="timed out"):
        producer.commit_transaction()

    assert partition_of(store, "t").open_transactions == {}
