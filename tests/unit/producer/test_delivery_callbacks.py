"""``send(on_delivery=…)`` calls a function with the result of the record, as its future has it."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from eoslog import errors
from eoslog.session.positions import RecordMetadata
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty, values

Told = list[tuple[BaseException | None, RecordMetadata]]


def test_the_flush_tells_the_offsets_in_the_order_of_the_sends(store: Store) -> None:
    told: Told = []
    producer = store.producer()
    for number in range(3):
        producer.send("t", b"%d" % number, partition=0, on_delivery=lambda *given: told.append(given))
    assert told == []

    producer.flush()

    assert told == [(None, RecordMetadata("t", 0, offset)) for offset in range(3)]


def test_the_callback_runs_in_the_thread_that_flushes(store: Store) -> None:
    threads: list[threading.Thread] = []
    producer = store.producer()
    future = producer.send("t", b"v", on_delivery=lambda *given: threads.append(threading.current_thread()))

    flushing = threading.Thread(target=producer.flush)
    flushing.start()
    flushing.join()

    assert threads == [flushing]
    assert future.result().offset == 0


def test_staged_records_have_no_offset_yet(store: Store) -> None:
    told: Told = []
    producer = open_transaction(store, "tx", staged=True)
    producer.send("t", b"v", partition=1, on_delivery=lambda *given: told.append(given))

    producer.commit_transaction()

    assert told == [(None, RecordMetadata("t", 1, -1))]


def test_an_abort_tells_the_error_and_the_partition(store: Store) -> None:
    told: Told = []
    producer = open_transaction(store, "tx")
    producer.send("t", b"v", partition=1, on_delivery=lambda *given: told.append(given))

    producer.abort_transaction()

    ((error, metadata),) = told
    assert isinstance(error, errors.TransactionAborted)
    assert metadata == RecordMetadata("t", 1, -1)


def test_a_refused_flush_tells_its_error(store: Store) -> None:
    told: Told = []
    producer = store.producer()
    producer.send("t", b"v", on_delivery=lambda *given: told.append(given))
    faulty(store).deny(SLOTS)

    with pytest.raises(errors.StoreAccessDenied) as raised:
        producer.flush()

    assert [error for error, _ in told] == [raised.value]


def test_a_callback_may_send_the_record_again(store: Store, world: World) -> None:
    producer = store.producer()

    def again(error: BaseException | None, _: RecordMetadata) -> None:
        if error is not None:
            producer.send("t", b"again")

    producer.send("t", b"v", on_delivery=again)
    faulty(store).deny(SLOTS)
    with pytest.raises(errors.StoreAccessDenied):
        producer.flush()
    faulty(store).heal()
    producer.flush()

    assert values(world.process()) == [b"again"]


def test_an_error_of_a_callback_is_logged_and_disturbs_nothing(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*given: Any) -> None:
        raise ValueError("mine")

    producer = store.producer()
    producer.send("t", b"v", on_delivery=fail)
    with caplog.at_level(logging.ERROR):
        producer.flush()

    assert "mine" in caplog.text
    assert values(store) == [b"v"]


def test_a_send_that_raises_tells_nothing(store: Store) -> None:
    told: Told = []
    producer = store.producer()

    with pytest.raises(errors.SchemaMismatch):
        producer.send("t", "text", on_delivery=lambda *given: told.append(given))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidRequest, match="on_delivery must be a function"):
        producer.send("t", b"v", on_delivery="print")  # type: ignore[arg-type]
    producer.flush()

    assert told == []
    assert values(store) == []
