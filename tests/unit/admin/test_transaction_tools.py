"""What the tools around transactions show and end (``TransactionsCommandTest``)."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidRequest, TransactionAborted
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.partitions import partition_of, read, write
from tests.unit.support.world import World

pytestmark = pytest.mark.further("Offsets and tools")

PLACE = TopicPartition("t", 0)
MINUTE_MS = 60_000


def hanging(store: Store, **options: int) -> list[tuple[TopicPartition, int, str | None]]:
    found = store.admin.find_hanging_transactions(**options)  # type: ignore[arg-type]
    return [(each.topic_partition, each.start_offset, each.transactional_id) for each in found]


def test_a_transaction_hangs_if_it_is_open_for_longer_than_any_may_be(store: Store, world: World) -> None:
    write(store, "t", "commit", "open", transactional_id="stuck")
    world.pass_time(15 * MINUTE_MS - 10_000)
    assert hanging(store) == []
    assert hanging(store, max_transaction_timeout_ms=14 * MINUTE_MS) == [(PLACE, 2, "stuck")]

    world.pass_time(20_000)

    assert hanging(store) == [(PLACE, 2, "stuck")]
    assert hanging(store, topic="t", partition=1) == []  # type: ignore[arg-type]


def test_a_transaction_that_ended_or_wrote_to_no_partition_never_hangs(store: Store, world: World) -> None:
    write(store, "t", "commit", "abort", transactional_id="ended")
    idle = write(store, "t", transactional_id="idle")
    idle.begin_transaction()
    world.pass_time(60 * MINUTE_MS)

    assert hanging(store) == []


def test_a_transaction_is_aborted_by_the_partition_and_the_offset_where_it_begins(store: Store) -> None:
    producer = write(store, "t", "commit", "open", transactional_id="stuck")
    for wrong in (0, 1, 3):
        with pytest.raises(InvalidRequest, match=f"no open transaction begins at offset {wrong}"):
            store.admin.abort_transaction_at("t", 0, wrong)

    assert store.admin.abort_transaction_at("t", 0, 2) == "stuck"

    assert partition_of(store, "t").last_stable_offset == partition_of(store, "t").high_watermark == 4
    assert read(store, "t") == [(0, b"0")]
    with pytest.raises(TransactionAborted):
        producer.commit_transaction()


def test_the_producers_of_a_partition_tell_where_their_open_transaction_begins(store: Store) -> None:
    done = write(store, "t", "commit", "commit", transactional_id="done")
    stuck = write(store, "t", "open", transactional_id="stuck")

    found = {each.producer_id: each for each in store.admin.describe_producers("t", 0)}

    assert set(found) == {done.producer_id, stuck.producer_id}
    assert [found[each.producer_id].current_transaction_start_offset for each in (done, stuck)] == [-1, 4]
    assert [found[each.producer_id].last_sequence for each in (done, stuck)] == [-1, 0]
    assert found[done.producer_id].producer_epoch == done.producer_epoch
    assert {each.latest_coordinator_epoch for each in found.values()} == {0}
