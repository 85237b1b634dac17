"""What an error does to a producer: it ends a transaction, the producer, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.errors import (
    DeliveryTimedOut,
    EosLogError,
    IllegalGeneration,
    RequestTimedOut,
    StoreAccessDenied,
    TransactionAbortable,
    UnknownMember,
)
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.partitions import read
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty, values


def encoded(text: str) -> bytes:
    return text.encode("ascii")


REFUSED: dict[str, Callable[[Producer], object]] = {
    "a value that is not encoded": lambda producer: producer.send("t", "ß"),
    "an unknown topic": lambda producer: producer.send("nowhere", "v"),
    "an unknown partition": lambda producer: producer.send("t", "v", partition=9),
    "a header": lambda producer: producer.send("t", "v", headers=[("name", "text")]),  # type: ignore[list-item]
    "a callback": lambda producer: producer.send("t", "v", on_delivery="f"),  # type: ignore[arg-type]
    "a table": lambda producer: producer.send_table("t", pa.table({"columns": ["v"]})),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_commit_leaves_a_refused_record_out_unless_the_producer_fails_on_send_errors(
    store: Store, refused: str
) -> None:
    """Kafka's producer fails the transaction for the errors that the future of ``send`` reports (KAFKA-9279)."""
    lenient = store.producer("lenient", value_serializer=encoded)
    strict = store.producer("strict", value_serializer=encoded, fail_on_send_error=True)
    futures = []
    for producer in (lenient, strict):
        producer.init_transactions()
        producer.begin_transaction()
        futures.append(producer.send("t", f"{producer.transactional_id}"))
        with pytest.raises(errors.FatalError):
            REFUSED[refused](producer)

    lenient.commit_transaction()
    with pytest.raises(TransactionAbortable, match="because of"):
        strict.commit_transaction()

    assert strict.state == "abortable error"
    assert futures[1].exception(0) is strict.error
    strict.abort_transaction()
    strict.begin_transaction()
    strict.send("t", "again")
    strict.commit_transaction()
    assert values(store) == [b"again", b"lenient"]


def test_a_call_that_is_not_allowed_now_refuses_no_record(store: Store) -> None:
    producer = store.producer("tx", fail_on_send_error=True)
    producer.init_transactions()
    with pytest.raises(errors.IllegalState):
        producer.send("t", b"too early")
    producer.begin_transaction()
    producer.send("t", b"v")

    producer.commit_transaction()

    assert values(store) == [b"v"]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("denied", ["t/", SLOTS])
def test_without_a_transaction_a_refused_write_fails_the_rows_and_not_the_producer(store: Store, denied: str) -> None:
    """The flush tells it of rows that nobody waits for, and no later one writes them."""
    producer = store.producer()
    producer.send("t", b"0", partition=0)
    producer.flush()
    producer.send_table("t", pa.table({"value": [b"1"]}))
    future = producer.send("t", b"2", partition=0)
    faulty(store).deny(denied)
    with pytest.raises(errors.StoreAccessDenied):
        producer.flush()
    faulty(store).heal()

    after = [producer.send("t", b"%d" % number, partition=0) for number in (3, 4)]
    producer.flush()

    assert isinstance(future.exception(0), errors.StoreAccessDenied)
    assert [each.result(0).offset for each in after] == [1, 2]
    assert values(store) == [b"0", b"3", b"4"]


PLACE = TopicPartition("t", 0)


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.scenario(155)
@pytest.mark.parametrize("lost", [SLOTS, "t/"])
@pytest.mark.parametrize("others", [0, 2])
def test_a_batch_that_expires_drops_the_commit_that_waits_for_it(store: Store, lost: str, others: int) -> None:
    producer = open_transaction(store, "tx", delivery_timeout_ms=1_000)
    futures = [producer.send("t", b"%d" % number, partition=number % 2) for number in range(1 + others)]
    faulty(store).lose_answers(lost, lands=False)

    with pytest.raises(DeliveryTimedOut):
        producer.commit_transaction()

    faulty(store).heal()
    assert all(isinstance(future.exception(0), DeliveryTimedOut) for future in futures)
    with pytest.raises(TransactionAbortable):
        producer.commit_transaction()
    producer.abort_transaction()
    assert values(store) == []


@pytest.mark.scenario(155)
@pytest.mark.parametrize("lands", [True, False])
def test_an_abort_settles_a_batch_whose_outcome_is_unknown(store: Store, lands: bool) -> None:
    producer = open_transaction(store, "tx", max_block_ms=1_000)
    producer.send("t", b"doubtful", partition=0)
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(RequestTimedOut):
        producer.flush()
    faulty(store).heal()

    producer.abort_transaction()

    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()
    assert values(store) == [b"next"]
    assert store.admin.offsets("t")[0].last_stable_offset == store.admin.offsets("t")[0].high_watermark


@pytest.mark.scenario(155)
@pytest.mark.parametrize(
    ("stale", "error"), [({"member_id": "a stranger"}, UnknownMember), ({"generation": 100}, IllegalGeneration)]
)
def test_offsets_that_the_group_refuses_make_the_commit_impossible_and_the_abort_not(
    store: Store, world: World, stale: dict[str, Any], error: type[EosLogError]
) -> None:
    consumer = world.process().consumer("g")
    consumer.subscribe(["t"])
    consumer.poll(0)
    producer = open_transaction(store, "tx")
    producer.send("t", b"refused")
    producer.flush()
    producer.send_offsets_to_transaction({PLACE: 5}, consumer.group_metadata()._replace(**stale))
    with pytest.raises(error):
        producer.commit_transaction()
    with pytest.raises(TransactionAbortable):
        producer.commit_transaction()

    producer.abort_transaction()

    producer.begin_transaction()
    producer.send("t", b"next")
    producer.send_offsets_to_transaction({PLACE: 6}, consumer.group_metadata())
    producer.commit_transaction()
    assert values(store) == [b"next"]
    found = store.consumer("g").committed([PLACE])[PLACE]
    assert found is not None
    assert found.offset == 6


@pytest.mark.further("Producer client")
def test_a_failed_batch_drops_the_batches_behind_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = open_transaction(store, "tx", buffer_bytes=1)
    futures = [producer.send("t", b"0", partition=0)]
    faulty(store).deny(SLOTS)
    with pytest.raises(StoreAccessDenied):
        producer.send("t", b"1", partition=0)
    faulty(store).heal()
    with pytest.raises(TransactionAbortable):
        producer.send("t", b"2", partition=0)

    producer.abort_transaction()

    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()
    assert isinstance(futures[0].exception(0), StoreAccessDenied)
    assert [value for _, value in read(store, "t", "read_uncommitted")] == [b"next"]
