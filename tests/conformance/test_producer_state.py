"""What a store keeps of producers: after slots were deleted, a restart or an expiry, and where open rows lie."""

from __future__ import annotations

import pytest

from eoslog.log.slot_deletion import delete_old_slots
from eoslog.read.scan import RowRange
from eoslog.store import Store
from tests.unit.support.partitions import partition_of, write
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


@pytest.mark.scenario(13)
def test_a_process_that_finds_the_beginning_of_the_log_gone_knows_the_last_sequence(store: Store, world: World) -> None:
    producer = store.producer()
    for number in range(17):
        producer.send("t", b"%d" % number, partition=0)
        producer.flush()
    for _ in range(2):
        store.log.checkpoint()
    world.pass_time(30 * DAY_MS)
    assert delete_old_slots(store.log) > 0

    cold = world.process()

    (known,) = cold.admin.describe_producers("t", 0)
    assert (known.producer_id, known.last_sequence) == (producer.producer_id, 16)
    producer.send("t", b"17", partition=0)
    producer.flush()
    assert cold.admin.describe_producers("t", 0)[0].last_sequence == 17


@pytest.mark.scenario(16)
def test_the_first_unstable_offset_leads_to_its_row_in_a_file(store: Store) -> None:
    write(store, "t", "commit")
    producer = open_transaction(store, "open")
    for value in (b"x", b"y", b"z"):
        producer.send("t", value, partition=0)
    producer.flush()

    first_unstable = store.admin.offsets("t")[0].last_stable_offset

    plan = store.scan("t", isolation_level="read_uncommitted", partitions=[0], starting_offsets={0: first_unstable})
    (file,) = plan.planned_files()
    assert file.ranges == (RowRange(0, 3, first_unstable),)
    assert file.path in {batch.file.path for batch in partition_of(store, "t").active if batch.file}


@pytest.mark.scenario(18)
def test_whether_a_transaction_is_late_survives_a_restart_and_ends_with_it(store: Store, world: World) -> None:
    write(store, "t", "open", transactional_id="first")
    world.pass_time(10 * MINUTE_MS)
    write(world.process(), "t", "open", transactional_id="second")
    store.log.checkpoint()

    def late() -> list[str]:
        return [each.transactional_id for each in world.process().admin.find_hanging_transactions()]

    assert late() == []
    world.pass_time(6 * MINUTE_MS)
    assert late() == ["first"]
    world.pass_time(10 * MINUTE_MS)
    assert late() == ["first", "second"]
    store.admin.abort_transaction("first")
    assert late() == []
