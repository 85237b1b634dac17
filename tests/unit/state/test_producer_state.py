"""What a partition keeps of its producers: open transactions, fences, expiry, and what a reload finds."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidTxnState, OutOfOrderSequence, ProducerFenced, UnknownProducerId
from eoslog.state.expiry import PRODUCER_ID_EXPIRATION_MS, TRANSACTIONAL_ID_EXPIRATION_MS
from eoslog.state.group_entries import OffsetsCommitted
from eoslog.state.names import PartitionId
from eoslog.state.partitions import check_batch
from eoslog.state.store_state import StoreState, TransactionState
from tests.unit.state.answers import batch_refused, reloaded, replayed
from tests.unit.state.histories import TOPIC_ID, History, new_draft, offsets_of, planned_expiry


def expire(history: History) -> None:
    planned = planned_expiry(history.state, history.now_ms)
    if planned is not None:
        history.append(lambda draft: draft.append(planned))


def last_stable_offset(state: StoreState) -> int:
    partition = state.partitions.get(PartitionId(TOPIC_ID, 0))
    return partition.last_stable_offset if partition else 0


@pytest.mark.scenario(15)
def test_a_batch_without_transaction_is_refused_while_its_producer_has_one_open(history: History) -> None:
    identity = history.init()
    history.send(identity)
    plain = history.batch(identity, 1, transactional_id=None)

    with pytest.raises(InvalidTxnState):
        check_batch(history.partition(), "t-0", plain)

    assert batch_refused(history, identity, 1, transactional_id=None) is UnknownProducerId
    assert history.transaction().state is TransactionState.ONGOING


@pytest.mark.scenario(19)
def test_preparing_an_append_changes_nothing(history: History) -> None:
    identity = history.init()
    history.send(identity, 0, 6)
    before = history.state.frozen_copy()

    draft = new_draft(history.state, history.slot + 1)
    assert draft.append(history.batch(identity, 6, 5)).base_offset == 6
    assert draft.partitions[PartitionId(TOPIC_ID, 0)].next_offset == 11

    assert history.state == before


@pytest.mark.scenario(22)
def test_the_earliest_open_transaction_holds_the_last_stable_offset_whatever_ends_first(history: History) -> None:
    first, second = history.init("first"), history.init("second")
    history.send(first, 0, 6, transactional_id="first")
    history.send(second, 0, 4, transactional_id="second")
    assert last_stable_offset(history.state) == 0

    history.commit(first, "first")
    assert last_stable_offset(history.state) == 6

    history.abort(second, "second")
    assert last_stable_offset(history.state) == history.partition().high_watermark == 12


@pytest.mark.scenario(23)
def test_every_stretch_of_the_log_folds_to_the_first_unstable_offset_that_it_had(history: History) -> None:
    plain = history.init(None)
    identity = history.init()
    slots = [history.slot + 1]
    seen = [last_stable_offset(history.state)]
    for step in (
        lambda: history.send(identity, 0, 2),
        lambda: history.commit(identity),
        lambda: history.send(plain, transactional_id=None),
        lambda: history.send(identity._replace(producer_epoch=1)),
    ):
        step()
        slots.append(history.slot + 1)
        seen.append(last_stable_offset(history.state))

    assert seen == [0, 0, 3, 4, 4]
    assert [last_stable_offset(replayed(history, slot)) for slot in slots] == seen
    assert last_stable_offset(reloaded(history)) == 4


@pytest.mark.scenario(27)
def test_a_fencing_abort_leaves_no_open_transaction_and_its_epoch_outlives_the_producers_expiry(
    history: History,
) -> None:
    zombie = history.init()
    history.send(zombie, 0, 3)

    history.init()

    known = history.partition().producers[zombie.producer_id]
    assert (known.producer_epoch, known.batches, known.current_txn_first_offset) == (zombie.producer_epoch + 1, (), -1)
    history.now_ms += PRODUCER_ID_EXPIRATION_MS
    expire(history)
    assert history.partition().producers[zombie.producer_id] == known
    assert batch_refused(history, zombie, 3) is ProducerFenced


@pytest.mark.scenario(28)
def test_an_expired_producer_is_gone_after_a_reload_and_a_live_one_is_not(history: History) -> None:
    idle = history.init(None)
    history.send(idle, 0, 2, transactional_id=None)
    history.now_ms += PRODUCER_ID_EXPIRATION_MS - 1
    live = history.init(None)
    history.send(live, 0, 2, transactional_id=None)
    expire(history)
    assert reloaded(history).partitions[PartitionId(TOPIC_ID, 0)].producers.keys() == {
        idle.producer_id,
        live.producer_id,
    }

    history.now_ms += 1
    expire(history)

    assert reloaded(history) == history.state
    assert history.partition().producers.keys() == {live.producer_id}
    assert history.send(live, 2, transactional_id=None) == 4


@pytest.mark.scenario(28)
def test_a_batch_of_an_expired_producer_is_refused_whatever_its_sequence(history: History) -> None:
    """Kafka takes any first sequence then, and with it a second copy; here the id must be registered."""
    identity = history.init(None)
    history.send(identity, 0, 2, transactional_id=None)
    history.now_ms += PRODUCER_ID_EXPIRATION_MS
    expire(history)

    for base_sequence in (0, 2):
        assert batch_refused(history, identity, base_sequence, transactional_id=None) is UnknownProducerId


@pytest.mark.scenario(29, 96)
def test_a_producer_with_an_open_transaction_never_expires(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.now_ms += 100 * TRANSACTIONAL_ID_EXPIRATION_MS
    expire(history)
    assert identity.producer_id in history.partition().producers

    history.commit(identity)
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    expire(history)

    assert history.partition().producers == {}
    assert history.state.transactions == {}


@pytest.mark.scenario(30)
def test_a_follower_takes_what_was_decided_and_never_sees_what_was_refused(history: History) -> None:
    identity = history.init()
    history.send(identity, 0, 1)

    assert batch_refused(history, identity, 3) is OutOfOrderSequence
    history.send(identity, 1, 3)

    assert history.follower == history.state == replayed(history)


@pytest.mark.scenario(31)
def test_offsets_of_a_group_need_no_sequences(history: History) -> None:
    for offset in (5, 5, 3):
        entry = OffsetsCommitted(committed=offsets_of("g", offset), time_ms=history.now_ms)
        history.append(lambda draft, entry=entry: draft.append(entry))

    assert [known.offset for known in history.state.groups["g"].offsets.values()] == [3]
