"""Producers without transactional id: they raise their epoch by themselves."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from eoslog.errors import InvalidProducerEpoch, OutOfOrderSequence
from eoslog.state.producer_ids import ProducerIdentity, raised_epoch
from eoslog.state.sequences import LAST_USABLE_EPOCH, MAX_EPOCH, DuplicateBatch
from tests.unit.state.answers import reloaded
from tests.unit.state.histories import History


def send(history: History, identity: ProducerIdentity, base_sequence: int = 0, **options: object) -> int:
    return history.send(identity, base_sequence, transactional_id=None, **options)


def refusal(history: History, identity: ProducerIdentity, base_sequence: int = 0, **options: object) -> Exception:
    batch = history.batch(identity, base_sequence, transactional_id=None, **options)
    return history.refused(lambda draft: draft.append(batch))


def raised(identity: ProducerIdentity, by: int = 1) -> ProducerIdentity:
    return identity._replace(producer_epoch=identity.producer_epoch + by)


# Epochs


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
