"""Many processes, few transactional ids: whatever comes between whatever, each id has one holder and a legal state."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eoslog
from eoslog.client.coordinator import Coordinator
from eoslog.client.producer import Producer
from eoslog.client.store import Store
from eoslog.errors import ApplicationRecoverableError, EosLogError, IllegalState, InvalidTxnState
from eoslog.rules.producer_ids import LAST_USABLE_EPOCH
from eoslog.rules.state import StoreState, TransactionState
from tests.conformance.sleepers import asleep_at
from tests.unit.client.world import World
from tests.unit.rules.histories import History

IDS = ("a", "b")
AT_REST = {
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
}
FENCED = (ApplicationRecoverableError, InvalidTxnState, IllegalState)
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


class Process:
    """A process with a producer for each id, that tries what it is told to."""

    def __init__(self, world: World) -> None:
        self.store = world.process()
        self.producers: dict[str, Producer] = {}

    def do(self, step: str, transactional_id: str) -> None:
        with suppress(*FENCED):
            if step == "sweep":
                Coordinator(self.store).abort_timed_out_transactions()
            elif step == "expire":
                Coordinator(self.store, transactional_id_expiration_ms=50_000).expire()
            elif step == "checkpoint":
                self.store.read(lambda state, slot: None)
                with suppress(EosLogError):
                    self.store.log.checkpoint()
            elif step == "init":
                self.producers[transactional_id] = producer = self.store.producer(transactional_id)
                producer.init_transactions()
            elif transactional_id in self.producers:
                getattr(self, f"_{step}")(self.producers[transactional_id])

    def _add(self, producer: Producer) -> None:
        with suppress(IllegalState):
            producer.begin_transaction()
        producer.send("t", b"v")
        producer.flush()

    def _commit(self, producer: Producer) -> None:
        producer.commit_transaction()

    def _abort(self, producer: Producer) -> None:
        producer.abort_transaction()


STEPS = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["init", "init", "add", "add", "add", "commit", "abort", "sweep", "expire", "checkpoint"]),
    st.sampled_from(IDS),
)


@pytest.mark.scenario(117)
@given(steps=st.lists(st.tuples(STEPS, st.none() | STEPS, st.integers(0, 40_000)), max_size=25))
def test_every_interleaving_of_steps_ends_in_a_legal_state(
    steps: list[tuple[tuple[int, str, str], tuple[int, str, str] | None, int]],
) -> None:
    """The second step of each pair happens while the first is on its way to the store."""
    world = World()
    world.process().admin.create_topic("t")
    processes = [Process(world) for _ in range(3)]
    for (at, step, transactional_id), between, duration_ms in steps:
        world.pass_time(duration_ms)
        if between is not None and between[0] != at:
            other_at, other_step, other_id = between
            asleep_at(
                processes[at].store,
                "log.slot.before_put",
                lambda do=processes[other_at].do, step=other_step, name=other_id: do(step, name),
            )
        processes[at].do(step, transactional_id)
        check_legal(world.process().read(lambda state, slot: state))

    cold = world.process()
    state = cold.read(lambda state, slot: state)
    for process in processes:
        assert process.store.read(lambda state, slot: state) == state
    current = {name: (known.producer_id, known.producer_epoch) for name, known in state.transactions.items()}
    for name in IDS:
        holders = [
            process
            for process in processes
            if name in process.producers
            and (process.producers[name].producer_id, process.producers[name].producer_epoch) == current.get(name)
        ]
        assert len(holders) <= 1


@pytest.mark.scenario(117)
@pytest.mark.parametrize("before", ["unknown", "empty", "open"])
def test_of_many_concurrent_inits_exactly_one_keeps_a_usable_epoch(before: str) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    store = eoslog.connect(url)
    store.admin.create_topic("t")
    if before != "unknown":
        earlier = store.producer("tx")
        earlier.init_transactions()
        earlier.begin_transaction()
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
def test_inits_at_the_exhausted_epoch_give_out_one_new_producer_id_after_the_other(history: History) -> None:
    history.init()
    exhausted = history.at_epoch(LAST_USABLE_EPOCH)

    identities = [history.init() for _ in range(3)]

    assert len({identity.producer_id for identity in identities}) == 1
    assert [identity.producer_epoch for identity in identities] == [0, 1, 2]
    assert identities[0].producer_id != exhausted.producer_id


@pytest.mark.scenario(117)
def test_what_many_threads_were_told_to_be_committed_is_there_once_and_nothing_else() -> None:
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
                for verdict in ("abort", "commit"):
                    producer.begin_transaction()
                    producer.send("t", value)
                    producer.flush()
                    getattr(producer, f"{verdict}_transaction")()
                committed.append(value)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))

    assert committed
    assert sorted(store.scan("t", columns=["value"]).to_table()["value"].to_pylist()) == sorted(committed)
    check_legal(store.read(lambda state, slot: state))
