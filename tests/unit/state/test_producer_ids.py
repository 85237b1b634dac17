"""The producer id and epoch of each init, and the producers that it fences (KIP-360 under transaction version 2)."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.errors import (
    InvalidEntry,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
    RecordFull,
    UnknownProducerId,
)
from eoslog.state.draft import Draft
from eoslog.state.entries import (
    DEFAULT_MAX_TRANSACTION_TIMEOUT_MS,
    Expired,
    ExpiredTransactionalId,
    StoreConfigChanged,
)
from eoslog.state.producer_ids import (
    IDS_OF_JOB,
    IDS_OF_SLOT,
    LAST_USABLE_EPOCH,
    MAX_TASKS,
    ProducerIdentity,
    check_timeout,
    task_producer_id,
)
from eoslog.state.state_machine import encode_entry
from eoslog.state.transaction_entries import ProducerInitialized
from eoslog.state.transaction_requests import InitProducerId
from tests.unit.state.answers import is_inert
from tests.unit.state.histories import NOBODY, History


def test_a_repeated_init_is_fenced_once_its_successor_has_a_transaction_open() -> None:
    """The answer would give one epoch to two producers."""
    history = History()
    first = history.init()
    second = history.init(expected=first)
    history.send(second)

    assert isinstance(history.refused(lambda draft: init(draft, expected=first)), ProducerFenced)


def test_an_init_entry_over_an_open_transaction_is_invalid() -> None:
    history = History()
    identity = history.init()
    entry = history.records[-1][0]
    history.send(identity)

    from eoslog.state.state_machine import decode_entry

    assert isinstance(history.refused(lambda draft: draft.append(decode_entry(entry))), InvalidEntry)


def test_the_epoch_below_the_last_usable_one_is_still_moved_on() -> None:
    history = History()
    first = history.init()
    history.at_epoch(LAST_USABLE_EPOCH - 1)

    assert history.init() == (first.producer_id, LAST_USABLE_EPOCH)


def test_the_new_ids_of_one_record_follow_each_other() -> None:
    history = History()

    ids = history.append(lambda draft: [init(draft, name).producer_id for name in ("tx", "other", "third")])

    first = history.slot * IDS_OF_SLOT
    assert ids == [first, first + 1, first + 2]


def test_a_record_has_room_for_two_jobs_or_for_a_job_and_many_producers() -> None:
    history = History()

    def three(draft: Draft) -> None:
        for name in ("tx", "other", "third"):
            init(draft, name, kind="job")

    def mixed(draft: Draft) -> list[int]:
        kinds = ["producer", "job", "producer"]
        return [init(draft, f"tx{at}", kind=kind).producer_id for at, kind in enumerate(kinds)]

    assert isinstance(history.refused(three), RecordFull)
    first, job, last = history.append(mixed)
    assert (job, last) == (first + 1, task_producer_id(job, MAX_TASKS - 1) + 1)


def test_a_job_under_the_id_of_a_producer_gets_producer_ids_for_its_tasks() -> None:
    """The ids after the producer's belong to other producers."""
    history = History()
    producer, neighbor = history.append(lambda draft: (init(draft), init(draft, "other")))

    job = history.append(lambda draft: init(draft, kind="job"))

    assert job == (history.slot * IDS_OF_SLOT, 0)
    assert neighbor.producer_id == task_producer_id(producer.producer_id, 0)
    assert history.transaction().previous_producer_id == producer.producer_id
    assert history.append(lambda draft: init(draft, kind="job")) == (job.producer_id, 1)


def test_a_job_fences_the_producer_that_held_its_transactional_id() -> None:
    history = History()
    producer = history.init()
    history.append(lambda draft: init(draft, kind="job", owner="run"))

    assert isinstance(history.refused(lambda draft: init(draft, expected=producer)), ProducerFenced)


def test_a_producer_has_no_tasks_although_a_job_held_its_transactional_id() -> None:
    history = History()
    history.job("run", history.staged(task=0), tasks=3)
    assert history.transaction("job").task_count == 3

    history.init("job")

    assert history.transaction("job").task_count == 0


def test_a_producer_under_the_id_of_a_job_keeps_the_producer_id() -> None:
    history = History()
    job = history.append(lambda draft: init(draft, kind="job"))

    assert history.init() == (job.producer_id, 1)


def test_a_job_that_exhausts_its_epochs_gets_producer_ids_for_its_tasks() -> None:
    history = History()
    history.append(lambda draft: init(draft, kind="job"))
    history.at_epoch(LAST_USABLE_EPOCH)

    job, neighbor = history.append(lambda draft: (init(draft, kind="job"), init(draft, "other")))

    assert job == (history.slot * IDS_OF_SLOT, 0)
    assert neighbor.producer_id == task_producer_id(job.producer_id, MAX_TASKS - 1) + 1


def test_a_job_takes_over_an_open_transaction_at_the_last_epoch() -> None:
    """The abort gives the producer a new id, and the job needs another one."""
    history = History()
    history.init()
    history.send(history.at_epoch(LAST_USABLE_EPOCH))

    assert history.append(lambda draft: init(draft, kind="job")).producer_id // IDS_OF_SLOT == history.slot


def test_two_inits_that_move_epochs_on_fit_into_one_record() -> None:
    history = History()
    first, second = history.init(), history.init("other")

    def both(draft: Draft) -> tuple[ProducerIdentity, ProducerIdentity]:
        return init(draft), init(draft, "other")

    assert history.append(both) == ((first.producer_id, 1), (second.producer_id, 1))


def test_a_child_of_a_record_continues_with_the_ids_after_those_that_it_gave_out() -> None:
    history = History()

    def propose(draft: Draft) -> list[int]:
        ids = []
        for name in ("tx", "other"):
            child = draft.child()
            ids.append(init(child, name).producer_id)
            child.merge()
        return ids

    first, second = history.append(propose)
    assert second == first + 1


def test_a_child_that_is_dropped_takes_no_id() -> None:
    history = History()

    def propose(draft: Draft) -> int:
        init(draft.child())
        return init(draft).producer_id

    assert history.append(propose) == history.slot * IDS_OF_SLOT


def test_the_ids_of_tasks_follow_that_of_their_job() -> None:
    job = 5 * IDS_OF_SLOT

    assert task_producer_id(job, 0) == job + 1
    assert task_producer_id(job, MAX_TASKS - 1) == job + IDS_OF_JOB - 1


def test_the_id_of_a_jobs_task_is_not_given_to_anybody_else() -> None:
    history = History()
    history.job("run", history.staged(task=0))

    assert isinstance(history.refused(lambda draft: init(draft, "job/0")), InvalidRequest)
    assert isinstance(history.refused(lambda draft: init(draft, "job/99")), InvalidRequest)
    assert history.init("job/zero").producer_epoch == 0
    assert history.init("another/0").producer_epoch == 0


@pytest.mark.parametrize("transactional_id", ["", "x" * 1025, "a\nb", "\x7f"])
def test_a_transactional_id_must_be_printable_and_short(transactional_id: str) -> None:
    assert isinstance(History().refused(lambda draft: init(draft, transactional_id)), Exception)


@pytest.mark.scenario(87)
@pytest.mark.parametrize("timeout_ms", [0, -1, DEFAULT_MAX_TRANSACTION_TIMEOUT_MS + 1, 2**31])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    error = History().refused(lambda draft: InitProducerId("tx", timeout_ms=timeout_ms, time_ms=0).take(draft))

    assert isinstance(error, InvalidTransactionTimeout)
    check_timeout(1)
    check_timeout(2**31 - 1)


def test_only_producers_with_a_transactional_id_have_a_timeout_that_the_store_limits() -> None:
    history = History()
    history.append(lambda draft: draft.append(StoreConfigChanged(max_transaction_timeout_ms=10)))

    history.init(None, timeout_ms=11)
    history.init("job", kind="job", timeout_ms=11)

    refused = history.refused(lambda draft: InitProducerId("tx", timeout_ms=11, time_ms=1).take(draft))
    assert isinstance(refused, InvalidTransactionTimeout)
    same = history.refused(lambda draft: draft.append(StoreConfigChanged(max_transaction_timeout_ms=10)))
    assert isinstance(same, InvalidEntry)


def test_a_batch_of_an_unregistered_id_is_refused() -> None:
    history = History()
    history.init(None)
    batch = history.batch(NOBODY, transactional_id=None)

    assert isinstance(history.refused(lambda draft: draft.append(batch).base_offset), UnknownProducerId)


@pytest.mark.scenario(138)
def test_after_expiry_the_same_transactional_id_gets_a_new_producer_id() -> None:
    history = History()
    first = history.init()
    expired = ExpiredTransactionalId(
        transactional_id="tx", producer_id=first.producer_id, producer_epoch=first.producer_epoch
    )
    history.append(lambda draft: draft.append(Expired(transactional_ids=(expired,))))

    assert history.init().producer_id == history.slot << 20
    batch = history.batch(first)
    assert isinstance(history.refused(lambda draft: draft.append(batch).base_offset), InvalidProducerIdMapping)


def init(draft: Draft, transactional_id: str = "tx", **options: Any) -> ProducerIdentity:
    return InitProducerId(transactional_id, timeout_ms=60_000, time_ms=1, **options).take(draft)


@pytest.mark.scenario(120)
def test_the_ids_of_a_jobs_tasks_are_a_block_that_overlaps_no_other(history: History) -> None:
    job = history.job("run", history.staged(task=0)).producer_id
    following = history.init(None).producer_id
    block = range(job, task_producer_id(job, MAX_TASKS - 1) + 1)

    assert len(block) == IDS_OF_JOB
    assert following not in block
    assert following % IDS_OF_SLOT == job % IDS_OF_SLOT == 0


@pytest.mark.scenario(120)
def test_a_record_that_gives_out_the_id_of_another_slot_is_inert(history: History) -> None:
    taken = history.init(None).producer_id
    again = ProducerInitialized(timeout_ms=1, producer_id=taken, producer_epoch=0, time_ms=0)

    assert is_inert(history.state, history.slot + 1, [encode_entry(again)])


@pytest.mark.further("Transaction coordinator")
def test_ids_rise_with_the_log(history: History) -> None:
    ids = [history.init(None).producer_id for _ in range(5)]

    assert ids == sorted(set(ids))
