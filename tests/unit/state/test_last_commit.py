"""What is kept of a transactional id's last commit, and commits whose work was done before."""

from __future__ import annotations

from typing import Any

from eoslog.errors import TransactionAborted
from eoslog.format.checkpoint_codec import parts, restore
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request
from eoslog.state.partition_state import Outcome
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.store_state import LastCommit, TopicRows, TransactionState
from eoslog.state.transaction_entries import ApplicationVersion
from tests.unit.state.histories import TOPIC_ID, History, offsets_of


def application_version(version: int) -> ApplicationVersion:
    return ApplicationVersion(application_id="app", sink="*", version=version)


def commit(history: History, identity: ProducerIdentity, version: int, **options: Any) -> tuple[object, bool]:
    content = TransactionContent(application_version=application_version(version), **options)
    request = end_request("tx", identity, "commit", content=content, time_ms=history.now_ms)
    answer: tuple[object, bool] = history.append(lambda draft: EndTransaction(request).apply(draft))
    return answer


def test_a_commit_leaves_its_slot_identity_application_version_offsets_and_rows() -> None:
    history = History()
    identity = history.init()
    history.send(identity, count=3)
    history.send(identity, count=2, partition=1)
    offsets = offsets_of("g", 7)

    history.commit(
        identity,
        application_version=application_version(4),
        offsets=(offsets,),
        batches=(history.staged(5),),
        upload_ms=history.now_ms,
    )

    assert history.transaction().last_commit == LastCommit(
        slot=history.slot,
        time_ms=history.now_ms,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        application_version=application_version(4),
        offsets=(offsets,),
        rows=(TopicRows(topic_id=TOPIC_ID, rows=10),),
    )
    assert history.follower == history.state


def test_it_outlives_aborts_inits_and_checkpoints() -> None:
    history = History()
    identity = history.init()
    history.send(identity)
    after = history.commit(identity)
    known = history.transaction().last_commit

    history.send(after)
    history.abort(after)
    history.init()

    assert known is not None
    assert history.transaction().last_commit == known
    restored = restore({part.name: part.encode() for part in parts(history.state, history.slot)})
    assert restored == history.state


def test_a_commit_of_a_known_version_aborts_and_reports_it() -> None:
    history = History()
    identity = history.init()
    history.send(identity)
    first, done = commit(history, identity, 5)
    assert done
    assert isinstance(first, ProducerIdentity)
    history.send(first, partition=1)
    known = history.transaction().last_commit

    again, done = commit(history, first, 5)

    assert not done
    assert again == first._replace(producer_epoch=first.producer_epoch + 1)
    assert history.transaction().state is TransactionState.COMPLETE_ABORT
    assert {batch.outcome for batch in history.partition(1).active} == {Outcome.ABORTED}
    assert history.transaction().last_commit == known


def test_a_replay_with_nothing_open_takes_no_slot() -> None:
    history = History()
    identity = history.init()
    after, _ = commit(history, identity, 5, batches=(history.staged(),), upload_ms=history.now_ms)
    assert isinstance(after, ProducerIdentity)
    slot = history.slot

    assert commit(history, after, 4, batches=(history.staged(),), upload_ms=history.now_ms) == (after, False)
    assert history.slot == slot


def test_a_repeated_call_is_answered_as_the_first_one_was() -> None:
    history = History()
    identity = history.init()
    history.send(identity)
    first = commit(history, identity, 5)
    assert commit(history, identity, 5) == first
    after = first[0]
    assert isinstance(after, ProducerIdentity)
    history.send(after)
    replayed = commit(history, after, 5)
    slot = history.slot

    assert commit(history, after, 5) == replayed
    assert replayed[1] is False
    assert history.slot == slot


def test_a_commit_of_new_work_that_was_aborted_meanwhile_is_no_replay() -> None:
    history = History()
    identity = history.init()
    history.send(identity)
    history.abort_by_admin()
    content = TransactionContent(application_version=application_version(1))
    request = end_request("tx", identity, "commit", content=content, time_ms=history.now_ms)

    assert isinstance(history.refused(lambda draft: EndTransaction(request).apply(draft)), TransactionAborted)
