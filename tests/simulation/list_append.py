"""Clients of Jepsen's ``kafka`` workload: transactions of a few sends and polls, whose history the checker reads.

Values of other services lie between theirs in the same partitions, and are passed over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from eoslog.consumer.consumer import Consumer
from eoslog.consumer.consumer_records import ConsumerRecord
from eoslog.errors import ApplicationRecoverableError, EosLogError, FatalError, OffsetOutOfRange
from eoslog.producer.producer import Producer
from eoslog.session.positions import RecordMetadata
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.checker import Kind, MicroOperation, Operation, Outcome, Poll, Send, check
from tests.simulation import ledger
from tests.simulation.ledger import Ledger, Work
from tests.simulation.service import IN, OTHER, PARTITIONS, GaveUp, Service, open_store, until_done
from tests.simulation.world import Process, Violation, World
from tests.simulation.writers import commit

NAME = "list"
PLACES = tuple(TopicPartition(topic, number) for topic in (IN, OTHER) for number in range(PARTITIONS[topic]))
_GROUP = "lists"
_ABORT = 1 / 32
_MOVE = 1 / 12
"""How often a client is given other partitions, or subscribes anew."""
_OUTCOMES = {
    ledger.Outcome.COMMITTED: Outcome.OK,
    ledger.Outcome.ABORTED: Outcome.FAIL,
    ledger.Outcome.UNKNOWN: Outcome.INFO,
}


@dataclass
class Step:
    """An operation while it lasts; ``work`` says what becomes of it."""

    kind: Kind
    work: Work
    done: list[MicroOperation | Callable[[], Send]] = field(default_factory=list)
    moved: set[str] = field(default_factory=set)
    """Keys that a rebalance took or gave meanwhile."""
    first_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """The first record that it was shown of each partition."""
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)


class ListAppend(Service):
    """A client that sends, polls, or does both in transactions, with partitions that it assigns or subscribes to."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self._incarnations = 0

    def incarnation(self, process: Process) -> None:
        self._incarnations += 1
        _Client(self, process, f"{self.name}/{self._incarnations}").run()


class _Client:
    """One incarnation: a process of the history."""

    def __init__(self, service: ListAppend, process: Process, name: str) -> None:
        self.service, self.process, self.name = service, process, name
        self.random, self.ledger = service.random, service.ledger
        self.is_transactional = self.random.random() < 0.8
        self.is_staged = self.is_transactional and self.random.random() < 0.4
        self.subscribes = self.random.random() < 0.4
        self.moved: set[str] = set()
        self.store = open_store(process)
        self.producer = self._open_producer()
        self.consumer = self._open_consumer()

    def _open_producer(self) -> Producer:
        if not self.is_transactional:
            return self.store.producer()
        producer = self.store.producer(
            self.service.name,
            staged=self.is_staged,
            transaction_timeout_ms=self.random.choice((2_000, 20_000, 120_000)),
        )
        until_done(producer.init_transactions)
        return producer

    def _open_consumer(self) -> Consumer:
        return self.store.consumer(
            _GROUP if self.subscribes else f"{_GROUP} of {self.service.name}",
            auto_offset_reset="earliest",
            max_poll_records=self.random.choice((2, 10)),
            session_timeout_ms=6_000,
        )

    def run(self) -> None:
        self._move()
        while not self.service.world.stopping:
            draw = self.random.random()
            if draw < _MOVE:
                self._move()
            elif draw < 2 * _MOVE:
                self._snapshot()
            elif self.is_transactional:
                self._transaction()
            elif draw < 0.5:
                self._sends()
            else:
                with self._operation(Kind.POLL) as step:
                    self._poll(step)
                    step.work.outcome = ledger.Outcome.COMMITTED
            self.service.pause(self.process, 2_000)

    @contextmanager
    def _operation(self, kind: Kind, keys: Iterable[str] = ()) -> Iterator[Step]:
        """An operation of the history, however it ends: a process that dies leaves one of unknown outcome."""
        step = Step(kind, self.ledger.begin(self.service.name))
        invoked = self.ledger.tick()
        self.moved = step.moved
        try:
            yield step
        finally:
            done = [each() if callable(each) else each for each in step.done]
            outcome = _OUTCOMES[step.work.outcome]
            self.service.world.marks[f"list: {kind.value} {outcome.value}"] += 1
            self.ledger.history.append(
                Operation(
                    process=self.name,
                    kind=kind,
                    outcome=outcome,
                    invoked=invoked,
                    completed=self.ledger.tick(),
                    micro_operations=tuple(done),
                    keys=(*keys, *sorted(step.moved)),
                    staged=self.is_staged and kind is Kind.TXN,
                )
            )

    def _move(self) -> None:
        """Read other partitions, or leave the group and join it again."""
        if self.subscribes:
            with self._operation(Kind.SUBSCRIBE) as step:
                self.consumer.unsubscribe()
                self.consumer.subscribe([IN, OTHER], on_revoked=self._note_moved, on_assigned=self._note_moved)
                step.work.outcome = ledger.Outcome.COMMITTED
            return
        places = self.random.sample(PLACES, self.random.randint(1, len(PLACES)))
        with self._operation(Kind.ASSIGN, map(key_of, sorted(places))) as step:
            self.consumer.assign(places)
            step.work.outcome = ledger.Outcome.COMMITTED

    def _note_moved(self, places: list[TopicPartition]) -> None:
        self.moved.update(map(key_of, places))

    def _snapshot(self) -> None:
        topic = self.random.choice((IN, OTHER))
        keys = [key_of(place) for place in PLACES if place.topic == topic]
        with self._operation(Kind.SNAPSHOT, keys) as step:
            try:
                scan = self.store.scan(topic, isolation_level="snapshot", columns=["partition", "offset", "value"])
                rows = scan.to_table().to_pylist()
            except OffsetOutOfRange:
                return
            found: dict[str, list[tuple[int, str]]] = {key: [] for key in keys}
            for row in sorted(rows, key=lambda each: (each["partition"], each["offset"])):
                if is_of_a_list(row["value"]):
                    key = key_of(TopicPartition(topic, row["partition"]))
                    found[key].append((row["offset"], row["value"].decode()))
            step.done.append(Poll(found))
            step.work.outcome = ledger.Outcome.COMMITTED

    def _sends(self) -> None:
        with self._operation(Kind.SEND) as step:
            place = self.random.choice(PLACES)
            for _ in range(self.random.randint(1, 3)):
                self._send(step, place)
            until_done(self.producer.flush)
            step.work.outcome = ledger.Outcome.COMMITTED

    def _transaction(self) -> None:
        with self._operation(Kind.TXN) as step:
            try:
                self.producer.begin_transaction()
                for _ in range(self.random.randint(1, 4)):
                    if self.random.random() < 0.5:
                        self._poll(step)
                        self._send_offsets(step)
                    else:
                        self._send(step, self.random.choice(PLACES))
                        if self.random.random() < 0.3:
                            until_done(self.producer.flush)
                    if self.random.random() < _ABORT:
                        raise _ChangedMind
            except (EosLogError, _ChangedMind) as error:
                step.work.outcome = ledger.Outcome.ABORTED
                if isinstance(error, FatalError | ApplicationRecoverableError):
                    raise GaveUp from error
                until_done(self.producer.abort_transaction)
            else:
                commit(self.producer, step.work)
        if step.work.outcome is not ledger.Outcome.COMMITTED:
            self._go_back(step)

    def _send(self, step: Step, place: TopicPartition) -> None:
        value = step.work.row(place.topic, place.partition)
        sent = self.producer.send(place.topic, value, partition=place.partition)

        def told() -> Send:
            known = sent.done() and sent.exception() is None
            metadata: RecordMetadata | None = sent.result() if known else None
            offset = metadata.offset if metadata is not None and metadata.offset >= 0 else None
            return Send(key_of(place), value.decode(), offset)

        step.done.append(told)

    def _poll(self, step: Step) -> None:
        records = until_done(lambda: self.consumer.poll(timeout=0.2))
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            step.first_offsets.setdefault(place, record.offset)
            step.next_offsets[place] = record.offset + 1
        step.done.append(_shown(records))

    def _send_offsets(self, step: Step) -> None:
        if step.next_offsets:
            group = self.consumer.group_metadata()
            self.producer.send_offsets_to_transaction(step.next_offsets, group if self.subscribes else group.group_id)

    def _go_back(self, step: Step) -> None:
        """Read again what was read for nothing."""
        if self.subscribes:
            for place, found in until_done(lambda: self.consumer.committed(self.consumer.assignment())).items():
                self.consumer.seek(place, found.offset if found is not None else 0)
        else:
            for place, offset in step.first_offsets.items():
                self.consumer.seek(place, offset)


class _ChangedMind(Exception):
    """The client has changed its mind."""


def key_of(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


def is_of_a_list(value: bytes) -> bool:
    return value.startswith(NAME.encode())


def _shown(records: Iterable[ConsumerRecord]) -> Poll:
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for record in records:
        if record.value is not None and is_of_a_list(record.value):
            key = key_of(TopicPartition(record.topic, record.partition))
            found[key].append((record.offset, record.value.decode()))
    return Poll(found)


def check_lists(ledger: Ledger, store: Store) -> None:
    """Poll everything to its end, and let the checker look. Raises: Violation"""
    if not ledger.history:
        return
    last: list[Operation] = []
    consumer = store.consumer(auto_offset_reset="earliest", max_poll_records=1_000)
    consumer.assign(PLACES)
    while any(consumer.lag().values()):
        invoked = ledger.tick()
        shown = _shown(consumer.poll(timeout=0.1))
        last.append(Operation("last", Kind.POLL, Outcome.OK, invoked, ledger.tick(), (shown,)))
    verdict = check([*ledger.history, *last])
    if not verdict.is_valid:
        raise Violation(str(verdict))
