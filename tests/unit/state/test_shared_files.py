"""The rules of data files whose content is in an object that they share with others."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidEntry, StagedFilesExpired
from eoslog.state.draft import Draft
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request
from eoslog.state.entries import HorizonMoved, LogStartMoved
from eoslog.state.entry_fields import FileReference, shared_object_path
from eoslog.state.partitions import LONGEST_EMBEDDED_MS, LONGEST_UNNAMED_MS, sealable_end
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.transaction_entries import BatchAppended, StagedBatch
from tests.unit.state.histories import TOPIC_ID, History, shared

NOW_MS = 10 * LONGEST_UNNAMED_MS
PRODUCER = ProducerIdentity(2 << 20, 0)
"""The id that the first producer of a store gets."""


def batch(history: History, sequence: int = 0, *, age_ms: int = 0, partition: int = 0) -> BatchAppended:
    """A batch of an idempotent producer."""
    found = history.batch(PRODUCER, sequence, transactional_id=None, partition=partition)
    return found.model_copy(update={"file": shared(found.file, history.now_ms - age_ms)})


def staged(history: History, age_ms: int) -> StagedBatch:
    found = history.staged()
    return found.model_copy(update={"file": shared(found.file, history.now_ms - age_ms)})


@pytest.fixture
def history() -> History:
    """A history with a producer that has no transactional id."""
    history = History(partitions=2)
    history.now_ms = NOW_MS
    assert history.init(None) == PRODUCER
    return history


def test_a_shared_object_may_be_named_for_a_day_of_the_log(history: History) -> None:
    late = batch(history, age_ms=LONGEST_UNNAMED_MS)
    assert isinstance(history.refused(lambda draft: draft.append(late)), StagedFilesExpired)

    history.append(lambda draft: draft.append(batch(history, age_ms=LONGEST_UNNAMED_MS - 1)))

    identity = history.init()

    def commit(age_ms: int) -> EndTransaction:
        content = TransactionContent(batches=[staged(history, age_ms)], upload_ms=history.now_ms)
        return EndTransaction(end_request("tx", identity, "commit", content=content, time_ms=history.now_ms))

    assert isinstance(history.refused(commit(LONGEST_UNNAMED_MS).apply), StagedFilesExpired)
    history.append(commit(LONGEST_UNNAMED_MS - 1).apply)


def test_a_shared_object_up_to_the_horizon_may_not_be_named(history: History) -> None:
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=history.now_ms - 5)))

    old, new = batch(history, age_ms=5), batch(history, age_ms=4)

    assert isinstance(history.refused(lambda draft: draft.append(old)), StagedFilesExpired)
    history.append(lambda draft: draft.append(new))


def test_a_repeated_batch_is_recognized_however_old_its_object_is(history: History) -> None:
    first = batch(history)
    history.append(lambda draft: draft.append(first))
    history.now_ms += 2 * LONGEST_UNNAMED_MS

    again = first.model_copy(update={"time_ms": history.now_ms})

    assert not isinstance(history.refused(lambda draft: draft.append(again)), StagedFilesExpired)


def test_a_transaction_may_be_prepared_with_shared_objects() -> None:
    history = History()
    history.now_ms = NOW_MS
    identity = history.init()
    with pytest.raises(StagedFilesExpired):
        history.prepare(identity, batches=[staged(history, LONGEST_UNNAMED_MS)])

    named = history.prepare(identity, batches=[staged(history, 0)])
    history.now_ms += 2 * LONGEST_UNNAMED_MS
    history.commit(named)

    assert history.partition().active[0].file is not None


def test_a_seal_leaves_the_time_of_the_oldest_object_whose_rows_it_moved(history: History) -> None:
    for sequence, age_ms in enumerate((10, 30, 20)):
        history.append(lambda draft, s=sequence, a=age_ms: draft.append(batch(history, s, age_ms=a)))

    for wrong in ((), (shared(history.data_file(), history.now_ms),)):
        entry = history.seal_entry(3, data=wrong)
        assert isinstance(history.refused(lambda draft, entry=entry: draft.append(entry)), InvalidEntry)
    sealed = history.seal_entry(3, data=(history.data_file(),))
    history.append(lambda draft: draft.append(sealed))

    (deletion,) = history.state.pending_deletions
    assert deletion.oldest_shared_ms == history.now_ms - 30
    assert deletion.oldest_record is None


def test_the_seals_of_one_record_leave_one_deletion(history: History) -> None:
    for partition, age_ms in ((0, 10), (1, 20)):
        history.append(lambda draft, p=partition, a=age_ms: draft.append(batch(history, partition=p, age_ms=a)))
    entries = [history.seal_entry(1, partition, data=(history.data_file(partition),)) for partition in (0, 1)]

    history.append(lambda draft: [draft.append(entry) for entry in entries])

    (deletion,) = history.state.pending_deletions
    assert deletion.oldest_shared_ms == history.now_ms - 20
    history.delete_topic()
    assert len(history.state.pending_deletions) == 2


def test_a_seal_may_divide_moved_rows_into_several_files(history: History) -> None:
    for sequence in range(2):
        history.append(lambda draft, s=sequence: draft.append(batch(history, s)))

    history.append(lambda draft: draft.append(history.seal_entry(2, data=(history.data_file(), history.data_file()))))

    (segment,) = history.partition().sealed
    assert segment.file_count == 2


def test_a_seal_without_moved_rows_has_no_new_files(history: History) -> None:
    history.send(PRODUCER, transactional_id=None)
    entry = history.seal_entry(1, data=(history.data_file(),))

    assert isinstance(history.refused(lambda draft: draft.append(entry)), InvalidEntry)


@pytest.mark.parametrize("how", ["log start", "topic"])
def test_dropped_rows_leave_the_time_of_their_oldest_object(how: str, history: History) -> None:
    history.append(lambda draft: draft.append(batch(history, age_ms=7)))
    dropped_ms = history.now_ms - 7
    moved = LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=1, reason="delete_records", time_ms=history.now_ms)

    if how == "topic":
        history.delete_topic()
    else:
        history.append(lambda draft: draft.append(moved))

    (deletion,) = history.state.pending_deletions
    assert (deletion.files, deletion.oldest_shared_ms) == ((), dropped_ms)


def test_rows_do_not_stay_in_shared_objects_for_long(history: History) -> None:
    history.append(lambda draft: draft.append(batch(history)))
    history.send(PRODUCER, transactional_id=None, partition=1)
    config = history.state.topics[TOPIC_ID].config

    def end(partition: int, age_ms: int) -> int | None:
        return sealable_end(history.partition(partition), config, history.now_ms + age_ms)

    assert end(0, LONGEST_EMBEDDED_MS) is None
    assert end(0, LONGEST_EMBEDDED_MS + 1) == 1
    assert end(1, LONGEST_EMBEDDED_MS + 1) is None


@pytest.mark.parametrize(
    "change",
    [
        {"in_record": True},
        {"shared": {"path": "__shared_files/x", "position": 0}},
        {"shared": {"path": "../" + shared_object_path(1, "5" * 32), "position": 0}},
        {"shared": {"path": shared_object_path(1, "5" * 32) + "\n", "position": 0}},
        {"shared": {"path": shared_object_path(1, "5" * 32), "position": -1}},
        {"shared": {"path": shared_object_path(1, "5" * 32)}},
    ],
)
def test_a_wrong_place_of_a_file_is_refused(change: dict[str, object]) -> None:
    sound = {"path": "t/x", "length": 1, "crc32c": 1}
    place = {"path": shared_object_path(1, "5" * 32), "position": 0}
    assert FileReference.model_validate(sound | {"shared": place}).object_path == place["path"]

    with pytest.raises(ValueError, match="shared"):
        FileReference.model_validate(sound | {"shared": place} | change)


def test_the_draft_takes_no_content_of_a_shared_file(history: History) -> None:
    def propose(draft: Draft) -> None:
        draft.append(batch(history))
        assert draft.files == {}

    history.append(propose)
