"""Streams and numbered batch writes that go on with a copy of their store."""

from __future__ import annotations

import pytest

import eoslog
from eoslog.errors import (
    CheckpointMismatch,
)
from tests.unit.pyspark_eoslog.write.sink.sinks import (
    batch,
    new_process,
    numbers,
    stream,
    told,
)


def copied(store: eoslog.Store, *, new_identity: bool = False) -> eoslog.Store:
    target = eoslog.connect(f"{store.url}-copy", fsync=False)
    store.admin.copy(target, new_identity=new_identity)
    new_process()
    return target


def test_a_query_continues_on_a_copy_with_the_same_identity(store: eoslog.Store) -> None:
    stream(store, "q", 0, 1)

    target = copied(store)
    stream(target, "q", 0, 1)
    stream(target, "q", 1, 2)

    assert numbers(target) == [1, 2]


def test_a_copy_lacks_the_micro_batches_after_it(store: eoslog.Store) -> None:
    stream(store, "q", 0, 1)
    target = copied(store)
    new_process()
    stream(store, "q", 1, 2)

    new_process()
    stream(target, "q", 2, 3)

    assert numbers(target) == [1, 3]


def test_a_query_of_the_source_is_refused_by_a_copy_with_a_new_identity(store: eoslog.Store) -> None:
    source_id = store.describe().store_id
    stream(store, "q", 0, 1)

    target = copied(store, new_identity=True)
    for batch_id in (0, 1):
        with pytest.raises(CheckpointMismatch, match=f"startAnewAfter='q@{source_id}:0'"):
            stream(target, "q", batch_id, 2)

    assert numbers(target) == [1]
    for batch_id in (1, 2):
        stream(target, "q", batch_id, batch_id + 1, startanewafter=f"q@{source_id}:0", run="new run")
    assert numbers(target) == [1, 2, 3]
    new_process()
    stream(store, "q", 1, 2)
    assert numbers(store) == [1, 2]


def test_a_copied_checkpoint_repeats_nothing_on_a_copy_with_a_new_identity(store: eoslog.Store) -> None:
    stream(store, "q", 0, 1)

    target = copied(store, new_identity=True)
    stream(target, "q", 0, 1, checkpointlocation="/copied")
    stream(target, "q", 1, 2, checkpointlocation="/copied")

    assert numbers(target) == [1, 2]


def test_a_copied_checkpoint_repeats_nothing_on_the_second_copy_of_a_copy(store: eoslog.Store) -> None:
    source_id = store.describe().store_id
    stream(store, "q", 0, 1)
    first = copied(store, new_identity=True)
    stream(first, "q", 1, 2, startanewafter=f"q@{source_id}:0", run="new run")

    second = copied(first, new_identity=True)
    stream(second, "q", 1, 2, checkpointlocation="/copied")

    assert numbers(second) == [1, 2]


def test_copied_checkpoints_of_queries_with_similar_ids_repeat_nothing(store: eoslog.Store) -> None:
    ids = {"q": "etl@eu", "r": "etl@us"}
    for number, (query, named) in enumerate(ids.items()):
        stream(store, query, 0, number, transactionalid=named)

    target = copied(store, new_identity=True)
    for number, (query, named) in enumerate(ids.items()):
        stream(target, query, 0, number, transactionalid=f"{named}-copied")

    assert numbers(target) == [0, 1]


def test_a_foreach_batch_of_the_source_is_refused_by_a_copy_with_a_new_identity(store: eoslog.Store) -> None:
    batch(store, 1, txnappid="etl", txnversion="0")

    target = copied(store, new_identity=True)

    with pytest.raises(CheckpointMismatch, match="other work"):
        batch(target, 2, txnappid="etl", txnversion="1")
    assert numbers(target) == [1]


def test_numbered_work_outside_of_streams_continues_on_any_copy(store: eoslog.Store) -> None:
    told(None)
    batch(store, 1, txnappid="etl", txnversion="0")

    target = copied(store, new_identity=True)
    batch(target, 1, txnappid="etl", txnversion="0")
    batch(target, 2, txnappid="etl", txnversion="1")

    assert numbers(target) == [1, 2]


def test_the_second_copy_of_a_copy_refuses_the_queries_of_both(store: eoslog.Store) -> None:
    stream(store, "q", 0, 1)
    first = copied(store, new_identity=True)
    first_id = first.describe().store_id

    second = copied(first, new_identity=True)

    with pytest.raises(CheckpointMismatch, match=f"startAnewAfter='q@{first_id}:0'"):
        stream(second, "q", 1, 2)
