"""The gateway is killed every two seconds while idempotent producers write: no row is lost, doubled or out of order."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import PLACES, Served
from tests.kafka_clients.gateway_process import killed_every
from tests.kafka_clients.test_java_tools import needs_java

pytestmark = pytest.mark.slow
EVERY_S = 2
KILLS = 4
_PATIENCE_S = 120


@pytest.fixture(params=PLACES)
def own(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> Served:
    """A gateway that no other test uses."""
    return served_at(request.param)


def values(served: Served, topic: str) -> list[list[int]]:
    """Return the numbers of each partition in the order of their offsets."""
    found: dict[int, list[int]] = {}
    for row in served.rows(topic):
        found.setdefault(row["partition"], []).append(int(row["value"]))
    return list(found.values())


@pytest.mark.parametrize("partitions", [1, 3])
def test_librdkafka_writes_each_row_once(own: Served, partitions: int) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    topic = own.new_topic(partitions)
    errors, acknowledged = [], []

    def delivered(error: object, message: object) -> None:
        if error:
            errors.append(error)
        else:
            acknowledged.append((message.partition(), message.offset(), message.value()))

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": own.servers,
            "enable.idempotence": True,
            "message.timeout.ms": _PATIENCE_S * 1000,
            "reconnect.backoff.max.ms": 500,
            "error_cb": lambda error: error.fatal() and errors.append(error),
        }
    )
    count = 0
    with killed_every(own.gateway, EVERY_S):
        end = time.monotonic() + _PATIENCE_S
        while own.gateway.starts <= KILLS and time.monotonic() < end and not errors:
            producer.produce(topic, b"%d" % count, partition=count % partitions, on_delivery=delivered)
            count += 1
            producer.poll(0.002)
        left = producer.flush(_PATIENCE_S)

    assert not errors, errors[0]
    assert left == 0
    assert own.gateway.starts > KILLS
    assert values(own, topic) == [list(range(first, count, partitions)) for first in range(partitions)]
    assert sorted(acknowledged) == [(row["partition"], row["offset"], row["value"]) for row in own.rows(topic)]


@needs_java
def test_a_java_producer_writes_each_row_once(own: Served, tmp_path: Path) -> None:
    topic = own.new_topic()
    rate, seconds = 300, 20
    settings = {
        "enable.idempotence": "true",
        "retries": "2147483647",
        "delivery.timeout.ms": str(_PATIENCE_S * 1000),
        "request.timeout.ms": "10000",
        "reconnect.backoff.max.ms": "500",
    }
    command = java_tools.verifiable_producer(
        own.servers, topic, tmp_path, records=rate * seconds, settings=settings, rate=rate
    )

    with killed_every(own.gateway, EVERY_S):
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _PATIENCE_S)

    events = java_tools.events(done.stdout)
    assert [event for event in events if event["name"] == "producer_send_error"] == []
    assert done.returncode == 0, done.stdout[-2000:]
    assert own.gateway.starts > 1
    assert values(own, topic) == [list(range(rate * seconds))]
    assert {
        (event["offset"], event["value"].encode()) for event in events if event["name"] == "producer_send_success"
    } == {(row["offset"], row["value"]) for row in own.rows(topic)}
