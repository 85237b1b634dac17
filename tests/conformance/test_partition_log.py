"""The last stable offset of a store's partitions, and what a fetch below it shows."""

from __future__ import annotations

import pytest

from eoslog.errors import CommitStateUnknown, StoreAccessDenied
from eoslog.maintenance.sealing import seal_segments
from eoslog.store import Store
from tests.unit.support.partitions import partition_of, read, topic_of_small_segments, write
from tests.unit.support.world import World


@pytest.mark.scenario(42)
def test_a_marker_that_did_not_reach_the_store_leaves_the_row_unstable(store: Store, world: World) -> None:
    producer = write(store, "t", "open")
    store.object_store.lose_answers("__transaction_state/slot/", lands=False)  # type: ignore[attr-defined]
    with pytest.raises(CommitStateUnknown):
        store.admin.abort_transaction("tx")
    store.object_store.heal()  # type: ignore[attr-defined]
    reader = world.process()

    assert reader.admin.offsets("t")[0].last_stable_offset == 0
    producer.commit_transaction()
    assert reader.admin.offsets("t")[0].last_stable_offset == 2


@pytest.mark.scenario(43)
def test_a_fetch_from_any_offset_ends_at_the_last_stable_offset(store: Store) -> None:
    first, second = (store.producer(name) for name in ("first", "second"))
    plain = store.producer()
    for producer in (first, second):
        producer.init_transactions()
        producer.begin_transaction()
    for producer, count in ((first, 5), (plain, 3), (second, 2), (first, 4), (plain, 2), (first, 10)):
        for _ in range(count):
            producer.send("t", b"v", partition=0)
        producer.flush()

    def check(last_stable_offset: int) -> None:
        offsets = store.admin.offsets("t")[0]
        assert offsets.last_stable_offset == last_stable_offset
        for batch in partition_of(store, "t").active:
            start = batch.base_offset
            shown = store.scan("t", columns=["offset"], partitions=[0], starting_offsets={0: start}).to_table()
            assert all(start <= offset < last_stable_offset for offset in shown["offset"].to_pylist())

    check(0)
    first.commit_transaction()
    check(8)
    second.abort_transaction()
    check(28)
    assert len(read(store, "t")) == 24


@pytest.mark.scenario(53)
def test_an_abort_is_decided_though_its_index_cannot_be_written(store: Store, world: World) -> None:
    """The index is derived: the abort is decided without it, and it is written when the store takes it again."""
    topic_of_small_segments(store, "s")
    producer = write(store, "s", "abort")
    store.object_store.deny("s/")  # type: ignore[attr-defined]
    with pytest.raises(StoreAccessDenied):
        seal_segments(store)
    assert partition_of(store, "s").last_stable_offset == 2
    assert partition_of(world.process(), "s").aborted == partition_of(store, "s").aborted != []
    store.object_store.heal()  # type: ignore[attr-defined]

    producer.begin_transaction()
    producer.send("s", b"next")
    producer.commit_transaction()
    seal_segments(store)

    assert [segment.txnindex is not None for segment in partition_of(store, "s").sealed] == [True, False]
    assert read(store, "s") == [(2, b"next")]


@pytest.mark.scenario(55)
def test_a_transaction_that_is_aborted_is_gone_from_all_its_segments(store: Store) -> None:
    topic_of_small_segments(store, "s")
    producer = write(store, "s", "open")
    for value in (b"1", b"2", b"3"):
        producer.send("s", value)
        producer.flush()
    producer.abort_transaction()
    write(store, "s", "commit", transactional_id="other")

    seal_segments(store)

    assert [segment.base_offset for segment in partition_of(store, "s").sealed] == [0, 2, 4]
    for start in range(6):
        shown = store.scan("s", columns=["offset"], starting_offsets={0: start}).to_table()
        assert shown["offset"].to_pylist() == ([5] if start <= 5 else [])
    assert len(read(store, "s", "read_uncommitted")) == 5


@pytest.mark.scenario(57)
def test_read_committed_shows_no_row_while_transactions_abort_one_after_the_other(store: Store, world: World) -> None:
    """Another process reads between any two requests of the writer's."""
    reader = world.process()
    put_if_absent = store.object_store.put_if_absent
    reads = 0

    def read_around(path: str, body: bytes) -> object:
        nonlocal reads
        assert read(reader, "t") == []
        outcome = put_if_absent(path, body)
        assert read(reader, "t") == []
        reads += 2
        return outcome

    store.object_store.put_if_absent = read_around  # type: ignore[method-assign, assignment]
    write(store, "t", *["abort"] * 10)

    assert reads >= 40
    assert store.admin.offsets("t")[0].last_stable_offset == 20
