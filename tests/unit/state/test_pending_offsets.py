"""Additions to a transaction, and the group offsets that take effect only if it commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eoslog.admin.transaction_descriptions import describe_transaction
from eoslog.errors import (
    EosLogError,
    FencedInstanceId,
    IllegalGeneration,
    InvalidEntry,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    UnknownMember,
    UnknownTopicOrPartition,
)
from eoslog.state import pending_offsets
from eoslog.state.draft import Draft
from eoslog.state.expiry import OFFSETS_RETENTION_MS
from eoslog.state.group_entries import GroupDeleted, GroupOffsets, GroupOffsetsDeleted, OffsetPlace, OffsetsCommitted
from eoslog.state.groups import committed_offset
from eoslog.state.names import PartitionId, TopicPartition
from eoslog.state.pending_offsets import pending_partitions
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.state_machine import decode_entry, encode_entry
from eoslog.state.store_state import CommittedOffset, GroupPartition, Transaction, TransactionState
from tests.unit.state.answers import is_inert, reloaded
from tests.unit.state.histories import (
    OTHER_TOPIC_ID,
    TOPIC_ID,
    History,
    joining,
    offsets_of,
    planned_expiry,
    topic_created,
)
from tests.unit.state.prepared import PLACE, prepare_refused


def add_offset(history: History, identity: ProducerIdentity, offset: int, group: str = "g", **options: Any) -> None:
    history.add(identity, offsets=(offsets_of(group, offset),), **options)


def commit_plainly(history: History, offset: int) -> None:
    entry = OffsetsCommitted(committed=offsets_of("g", offset), time_ms=history.now_ms)
    history.append(lambda draft: draft.append(entry))


def position(history: History, group: str = "g", partition: int = 0) -> int | None:
    found = committed_offset(history.state, group, PartitionId(TOPIC_ID, partition))
    return None if found is None else found.offset


def refused(history: History, identity: ProducerIdentity, *partitions: int, **options: Any) -> type[Exception]:
    """The error of an addition, which the request and the entry alone are both refused with."""
    entry = history.addition(identity, *partitions, **options)
    error = type(history.refused(lambda draft: draft.append(entry)))
    assert error is type(history.refused(lambda draft: history.add(identity, *partitions, **options)))
    assert history.is_invalid(entry)
    return error


# Additions


@pytest.mark.parametrize("state", ["EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"])
@pytest.mark.parametrize("adds", ["a partition", "offsets"])
def test_the_first_addition_begins_the_transaction_in_every_state_at_rest(
    history: History, state: str, adds: str
) -> None:
    identity = history.init()
    if state != "EMPTY":
        history.add(identity, 0, 1, offsets=(offsets_of("h", 1),))
        history.end(identity, "commit" if state == "COMPLETE_COMMIT" else "abort", keeps_epoch=True)
    history.now_ms += 5

    history.add(
        identity, *([1] if adds == "a partition" else []), offsets=() if "a p" in adds else [offsets_of("g", 5)]
    )

    transaction = history.transaction()
    assert transaction.state is TransactionState.ONGOING
    assert (transaction.start_slot, transaction.start_ms) == (history.slot, history.now_ms)
    assert history.state.ongoing == {"tx": history.now_ms}
    assert transaction.added_partitions == (frozenset({PartitionId(TOPIC_ID, 1)}) if adds == "a partition" else set())
    assert [each.group for each in transaction.added_offsets] == ([] if adds == "a partition" else ["g"])
    # Without rows no reader need wait for it.
    assert history.partition(1).open_transactions == {}


def test_further_additions_and_batches_join_the_transaction(history: History) -> None:
    identity = history.init()
    history.add(identity, 0)
    slot = history.slot
    history.now_ms += 5
    history.add(identity, 1, 0)
    history.send(identity)
    add_offset(history, identity, 5)

    transaction = history.transaction()
    assert {each.partition for each in transaction.added_partitions} == {0, 1}
    assert {each.partition for each in transaction.partitions} == {0}
    assert (transaction.start_slot, transaction.start_ms) == (slot, history.now_ms - 5)
    assert (transaction.last_slot, transaction.last_update_ms) == (history.slot, history.now_ms)


def test_a_repeated_addition_of_partitions_leaves_no_entry(history: History) -> None:
    identity = history.init()
    history.add(identity, 0)
    history.send(identity, partition=1)
    slot, transaction = history.slot, history.transaction()

    for partitions in ([0], [1], [0, 1, 0], []):
        history.add(identity, *partitions, may_begin=False)
        error = history.refused(lambda draft, each=partitions: draft.append(history.addition(identity, *each)))
        assert isinstance(error, InvalidEntry)

    assert (history.slot, history.transaction()) == (slot, transaction)


def test_an_addition_of_nothing_may_begin_a_transaction(history: History) -> None:
    """Kafka's AddOffsetsToTxn names a group only, and begins the transaction."""
    history.add(history.init())

    assert history.transaction().state is TransactionState.ONGOING


def test_an_addition_is_refused_while_the_transaction_is_prepared(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.prepare(identity)

    for partitions in ([0], [1], []):
        assert refused(history, identity, *partitions, offsets=[offsets_of("g", 5)]) is InvalidTxnState
    assert refused(history, identity, 1) is InvalidTxnState
    assert refused(history, identity, 0) is InvalidTxnState


def test_an_addition_to_a_job_or_an_unknown_id_or_by_a_former_holder_is_refused(history: History) -> None:
    job = history.job("run", history.staged(task=0))
    assert refused(history, job, 0, transactional_id="job") is InvalidTxnState
    assert refused(history, job, 0, transactional_id="unknown") is InvalidProducerIdMapping
    before = history.init()
    holder = history.init()
    assert refused(history, before, 0) is ProducerFenced
    assert refused(history, holder._replace(producer_epoch=9), 0) is ProducerFenced
    assert refused(history, holder._replace(producer_id=1), 0) is InvalidProducerIdMapping
    history.add(holder, 0)
    history.now_ms += 10**6
    assert history.abort_timed_out() == ["tx"]
    assert refused(history, holder, 0) is InvalidProducerEpoch


def test_an_addition_of_an_unknown_partition_is_refused_as_a_whole(history: History) -> None:
    identity = history.init()

    assert refused(history, identity, 0, 9) is UnknownTopicOrPartition
    assert refused(history, identity, 0, topic_id=OTHER_TOPIC_ID) is UnknownTopicOrPartition
    assert refused(history, identity, offsets=[offsets_of("g", 1, partition=9)]) is UnknownTopicOrPartition
    assert history.transaction().state is TransactionState.EMPTY


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        (offsets_of("g", 5, 9, "m1"), IllegalGeneration),
        (offsets_of("g", 5, 1, "m2"), UnknownMember),
        (offsets_of("g", 5, 1, "m2", instance="i"), FencedInstanceId),
        (offsets_of("other", 5, 1, "m1"), IllegalGeneration),
    ],
)
def test_the_generation_of_offsets_is_checked_when_they_are_added(
    history: History, offsets: GroupOffsets, error: type[EosLogError]
) -> None:
    history.change_group(joining("m1", instance="i"))
    identity = history.init()

    assert refused(history, identity, 0, offsets=[offsets]) is error


def test_offsets_that_were_added_count_though_the_group_moves_on(history: History) -> None:
    """The commit of a transaction must not fail because of a rebalance after the addition, as in Kafka."""
    generation = history.change_group(joining("m1")).generation
    identity = history.init()
    history.add(identity, offsets=(offsets_of("g", 5, generation, "m1"),))
    history.change_group(joining("m2"), left=["m1"])

    history.commit(identity, keeps_epoch=True)

    assert position(history) == 5


def test_a_transaction_that_an_addition_began_times_out(history: History) -> None:
    identity = history.init()
    add_offset(history, identity, 5)
    history.now_ms += 60_000
    assert history.abort_timed_out() == []
    history.now_ms += 1

    assert history.abort_timed_out() == ["tx"]

    assert position(history) is None
    assert history.transaction().added_partitions == frozenset()


@pytest.mark.parametrize("keeps_epoch", [False, True])
def test_a_topic_that_is_deleted_after_its_addition_hinders_no_end(history: History, keeps_epoch: bool) -> None:
    history.append(lambda draft: draft.append(topic_created("other", OTHER_TOPIC_ID, 1)))
    identity = history.init()
    history.add(identity, 0, topic_id=OTHER_TOPIC_ID)
    history.add(identity, 1, offsets=(offsets_of("g", 4, topic_id=OTHER_TOPIC_ID), offsets_of("h", 5)))
    history.send(identity)
    history.delete_topic("other", OTHER_TOPIC_ID)
    assert reloaded(history) == history.state
    described = describe_transaction(history.state, "tx", history.now_ms).topic_partitions
    assert described == (TopicPartition("t", 0), TopicPartition("t", 1))

    history.commit(identity, keeps_epoch=keeps_epoch)

    assert set(history.state.groups) == {"h"}
    assert history.partition().last_stable_offset == 2


def test_what_was_added_is_gone_after_the_end_and_after_an_init(history: History) -> None:
    identity = history.init()
    for ends in (
        lambda: history.commit(identity, keeps_epoch=True),
        lambda: history.abort(identity, keeps_epoch=True),
        lambda: history.init(),
    ):
        history.add(identity, 0, 1, offsets=(offsets_of("g", 5),))
        ends()
        transaction = history.transaction()
        assert (transaction.added_partitions, transaction.added_offsets) == (frozenset(), ())


# Which offsets a commit sets


@pytest.mark.scenario(160)
@pytest.mark.parametrize("keeps_epoch", [False, True])
def test_offsets_count_from_the_commit_of_their_transaction(history: History, keeps_epoch: bool) -> None:
    commit_plainly(history, 3)
    identity = history.init()
    note = {"topic_id": TOPIC_ID, "partition": 1, "offset": 9, "metadata": "note", "leader_epoch": 4}
    history.add(
        identity, offsets=(offsets_of("g", 5), GroupOffsets.model_validate({"group": "new", "offsets": [note]}))
    )
    added = history.slot
    assert position(history) == 3
    assert "new" not in history.state.groups
    assert pending_partitions(history.state, "g") == {PLACE}
    assert pending_partitions(history.state, "new") == {PartitionId(TOPIC_ID, 1)}
    assert pending_partitions(history.state, "other") == set()
    history.now_ms += 7

    history.commit(identity, keeps_epoch=keeps_epoch)

    assert position(history) == 5
    found = committed_offset(history.state, "new", PartitionId(TOPIC_ID, 1))
    assert found == CommittedOffset(9, "note", 4, added, history.now_ms)
    assert pending_partitions(history.state, "g") == pending_partitions(history.state, "new") == set()
    last_commit = history.transaction().last_commit
    assert last_commit is not None
    assert {(each.group, *(offset.offset for offset in each.offsets)) for each in last_commit.offsets} == {
        ("g", 5),
        ("new", 9),
    }
    assert reloaded(history) == history.state


@pytest.mark.scenario(160)
@pytest.mark.parametrize("how", ["abort", "abort, epoch kept", "timeout", "admin", "fence", "init", "terminate"])
def test_offsets_of_an_aborted_transaction_never_count(history: History, how: str) -> None:
    commit_plainly(history, 3)
    identity = history.init()
    add_offset(history, identity, 5)

    if how.startswith("abort"):
        history.abort(identity, keeps_epoch="kept" in how)
    elif how == "timeout":
        history.now_ms += 10**6
        history.abort_timed_out()
    elif how == "admin":
        history.abort_by_admin()
    elif how == "fence":
        history.fence()
    elif how == "init":
        history.init()
    else:
        history.force_terminate()

    assert history.transaction().state.name in ("COMPLETE_ABORT", "EMPTY")
    assert position(history) == 3
    assert pending_partitions(history.state, "g") == set()
    # The next commit does not bring them back.
    identity = history.init()
    history.send(identity)
    history.commit(identity, keeps_epoch=True)
    assert position(history) == 3


@pytest.mark.parametrize("offsets", [(5, 7), (7, 5)])
def test_of_two_offsets_of_a_transaction_the_later_one_counts(history: History, offsets: tuple[int, int]) -> None:
    identity = history.init()
    for offset in offsets:
        add_offset(history, identity, offset)
    assert len(history.transaction().added_offsets) == 1

    history.commit(identity, keeps_epoch=True)

    assert position(history) == offsets[1]


@pytest.mark.scenario(160)
@pytest.mark.parametrize("plain", ["before the addition", "after the addition"])
@pytest.mark.parametrize("keeps_epoch", [False, True])
def test_of_a_plain_commit_and_an_addition_the_later_one_counts(
    history: History, plain: str, keeps_epoch: bool
) -> None:
    identity = history.init()
    if plain == "before the addition":
        commit_plainly(history, 50)
    history.add(identity, offsets=(offsets_of("g", 5), offsets_of("h", 6)))
    if plain == "after the addition":
        commit_plainly(history, 50)

    history.commit(identity, keeps_epoch=keeps_epoch)

    assert position(history) == (5 if plain == "before the addition" else 50)
    assert position(history, "h") == 6
    last_commit = history.transaction().last_commit
    assert last_commit is not None
    assert ("g" in {each.group for each in last_commit.offsets}) is (plain == "before the addition")


@pytest.mark.parametrize("order", [("early", "late"), ("late", "early")])
def test_of_the_offsets_of_two_transactions_the_later_one_stays_whichever_commits_first(
    history: History, order: tuple[str, str]
) -> None:
    identities = {}
    for name, offset in (("early", 6), ("late", 5)):
        identities[name] = history.init(name)
        add_offset(history, identities[name], offset, transactional_id=name)

    for name in order:
        history.commit(identities[name], name, keeps_epoch=True)

    assert position(history) == 5


def test_an_offset_that_comes_with_the_commit_is_later_than_those_before(history: History) -> None:
    identity = history.init()
    history.add(identity, offsets=(offsets_of("g", 5), offsets_of("g", 6, partition=1)))

    history.commit(identity, offsets=(offsets_of("g", 4),))

    assert (position(history), position(history, partition=1)) == (4, 6)


def delete_offsets(draft: Draft) -> None:
    draft.append(GroupOffsetsDeleted(group="g", partitions=(OffsetPlace(topic_id=TOPIC_ID, partition=0),)))


def delete_group(draft: Draft) -> None:
    draft.append(GroupDeleted(group="g"))


@pytest.mark.scenario(162)
@pytest.mark.parametrize("forget", [delete_offsets, delete_group])
@pytest.mark.parametrize("committed", [9, None])
def test_a_commit_does_not_set_offsets_that_were_deleted_after_their_addition(
    history: History, forget: Callable[[Draft], None], committed: int | None
) -> None:
    if committed is not None:
        commit_plainly(history, committed)
    identity = history.init()
    history.add(identity, offsets=(offsets_of("g", 12), offsets_of("h", 13)))

    history.append(forget)

    assert pending_partitions(history.state, "g") == set()
    assert pending_partitions(history.state, "h") == {PLACE}
    assert history.transaction().deleted_offsets == frozenset()
    assert reloaded(history) == history.state
    history.commit(identity, keeps_epoch=True)
    assert (position(history), position(history, "h")) == (None, 13)


def test_an_offset_that_is_added_again_after_its_deletion_counts(history: History) -> None:
    identity = history.init()
    add_offset(history, identity, 5)
    history.append(delete_group)
    add_offset(history, identity, 6)

    history.commit(identity, keeps_epoch=True)

    assert position(history) == 6


@pytest.mark.scenario(162)
def test_an_offset_that_an_open_transaction_would_replace_does_not_expire(history: History) -> None:
    commit_plainly(history, 9)
    identity = history.init()
    add_offset(history, identity, 12)
    history.now_ms += OFFSETS_RETENTION_MS
    assert planned_expiry(history.state, history.now_ms) is None

    history.abort(identity, keeps_epoch=True)

    planned = planned_expiry(history.state, history.now_ms)
    assert planned is not None
    assert [each.group for each in planned.groups] == ["g"]


def test_an_expiry_reads_the_offsets_of_open_transactions_once(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise many offsets of a transaction slow down each process that follows the log."""
    for group in ("g", "h"):
        entry = OffsetsCommitted(committed=offsets_of(group, 9), time_ms=history.now_ms)
        history.append(lambda draft, entry=entry: draft.append(entry))
    add_offset(history, history.init(), 12, "other")
    history.now_ms += OFFSETS_RETENTION_MS
    original, reads = pending_offsets.pending_offsets, 0

    def counted(transaction: Transaction) -> Iterator[GroupPartition]:
        nonlocal reads
        reads += 1
        yield from original(transaction)

    monkeypatch.setattr(pending_offsets, "pending_offsets", counted)
    planned = planned_expiry(history.state, history.now_ms)

    assert planned is not None
    assert [each.group for each in planned.groups] == ["g", "h"]
    assert reads == 2  # to plan the expiry, and to apply it


def test_an_expiry_that_was_planned_before_the_addition_is_refused(history: History) -> None:
    commit_plainly(history, 9)
    history.now_ms += OFFSETS_RETENTION_MS
    planned = planned_expiry(history.state, history.now_ms)
    add_offset(history, history.init(), 12)

    assert isinstance(history.refused(lambda draft: draft.append(planned)), InvalidEntry)


def test_a_transaction_with_added_offsets_cannot_be_prepared(history: History) -> None:
    identity = history.init()
    history.add(identity, 0)
    add_offset(history, identity, 5)

    assert isinstance(prepare_refused(history, identity), InvalidTxnState)
    history.commit(identity, keeps_epoch=True)
    history.add(identity, 0)
    history.prepare(identity)
    assert history.transaction().prepared is not None


# The log


def test_a_checkpoint_of_an_open_transaction_holds_what_was_added(history: History) -> None:
    identity = history.init()
    history.add(identity, 1, offsets=(offsets_of("g", 5), offsets_of("g", 6, partition=1), offsets_of("h", 7)))

    state = reloaded(history)

    assert state == history.state
    assert len(state.transactions["tx"].added_offsets) == 3
    history.state = state
    history.commit(identity, keeps_epoch=True)
    assert (position(history), position(history, partition=1), position(history, "h")) == (5, 6, 7)


def test_a_field_that_a_later_version_adds_is_passed_over(history: History) -> None:
    entry = encode_entry(history.addition(history.init(), 0))
    entry["partitions"][0]["later"] = 1

    assert decode_entry(entry | {"later": 1}) == decode_entry(entry)


@pytest.mark.parametrize(
    "change",
    [
        {"transactional_id": ""},
        {"transactional_id": 7},
        {"producer_id": -1},
        {"producer_epoch": 2**15},
        {"partitions": None},
        {"partitions": {}},
        {"partitions": [[TOPIC_ID, 0]]},
        {"partitions": [{"topic_id": "../x", "partition": 0}]},
        {"partitions": [{"topic_id": TOPIC_ID, "partition": -1}]},
        {"partitions": [{"topic_id": TOPIC_ID, "partition": 2**31}]},
        {"partitions": [{"topic_id": TOPIC_ID}]},
        {"offsets": [{"group": "g"}]},
        {"offsets": [{"group": "", "offsets": []}]},
        {"offsets": [{"group": "g", "offsets": [{"topic_id": TOPIC_ID, "partition": 0, "offset": -1}]}]},
        {"offsets": [{"group": "g", "offsets": [{"topic_id": TOPIC_ID, "partition": 0, "offset": 2**80}]}]},
        {"time_ms": "now"},
        {"time_ms": -1},
        {"producer_id": None},
    ],
)
def test_a_hostile_addition_changes_nothing(history: History, change: dict[str, object]) -> None:
    identity = history.init()
    entry = encode_entry(history.addition(identity, 0))
    assert not is_inert(history.state.frozen_copy(), history.slot + 1, [entry])

    assert is_inert(history.state, history.slot + 1, [entry | change])


def test_the_same_partition_and_the_same_offset_twice_in_an_addition_are_one(history: History) -> None:
    history.add(history.init(), 0, 0, offsets=(offsets_of("g", 5), offsets_of("g", 6)))

    transaction = history.transaction()
    assert len(transaction.added_partitions) == 1
    assert [each.offset for each in transaction.added_offsets] == [6]
