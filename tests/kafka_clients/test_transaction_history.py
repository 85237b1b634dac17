"""What clients of two gateways are shown and told, while the gateways are killed, is a legal history.

Three transactional ids write through both gateways. Now and then a new producer takes an id over while the old one has
a transaction open. Consumers read committed rows all the time. An independent checker (``tests/checker``) judges it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.checker import check
from tests.checker.history import Kind, Operation, Outcome, Poll, Send
from tests.kafka_clients.conftest import Served
from tests.kafka_clients.gateway_process import GatewayProcess, killed_every
from tests.kafka_clients.test_transaction_kills import producer, repeated

confluent_kafka: Any = pytest.importorskip("confluent_kafka")

_WRITERS = 3
_PARTITIONS = 2
_ROWS = 6
"""The rows of a transaction."""
_KILLS = 3
"""The kills of each gateway."""
_EVERY_S = 3.0
_LONGEST_S = 150


class _Run:
    """The clients of a topic, and what they have done."""

    def __init__(self, topic: str, gateways: list[GatewayProcess]) -> None:
        self.topic = topic
        self.gateways = gateways
        self.operations: list[Operation] = []
        self.stopped = threading.Event()
        self._lock = threading.Lock()

    def note(self, process: str, kind: Kind, outcome: Outcome, invoked: int, **content: Any) -> None:
        """Note an operation that is over."""
        with self._lock:
            self.operations.append(Operation(process, kind, outcome, invoked, time.monotonic_ns(), **content))

    def count(self, outcome: Outcome) -> int:
        """Return the number of transactions with an outcome."""
        with self._lock:
            return sum(each.kind is Kind.TXN and each.outcome is outcome for each in self.operations)

    def keys(self) -> tuple[str, ...]:
        return tuple(f"{self.topic}-{partition}" for partition in range(_PARTITIONS))

    def write(self, number: int) -> None:
        """Write transactions with one id until the run stops. Each producer of the id is a process of its own."""
        chance = random.Random(number)
        name = f"{self.topic}-{number}"
        incarnation = 0
        writer: Any = None
        while not self.stopped.is_set():
            if writer is None:
                writer = producer(chance.choice(self.gateways).servers, name)
                repeated(writer.init_transactions)
                incarnation += 1
            process = f"writer-{number}-{incarnation}"
            invoked = time.monotonic_ns()
            sends = self._begin(writer, f"{process}-{invoked}")
            if chance.random() < 0.1:
                successor = producer(chance.choice(self.gateways).servers, name)
                repeated(successor.init_transactions)
                with pytest.raises(confluent_kafka.KafkaException):
                    repeated(writer.commit_transaction)
                self.note(process, Kind.TXN, Outcome.FAIL, invoked, micro_operations=sends())
                writer, incarnation = successor, incarnation + 1
                continue
            outcome, is_fatal = _ended(writer, commits=chance.random() < 0.7)
            self.note(process, Kind.TXN, outcome, invoked, micro_operations=sends())
            if is_fatal:
                writer = None

    def _begin(self, writer: Any, prefix: str) -> Callable[[], tuple[Send, ...]]:
        """Begin a transaction, and send its rows. Return the function that returns them with the offsets so far."""
        offsets: dict[str, int] = {}

        def delivered(error: Any, message: Any) -> None:
            if error is None and message.offset() >= 0:
                offsets[message.value().decode()] = message.offset()

        values = [(row % _PARTITIONS, f"{prefix}-{row}") for row in range(_ROWS)]
        writer.begin_transaction()
        for partition, value in values:
            writer.produce(self.topic, value.encode(), partition=partition, on_delivery=delivered)
        writer.flush(1)
        return lambda: tuple(
            Send(f"{self.topic}-{partition}", value, offsets.get(value)) for partition, value in values
        )

    def read(self, number: int) -> None:
        """Read committed rows until the run stops."""
        consumer = self._consumer(self.gateways[number], f"reader-{number}")
        try:
            while not self.stopped.is_set():
                self._poll(consumer, f"reader-{number}")
        finally:
            consumer.close()

    def read_all(self, rows: int) -> None:
        """Read all committed rows from the beginning with a new consumer."""
        consumer = self._consumer(self.gateways[0], "last")
        try:
            deadline = time.monotonic() + _LONGEST_S
            while rows > 0 and time.monotonic() < deadline:
                rows -= self._poll(consumer, "last")
        finally:
            consumer.close()
        assert rows == 0

    def _consumer(self, gateway: GatewayProcess, process: str) -> Any:
        """Return a consumer that reads all partitions from the beginning."""
        invoked = time.monotonic_ns()
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": gateway.servers, "group.id": "unused", "enable.auto.commit": False}
        )
        begin = confluent_kafka.OFFSET_BEGINNING
        consumer.assign(
            [confluent_kafka.TopicPartition(self.topic, partition, begin) for partition in range(_PARTITIONS)]
        )
        self.note(process, Kind.ASSIGN, Outcome.OK, invoked, keys=self.keys())
        return consumer

    def _poll(self, consumer: Any, process: str) -> int:
        invoked = time.monotonic_ns()
        records: dict[str, list[tuple[int, str]]] = {}
        found = consumer.consume(500, 0.2)
        count = 0
        for message in found:
            if message.error() is None:
                key = f"{self.topic}-{message.partition()}"
                records.setdefault(key, []).append((message.offset(), message.value().decode()))
                count += 1
        self.note(process, Kind.POLL, Outcome.OK, invoked, micro_operations=(Poll(records),))
        return count


def _ended(writer: Any, *, commits: bool) -> tuple[Outcome, bool]:
    """End a transaction. Return its outcome, and True if the producer cannot go on."""
    try:
        if commits:
            try:
                repeated(writer.commit_transaction)
                return Outcome.OK, False
            except confluent_kafka.KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
        repeated(writer.abort_transaction)
        return Outcome.FAIL, False
    except confluent_kafka.KafkaException:
        return Outcome.INFO, True


def test_clients_of_two_gateways_see_a_legal_history(local: Served, second: GatewayProcess) -> None:
    processes = [local.gateway, second]
    run = _Run(local.new_topic(_PARTITIONS), processes)
    failures: list[BaseException] = []

    def noting(work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)
            run.stopped.set()

    clients = [threading.Thread(target=noting, args=(run.write, number)) for number in range(_WRITERS)]
    clients += [threading.Thread(target=noting, args=(run.read, number)) for number in range(len(processes))]
    with ExitStack() as kills:
        for each in clients:
            each.start()
        for process in processes:
            kills.enter_context(killed_every(process, _EVERY_S, progress=lambda: run.count(Outcome.OK)))
        limit = time.monotonic() + _LONGEST_S
        while min(each.starts for each in processes) <= _KILLS and time.monotonic() < limit:
            if run.stopped.wait(0.5):
                break
    run.stopped.set()
    for each in clients:
        each.join(_LONGEST_S)
    assert not failures, failures[0]
    rows = local.rows(run.topic)
    run.read_all(len(rows))

    verdict = check(sorted(run.operations, key=lambda each: each.completed))
    assert verdict.is_valid, str(verdict)
    assert min(each.starts for each in processes) > _KILLS
    assert min(run.count(Outcome.OK), run.count(Outcome.FAIL)) > 5
