"""Any history of members that join, leave, are removed, poll and commit: what is committed, and what is refused."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.depth import sweep
from tests.unit.support.world import World

PARTITIONS = [TopicPartition("in", number) for number in range(3)]
MOST_MEMBERS = 3
STEPS = 60
TELLING = (17, 46)
"""In these two a partition goes to another member and comes back while a transaction is open."""
SEEDS = sweep([*range(8), *TELLING, *range(50, 150)], quick=[*range(4), *TELLING])
WEIGHTS = (2, 10, 2, 1, 1, 0.5)


@dataclass
class Worker:
    """A member, and what it has done since its last commit."""

    consumer: Consumer
    producer: Producer
    read: list[bytes] = field(default_factory=list)
    in_transaction: bool = False
    removed_ids: set[str] = field(default_factory=set)

    @property
    def was_removed(self) -> bool:
        """Whether the member was removed and has not joined again. A poll that has rows ahead does not notice."""
        return self.consumer.group_metadata().member_id in self.removed_ids


class Run:
    """A group in one thread. Each worker has a replica of its own."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World()
        self.store = self.world.process()
        self.store.admin.create_topic("in", partitions=len(PARTITIONS))
        self.store.admin.create_topic("out")
        self.workers: list[Worker] = []
        self.sent: list[bytes] = []
        self.done: list[bytes] = []
        self.opened = 0
        self.committed: dict[TopicPartition, int] = {}

    def step(self) -> None:
        if len(self.workers) < 2:
            self.join()
        step = self.chance.choices((self.send, self.poll, self.commit, self.join, self.leave, self.remove), WEIGHTS)[0]
        step()
        self.check_offsets()

    def send(self) -> None:
        with self.store.producer() as producer:
            for _ in range(self.chance.randint(1, 3)):
                self.sent.append(b"%d" % len(self.sent))
                producer.send("in", self.sent[-1], partition=self.chance.randrange(len(PARTITIONS)))

    def join(self) -> None:
        if len(self.workers) < MOST_MEMBERS:
            self.workers.append(self.open_worker(self.world.process()))

    def open_worker(self, store: Store) -> Worker:
        consumer = store.consumer("g", auto_offset_reset="earliest", max_poll_records=2)
        consumer.subscribe("in")
        producer = store.producer(f"tx-{self.opened}")
        producer.init_transactions()
        self.opened += 1
        return Worker(consumer, producer)

    def chosen(self) -> Worker:
        return self.chance.choice(self.workers)

    def poll(self) -> None:
        self.polled(self.chosen())

    def polled(self, worker: Worker) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        self.committed_by(self.chosen())

    def committed_by(self, worker: Worker) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        worker = self.chosen()
        self.workers.remove(worker)
        worker.consumer.close()
        worker.producer.close()

    def remove(self) -> None:
        worker = self.chosen()
        member_id = worker.consumer.group_metadata().member_id
        if member_id and self.store.admin.remove_members("g", [member_id]):
            worker.removed_ids.add(member_id)

    def check_offsets(self) -> None:
        """No offset goes back: a member that has lost a partition never overwrites the offset of its successor."""
        found = self.store.consumer("g").committed(PARTITIONS)
        newest = {place: each.offset for place, each in found.items() if each is not None}
        assert all(newest[place] >= before for place, before in self.committed.items())
        self.committed = newest

    def finish(self) -> None:
        for worker in self.workers:
            self.committed_by(worker)
        for worker in list(self.workers):
            self.workers.remove(worker)
            worker.consumer.close()
        self.workers = [last := self.open_worker(self.store)]
        for _ in range(len(self.sent) + 5):
            self.polled(last)
            self.committed_by(last)


class PlainCommits(Run):
    """The loop of poll and commit."""

    def polled(self, worker: Worker) -> None:
        worker.read += [record.value or b"" for record in worker.consumer.poll(0)]

    def committed_by(self, worker: Worker) -> None:
        was_removed = worker.was_removed
        try:
            worker.consumer.commit()
        except errors.CommitFailed:
            assert was_removed
            worker.read.clear()
        else:
            # One that was removed before it had any partition has nothing to commit.
            assert not was_removed or not worker.consumer.assignment()
            self.done += worker.read
            worker.read.clear()


class Transactions(Run):
    """Consume, transform, produce: one transaction over any number of polls."""

    def polled(self, worker: Worker) -> None:
        records = worker.consumer.poll(0)
        if not records:
            return
        if not worker.in_transaction:
            worker.producer.begin_transaction()
            worker.in_transaction = True
        for record in records:
            worker.producer.send("out", record.value)
        positions = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        worker.producer.send_offsets_to_transaction(positions, worker.consumer.group_metadata())

    def committed_by(self, worker: Worker) -> None:
        if not worker.in_transaction:
            return
        worker.in_transaction = False
        try:
            worker.producer.commit_transaction()
        except errors.CommitFailed:
            worker.producer.abort_transaction()
            for place, committed in worker.consumer.committed(worker.consumer.assignment()).items():
                worker.consumer.seek(place, committed.offset if committed is not None else 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loop_of_poll_and_commit_fails_only_for_a_member_that_was_removed(seed: int) -> None:
    run = PlainCommits(seed)
    for _ in range(STEPS):
        run.step()
    run.finish()

    assert set(run.done) == set(run.sent)


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_over_rebalances_process_each_row_exactly_once(seed: int) -> None:
    run = Transactions(seed)
    for _ in range(STEPS):
        run.step()
    run.finish()

    assert sorted(run.store.scan("out").to_table()["value"].to_pylist()) == sorted(run.sent)
