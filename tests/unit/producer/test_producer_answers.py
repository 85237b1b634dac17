"""Answers that are lost: the same call again, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.producer.rows import RecordRow
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import CALLS, SLOTS, faulty, values


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("transactional_id", ["tx", None])
def test_a_flush_without_an_answer_is_repeated_and_writes_once(
    store: Store, lands: bool, transactional_id: str | None
) -> None:
    producer = store.producer(transactional_id, transaction_timeout_ms=900_000)
    if transactional_id:
        producer.init_transactions()
        producer.begin_transaction()
    else:
        producer.send("t", b"0", partition=0)
        producer.flush()
    future = producer.send("t", b"1", partition=0)
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        producer.flush()
    faulty(store).heal()

    producer.flush()
    producer.send("t", b"2", partition=0)
    if transactional_id:
        producer.commit_transaction()
    producer.close()

    assert values(store) == ([b"1", b"2"] if transactional_id else [b"0", b"1", b"2"])
    assert future.result(0).offset == (0 if transactional_id else 1)


@pytest.mark.scenario(119)
@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize(("staged", "call"), [(False, "commit"), (False, "abort"), (True, "commit")])
def test_an_end_without_an_answer_is_repeated_and_done_once(store: Store, lands: bool, staged: bool, call: str) -> None:
    producer = open_transaction(store, "tx", staged=staged)
    producer.send("t", b"first", partition=0)
    producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        CALLS[call](producer)
    for other in set(CALLS) - {call, "close"}:
        with pytest.raises(errors.IllegalState):
            CALLS[other](producer)
    faulty(store).heal()

    CALLS[call](producer)
    producer.begin_transaction()
    producer.send("t", b"second", partition=0)
    producer.commit_transaction()

    assert values(store) == ([b"first", b"second"] if call == "commit" else [b"second"])
    committed = store.consumer("g").committed([TopicPartition("t", 0)])[TopicPartition("t", 0)]
    assert (committed is not None) == (call == "commit")


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize(("staged", "call"), [(False, "commit"), (False, "abort"), (True, "commit"), (True, "prepare")])
def test_an_end_without_an_answer_that_the_store_then_refuses_is_still_unknown(
    store: Store, lands: bool, staged: bool, call: str
) -> None:
    """A refusal says that nothing was written by it, and nothing of the put before it."""
    producer = open_transaction(store, "tx", staged=staged)
    producer.send("t", b"1")
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        CALLS[call](producer)
    faulty(store).heal()
    faulty(store).deny(SLOTS)
    with pytest.raises(errors.CommitStateUnknown):
        CALLS[call](producer)
    faulty(store).heal()

    CALLS[call](producer)
    if call == "prepare":
        producer.complete_transaction(producer.prepared_transaction or "")

    assert values(store) == ([] if call == "abort" else [b"1"])


def test_a_flush_after_an_abort_without_an_answer_writes_nothing(store: Store) -> None:
    producer = open_transaction(store, "tx")
    producer.send("t", b"1")
    producer.flush()
    producer.send("t", b"2")
    faulty(store).lose_answers(SLOTS, lands=True)
    with pytest.raises(errors.CommitStateUnknown):
        producer.abort_transaction()
    faulty(store).heal()

    producer.flush()
    producer.abort_transaction()

    assert values(store, isolation_level="read_uncommitted") == [b"1"]
    producer.begin_transaction()
    producer.send("t", b"3")
    producer.commit_transaction()
    assert values(store) == [b"3"]


def test_records_are_written_once_though_their_encoding_was_stopped_half_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eoslog.producer import record_accumulator

    producer = store.producer()
    producer.send("t", b"1", partition=0)
    producer.send("t", b"2", partition=1)
    encode = record_accumulator.records_table
    calls: list[object] = []

    def stopped(rows: Sequence[RecordRow]) -> pa.Table:
        calls.append(rows)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encode(rows)

    monkeypatch.setattr(record_accumulator, "records_table", stopped)
    with pytest.raises(KeyboardInterrupt):
        producer.flush()

    producer.flush()

    assert values(store) == [b"1", b"2"]


@pytest.mark.parametrize("lands", [True, False])
def test_the_store_resolves_a_commit_without_an_answer(store: Store, lands: bool) -> None:
    producer = open_transaction(store, "tx")
    producer.send("t", b"v")
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown) as unknown:
        producer.commit_transaction()
    faulty(store).heal()

    assert store.resolve(unknown.value) is lands
    assert values(store) == ([b"v"] if lands else [])
