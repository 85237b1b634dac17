"""Two-phase commit (KIP-939): a transaction is prepared, its outcome is given elsewhere, and no death loses it."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.store import Store
from tests.unit.support.two_phase import begun, committed_offset, restarted
from tests.unit.support.world import CALLS, World, at_last_epoch, values

# Prepare, then complete


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("end", ["complete", "commit"])
def test_a_prepared_transaction_shows_when_it_is_completed_and_not_before(store: Store, staged: bool, end: str) -> None:
    producer = begun(store, staged=staged)

    prepared = producer.prepare_transaction()

    assert prepared == producer.prepared_transaction == f"{producer.producer_id}:{producer.producer_epoch}"
    assert values(store) == []
    CALLS[end](producer)
    assert values(store) == [b"v"]
    assert committed_offset(store) == 7
    assert producer.prepared_transaction is None


def test_the_producer_goes_on_after_it(store: Store) -> None:
    producer = begun(store)
    for number in range(3):
        producer.complete_transaction(producer.prepare_transaction())
        producer.begin_transaction()
        producer.send("t", b"%d" % number)
    producer.commit_transaction()

    assert values(store) == [b"0", b"1", b"2", b"v"]


def test_an_empty_transaction_that_is_prepared_has_a_name_that_no_later_one_has(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    names = []
    for _ in range(3):
        producer.begin_transaction()
        names.append(producer.prepare_transaction())
        producer.complete_transaction(names[-1])

    assert len(set(names)) == 3


def test_an_eager_one_holds_the_last_stable_offset_and_a_staged_one_holds_nothing(store: Store) -> None:
    begun(store).prepare_transaction()
    other = store.producer("other", staged=True)
    other.init_transactions()
    other.begin_transaction()
    other.send("t", b"staged", partition=1)
    other.prepare_transaction()

    assert store.admin.offsets("t") == [(0, 0, 0, 1), (1, 0, 0, 0)]


# The order of calls


def test_a_producer_without_transactional_id_prepares_nothing(store: Store) -> None:
    for call in ("prepare", "complete"):
        with pytest.raises(errors.IllegalState):
            CALLS[call](store.producer())


@pytest.mark.parametrize("timeout_ms", [0, -1, "7 days", 2**53])
def test_a_time_out_that_is_none_is_refused(store: Store, timeout_ms: int) -> None:
    with pytest.raises(errors.InvalidTransactionTimeout, match="prepared_timeout_ms"):
        store.producer("tx", prepared_timeout_ms=timeout_ms)


def test_closing_or_leaving_the_context_by_an_exception_leaves_it_prepared(store: Store, world: World) -> None:
    begun(store).prepare_transaction()
    first = restarted(world)
    first.close()

    def interrupted() -> None:
        with restarted(world):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()

    second = restarted(world)
    second.complete_transaction(second.prepared_transaction or "")
    assert values(store) == [b"v"]


# Restarts


@pytest.mark.parametrize("staged", [True, False])
def test_a_restarted_producer_holds_what_was_prepared_and_fences_the_one_before(
    store: Store, world: World, staged: bool
) -> None:
    zombie = begun(store, staged=staged)
    prepared = zombie.prepare_transaction()

    producer = restarted(world)

    assert producer.prepared_transaction == prepared
    assert (producer.producer_id, producer.producer_epoch) == (zombie.producer_id, zombie.producer_epoch + 1)
    with pytest.raises(errors.ProducerFenced):
        zombie.complete_transaction(prepared)
    assert values(store) == []
    producer.complete_transaction(prepared)
    assert values(store) == [b"v"]


def test_a_restart_that_does_not_keep_it_aborts_it(store: Store, world: World) -> None:
    begun(store).prepare_transaction()

    world.process().producer("tx").init_transactions()

    assert values(store) == []
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))


def test_it_is_completed_under_another_producer_id_when_the_epochs_are_used_up(store: Store, world: World) -> None:
    first = store.producer("tx")
    first.init_transactions()
    at_last_epoch(store, first)
    first.begin_transaction()
    first.send("t", b"v", partition=0)
    prepared = first.prepare_transaction()

    producer = restarted(world)

    assert producer.producer_id != first.producer_id
    assert producer.prepared_transaction == prepared
    (hanging,) = store.admin.find_hanging_transactions(max_transaction_timeout_ms=-1)
    assert (hanging.transactional_id, hanging.producer_id) == ("tx", first.producer_id)
    producer.complete_transaction(prepared)
    producer.begin_transaction()
    producer.send("t", b"w", partition=0)
    producer.commit_transaction()
    assert values(store) == [b"v", b"w"]
    assert all(each.last_stable_offset == each.high_watermark for each in store.admin.offsets("t"))
