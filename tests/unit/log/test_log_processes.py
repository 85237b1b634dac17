"""Many processes append to one log on local disk at once: nothing is lost, nothing is done twice."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from eoslog.log.log import Log
from eoslog.log.replica import LogConfig
from eoslog.log.slots import SLOTS, slot_of
from eoslog.session.store_machine import StoreMachine
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import StoreCreated, TopicCreated, TopicSchema
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.store_state import StoreState
from eoslog.state.transaction_entries import BatchAppended
from eoslog.state.transaction_requests import InitProducerId
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from tests.requests import Applying

TOPIC_ID = "a" * 32
PROCESSES = 3
APPENDS = 25


def open_log(root: Path) -> Log[StoreState]:
    environment = Environment()
    return Log(LocalStore(root, environment, fsync=False), StoreMachine(), environment, LogConfig(checkpoint_slots=10))


def append_many(root: Path, number: int) -> None:
    """One process: an idempotent producer that sends each batch twice."""
    log = open_log(root)
    log.read(lambda state, slot: None)
    now_ms = log.store.clock.now_ms()
    identity = log.append(Applying(lambda draft: InitProducerId(None, timeout_ms=60_000, time_ms=now_ms).take(draft)))
    for sequence in range(APPENDS):
        path = f"t/{TOPIC_ID}/0/{number}-{sequence}.parquet"
        batch = BatchAppended(
            topic_id=TOPIC_ID,
            partition=0,
            base_offset=0,
            record_count=1,
            file=FileReference(path=path, length=1, crc32c=0),
            upload_ms=now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            min_timestamp=0,
            max_timestamp=0,
            time_ms=now_ms,
        )
        offset = log.append(Applying(lambda draft, batch=batch: draft.append(batch).base_offset))
        assert log.append(Applying(lambda draft, batch=batch: repeated(draft, batch))) == offset


def repeated(draft: object, batch: BatchAppended) -> int:
    from eoslog.state.draft import Draft
    from eoslog.state.sequences import DuplicateBatch

    assert isinstance(draft, Draft)
    try:
        return draft.append(batch).base_offset
    except DuplicateBatch as duplicate:
        return duplicate.base_offset
    raise AssertionError("a batch was appended twice")


def test_processes_that_append_at_once_lose_and_repeat_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "store")
    log.create(AppendEntry(StoreCreated(store_id="5" * 32, time_ms=1)))
    topic = TopicCreated(
        topic="t", topic_id=TOPIC_ID, partitions=1, topic_schema=TopicSchema(kind="records"), time_ms=1
    )
    log.append(AppendEntry(topic))
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=append_many, args=(tmp_path / "store", number)) for number in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    try:
        assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    finally:
        for worker in workers:
            worker.kill()

    fresh = open_log(tmp_path / "store")
    state, newest = fresh.read(lambda state, slot: (state.frozen_copy(), slot))
    active = state.partitions[PartitionId(TOPIC_ID, 0)].active
    paths = [batch.file.path for batch in active if batch.file is not None]
    assert len(paths) == len(set(paths)) == PROCESSES * APPENDS
    assert [batch.base_offset for batch in active] == list(range(PROCESSES * APPENDS))
    slots = sorted(slot for info in fresh.store.list(SLOTS) if (slot := slot_of(info.path)) is not None)
    assert slots == list(range(newest + 1))
    assert fresh.replica.checkpoint is not None
    follower = log.read(lambda state, slot: state.frozen_copy())
    assert follower == state
