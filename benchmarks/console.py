"""How long the console's pages take on a large store, how many requests they send, and how large they are.

``python -m benchmarks.console [topics] [transactional ids] [slots]``. The state is real. The old slots are not stored:
the object store makes up each one when it is read. The objects are in memory, so the times are those of the CPU.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from hashlib import md5
from urllib.parse import quote

from rich.console import Console as Terminal
from rich.progress import track
from rich.table import Table
from starlette.testclient import TestClient

from benchmarks.opening import AppendAll, create_topics, synthetic_batch
from eoslog import Store, TopicConfig, TopicPartition
from eoslog.log.checkpoint import write_checkpoint
from eoslog.log.replica import LogConfig
from eoslog.log.slots import SlotRecord, encode_line, slot_of, slot_path
from eoslog.session.store_machine import StoreMachine
from eoslog.state.end_requests import TransactionContent, end_request
from eoslog.state.entries import Entry
from eoslog.state.jobs import CommitJob
from eoslog.state.transaction_entries import ApplicationVersion, CommitSummary, TransactionEnded
from eoslog.state.transaction_requests import InitProducerId
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectNotFound, StoredObject
from eoslog.ui.access import LinkAccess
from eoslog.ui.application import Console
from eoslog.ui.console_store import ConsoleStore

PARTITIONS = 10
OPEN = 200
GROUPS = 2_000
JOBS = 200
COMMITS = 1_000
ROWS_A_COMMIT = 20
ROUNDS = 5
_AT_ONCE = 100
_NO_CHECKPOINTS = LogConfig(checkpoint_slots=1 << 40)


class LongLog(MemoryStore):
    """Objects in memory. Slots up to ``made_up_to`` are made up when they are read."""

    made_up_to = -1

    def get(self, path: str) -> StoredObject:
        try:
            return super().get(path)
        except ObjectNotFound:
            slot = slot_of(path)
            if slot is None or slot > self.made_up_to:
                raise
            return StoredObject(_made_up_line(slot) + b"\n", 0)


def _append_id(slot: int) -> str:
    return md5(b"%d" % slot, usedforsecurity=False).hexdigest()


def _made_up_line(slot: int) -> bytes:
    entry = TransactionEnded(
        transactional_id=f"id-{slot % 10_000}",
        producer_id=slot % 10_000,
        producer_epoch=0,
        outcome="commit",
        summary=CommitSummary(rows=7, files=1, bytes=1000, duration_ms=slot % 1000),
        time_ms=1_700_000_000_000 + slot,
    )
    previous = _append_id(slot - 1) if slot else ""
    record = SlotRecord(slot=slot, append_id=_append_id(slot), prev=previous, entries=(entry.model_dump(mode="json"),))
    return encode_line(record)


def main(topics: int, ids: int, slots: int) -> None:
    store = _with_history(_with_state(topics, ids), slots)
    access = LinkAccess(store.environment)
    console = Console({"": ConsoleStore(store, allow_admin=True)}, access, "cookie")
    browser = TestClient(console.application({"localhost"}), base_url="http://localhost", follow_redirects=False)
    browser.get("/", params={"token": access.token})
    table = Table(
        "page",
        "first (ms)",
        "later (ms)",
        "requests, first",
        "requests, later",
        "kB",
        title=f"{topics:,} topics of {PARTITIONS} partitions, {ids:,} transactional ids, {slots:,} slots",
    )
    for path in _paths(slots):
        times, requests, size = [], [], 0
        for _ in range(ROUNDS):
            before, started = store.requests.total(), time.perf_counter()
            answer = browser.get(path)
            times.append((time.perf_counter() - started) * 1000)
            requests.append(store.requests.total() - before)
            assert answer.status_code == 200, (path, re.findall('role="alert">(.*)<', answer.text))
            size = len(answer.content)
        later = statistics.median(times[1:])
        table.add_row(path, f"{times[0]:.0f}", f"{later:.0f}", f"{requests[0]}", f"{requests[1]}", f"{size / 1000:.0f}")
    Terminal(width=140).print(table)


def _paths(slots: int) -> Sequence[str]:
    return [
        "/",
        "/topics",
        "/topics?sort=bytes&page=5",
        "/topics/t0",
        "/topics/t0/rows",
        "/topics/t0/rows?from=0&partition=0",
        "/topics/t0/rows?key=k7",
        f"/topics/t0/rows?slot={slots - COMMITS // 2}&partition=0",
        "/transactions",
        "/transactions?page=50",
        f"/transactions?q={quote('id-99')}",
        "/transactions/one?id=open-0",
        "/groups",
        "/groups/one?id=group-7",
        "/jobs",
        "/jobs/one?id=job-7",
        f"/jobs/one?id=job-7&until={slots // 2}",
        "/log",
        f"/log?until={slots // 2}",
        f"/log/{slots // 3}",
        "/verify",
    ]


def _with_state(topics: int, ids: int) -> Store:
    """A store with topics, transactional ids and groups. The data files are not there: no page reads them."""
    store = Store(LongLog(Environment(), uuid.uuid4().hex), Environment(), _NO_CHECKPOINTS)
    store.admin.create_topic("t0", partitions=PARTITIONS, config=TopicConfig(segment_batches=1_000_000))
    create_topics(store, topics, PARTITIONS)
    now_ms = store.now_ms()
    found = store.read(lambda state, slot: [(f"t{each}", state.topic_ids[f"t{each}"]) for each in range(1, topics)])
    names = [*(f"id-{number}" for number in range(ids)), *(f"open-{number}" for number in range(OPEN))]
    for first in track(range(0, len(names), _AT_ONCE), "transactional ids"):
        entries: list[Entry] = []
        for number, name in enumerate(names[first : first + _AT_ONCE], start=first):
            identity = store.append(InitProducerId(name, timeout_ms=900_000, time_ms=now_ms)).identity
            topic, topic_id = found[number % len(found)]
            entries.append(synthetic_batch(name, identity, topic, topic_id, now_ms, number // len(found) % PARTITIONS))
            if not name.startswith("open"):
                entries.append(end_request(name, identity, "commit", time_ms=now_ms))
        store.append(AppendAll(entries))
    for number in track(range(GROUPS), "groups"):
        topic, _ = found[number % len(found)]
        offsets = {TopicPartition(topic, partition): 0 for partition in range(PARTITIONS)}
        store.admin.alter_consumer_group_offsets(f"group-{number}", offsets)
    return store


def _with_history(before: Store, slots: int) -> Store:
    """The same state behind many slots, and real commits behind those."""
    objects = before.object_store
    assert isinstance(objects, LongLog)
    description = objects.get("eoslog.json").body
    objects.delete([info.path for info in objects.list("__transaction_state/")])
    objects.put("eoslog.json", description)
    last = slots - 3 * COMMITS
    reference, _ = before.read(
        lambda state, slot: write_checkpoint(
            objects, before.environment, StoreMachine(), state, last, _append_id(last), None
        ),
        refresh=False,
    )
    objects.made_up_to = last
    first = SlotRecord(slot=last + 1, append_id=_append_id(last + 1), prev=_append_id(last), checkpoint=reference)
    objects.put(slot_path(last + 1), encode_line(first) + b"\n")
    store = Store(objects, Environment(), _NO_CHECKPOINTS)
    with store.producer("etl") as producer:
        producer.init_transactions()
        for _ in track(range(COMMITS), "commits"):
            producer.begin_transaction()
            for number in range(ROWS_A_COMMIT):
                producer.send("t0", b"value", key=b"k%d" % number)
            producer.commit_transaction()
    for number in track(range(JOBS * 5), "micro-batches"):
        store.append(_micro_batch(f"job-{number % JOBS}", number // JOBS, store.now_ms()))
    return store


def _micro_batch(job: str, version: int, now_ms: int) -> CommitJob:
    return CommitJob(
        job_id=job,
        owner="run",
        take_over=True,
        content=TransactionContent(
            application_version=ApplicationVersion(application_id=job, sink="*", version=version, query_id="query"),
            task_count=4,
            summary=CommitSummary(
                operation="append", duration_ms=1000, query_id="query", batch_id=version, engine="spark"
            ),
        ),
        time_ms=now_ms,
    )


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*given, *(1_000, 10_000, 1_000_000)[len(given) :])
