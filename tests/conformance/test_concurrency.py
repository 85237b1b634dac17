"""Many processes, few transactional ids: in every interleaving, each id has one holder and a legal state."""

from __future__ import annotations

import itertools
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eoslog
from eoslog.errors import AbortableError, ApplicationRecoverableError, IllegalState, InvalidTxnState
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer.producer import Producer
from eoslog.state.producer_ids import LAST_USABLE_EPOCH, ProducerIdentity
from eoslog.state.store_state import StoreState, TransactionState
from eoslog.store import Store
from tests.depth import examples
from tests.unit.support.paused_processes import Died, asleep_at, awake, dies_at
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

IDS = ("a", "b")
AT_REST = {
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
}
FENCED = (AbortableError, ApplicationRecoverableError, InvalidTxnState, IllegalState)
"""What a process is told that is too late, or that calls out of order after it was."""


def check_legal(state: StoreState) -> None:
    """No transaction but those that are open holds a partition back, and each state is one at rest."""
    for transaction in state.transactions.values():
        is_open = transaction.state is TransactionState.ONGOING
        assert transaction.state in AT_REST
        assert is_open == bool(transaction.partitions) == (transaction.transactional_id in state.ongoing)
        assert 0 <= transaction.producer_epoch <= LAST_USABLE_EPOCH
    open_now = {
        (place, transaction.producer_id)
        for transaction in state.transactions.values()
        for place in transaction.partitions
        if place in state.partitions
    }
    assert open_now == {
        (place, producer_id) for place, each in state.partitions.items() for producer_id in each.open_transactions
    }


class Outcome:
    """What callers were told of the rows that they wrote, each to both partitions."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.committed: set[bytes] = set()
        self.unknown: set[bytes] = set()
        """Of ends in which their process died."""


class Process:
    """A process with a producer for each id, that tries what it is told to."""

    def __init__(self, world: World, outcome: Outcome) -> None:
        self.store = world.process()
        self.outcome = outcome
        self.producers: dict[str, Producer] = {}
        self.written: dict[str, set[bytes]] = {name: set() for name in IDS}

    def do(self, step: str, transactional_id: str) -> None:
        """Raises: Died"""
        try:
            if step == "sweep":
                Coordinator(self.store).abort_timed_out_transactions()
            elif step == "expire":
                Coordinator(self.store, transactional_id_expiration_ms=50_000).expire()
            elif step == "checkpoint":
                self.store.read(lambda state, slot: None)
                self.store.log.checkpoint()
            elif step == "init":
                self._init(transactional_id)
            else:
                producer = self.producers.get(transactional_id) or self._init(transactional_id)
                getattr(self, f"_{step}")(transactional_id, producer)
        except FENCED:
            self.producers.pop(transactional_id, None)

    def _init(self, name: str) -> Producer:
        self.written[name] = set()
        producer = self.store.producer(name)
        producer.init_transactions()
        self.producers[name] = producer
        return producer

    def _add(self, name: str, producer: Producer) -> None:
        with suppress(IllegalState):
            producer.begin_transaction()
            self.written[name] = set()
        value = b"%d" % next(self.outcome.numbers)
        for partition in (0, 1):
            producer.send("t", value, partition=partition)
        self.written[name].add(value)
        producer.flush()

    def _commit(self, name: str, producer: Producer) -> None:
        if not self.written[name]:
            self._add(name, producer)
        try:
            producer.commit_transaction()
        except Died:
            self.outcome.unknown |= self.written[name]
            raise
        self.outcome.committed |= self.written[name]
        self.written[name] = set()

    def _abort(self, name: str, producer: Producer) -> None:
        if not self.written[name]:
            self._add(name, producer)
        producer.abort_transaction()
        self.written[name] = set()


STEPS = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["add", "commit", "add", "commit", "add", "abort", "init", "sweep", "expire", "checkpoint"]),
    st.sampled_from(IDS),
)
DEATHS = st.sampled_from(["log.slot.before_put", "log.slot.claimed", "client.producer.files_uploaded"])


@pytest.mark.scenario(117)
@examples(15)
@given(
    steps=st.lists(
        st.tuples(STEPS, st.none() | DEATHS | STEPS, st.integers(1, 3), st.integers(0, 40_000)), min_size=6, max_size=20
    )
)
def test_every_interleaving_of_steps_ends_in_a_legal_state(
    steps: list[tuple[tuple[int, str, str], str | tuple[int, str, str] | None, int, int]],
) -> None:
    """The second step of a pair happens while the first is on its way to the store, or there its process dies."""
    world, outcome = World(), Outcome()
    world.process().admin.create_topic("t", partitions=2)
    processes = [Process(world, outcome) for _ in range(2)]
    for (at, step, transactional_id), between, nth, duration_ms in steps:
        world.pass_time(duration_ms)
        if isinstance(between, str):
            dies_at(processes[at].store, between, nth)
        elif between is not None and between[0] != at:
            other_at, *other = between
            asleep_at(
                processes[at].store,
                "log.slot.before_put",
                lambda do=processes[other_at].do, other=other: do(*other),
                nth,
            )
        try:
            processes[at].do(step, transactional_id)
            awake(processes[at].store)
        except Died:
            processes[at] = Process(world, outcome)
        check_legal(world.process().read(lambda state, slot: state))

    state = world.process().read(lambda state, slot: state)
    for name in IDS:
        current = state.transactions.get(name)
        identities = [
            ProducerIdentity(each.producers[name].producer_id, each.producers[name].producer_epoch)
            for each in processes
            if name in each.producers
        ]
        assert current is None or identities.count(ProducerIdentity(current.producer_id, current.producer_epoch)) <= 1
    world.pass_time(61_000)
    survivor = world.process()
    Coordinator(survivor).abort_timed_out_transactions()
    rows = [
        survivor.scan("t", columns=["value"], partitions=[partition]).to_table()["value"].to_pylist()
        for partition in (0, 1)
    ]
    assert all(each.last_stable_offset == each.high_watermark for each in survivor.admin.offsets("t"))
    assert rows[0] == rows[1]
    assert len(rows[0]) == len(set(rows[0]))
    assert outcome.committed <= set(rows[0]) <= outcome.committed | outcome.unknown


@pytest.mark.scenario(117)
@pytest.mark.parametrize("before", ["unknown", "empty", "open"])
def test_of_many_concurrent_inits_exactly_one_keeps_a_usable_epoch(before: str) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    store = eoslog.connect(url)
    store.admin.create_topic("t")
    if before != "unknown":
        earlier = open_transaction(store, "tx")
        if before == "open":
            earlier.send("t", b"earlier")
            earlier.flush()
    producers = [eoslog.connect(url).producer("tx") for _ in range(8)]
    barrier = threading.Barrier(len(producers))

    def init(producer: Producer) -> None:
        barrier.wait()
        producer.init_transactions()

    with ThreadPoolExecutor(len(producers)) as threads:
        list(threads.map(init, producers))
    usable = []
    for producer in producers:
        with suppress(ApplicationRecoverableError):
            producer.begin_transaction()
            producer.send("t", b"v")
            producer.commit_transaction()
            usable.append(producer)

    assert len({(producer.producer_id, producer.producer_epoch) for producer in producers}) == len(producers)
    assert len(usable) == 1
    assert store.scan("t", columns=["value"]).to_table()["value"].to_pylist() == [b"v"]


@pytest.mark.scenario(117)
def test_a_scan_shows_each_row_once_that_many_threads_saw_committed_and_no_other() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    store = eoslog.connect(url)
    store.admin.create_topic("t")
    committed: list[bytes] = []

    def work(number: int) -> None:
        process: Store = eoslog.connect(url)
        for attempt in range(6):
            value = b"%d-%d" % (number, attempt)
            producer = process.producer(IDS[number % len(IDS)])
            with suppress(ApplicationRecoverableError, InvalidTxnState):
                producer.init_transactions()
                for outcome in ("abort", "commit"):
                    producer.begin_transaction()
                    producer.send("t", value)
                    producer.flush()
                    getattr(producer, f"{outcome}_transaction")()
                committed.append(value)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))

    assert committed
    assert sorted(store.scan("t", columns=["value"]).to_table()["value"].to_pylist()) == sorted(committed)
    check_legal(store.read(lambda state, slot: state))
