"""Consume, transform, produce: killed at any point and started again, each input shows in the output exactly once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.log.replica import LogConfig
from eoslog.producer.producer import Producer
from eoslog.store import Store
from tests.unit.support.world import FaultyStore, World

INPUTS = 40
TRANSACTIONAL_ID = "transformer"


class Killed(BaseException):
    """The process ends between two of its steps: nothing is closed, nothing is cleaned up."""


class Worker:
    """Moves records from ``in`` to ``out``, a transaction a poll. A process that is killed is simply not used again."""

    def __init__(self, store: Store, chance: random.Random, transactional_id: str) -> None:
        self._chance = chance
        self.consumer: Consumer = store.consumer("g", auto_offset_reset="earliest", max_poll_records=5)
        self.consumer.subscribe("in")
        self.producer: Producer = store.producer(
            transactional_id, staged=chance.random() < 0.5, transaction_timeout_ms=20_000
        )
        self.producer.init_transactions()

    def _maybe_die(self) -> None:
        if self._chance.random() < 0.05:
            raise Killed

    def run(self) -> Iterator[None]:
        """Two steps a transaction, so that others may go on, and the group too, between its poll and its commit."""
        while True:
            records = self.consumer.poll(0)
            self._maybe_die()
            self.producer.begin_transaction()
            for record in records:
                self.producer.send("out", b"out:" + record.value, key=record.value)
                self._maybe_die()
                if self._chance.random() < 0.1:
                    _repeated(self.producer.flush)
            yield
            positions = {place: self.consumer.position(place) for place in self.consumer.assignment()}
            self.producer.send_offsets_to_transaction(positions, self.consumer.group_metadata())
            self._maybe_die()
            if self._chance.random() < 0.1:
                self.producer.abort_transaction()
                self._back_to_committed()
            else:
                try:
                    _repeated(self.producer.commit_transaction)
                except errors.AbortableError:
                    self.producer.abort_transaction()
                    self._back_to_committed()
            self._maybe_die()
            yield

    def _back_to_committed(self) -> None:
        for place, committed in self.consumer.committed(self.consumer.assignment()).items():
            self.consumer.seek(place, committed.offset if committed else 0)


def _repeated(call: Callable[[], None]) -> None:
    try:
        call()
    except errors.RetriableError:
        call()


def outputs(store: Store) -> list[bytes]:
    return sorted(store.scan("out").to_table()["value"].to_pylist())


STEPS_BETWEEN_SCANS = 20
SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]
EXPECTED = sorted(b"out:%d" % number for number in range(INPUTS))


@pytest.fixture
def store(world: World) -> Store:
    store = world.process()
    store.admin.create_topic("in", partitions=3)
    store.admin.create_topic("out", partitions=2)
    with store.producer() as producer:
        for number in range(INPUTS):
            producer.send("in", b"%d" % number, key=b"%d" % number)
            if number % 7 == 0:
                producer.flush()
    return store


@pytest.mark.further("End to end")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_worker_killed_and_restarted_at_random_points_writes_each_output_once(
    store: Store, world: World, seed: int
) -> None:
    chance = random.Random(seed)
    lives = 0
    while outputs(store) != EXPECTED:
        lives += 1
        assert lives < 500
        try:
            for step, _ in enumerate(Worker(world.process(), chance, TRANSACTIONAL_ID).run()):
                if step % STEPS_BETWEEN_SCANS == 0 and outputs(store) == EXPECTED:
                    break
        except Killed:
            world.pass_time(50_000)

    assert len(outputs(store)) == INPUTS


@pytest.mark.further("End to end")
@pytest.mark.parametrize("seed", SEEDS)
def test_workers_that_die_and_lose_answers_write_each_output_once(store: Store, world: World, seed: int) -> None:
    chance = random.Random(seed)
    running: list[tuple[Store, Iterator[None]]] = []
    number = 0
    steps = 0
    while steps < 3_000:
        steps += 1
        if steps % STEPS_BETWEEN_SCANS == 0 and outputs(store) == EXPECTED:
            break
        if len(running) < 3:
            number += 1
            process = world.process(LogConfig(checkpoint_slots=16))
            running.append((process, Worker(process, chance, f"worker-{number}").run()))
        process, worker = chance.choice(running)
        assert isinstance(process.object_store, FaultyStore)
        if chance.random() < 0.05:
            process.object_store.lose_one_answer("__transaction_state/slot/", lands=chance.random() < 0.5)
        try:
            next(worker)
        except (Killed, errors.EosLogError):
            running.remove((process, worker))
        world.pass_time(chance.choice([10, 1_000, 10_000]))

    assert outputs(store) == EXPECTED
    assert steps < 3_000
