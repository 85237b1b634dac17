"""librdkafka writes transactions while the gateway is killed every two seconds, and between two gateways.

Each transaction is in the topic once or not at all: if its commit was acknowledged it is there, and if it was aborted
it is not.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kafka_clients.conftest import PLACES_OF_KILLS, Served
from tests.kafka_clients.gateway_process import GatewayProcess, frozen, killed_every

confluent_kafka: Any = pytest.importorskip("confluent_kafka")

EVERY_S = 2
KILLS = 4
PARTITIONS = 3
_ROWS = 30
"""The rows of a transaction."""
_PATIENCE_S = 120


@pytest.fixture(params=PLACES_OF_KILLS)
def own(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> Served:
    """A gateway that no other test uses."""
    return served_at(request.param, until=request)


def producer(servers: str, transactional_id: str, **settings: object) -> Any:
    """Return a producer that is not initialized yet."""
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "reconnect.backoff.max.ms": 500,
            "message.timeout.ms": 60_000,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def repeated(call: Callable[[float], object]) -> None:
    """Call a method of a producer until it has an outcome, as librdkafka asks after a retriable error.

    Raises:
        KafkaException: an error that is not retriable.
    """
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            call(10)
            return
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise


def end(writer: Any, new: Callable[[], Any], *, commits: bool) -> tuple[Any, bool]:
    """End a transaction. Return the producer that goes on, and True if the transaction is committed.

    Args:
        new: returns another producer with the same transactional id.
    """
    if commits:
        try:
            repeated(writer.commit_transaction)
            return writer, True
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
    try:
        repeated(writer.abort_transaction)
    except confluent_kafka.KafkaException as error:
        # If a gateway dies before it reads the first request of a transaction, librdkafka aborts what was not begun. As
        # with brokers that is a fatal error.
        if error.args[0].code() != confluent_kafka.KafkaError.INVALID_TXN_STATE:
            raise
        writer = new()
        repeated(writer.init_transactions)
    return writer, False


def stored(served: Served, topic: str) -> dict[int, list[bytes]]:
    """Return the committed values of each partition in the order of their offsets."""
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for row in served.rows(topic):
        found[row["partition"]].append(row["value"])
    return found


def test_transactions_are_there_once_or_not_at_all(own: Served) -> None:
    topic = own.new_topic(PARTITIONS)
    writer = producer(own.servers, topic)
    chance = random.Random(7)
    committed: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    outcomes: list[bool] = []

    with killed_every(own.gateway, EVERY_S, progress=lambda: len(outcomes)):
        repeated(writer.init_transactions)
        limit = time.monotonic() + _PATIENCE_S
        while own.gateway.starts <= KILLS and time.monotonic() < limit:
            writer.begin_transaction()
            rows = [(row % PARTITIONS, b"%d-%d" % (len(outcomes), row)) for row in range(_ROWS)]
            for partition, value in rows:
                writer.produce(topic, value, partition=partition)
            writer.poll(chance.uniform(0, 0.1))
            writer, is_committed = end(writer, lambda: producer(own.servers, topic), commits=chance.random() < 0.7)
            outcomes.append(is_committed)
            if is_committed:
                for partition, value in rows:
                    committed[partition].append(value)

    assert own.gateway.starts > KILLS
    assert {True, False} <= set(outcomes)
    assert stored(own, topic) == committed


def write(writer: Any, topic: str, *values: bytes) -> None:
    """Begin a transaction, and send rows to partition 0. It stays open."""
    writer.begin_transaction()
    for value in values:
        writer.produce(topic, value, partition=0)
    assert writer.flush(_PATIENCE_S) == 0


def test_nothing_of_a_frozen_gateway_gets_in_after_its_producer_was_fenced(
    local: Served, second: GatewayProcess
) -> None:
    topic = local.new_topic(PARTITIONS)
    zombie, successor = producer(local.servers, topic), producer(second.servers, topic)
    zombie.init_transactions(_PATIENCE_S)
    write(zombie, topic, b"old 1")

    with frozen(local.gateway.pid):
        # These requests wait in the frozen gateway.
        for number in range(5):
            zombie.produce(topic, b"old %d" % (2 + number), partition=0)
        zombie.poll(0.5)
        successor.init_transactions(_PATIENCE_S)
        write(successor, topic, b"new 1")
        successor.commit_transaction(_PATIENCE_S)

    with pytest.raises(confluent_kafka.KafkaException) as caught:
        repeated(zombie.commit_transaction)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    write(successor, topic, b"new 2")
    successor.commit_transaction(_PATIENCE_S)
    assert stored(local, topic)[0] == [b"new 1", b"new 2"]


_ZOMBIE = """
import sys
from confluent_kafka import KafkaException, Producer

servers, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
producer.init_transactions(60)
producer.begin_transaction()
try:
    for number in range(100):
        producer.produce(topic, b"old %d" % number, partition=0)
        if not number:
            producer.flush(60)
            print("open", flush=True)
        producer.poll(0.05)
    producer.commit_transaction(60)
except KafkaException as error:
    print(error.args[0].name())
"""


def test_a_frozen_client_is_fenced_at_another_gateway(local: Served, second: GatewayProcess) -> None:
    topic = local.new_topic(PARTITIONS)
    successor = producer(second.servers, topic)
    zombie = subprocess.Popen(
        [sys.executable, "-c", _ZOMBIE, local.servers, topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "open\n"
        with frozen(zombie.pid):
            successor.init_transactions(_PATIENCE_S)
            write(successor, topic, b"new 1")
            successor.commit_transaction(_PATIENCE_S)
        printed, _ = zombie.communicate(timeout=_PATIENCE_S)
    finally:
        zombie.kill()
        zombie.wait()
    write(successor, topic, b"new 2")
    successor.commit_transaction(_PATIENCE_S)

    assert printed == "_FENCED\n"
    assert stored(local, topic)[0] == [b"new 1", b"new 2"]
