"""Produce requests: offsets, duplicates, errors, and the order of rows."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from eoslog.gateway.protocol import ApiKey
from eoslog.maintenance.coordinator import Coordinator
from eoslog.storage.object_store import PutOutcome
from eoslog.store import Store
from tests.unit.gateway.kafka_batches import Record, built, changed
from tests.unit.gateway.raw_client import (
    NO_PRODUCER,
    Client,
    Producer,
    Running,
    batch,
    produce,
    produce_values,
    running,
    versions_of,
)
from tests.unit.support.partitions import read
from tests.unit.support.world import SLOTS, World, faulty

DAY_MS = 24 * 3600 * 1000


def init(client: Client) -> Producer:
    answer = client.call(ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout=timedelta(seconds=60))
    assert answer.error_code is ErrorCode.none
    return Producer(answer.producer_id, answer.producer_epoch, 0)


def after(producer: Producer, sequence: int) -> Producer:
    return producer._replace(base_sequence=sequence)


@pytest.mark.parametrize("version", versions_of(ApiKey.PRODUCE))
def test_rows_are_appended_and_their_offset_is_answered(store: Store, world: World, version: int) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        (first,) = produce(client, ("t", 0, batch(b"a", b"b")), version=version)
        (second,) = produce(client, ("t", 0, batch(b"c")), version=version)

        assert [(each.error_code, each.base_offset) for each in (first, second)] == [
            (ErrorCode.none, 0),
            (ErrorCode.none, 2),
        ]
    assert read(world.process(), "t") == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_keys_headers_nulls_and_timestamps_arrive(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"", None, key=b"k", headers=[("h", b"1"), ("h", None)])))

    rows = world.process().scan("t").to_table().to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(b"k", b""), (b"k", None)]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert rows[1]["timestamp"].timestamp() == 1_700_000_000.001


def test_a_repeated_batch_of_an_idempotent_producer_gets_its_first_offset(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        producer = init(client)
        sent = [batch(b"%d" % number, producer=after(producer, number)) for number in range(3)]
        offsets = [produce(client, ("t", 0, each))[0].base_offset for each in sent]

        (again,) = produce(client, ("t", 0, sent[1]))

        assert offsets == [0, 1, 2]
        assert (again.error_code, again.base_offset) == (ErrorCode.none, 1)
    assert len(read(world.process(), "t")) == 3


def test_a_repeated_batch_is_recognized_by_another_gateway(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        producer = init(client)
        produce(client, ("t", 0, batch(b"0", producer=producer)))
    with running(world.process()) as gateway, Client(gateway.port) as client:
        (again,) = produce(client, ("t", 0, batch(b"0", producer=producer)))
        (then,) = produce(client, ("t", 0, batch(b"1", producer=after(producer, 1))))

    assert (again.base_offset, then.base_offset) == (0, 1)


def test_a_gap_in_the_sequences_is_refused(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        producer = init(client)
        produce(client, ("t", 0, batch(b"0", producer=producer)))

        (gap,) = produce(client, ("t", 0, batch(b"2", producer=after(producer, 2))))
        (next_one,) = produce(client, ("t", 0, batch(b"1", producer=after(producer, 1))))

    assert gap.error_code is ErrorCode.out_of_order_sequence_number
    assert (gap.base_offset, next_one.base_offset) == (-1, 1)


def test_an_older_epoch_is_refused(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        producer = init(client)
        produce(client, ("t", 0, batch(b"new", producer=producer._replace(producer_epoch=1))))

        (old,) = produce(client, ("t", 0, batch(b"old", producer=producer)))

    assert old.error_code is ErrorCode.invalid_producer_epoch


def test_a_producer_id_that_does_not_exist_is_refused(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        (answer,) = produce(client, ("t", 0, batch(b"x", producer=Producer(1 << 40, 0, 3))))

    assert answer.error_code is ErrorCode.unknown_producer_id


def test_a_batch_without_epoch_or_with_a_brokers_times_is_refused(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        producer = init(client)
        no_epoch, times = produce(
            client,
            ("t", 0, batch(b"x", producer=producer._replace(producer_epoch=-1))),
            ("t", 0, changed(batch(b"x", producer=producer), attributes=8)),
        )

    assert no_epoch.error_code is ErrorCode.invalid_producer_epoch
    assert times.error_code is ErrorCode.invalid_timestamp


def test_batches_of_one_request_are_answered_one_by_one(store: Store, world: World) -> None:
    store.admin.create_topic("columns", schema={"n": "long"})
    damaged = bytearray(batch(b"damaged"))
    damaged[-1] ^= 1
    with running(store) as gateway, Client(gateway.port) as client:
        answers = produce(
            client,
            ("t", 0, batch(b"good")),
            ("missing", 0, batch(b"x")),
            ("t", 9, batch(b"x")),
            ("columns", 0, batch(b"x")),
            ("t", 0, bytes(damaged)),
            ("t", 0, b""),
            ("t", 0, b"\0" * 7),
            ("t", 0, batch(b"x", transactional=1, producer=Producer(1, 0, 0))),
            ("t", 1, batch(b"good, too")),
        )

    assert [each.error_code for each in answers] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_record,
        ErrorCode.corrupt_message,
        ErrorCode.invalid_record,
        ErrorCode.corrupt_message,
        ErrorCode.invalid_record,
        ErrorCode.none,
    ]
    assert all(each.error_message for each in answers if each.error_code is not ErrorCode.none)
    assert "columns of its own" in answers[3].error_message
    assert read(world.process(), "t") == [(0, b"good")]


@pytest.mark.parametrize("version", versions_of(ApiKey.PRODUCE))
def test_records_without_key_are_named_in_a_compacted_topic(store: Store, version: int) -> None:
    store.admin.create_topic("compacted", config={"cleanup.policy": "compact"})
    mixed = built([Record(number, None if number % 2 else b"key") for number in range(3000)])
    with running(store) as gateway, Client(gateway.port) as client:
        answers = produce(client, ("compacted", 0, batch(b"x")), ("compacted", 0, mixed), version=version)
        (kept,) = produce(client, ("compacted", 0, batch(b"x", key=b"key")), version=version)

    assert [each.error_code for each in answers] == [ErrorCode.invalid_record] * 2
    assert (kept.error_code, kept.base_offset) == (ErrorCode.none, 0)
    if version >= 8:
        assert [each.batch_index for each in answers[0].record_errors] == [0]
        assert [each.batch_index for each in answers[1].record_errors] == list(range(1, 2000, 2))
        assert answers[0].record_errors[0].batch_index_error_message == answers[0].error_message


def test_a_batch_above_the_limit_of_its_topic_is_refused_as_it_is_sent(store: Store) -> None:
    small, large = batch(b"x" * 500), batch(b"x" * 501)
    compressed = batch(b"x" * 5_000, compression=1)
    store.admin.create_topic("limited", config={"max.message.bytes": len(small)})
    with running(store) as gateway, Client(gateway.port) as client:
        answers = produce(client, ("limited", 0, small), ("limited", 0, large), ("limited", 0, compressed))
        store.admin.alter_topic("limited", max_message_bytes=None)
        (unlimited,) = produce(client, ("limited", 0, large))

    assert [each.error_code for each in answers] == [
        ErrorCode.none,
        ErrorCode.message_too_large,
        ErrorCode.none,
    ]
    assert f"the batch has {len(large)} bytes" in answers[1].error_message
    assert unlimited.error_code is ErrorCode.none


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(store: Store, acks: int) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        (answer,) = produce(client, ("t", 0, batch(b"x")), acks=acks)

    assert answer.error_code is ErrorCode.invalid_required_acks


def test_acks_0_gets_no_answer_and_rows_keep_their_order(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        for number in range(5):
            client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"%d" % number)), acks=0))
        (answer,) = produce(client, ("t", 0, batch(b"5")))

        assert answer.base_offset == 5
    assert [value for _, value in read(world.process(), "t")] == [b"%d" % number for number in range(6)]


def test_acks_0_learns_of_an_error_by_the_end_of_its_connection(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        client.send(ApiKey.PRODUCE, 9, **produce_values(("missing", 0, batch(b"x")), acks=0))

        assert client.is_closed


# The batches of many clients


def test_waiting_batches_of_all_connections_share_a_record(store: Store) -> None:
    with running(store, linger_ms=300) as gateway, Client(gateway.port) as first:
        clients = [Client(gateway.port) for _ in range(20)]
        slot = store.read(lambda state, slot: slot)
        first.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"first"))))
        for number, client in enumerate(clients):
            client.send(ApiKey.PRODUCE, 9, **produce_values(("t", number % 2, batch(b"%d" % number))))

        answers = [client.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses[0] for client in clients]

        assert len({each.base_offset for each in answers}) >= 10
        # One for the gateway's own producer id, one for the first batch, and one or two for all others.
        assert store.read(lambda state, slot: slot) <= slot + 4
        for client in clients:
            client.socket.close()


def test_batches_are_uploaded_while_earlier_ones_are_appended_and_all_others_collect(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    points: list[str] = []
    may_put = threading.Event()
    put_if_absent = store.object_store.put_if_absent

    def put_later(path: str, body: bytes) -> PutOutcome:
        assert may_put.wait(20)
        return put_if_absent(path, body)

    def wait_for_uploads(count: int) -> None:
        deadline = time.monotonic() + 20
        while points.count("gateway.batches.uploaded") < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"before")))
        monkeypatch.setattr(store.object_store, "put_if_absent", put_later)
        monkeypatch.setattr(store.environment, "reached", points.append)
        slot = store.read(lambda state, slot: slot)
        for number in range(10):
            client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"%d" % number))))
            if number < 2:
                wait_for_uploads(number + 1)
        time.sleep(0.1)
        assert points.count("gateway.batches.uploaded") == 2
        may_put.set()

        answers = [client.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses[0] for _ in range(10)]
        assert [each.base_offset for each in answers] == [*range(1, 11)]
        assert store.read(lambda state, slot: slot) == slot + 3


# Without an answer of the store


def send_during_an_outage(gateway: Running, client: Client, store: Store, sent: bytes, *, lands: bool) -> Any:
    """Produce a batch whose record gets no answer. The object store answers again a little later."""
    faulty(store).lose_answers(SLOTS, lands=lands)
    client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, sent)))
    time.sleep(0.3)
    faulty(store).heal()
    return client.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses[0]


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_batch_is_appended_once_though_its_answer_was_lost(
    store: Store, world: World, lands: bool, is_idempotent: bool
) -> None:
    with running(store, append_timeout_ms=1 << 40) as gateway, Client(gateway.port) as client:
        producer = init(client) if is_idempotent else NO_PRODUCER
        produce(client, ("t", 0, batch(b"0", producer=producer)))
        answer = send_during_an_outage(
            gateway, client, store, batch(b"1", producer=after(producer, 1) if is_idempotent else producer), lands=lands
        )

        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 1)
    assert read(world.process(), "t") == [(0, b"0"), (1, b"1")]


def test_a_client_that_waits_no_longer_may_repeat_its_batch(store: Store, world: World) -> None:
    with running(store, append_timeout_ms=1 << 40) as gateway, Client(gateway.port) as client:
        producer = init(client)
        faulty(store).go_down()
        (late,) = produce(client, ("t", 0, batch(b"0", producer=producer)), timeout_ms=100)
        faulty(store).heal()
        (again,) = produce(client, ("t", 0, batch(b"0", producer=producer)))

    assert late.error_code is ErrorCode.request_timed_out
    assert (again.error_code, again.base_offset) == (ErrorCode.none, 0)
    assert read(world.process(), "t") == [(0, b"0")]


@pytest.mark.usefixtures("files_are_objects")
def test_rows_whose_upload_failed_are_uploaded_again_before_later_rows(store: Store, world: World) -> None:
    with running(store, append_timeout_ms=1 << 40) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"0")))
        faulty(store).lose_answers("", lands=False)
        client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"1"))))
        time.sleep(0.2)
        client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"2"))))
        faulty(store).heal()

        answers = [client.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses[0] for _ in range(2)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(ErrorCode.none, 1), (ErrorCode.none, 2)]
    assert sorted(read(world.process(), "t")) == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_a_store_that_does_not_answer_for_long_refuses_batches_with_a_retriable_error(store: Store) -> None:
    with running(store, append_timeout_ms=1_000) as gateway, Client(gateway.port) as client:
        producer = init(client)
        faulty(store).go_down()
        (refused,) = produce(client, ("t", 0, batch(b"0", producer=producer)))
        faulty(store).heal()
        (again,) = produce(client, ("t", 0, batch(b"0", producer=producer)))

    assert refused.error_code in (ErrorCode.not_enough_replicas, ErrorCode.request_timed_out)
    assert again.error_code is ErrorCode.none


def test_a_store_that_may_not_be_written_refuses_batches_for_good(store: Store) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        producer = init(client)
        faulty(store).deny(SLOTS)
        (refused,) = produce(client, ("t", 0, batch(b"0", producer=producer)))

        assert refused.error_code is ErrorCode.cluster_authorization_failed
        assert not refused.error_code.retriable


# The gateway's own producer


def test_rows_keep_their_order_when_the_gateways_own_producer_has_expired(store: Store, world: World) -> None:
    with running(store, linger_ms=50) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"0")), ("t", 1, batch(b"other")))
        world.pass_time(2 * DAY_MS)
        assert Coordinator(world.process()).expire_producer_ids()
        for number in range(1, 40):
            client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"%d" % number))))

        answers = [client.answer(ApiKey.PRODUCE, 9).responses[0].partition_responses[0] for _ in range(1, 40)]

        assert [each.error_code for each in answers] == [ErrorCode.none] * 39
        assert [each.base_offset for each in answers] == [*range(1, 40)]
    assert [value for _, value in sorted(read(world.process(), "t"))] == [b"%d" % number for number in range(40)]


def test_rows_keep_their_order_when_a_topic_was_created_again(store: Store, world: World) -> None:
    with running(store) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"of the old topic")))
        store.admin.delete_topic("t")
        store.admin.create_topic("t", partitions=2)

        offsets = [produce(client, ("t", 0, batch(b"%d" % number)))[0].base_offset for number in range(3)]

        assert offsets == [0, 1, 2]
    assert sorted(read(world.process(), "t")) == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_after_an_unknown_outcome_the_gateways_own_producer_is_another_one(store: Store, world: World) -> None:
    with running(store, append_timeout_ms=1_000) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"0")))
        faulty(store).lose_answers(SLOTS, lands=True)
        (unknown,) = produce(client, ("t", 0, batch(b"1")))
        faulty(store).heal()
        (then,) = produce(client, ("t", 0, batch(b"2")))

    assert unknown.error_code.retriable
    assert then.error_code is ErrorCode.none
    assert [value for _, value in sorted(read(world.process(), "t"))] == [b"0", b"1", b"2"]


# Memory


def test_large_batches_wait_for_memory_and_all_are_appended(store: Store, world: World) -> None:
    with running(store, row_bytes=3 << 20, request_bytes=3 << 20, max_batch_bytes=2 << 20) as gateway:
        clients = [Client(gateway.port) for _ in range(8)]
        for client in clients:
            client.socket.settimeout(60)
        threads = [
            threading.Thread(
                target=client.send,
                args=(ApiKey.PRODUCE, 9),
                kwargs=produce_values(
                    *[("t", number % 2, batch(bytes(500_000), compression=1)) for number in range(4)]
                ),
            )
            for client in clients
        ]
        for thread in threads:
            thread.start()
        answers = [client.answer(ApiKey.PRODUCE, 9) for client in clients]
        for thread, client in zip(threads, clients, strict=True):
            thread.join()
            client.socket.close()

        codes = {
            each.error_code for answer in answers for topic in answer.responses for each in topic.partition_responses
        }
        assert codes == {ErrorCode.none}
        assert gateway.in_loop(lambda: (gateway.gateway._rows.free, gateway.gateway._requests.free)) == (
            3 << 20,
            3 << 20,
        )
    assert world.process().scan("t").to_table().num_rows == 32


# Crash points


class _Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("point", "kept"),
    [("gateway.batches.uploaded", 0), ("gateway.batches.appended", 1), ("gateway.own_producer.renewed", 0)],
)
def test_a_gateway_that_is_killed_leaves_batches_that_a_client_may_repeat(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, point: str, kept: int
) -> None:
    killed = world.process()
    renewed = point == "gateway.own_producer.renewed"
    with running(killed) as gateway, Client(gateway.port) as client:
        producer = NO_PRODUCER if renewed else init(client)
        if renewed:
            produce(client, ("t", 1, batch(b"other")))
            world.pass_time(2 * DAY_MS)
            assert Coordinator(world.process()).expire_producer_ids()

        def reached(found: str) -> None:
            if found == point:
                raise _Killed

        monkeypatch.setattr(killed.environment, "reached", reached)
        client.send(ApiKey.PRODUCE, 9, **produce_values(("t", int(renewed), batch(b"0", producer=producer))))
        assert client.is_closed
    assert isinstance(gateway.failure, BaseExceptionGroup)
    assert len(read(world.process(), "t")) == kept

    with running(store) as gateway, Client(gateway.port) as client:
        (again,) = produce(client, ("t", 0, batch(b"0", producer=producer)))
    assert (again.error_code, again.base_offset) == (ErrorCode.none, 0)
    assert read(world.process(), "t") == [(0, b"0")]


@pytest.mark.parametrize("lands", [True, False])
def test_a_gateway_that_is_killed_before_its_own_producer_has_a_new_identity_keeps_the_order(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    killed = world.process()
    with running(killed, append_timeout_ms=1_000) as gateway, Client(gateway.port) as client:
        produce(client, ("t", 0, batch(b"0")))

        def reached(found: str) -> None:
            if found == "gateway.own_producer.forgotten":
                raise _Killed

        monkeypatch.setattr(killed.environment, "reached", reached)
        faulty(killed).lose_answers(SLOTS, lands=lands)
        client.send(ApiKey.PRODUCE, 9, **produce_values(("t", 0, batch(b"1"))))
        assert client.is_closed
    assert isinstance(gateway.failure, BaseExceptionGroup)

    with running(store) as gateway, Client(gateway.port) as client:
        offsets = [produce(client, ("t", 0, batch(value)))[0].base_offset for value in (b"1", b"2")]
    # The client repeats the batch without sequences, so a batch that has landed is there twice, as with a broker.
    rows = [b"0", b"1", b"1", b"2"] if lands else [b"0", b"1", b"2"]
    assert read(world.process(), "t") == list(enumerate(rows))
    assert offsets == [len(rows) - 2, len(rows) - 1]
