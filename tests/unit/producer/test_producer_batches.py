"""Batches of several producers in one call: one record, an answer or an error for each, and no row twice."""

from __future__ import annotations

import os
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pydantic_core import to_json

from eoslog import TopicConfig, errors
from eoslog.errors import EosLogError
from eoslog.format.file_writer import MOST_INLINE_BYTES, WrittenFile
from eoslog.log.replica import LogConfig
from eoslog.log.slots import LARGEST_RECORD_BYTES, slot_path
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer.producer_batches import (
    MOST_BATCHES,
    ProducerBatch,
    UploadedBatch,
    append_many,
    append_uploaded,
    new_producer,
    upload_many,
)
from eoslog.state.end_requests import EndTransaction, end_request
from eoslog.state.entry_fields import LONGEST_STATISTICS, FileReference, SharedPosition, shared_object_path
from eoslog.state.names import PartitionId
from eoslog.state.producer_ids import IDS_OF_SLOT, ProducerIdentity
from eoslog.state.state_machine import encode_entry
from eoslog.state.transaction_requests import InitProducerId
from eoslog.storage.object_store import PutOutcome
from eoslog.store import Store
from eoslog.verification.findings import Kind
from tests.unit.log.queueing import await_queued, held
from tests.unit.state.histories import TOPIC_ID
from tests.unit.support.overtaking import without_an_answer
from tests.unit.support.partitions import read
from tests.unit.support.world import SLOTS, World, faulty, values

DAY_MS = 24 * 3600 * 1000


def init(store: Store, transactional_id: str | None = None) -> ProducerIdentity:
    request = InitProducerId(transactional_id, timeout_ms=60_000, time_ms=store.now_ms())
    return store.append(request).identity


def rows(*values: bytes | None) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.binary())})


def batch(identity: ProducerIdentity, *values: bytes, **fields: Any) -> ProducerBatch:
    return ProducerBatch(
        **{
            "topic": "t",
            "partition": 0,
            "rows": rows(*(values or (b"v",))),
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
            "base_sequence": 0,
        }
        | fields
    )


def offsets(answers: list[Any]) -> list[Any]:
    """The base offset of each answer, or the kind of the error."""
    return [type(each) if isinstance(each, EosLogError) else each.base_offset for each in answers]


def requests(store: Store, call: Callable[[], object]) -> Counter[str]:
    before = store.requests.copy()
    call()
    return store.requests - before


# Requests


def test_small_batches_of_100_producers_are_one_request(store: Store, world: World) -> None:
    producers = [init(store) for _ in range(100)]
    batches = [batch(each, b"%d" % number, partition=number % 2) for number, each in enumerate(producers)]
    answers: list[Any] = []

    assert requests(store, lambda: answers.extend(append_many(store, batches))) == {"PUT": 1}

    assert offsets(answers) == [number // 2 for number in range(100)]
    assert [each.partition_id.partition for each in answers] == [number % 2 for number in range(100)]
    found = world.process().scan("t", columns=["partition", "offset", "value"]).to_table().to_pylist()
    wanted = [(number % 2, number // 2, b"%d" % number) for number in range(100)]
    assert sorted(tuple(row.values()) for row in found) == sorted(wanted)


def test_medium_batches_share_an_object_and_a_large_one_has_its_own(world: World) -> None:
    store = world.process(LogConfig(inline_limit_bytes=10_000, shared_limit_bytes=100_000))
    store.admin.create_topic("t", partitions=2)
    sizes = [100, 200_000, 20_000, 100, 20_000]
    sent = [os.urandom(size) for size in sizes]
    batches = [batch(init(store), value) for value in sent]
    store.read(lambda state, slot: None)

    assert requests(store, lambda: append_many(store, batches)) == {"PUT": 3}

    assert [value for _, value in read(world.process(), "t")] == sent


def test_nothing_is_written_for_no_batches_or_for_refused_ones(store: Store) -> None:
    wrong = batch(init(store), partition=7)
    store.read(lambda state, slot: None)

    assert append_many(store, []) == []
    assert requests(store, lambda: append_many(store, [wrong]))["PUT"] == 0


def test_more_batches_than_a_record_takes_are_refused_before_any_is_written(store: Store) -> None:
    batches = [batch(init(store))] * (MOST_BATCHES + 1)

    def too_many() -> None:
        with pytest.raises(errors.InvalidRequest, match="at most 1024 batches, not 1025"):
            append_many(store, batches)

    assert requests(store, too_many)["PUT"] == 0


@pytest.mark.parametrize("given", [None, 5, "batches", iter(())])
def test_batches_that_are_no_list_are_refused(given: Any, store: Store) -> None:
    with pytest.raises(errors.InvalidRequest, match="a list of ProducerBatch"):
        append_many(store, given)


def test_an_error_keeps_neither_rows_nor_drafts_in_memory(store: Store) -> None:
    identity = init(store)

    answers = append_many(store, [batch(identity, partition=7), batch(identity, base_sequence=5), batch(identity)])

    assert [isinstance(answer, errors.EosLogError) for answer in answers] == [True, True, False]
    assert all(answer.__traceback__ is None for answer in answers if isinstance(answer, errors.EosLogError))


def test_the_largest_record_fits_into_a_slot() -> None:
    largest_file = FileReference(
        path="p" * 2048,
        length=2**53 - 1,
        crc32c=2**32 - 1,
        footer_crc32c=2**32 - 1,
        shared=SharedPosition(path=shared_object_path(10**16 - 1, "f" * 32), position=2**53 - 1),
    )
    largest = WrittenFile(TOPIC_ID, 2**31 - 1, largest_file.path, 2**53 - 1, 2**32 - 1, 2**32 - 1, 2**31 - 1, -1, -1)
    entry = largest.batch(
        transactional_id="\U0001d11e" * 1024,
        producer_id=2**63 - 1,
        producer_epoch=32767,
        base_sequence=2**31 - 1,
        upload_ms=2**53 - 1,
        time_ms=2**53 - 1,
    ).model_copy(update={"statistics": "\U0001d11e" * LONGEST_STATISTICS, "file": largest_file})

    entries_bytes = len(to_json(encode_entry(entry))) * MOST_BATCHES
    files_bytes = len(b64encode(bytes(MOST_INLINE_BYTES))) + 2100 * MOST_BATCHES

    assert entries_bytes + files_bytes < LARGEST_RECORD_BYTES


# Answers


REFUSED: dict[str, tuple[dict[str, Any], type[EosLogError]]] = {
    "unknown topic": ({"topic": "unknown"}, errors.UnknownTopicOrPartition),
    "a topic that is no name": ({"topic": ["t"]}, errors.InvalidRequest),
    "unknown partition": ({"partition": 2}, errors.UnknownTopicOrPartition),
    "a partition that is no number": ({"partition": "0"}, errors.UnknownTopicOrPartition),
    "other columns": ({"rows": pa.table({"other": [1]})}, errors.SchemaMismatch),
    "another type": ({"rows": pa.table({"value": [1.5]})}, errors.SchemaMismatch),
    "no timestamp": ({"rows": pa.table({"value": [b"v"], "timestamp": [2**62]})}, errors.SchemaMismatch),
    "no rows": ({"rows": rows()}, errors.InvalidRequest),
    "no table": ({"rows": [b"v"]}, errors.InvalidRequest),
    "no key in a compacted topic": ({"topic": "compacted"}, errors.InvalidRecord),
    "a producer id below 0": ({"producer_id": -1}, errors.InvalidRequest),
    "a producer id of another store": ({"producer_id": 2**62}, errors.UnknownProducerId),
    "an epoch below 0": ({"producer_epoch": -1}, errors.InvalidRequest),
    "an epoch that is too high": ({"producer_epoch": 32768}, errors.InvalidRequest),
    "a sequence below 0": ({"base_sequence": -1}, errors.InvalidRequest),
    "a sequence that is too high": ({"base_sequence": 2**31}, errors.InvalidRequest),
    "a sequence that is no number": ({"base_sequence": True}, errors.InvalidRequest),
    "a gap": ({"base_sequence": 1}, errors.OutOfOrderSequence),
    "an odd transactional id": ({"transactional_id": ""}, errors.InvalidRequest),
    "an unknown transactional id": ({"transactional_id": "unknown"}, errors.InvalidProducerIdMapping),
}


@pytest.mark.parametrize(("fields", "error"), REFUSED.values(), ids=REFUSED)
def test_a_refused_batch_has_its_own_error_and_leaves_the_others_alone(
    fields: dict[str, Any], error: type[EosLogError], store: Store, world: World
) -> None:
    store.admin.create_topic("compacted", config=TopicConfig(cleanup_policy="compact"))
    first, wrong, last = (init(store) for _ in range(3))

    answers = append_many(store, [batch(first, b"1"), batch(wrong, **fields), batch(last, b"2")])

    assert offsets(answers) == [0, error, 1]
    assert read(world.process(), "t") == [(0, b"1"), (1, b"2")]


def test_what_is_no_batch_has_an_error_and_leaves_the_others_alone(store: Store) -> None:
    answers = append_many(store, [batch(init(store)), "t"])  # type: ignore[list-item]

    assert offsets(answers) == [0, errors.InvalidRequest]


def test_an_answer_names_the_partition_and_the_number_of_rows(store: Store) -> None:
    (answer,) = append_many(store, [batch(init(store), b"1", b"2", partition=1)])

    topic_id = store.read(lambda state, slot: state.topic_ids["t"])
    assert answer == (PartitionId(topic_id, 1), 0, 2)


def test_batches_of_one_producer_in_a_partition_follow_each_other(store: Store) -> None:
    identity = init(store)

    answers = append_many(
        store,
        [
            batch(identity, b"1", b"2"),
            batch(identity, b"3", base_sequence=2),
            batch(identity, b"other partition", partition=1),
            batch(identity, b"4", base_sequence=3),
        ],
    )

    assert offsets(answers) == [0, 2, 0, 3]
    assert [value for _, value in read(store, "t")] == [b"1", b"2", b"3", b"4"]


def test_a_batch_that_is_given_twice_in_a_call_is_written_once(store: Store) -> None:
    identity = init(store)

    assert offsets(append_many(store, [batch(identity, b"1"), batch(identity, b"1")])) == [0, 0]
    assert values(store) == [b"1"]


def test_rows_of_topics_with_columns_and_of_kafka_records(store: Store, world: World) -> None:
    store.admin.create_topic("columns", schema={"name": "string", "number": "long"})
    identity = init(store)
    table = pa.table({"number": [1, 2], "name": ["a", "b"]})
    timestamp = pa.array([5], pa.timestamp("ms", tz="UTC"))
    record = pa.table({"key": [b"k"], "value": [None], "timestamp": timestamp}).cast(
        pa.schema({"key": pa.binary(), "value": pa.binary(), "timestamp": timestamp.type})
    )

    answers = append_many(
        store,
        [
            batch(identity, topic="columns", rows=table.to_batches()[0]),
            batch(identity, rows=record),
            batch(identity, rows=rows(b"without a timestamp"), base_sequence=1),
        ],
    )

    assert offsets(answers) == [0, 0, 1]
    cold = world.process()
    assert cold.scan("columns", columns=["name", "number"]).to_table().to_pylist() == [
        {"name": "a", "number": 1},
        {"name": "b", "number": 2},
    ]
    times = cold.scan("t", columns=["timestamp"]).to_table()["timestamp"].cast(pa.int64()).to_pylist()
    assert times[0] == 5_000  # In microseconds, as Spark has them.
    assert abs(times[1] // 1000 - world.time_ms) < 10_000


def test_a_topic_or_column_that_another_process_has_just_added_is_found(store: Store, world: World) -> None:
    store.admin.create_topic("columns", schema={"name": "string"})
    identity = init(store)
    other = world.process()
    other.admin.create_topic("new")
    other.admin.add_columns("columns", {"number": "long"})
    table = pa.table({"name": ["a"], "number": [1]})

    answers = append_many(
        store, [batch(identity, topic="new"), batch(identity, topic="columns", rows=table), batch(identity)]
    )

    assert offsets(answers) == [0, 0, 0]


def test_the_batches_of_a_transaction_belong_to_it(store: Store, world: World) -> None:
    transactional, alone = init(store, "tx"), init(store)

    append_many(store, [batch(transactional, b"open", transactional_id="tx"), batch(alone, b"alone", partition=1)])

    assert values(world.process()) == [b"alone"]
    store.append(EndTransaction(end_request("tx", transactional, "commit", time_ms=store.now_ms())))
    assert values(world.process()) == [b"alone", b"open"]
    late = batch(transactional, b"late", base_sequence=1, transactional_id="tx")
    assert offsets(append_many(store, [late])) == [errors.ProducerFenced]


# Producers without transactional id


def test_a_producer_raises_its_epoch_by_itself(store: Store) -> None:
    identity = init(store)
    raised = identity._replace(producer_epoch=1)
    append_many(store, [batch(identity, b"1")])

    answers = append_many(store, [batch(raised, b"2"), batch(identity, b"late", base_sequence=1)])

    assert offsets(answers) == [1, errors.InvalidProducerEpoch]
    assert values(store) == [b"1", b"2"]


def test_a_producer_begins_anew_after_its_id_has_expired(store: Store, world: World) -> None:
    identity = init(store)
    append_many(store, [batch(identity, b"1")])
    world.pass_time(2 * DAY_MS)
    assert Coordinator(world.process()).expire_producer_ids() == [identity.producer_id]

    assert offsets(append_many(store, [batch(identity, b"gap", base_sequence=1)])) == [errors.UnknownProducerId]
    assert offsets(append_many(store, [batch(identity, b"2")])) == [1]
    assert offsets(append_many(store, [batch(identity, b"3", base_sequence=1)])) == [2]


def test_no_producer_gets_an_id_that_another_one_has_made_up(store: Store) -> None:
    made_up = ProducerIdentity((init(store).producer_id // IDS_OF_SLOT + 2) * IDS_OF_SLOT, 0)
    assert offsets(append_many(store, [batch(made_up)])) == [errors.UnknownProducerId]

    store.admin.create_topic("before-that-slot")

    assert init(store) == made_up


# Uploads


@pytest.mark.usefixtures("files_are_objects")
def test_uploaded_batches_are_no_rows_until_they_are_appended(store: Store, world: World) -> None:
    first, second = new_producer(store), new_producer(store)
    uploaded = upload_many(store, [batch(first, b"1"), batch(second, partition=9), batch(second, b"2")])

    assert [type(each) for each in uploaded] == [UploadedBatch, errors.UnknownTopicOrPartition, UploadedBatch]
    assert values(world.process()) == []

    appended = [each for each in uploaded if isinstance(each, UploadedBatch)]
    assert requests(store, lambda: append_uploaded(store, appended))["PUT"] == 1
    assert values(world.process()) == [b"1", b"2"]
    assert offsets(append_uploaded(store, appended)) == [0, 1]
    assert values(world.process()) == [b"1", b"2"]


def test_uploaded_rows_can_become_the_batch_of_another_producer(store: Store) -> None:
    first, second = new_producer(store), new_producer(store)
    uploaded = [each for each in upload_many(store, [batch(first, b"v", b"w")]) if isinstance(each, UploadedBatch)]

    assert offsets(append_uploaded(store, [each.of_producer(*second, 0) for each in uploaded])) == [0]

    assert offsets(append_many(store, [batch(second, b"x", base_sequence=2), batch(first, b"y")])) == [2, 3]
    assert values(store) == [b"v", b"w", b"x", b"y"]


# Failures


@pytest.mark.parametrize("lands", [True, False])
def test_batches_whose_answer_was_lost_are_repeated_and_written_once(lands: bool, store: Store, world: World) -> None:
    batches = [batch(init(store), b"%d" % number, partition=number % 2) for number in range(6)]
    without_an_answer(store, lambda: append_many(store, batches), lands=lands)

    answers = append_many(store, batches)

    assert offsets(answers) == [0, 0, 1, 1, 2, 2]
    assert offsets(append_many(world.process(), batches)) == offsets(answers)
    assert values(world.process()) == [b"%d" % number for number in range(6)]


def test_a_lost_race_for_the_slot_changes_the_offsets_and_the_errors(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = init(store), init(store)
    other = world.process()
    put, winners = store.object_store.put_if_absent, []

    def outrun(path: str, body: bytes) -> PutOutcome:
        if path.startswith(SLOTS) and not winners:
            winners.append(append_many(other, [batch(second, b"of the winner")]))
        return put(path, body)

    monkeypatch.setattr(store.object_store, "put_if_absent", outrun)

    answers = append_many(store, [batch(first, b"1"), batch(second, b"gap", base_sequence=2), batch(second, b"2")])

    # The last batch has the sequence of the winner's batch, so it is the same one.
    assert offsets(answers) == [1, errors.OutOfOrderSequence, 0]
    assert read(world.process(), "t") == [(0, b"of the winner"), (1, b"1")]


class _Killed(BaseException):
    pass


@pytest.mark.usefixtures("files_are_objects")
def test_a_process_that_is_killed_between_its_files_and_its_record_has_written_nothing(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [batch(init(store), b"%d" % number) for number in range(3)]
    killed = world.process()

    def reached(point: str) -> None:
        if point == "client.producer.files_uploaded":
            raise _Killed

    monkeypatch.setattr(killed.environment, "reached", reached)
    with pytest.raises(_Killed):
        append_many(killed, batches)
    assert len([info for info in store.object_store.list("t/") if info.path.endswith(".parquet")]) == 3
    assert values(store) == []

    assert offsets(append_many(store, batches)) == [0, 1, 2]
    assert values(world.process()) == [b"0", b"1", b"2"]
    assert {each.kind for each in world.process().admin.verify(data=True)} == {Kind.FILES_UNREFERENCED}


def test_a_store_that_refuses_the_record_refuses_all_batches(store: Store) -> None:
    batches = [batch(init(store))]
    faulty(store).deny(SLOTS)

    with pytest.raises(errors.StoreAccessDenied):
        append_many(store, batches)


# Group commit


def test_the_calls_of_several_threads_and_other_appends_share_a_record(store: Store, world: World) -> None:
    producers = [init(store) for _ in range(4)]
    answers: dict[int, list[Any]] = {}
    calls: list[Callable[[], object]] = [
        lambda: answers.update({0: append_many(store, [batch(producers[0], b"0"), batch(producers[1], b"1")])}),
        lambda: store.admin.create_topic("meanwhile"),
        lambda: answers.update({1: append_many(store, [batch(producers[2], partition=9), batch(producers[3], b"2")])}),
    ]
    threads = [threading.Thread(target=call) for call in calls]

    def all_at_once() -> None:
        with held(store.log):
            for count, thread in enumerate(threads, 1):
                thread.start()
                await_queued(store.log, count)
        for thread in threads:
            thread.join()

    assert requests(store, all_at_once)["PUT"] == 1

    assert offsets(answers[0]) == [0, 1]
    assert offsets(answers[1]) == [errors.UnknownTopicOrPartition, 2]
    assert "meanwhile" in world.process().admin.list_topics()
    assert values(world.process()) == [b"0", b"1", b"2"]


def test_the_record_of_a_call_is_in_one_slot(store: Store) -> None:
    slot = store.read(lambda state, slot: slot)
    identity = init(store)

    append_many(store, [batch(identity, base_sequence=number) for number in range(3)])

    body = store.object_store.get(slot_path(slot + 2)).body
    assert body.splitlines()[0].count(b'"type":"batch"') == 3
