"""Producers without transactional id: they raise their epoch by themselves, and may register an expired id again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from eoslog.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    OutOfOrderSequence,
    UnknownProducerId,
)
from eoslog.state.draft import Draft
from eoslog.state.expiry import PRODUCER_ID_EXPIRATION_MS
from eoslog.state.producer_ids import IDS_OF_JOB, IDS_OF_SLOT, ProducerIdentity, raised_epoch, task_producer_id
from eoslog.state.sequences import LAST_USABLE_EPOCH, MAX_EPOCH, DuplicateBatch
from eoslog.state.state_machine import encode_entry
from eoslog.state.transaction_requests import InitProducerId
from tests.unit.state.answers import reloaded
from tests.unit.state.histories import History, planned_expiry


def send(history: History, identity: ProducerIdentity, base_sequence: int = 0, **options: object) -> int:
    return history.send(identity, base_sequence, transactional_id=None, **options)


def refusal(history: History, identity: ProducerIdentity, base_sequence: int = 0, **options: object) -> Exception:
    batch = history.batch(identity, base_sequence, transactional_id=None, **options)
    return history.refused(lambda draft: draft.append(batch))


def raised(identity: ProducerIdentity, by: int = 1) -> ProducerIdentity:
    return identity._replace(producer_epoch=identity.producer_epoch + by)


# Epochs


@pytest.mark.scenario(39)
@pytest.mark.parametrize("by", [1, 2, MAX_EPOCH])
def test_a_higher_epoch_begins_at_sequence_0(history: History, by: int) -> None:
    identity = history.init(None)
    send(history, identity, 0)
    send(history, identity, 1)

    assert isinstance(refusal(history, raised(identity, by), 2), OutOfOrderSequence)
    assert send(history, raised(identity, by), 0) == 2
    assert send(history, raised(identity, by), 1) == 3


def test_a_new_id_may_begin_at_any_epoch(history: History) -> None:
    assert send(history, raised(history.init(None), 7)) == 0


def test_a_lower_epoch_is_refused_in_each_partition_that_has_seen_the_higher_one(history: History) -> None:
    identity = history.init(None)
    send(history, identity, 0)
    send(history, raised(identity), 0)

    for base_sequence in (0, 1):
        assert isinstance(refusal(history, identity, base_sequence), InvalidProducerEpoch)


def test_a_partition_that_has_not_seen_the_higher_epoch_continues_with_the_lower_one(history: History) -> None:
    identity = history.init(None)
    send(history, identity, 0, partition=1)
    send(history, raised(identity), 0, partition=0)

    assert send(history, identity, 1, partition=1) == 1
    assert send(history, raised(identity), 0, partition=1) == 2


def test_a_repeated_batch_of_a_raised_epoch_gets_its_offset(history: History) -> None:
    identity = history.init(None)
    send(history, identity, 0)
    send(history, raised(identity), 0)

    duplicate = refusal(history, raised(identity), 0)

    assert isinstance(duplicate, DuplicateBatch)
    assert duplicate.base_offset == 1


def test_a_raised_epoch_survives_a_checkpoint_and_a_seal(history: History) -> None:
    identity = history.init(None)
    send(history, identity, 0)
    send(history, raised(identity), 0)
    history.seal(2)

    assert reloaded(history) == history.state
    assert history.partition().start_producers[identity.producer_id].producer_epoch == 1
    assert isinstance(refusal(history, identity, 1), InvalidProducerEpoch)


def test_no_epoch_is_above_the_highest(history: History) -> None:
    identity = history.init(None)

    with pytest.raises(ValidationError):
        history.batch(raised(identity, MAX_EPOCH + 1), transactional_id=None)


def test_a_producer_raises_its_epoch_up_to_the_highest_and_then_needs_another_id() -> None:
    """Without markers no epoch is kept for one."""
    assert raised_epoch(ProducerIdentity(7, LAST_USABLE_EPOCH)) == (7, MAX_EPOCH)
    assert raised_epoch(ProducerIdentity(7, MAX_EPOCH)) is None


# Expired ids


def expired(history: History) -> ProducerIdentity:
    """A producer with a batch in the log, whose id has expired since."""
    identity = history.init(None)
    send(history, identity, 0)
    expire(history)
    return identity


def expire(history: History) -> None:
    history.now_ms += PRODUCER_ID_EXPIRATION_MS
    planned = planned_expiry(history.state, history.now_ms)
    assert planned is not None
    history.append(lambda draft: draft.append(planned))


def test_a_batch_at_sequence_0_registers_an_expired_id_if_it_asks_for_that(history: History) -> None:
    identity = expired(history)
    assert isinstance(refusal(history, identity, 0), UnknownProducerId)

    assert send(history, identity, 0, registers_producer=True) == 1

    assert set(history.state.producers) == {identity.producer_id}
    assert isinstance(refusal(history, identity, 0, registers_producer=True), DuplicateBatch)
    assert send(history, identity, 1) == 2


def test_a_registered_id_keeps_its_rules_whether_a_batch_may_register_it_or_not(history: History) -> None:
    identity = history.init(None)
    send(history, identity, 0, registers_producer=True)

    assert isinstance(refusal(history, identity, 2, registers_producer=True), OutOfOrderSequence)
    assert isinstance(refusal(history, identity, 0, registers_producer=True), DuplicateBatch)


def test_a_batch_at_another_sequence_registers_nothing(history: History) -> None:
    identity = expired(history)

    assert isinstance(refusal(history, identity, 1, registers_producer=True), UnknownProducerId)
    assert not history.state.producers


def test_an_id_that_was_registered_again_expires_again(history: History) -> None:
    identity = expired(history)
    send(history, identity, 0, registers_producer=True)

    expire(history)

    assert not history.state.producers
    assert not history.partition().producers


def test_an_id_that_was_registered_again_begins_anew_in_every_partition(history: History) -> None:
    identity = history.init(None)
    for partition in (0, 1):
        send(history, raised(identity, 5), 0, partition=partition)
    expire(history)

    send(history, identity, 0, partition=0, registers_producer=True)

    assert send(history, identity, 0, partition=1) == 1


def test_an_id_that_the_store_has_not_given_out_is_not_registered(history: History) -> None:
    """The store would give it to another producer later."""
    next_id = (history.slot + 1) * IDS_OF_SLOT

    for producer_id in (next_id, next_id + 1, 2**63 - 1):
        unknown = refusal(history, ProducerIdentity(producer_id, 0), registers_producer=True)
        assert isinstance(unknown, UnknownProducerId)
        assert "is not an id of this store" in str(unknown)
    send(history, ProducerIdentity(next_id - 1, 0), registers_producer=True)


def test_an_id_that_the_record_itself_gives_out_needs_no_registration(history: History) -> None:
    def append(draft: Draft, ahead: int) -> int:
        identity = InitProducerId(None, timeout_ms=1, time_ms=1).take(draft)
        child = draft.child()
        other = identity._replace(producer_id=identity.producer_id + ahead)
        child.append(history.batch(other, transactional_id=None, registers_producer=True))
        child.merge()
        return other.producer_id

    assert isinstance(history.refused(lambda draft: append(draft, 1)), UnknownProducerId)
    assert history.append(lambda draft: append(draft, 0)) in history.state.producers


def test_the_id_of_a_transactional_id_is_not_registered(history: History) -> None:
    identity = history.init("tx")

    error = refusal(history, identity, registers_producer=True)

    assert isinstance(error, InvalidProducerIdMapping)
    assert "'tx'" in str(error)


def test_the_id_that_a_transactional_id_had_before_is_not_registered(history: History) -> None:
    history.init("tx")
    before = history.at_epoch(LAST_USABLE_EPOCH)
    after = history.init("tx")
    assert after.producer_id != before.producer_id

    for producer_id in (before.producer_id, after.producer_id):
        error = refusal(history, ProducerIdentity(producer_id, 0), registers_producer=True)
        assert isinstance(error, InvalidProducerIdMapping)


def test_the_id_of_a_prepared_transaction_is_not_registered(history: History) -> None:
    history.init("tx")
    prepared = history.prepare(history.at_epoch(LAST_USABLE_EPOCH))
    history.init("tx", keep_prepared=True)
    # The holder has got further ids since.
    history.state.transactions["tx"] = replace(history.transaction(), previous_producer_id=-1)

    error = refusal(history, prepared, registers_producer=True)

    assert isinstance(error, InvalidProducerIdMapping)


def test_the_ids_of_a_jobs_tasks_are_not_registered(history: History) -> None:
    job = history.job("run", history.staged(task=0), tasks=1).producer_id

    for producer_id in (job, task_producer_id(job, 0), job + IDS_OF_JOB - 1):
        error = refusal(history, ProducerIdentity(producer_id, 0), registers_producer=True)
        assert isinstance(error, InvalidProducerIdMapping)
    send(history, ProducerIdentity(job + IDS_OF_JOB, 0), registers_producer=True)


def test_the_ids_after_that_of_a_producer_belong_to_others(history: History) -> None:
    identity = history.init("tx")

    send(history, identity._replace(producer_id=identity.producer_id + 1), registers_producer=True)


def test_the_entry_of_a_batch_that_registers_nothing_does_not_mention_it(history: History) -> None:
    batch = history.batch(history.init(None), transactional_id=None)

    assert "registers_producer" not in encode_entry(batch)
    assert encode_entry(batch.model_copy(update={"registers_producer": True}))["registers_producer"] is True
