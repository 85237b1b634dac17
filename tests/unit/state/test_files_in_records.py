"""The rules of data files whose content travels in the record of their entry."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidEntry, StagedFilesExpired
from eoslog.state.append_requests import AppendBatches
from eoslog.state.draft import Draft
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request
from eoslog.state.entries import HorizonMoved, LogStartMoved
from eoslog.state.entry_fields import FileReference
from eoslog.state.partitions import LONGEST_EMBEDDED_MS, oldest_needed_record, sealable_end
from eoslog.state.transaction_entries import BatchAppended, StagedBatch
from tests.unit.state.histories import TOPIC_ID, History, in_record


def batch_in_record(batch: BatchAppended) -> BatchAppended:
    return batch.model_copy(update={"file": in_record(batch.file)})


def staged_in_record(history: History) -> StagedBatch:
    batch = history.staged()
    return batch.model_copy(update={"file": in_record(batch.file)})


@pytest.mark.parametrize("content", [None, b"too short", bytes(99) + b"x"])
def test_a_batch_is_refused_without_the_whole_content_of_its_file(content: bytes | None) -> None:
    history = History()
    batch = batch_in_record(history.batch(history.init()))
    files = {} if content is None else {batch.file.path: content}

    assert isinstance(history.refused(AppendBatches([batch], files).apply), InvalidEntry)


def test_a_commit_is_refused_without_the_content_of_a_staged_file() -> None:
    history = History()
    content = TransactionContent(batches=[staged_in_record(history)])
    request = end_request("tx", history.init(), "commit", content=content, time_ms=history.now_ms)

    assert isinstance(history.refused(EndTransaction(request).apply), InvalidEntry)


def test_the_record_of_a_repeated_batch_does_not_have_its_content_again() -> None:
    history = History()
    identity = history.init()
    batches = [batch_in_record(history.batch(identity, sequence)) for sequence in (0, 1)]
    contents = {batch.file.path: bytes(batch.file.length) for batch in batches}
    history.append(AppendBatches(batches[:1], contents).apply)
    taken: dict[str, bytes] = {}

    def propose(draft: Draft) -> None:
        AppendBatches(batches, contents).apply(draft)
        taken.update(draft.files)

    history.append(propose)

    assert list(taken) == [batches[1].file.path]


def test_a_record_has_one_file_of_a_path() -> None:
    history = History()
    batch = batch_in_record(history.batch(history.init(None), transactional_id=None))
    again = batch_in_record(history.batch(history.init(None), transactional_id=None)).model_copy(
        update={"file": batch.file}
    )
    contents = {batch.file.path: bytes(batch.file.length)}

    def both(draft: Draft) -> None:
        AppendBatches([batch], contents).apply(draft)
        AppendBatches([again], contents).apply(draft.child())

    assert isinstance(history.refused(both), InvalidEntry)


def test_no_age_makes_vacuum_a_danger_to_a_file_in_a_record() -> None:
    history = History()
    identity = history.init()
    history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=history.now_ms)))

    refused = history.refused(lambda draft: draft.append(history.batch(identity)))
    assert isinstance(refused, StagedFilesExpired)
    assert history.send_in_record(identity) == 0

    batch = staged_in_record(history)
    request = end_request("tx", identity, "commit", content=TransactionContent(batches=[batch]), time_ms=history.now_ms)
    history.append(EndTransaction(request, {batch.file.path: bytes(batch.file.length)}).apply)


def test_a_prepared_transaction_may_wait_too_long_for_files_in_records() -> None:
    history = History()
    identity = history.init()
    with pytest.raises(InvalidEntry, match="must not be in a record"):
        history.prepare(identity, batches=[staged_in_record(history)])


def test_a_seal_replaces_each_run_of_files_in_records_by_a_data_file() -> None:
    history = History(partitions=1)
    identity = history.init(None)
    for sequence, send in enumerate((history.send_in_record, history.send_in_record, history.send)):
        send(identity, sequence, transactional_id=None)
    history.send_in_record(identity, 3, transactional_id=None)
    first_slot = history.partition().active[0].slot
    assert oldest_needed_record(history.state) == first_slot

    data = tuple(history.data_file().model_copy(update={"length": 150}) for _ in range(2))
    for wrong in ((), data[:1]):
        entry = history.seal_entry(4, data=wrong)
        assert isinstance(history.refused(lambda draft, entry=entry: draft.append(entry)), InvalidEntry)
    history.append(lambda draft: draft.append(history.seal_entry(4, data=data)))

    (segment,) = history.partition().sealed
    assert (segment.batch_count, segment.file_count, segment.bytes) == (4, 3, 2 * 150 + 100)
    assert history.partition().active_bytes == 0
    (deletion,) = history.state.pending_deletions
    assert deletion.oldest_record == first_slot
    # Plans that were made before the seal still read the records.
    assert oldest_needed_record(history.state) == first_slot


def test_the_files_of_a_seal_are_objects_in_its_partition() -> None:
    history = History()
    history.send_in_record(history.init(None), transactional_id=None)
    elsewhere = history.data_file(partition=1)
    in_a_record = history.data_file().model_copy(update={"in_record": True})

    for file in (elsewhere, in_a_record):
        entry = history.seal_entry(1, data=(file,))
        assert isinstance(history.refused(lambda draft, entry=entry: draft.append(entry)), InvalidEntry)


def test_dropped_rows_keep_their_record_until_vacuum_has_seen_to_it() -> None:
    history = History(partitions=1)
    history.send_in_record(history.init(None), transactional_id=None)
    slot = history.slot

    moved = LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=1, reason="delete_records", time_ms=history.now_ms)
    history.append(lambda draft: draft.append(moved))

    (deletion,) = history.state.pending_deletions
    assert (deletion.files, deletion.oldest_record) == ((), slot)


def test_a_deleted_topic_keeps_its_records_as_long_as_its_files() -> None:
    history = History(partitions=2)
    identity = history.init(None)
    history.send_in_record(identity, transactional_id=None, partition=1)
    slot = history.slot

    history.delete_topic()

    (deletion,) = history.state.pending_deletions
    assert deletion.oldest_record == slot


def test_rows_do_not_stay_in_records_for_long() -> None:
    history = History(partitions=2)
    identity = history.init(None)
    history.send_in_record(identity, transactional_id=None)
    history.send(identity, transactional_id=None, partition=1)
    config = history.state.topics[TOPIC_ID].config

    def end(partition: int, age_ms: int) -> int | None:
        return sealable_end(history.partition(partition), config, history.now_ms + age_ms)

    assert end(0, LONGEST_EMBEDDED_MS) is None
    assert end(0, LONGEST_EMBEDDED_MS + 1) == 1
    assert end(1, LONGEST_EMBEDDED_MS + 1) is None


def test_a_reference_to_an_object_says_nothing_of_records() -> None:
    with pytest.raises(ValueError, match="in_record"):
        FileReference.model_validate({"path": "t/x", "length": 1, "crc32c": 1, "in_record": False})
