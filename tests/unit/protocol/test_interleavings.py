"""Interleavings that broke earlier designs of the protocol, one by one, on the real code.

A model of a protocol with several logs in one store, decisions in one and publication in others, was broken by some
twenty interleavings. One log per store leaves no room for these: a producer that expires between a decision and its
publication; an id that goes on before all its publications landed; a publication that a partition refuses; a marker
that misses a partition, or one registered after its first batch (one slot is outcome, markers and batches together, and
the first batch is the registration); a boundary object that moves back (there is none: `prev` and a list tell); derived
files of the same name (names are random). What may still occur is here, or beside the room that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog.errors import ProducerFenced, RetriableError, StagedFilesExpired, UnknownTopicOrPartition
from eoslog.log.slot_deletion import delete_old_slots
from eoslog.log.slots import slot_path
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.vacuum import vacuum
from eoslog.producer.producer import Producer
from eoslog.state.draft import AppendEntry
from eoslog.state.group_entries import GroupOffset, GroupOffsets, OffsetsCommitted
from eoslog.state.topics import topic_named
from eoslog.store import Store
from tests.requests import Applying
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty, values

DAY_MS = 24 * 3600 * 1000


def transactional(store: Store, name: str = "tx", *, staged: bool = False) -> Producer:
    """A patient producer that has been initialised."""
    patience_ms = 100 * DAY_MS
    producer = store.producer(name, staged=staged, max_block_ms=patience_ms, delivery_timeout_ms=patience_ms)
    producer.init_transactions()
    return producer


def write(producer: Producer, *rows: tuple[int, bytes]) -> None:
    """Flush rows, each to its partition."""
    for partition, value in rows:
        producer.send("t", value, partition=partition)
    producer.flush()


def once_asleep(world: World, meanwhile: Callable[[], object]) -> None:
    """Let others work the next time that somebody waits."""

    def wake() -> None:
        world.while_asleep = lambda: None
        meanwhile()

    world.while_asleep = wake


def test_a_late_answer_is_read_at_its_own_slot(store: Store, world: World) -> None:
    first, second = world.process().producer("tx"), world.process().producer("tx")
    store_of_first = first._store
    store_of_first.read(lambda state, slot: None)
    faulty(store_of_first).lose_one_answer(SLOTS, lands=True)
    once_asleep(world, second.init_transactions)

    first.init_transactions()

    assert (first.producer_epoch, second.producer_epoch) == (0, 1)
    first.begin_transaction()
    first.send("t", b"zombie")
    with pytest.raises(ProducerFenced):
        first.flush()


def note(store: Store, text: str) -> Callable[[], int]:
    """An append that nothing but its slot tells apart from another."""
    topic_id = store.read(lambda state, slot: topic_named(state, "t").topic_id)
    offsets = (GroupOffset(topic_id=topic_id, partition=0, offset=0, metadata=text),)
    entry = OffsetsCommitted(committed=GroupOffsets(group="notes", offsets=offsets), time_ms=0)

    def append() -> int:
        def propose(draft: object) -> int:
            draft.append(entry)  # type: ignore[attr-defined]
            return int(draft.slot)  # type: ignore[attr-defined]

        return store.append(Applying(propose))

    return append


def test_the_own_slot_answers_a_412_though_newer_records_lack_it(store: Store, world: World) -> None:
    writer = world.process()
    append = note(writer, "mine")
    faulty(writer).lose_one_answer(SLOTS, lands=True)

    def others_go_on() -> None:
        for number in range(3):
            note(store, f"other {number}")()
            store.log.checkpoint()

    once_asleep(world, others_go_on)

    slot = append()

    bodies = [store.object_store.get(slot_path(at)).body for at in range(store.read(lambda state, newest: newest) + 1)]
    assert [at for at, body in enumerate(bodies) if b'"mine"' in body] == [slot]


@pytest.mark.usefixtures("files_are_objects")
def test_a_commit_under_way_is_refused_after_vacuum_may_have_run(store: Store, world: World) -> None:
    process = world.process()
    producer = transactional(process, staged=True)
    producer.begin_transaction()
    producer.send("t", b"late", partition=0)

    def vacuum_after_long() -> None:
        world.pass_time(30 * DAY_MS)
        vacuum(store)

    asleep_at(process, "log.slot.before_put", vacuum_after_long)

    with pytest.raises(StagedFilesExpired):
        producer.commit_transaction()

    assert values(world.process()) == []


def test_a_commit_that_lands_before_the_horizon_keeps_its_files_however_old(store: Store, world: World) -> None:
    producer = transactional(store, staged=True)
    producer.begin_transaction()
    write(producer, (0, b"kept"))
    world.pass_time(30 * DAY_MS)
    cleaner = world.process()
    slept = asleep_at(cleaner, "log.slot.before_put", producer.commit_transaction)

    vacuum(cleaner)

    assert slept
    assert values(world.process()) == [b"kept"]


def test_two_applications_under_one_transactional_id_do_not_evict_each_others_versions(store: Store) -> None:
    def commit(application: str, version: int, value: bytes) -> bool:
        producer = transactional(store, "shared")
        producer.begin_transaction()
        producer.send("t", value, partition=0)
        return producer.commit_transaction(application_id=application, version=version)

    assert [commit("a", 1, b"a1"), commit("b", 7, b"b7"), commit("a", 2, b"a2")] == [True, True, True]
    assert [commit("b", 7, b"again"), commit("a", 1, b"again")] == [False, False]
    assert values(store) == [b"a1", b"a2", b"b7"]


def test_a_replay_is_known_though_its_transactional_id_expired_meanwhile(store: Store, world: World) -> None:
    def commit() -> bool:
        producer = transactional(world.process(), "job")
        producer.begin_transaction()
        producer.send("t", b"once", partition=0)
        return producer.commit_transaction(application_id="pipeline", version=3)

    assert commit()
    world.pass_time(8 * DAY_MS)
    assert Coordinator(store).expire_transactional_ids() == ["job"]
    store.log.checkpoint()

    assert not commit()
    assert values(store) == [b"once"]


def test_a_record_dated_far_ahead_neither_ends_nor_prolongs_other_transactions(store: Store, world: World) -> None:
    mine = transactional(world.process(), "mine")
    mine.begin_transaction()
    write(mine, (0, b"open"))
    topic_id = store.read(lambda state, slot: topic_named(state, "t").topic_id)
    offsets = (GroupOffset(topic_id=topic_id, partition=0, offset=0),)
    far_ahead = OffsetsCommitted(
        committed=GroupOffsets(group="g", offsets=offsets), time_ms=world.time_ms + 80 * 365 * DAY_MS
    )
    store.append(AppendEntry(far_ahead))

    assert Coordinator(store).abort_timed_out_transactions() == []
    world.pass_time(61_000)
    assert Coordinator(store).abort_timed_out_transactions() == ["mine"]


def test_a_batch_under_way_to_a_recreated_topic_is_refused(store: Store, world: World) -> None:
    process = world.process()
    producer = process.producer()
    producer.send("t", b"old", partition=0)

    def create_anew() -> None:
        store.admin.delete_topic("t")
        store.admin.create_topic("t", partitions=2)

    producer_at_work = asleep_at(process, "client.producer.files_uploaded", create_anew)

    with pytest.raises(UnknownTopicOrPartition):
        producer.flush()

    assert producer_at_work
    assert values(world.process()) == []


def test_a_prepared_transaction_commits_without_the_rows_of_a_recreated_topic(store: Store, world: World) -> None:
    store.admin.create_topic("u", partitions=1)
    producer = transactional(world.process(), staged=True)
    producer.begin_transaction()
    producer.send("t", b"gone", partition=0)
    producer.send("u", b"stays", partition=0)
    name = producer.prepare_transaction()
    store.admin.delete_topic("t")
    store.admin.create_topic("t", partitions=2)

    producer.complete_transaction(name)

    assert (values(store, "t"), values(store, "u")) == ([], [b"stays"])


def test_with_the_newest_checkpoint_damaged_the_older_ones_slots_are_there(store: Store, world: World) -> None:
    writer = transactional(store, "w")
    for number in range(6):
        writer.begin_transaction()
        write(writer, (0, b"%d" % number))
        writer.commit_transaction()
        if number in (1, 3):
            store.log.checkpoint()
    world.pass_time(30 * DAY_MS)
    note(store, "late")()
    assert delete_old_slots(store.log) > 0
    newest = store.log.replica.checkpoint
    assert newest is not None
    store.object_store.put(newest.path, b"damaged")

    assert values(world.process()) == [b"%d" % number for number in range(6)]


def test_only_a_consistent_read_never_splits_a_transaction(store: Store) -> None:
    whole, open_one, later = (transactional(store, name) for name in ("whole", "open", "later"))
    for producer in (whole, open_one, later):
        producer.begin_transaction()
    write(whole, (0, b"w0"))
    write(later, (1, b"l1"))
    write(open_one, (0, b"o0"))
    write(whole, (0, b"w0 again"), (1, b"w1"))
    write(later, (0, b"l0"))
    whole.commit_transaction()
    later.commit_transaction()

    assert values(store) == [b"l1", b"w0", b"w1"]
    assert store.scan("t", transaction_consistent=True).to_table().num_rows == 0

    open_one.abort_transaction()
    assert store.scan("t", transaction_consistent=True).to_table().num_rows == 5


def test_a_commit_waits_for_the_outcomes_of_its_own_appends(store: Store, world: World) -> None:
    process = world.process()
    producer = open_transaction(process, "tx", max_block_ms=1_000)
    producer.send("t", b"unclear", partition=0)
    faulty(process).lose_answers(SLOTS, lands=True)
    with pytest.raises(RetriableError):
        producer.flush()
    faulty(process).heal()

    producer.commit_transaction()

    assert values(store) == [b"unclear"]
