"""What a partition keeps of its producers: open transactions, fences, expiry, and what a reload finds."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidTxnState, OutOfOrderSequence, ProducerFenced, UnknownProducerId
from eoslog.log.slot_deletion import delete_old_slots
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.expiry import PRODUCER_ID_EXPIRATION_MS, TRANSACTIONAL_ID_EXPIRATION_MS
from eoslog.state.group_entries import OffsetsCommitted
from eoslog.state.names import PartitionId
from eoslog.state.partitions import check_batch
from eoslog.state.store_state import StoreState, TransactionState
from eoslog.store import Store
from tests.unit.state.answers import batch_refused, reloaded, replayed
from tests.unit.state.histories import TOPIC_ID, History, new_draft, offsets_of, planned_expiry
from tests.unit.support.partitions import partition_of, read, write
from tests.unit.support.world import World

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def expire(history: History) -> None:
    planned = planned_expiry(history.state, history.now_ms)
    if planned is not None:
        history.append(lambda draft: draft.append(planned))


def last_stable_offset(state: StoreState) -> int:
    partition = state.partitions.get(PartitionId(TOPIC_ID, 0))
    return partition.last_stable_offset if partition else 0


@pytest.mark.scenario(13)
def test_a_process_that_finds_the_beginning_of_the_log_gone_knows_the_last_sequence(store: Store, world: World) -> None:
    producer = store.producer()
    for number in range(17):
        producer.send("t", b"%d" % number, partition=0)
        producer.flush()
    for _ in range(2):
        store.log.checkpoint()
    world.pass_time(30 * DAY_MS)
    assert delete_old_slots(store.log) > 0

    cold = world.process()

    (known,) = cold.admin.describe_producers("t", 0)
    assert (known.producer_id, known.last_sequence) == (producer.producer_id, 16)
    producer.send("t", b"17", partition=0)
    producer.flush()
    assert cold.admin.describe_producers("t", 0)[0].last_sequence == 17


@pytest.mark.scenario(15)
def test_a_batch_without_transaction_is_refused_while_its_producer_has_one_open(history: History) -> None:
    identity = history.init()
    history.send(identity)
    plain = history.batch(identity, 1, transactional_id=None)

    with pytest.raises(InvalidTxnState):
        check_batch(history.partition(), "t-0", plain)

    assert batch_refused(history, identity, 1, transactional_id=None) is UnknownProducerId
    assert history.transaction().state is TransactionState.ONGOING


@pytest.mark.scenario(16)
def test_the_first_unstable_offset_leads_to_its_row_in_a_file(store: Store) -> None:
    write(store, "t", "commit")
    producer = store.producer("open")
    producer.init_transactions()
    producer.begin_transaction()
    for value in (b"x", b"y", b"z"):
        producer.send("t", value, partition=0)
    producer.flush()

    first_unstable = store.admin.offsets("t")[0].last_stable_offset

    plan = store.scan("t", isolation_level="read_uncommitted", partitions=[0], starting_offsets={0: first_unstable})
    (piece,) = plan.plans[0].slices
    assert (piece.base_offset, piece.first_row, piece.record_count) == (first_unstable, 0, 3)
    assert piece.path in {batch.file.path for batch in partition_of(store, "t").active if batch.file}


@pytest.mark.scenario(18)
def test_whether_a_transaction_is_late_survives_a_restart_and_ends_with_it(store: Store, world: World) -> None:
    write(store, "t", "open", transactional_id="first")
    world.pass_time(10 * MINUTE_MS)
    write(world.process(), "t", "open", transactional_id="second")
    store.log.checkpoint()

    def late() -> list[str]:
        return [each.transactional_id for each in world.process().admin.find_hanging_transactions()]

    assert late() == []
    world.pass_time(6 * MINUTE_MS)
    assert late() == ["first"]
    world.pass_time(10 * MINUTE_MS)
    assert late() == ["first", "second"]
    store.admin.abort_transaction("first")
    assert late() == []


@pytest.mark.scenario(18)
def test_a_late_transaction_is_not_late_in_a_topic_that_is_gone(store: Store, world: World) -> None:
    write(store, "t", "open")
    world.pass_time(20 * MINUTE_MS)
    assert store.admin.find_hanging_transactions()

    store.admin.delete_topic("t")

    assert store.admin.find_hanging_transactions() == []


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


@pytest.mark.scenario(35)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_end_without_rows_leaves_no_open_transaction_and_no_control_row(store: Store, outcome: str) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()

    getattr(producer, f"{outcome}_transaction")()

    assert [(each.last_stable_offset, each.high_watermark) for each in store.admin.offsets("t")] == [(0, 0), (0, 0)]
    assert store.admin.describe_producers("t", 0) == []
    write(store, "t", "commit", transactional_id="another")
    assert read(store, "t") == [(0, b"0")]


@pytest.mark.further("Producer state")
def test_the_times_of_expiry_can_be_shortened_while_producers_live(store: Store, world: World) -> None:
    producer = store.producer()
    producer.send("t", b"v")
    producer.flush()
    world.pass_time(200)
    assert Coordinator(store).expire() is None

    expired = Coordinator(store, producer_id_expiration_ms=100).expire()

    assert expired is not None
    assert [each.producer_id for each in expired.producers] == [producer.producer_id]
