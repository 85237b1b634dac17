"""The gateway is killed every two seconds while idempotent producers write: no row is lost, doubled or out of order."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import PLACES_OF_KILLS, Served
from tests.kafka_clients.gateway_process import killed_every
from tests.kafka_clients.test_java_tools import needs_java

pytestmark = pytest.mark.slow
EVERY_S = 2
KILLS = 5
_PATIENCE_S = 240


@pytest.fixture(params=PLACES_OF_KILLS)
def own(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> Served:
    """A gateway that no other test uses."""
    return served_at(request.param, until=request)


def values(served: Served, topic: str) -> list[list[int]]:
    """Return the numbers of each partition in the order of their offsets."""
    found: dict[int, list[int]] = {}
    for row in served.rows(topic):
        found.setdefault(row["partition"], []).append(int(row["value"]))
    return list(found.values())


def wait_for_kills(served: Served) -> None:
    """Return when the gateway runs again after ``KILLS`` kills."""
    end = time.monotonic() + _PATIENCE_S
    while served.gateway.starts <= KILLS:
        assert time.monotonic() < end, f"{served.gateway.starts - 1} kills in {_PATIENCE_S} s"
        time.sleep(0.1)


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
            "message.timeout.ms": 2 * _PATIENCE_S * 1000,
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
    settings = {
        "enable.idempotence": "true",
        "retries": "2147483647",
        "delivery.timeout.ms": str(2 * _PATIENCE_S * 1000),
        "request.timeout.ms": "10000",
        "reconnect.backoff.max.ms": "500",
    }
    command = java_tools.verifiable_producer(own.servers, topic, tmp_path, settings=settings, rate=1_000)

    with (tmp_path / "output").open("w+", encoding="utf-8") as output:
        with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as producer:
            try:
                with killed_every(own.gateway, EVERY_S):
                    wait_for_kills(own)
                assert producer.poll() is None
            finally:
                # The tool sends what it has, and waits for the answers.
                producer.terminate()
        output.seek(0)
        printed = output.read()

    events = java_tools.events(printed)
    acknowledged = [event for event in events if event["name"] == "producer_send_success"]
    errors = [event for event in events if event["name"] == "producer_send_error"]
    # At its end the tool may try to send one more record with the producer that it has closed.
    assert [error for error in errors if "closed" not in error["message"]] == []
    assert "shutdown_complete" in {event["name"] for event in events}, printed[-2000:]
    assert own.gateway.starts > KILLS
    assert values(own, topic) == [list(range(len(acknowledged)))]
    assert {(event["offset"], event["value"].encode()) for event in acknowledged} == {
        (row["offset"], row["value"]) for row in own.rows(topic)
    }
