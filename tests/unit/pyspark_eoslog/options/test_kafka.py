"""Options of Kafka's clients: they are passed over and named once, unless that would change what the job does."""

from __future__ import annotations

import logging

import pytest

from eoslog.errors import InvalidOption
from eoslog.read.isolation import IsolationLevel
from eoslog.session import client_options
from pyspark_eoslog.options import Options


def of(**options: str) -> Options:
    return Options.of({"path": "/store", "topic": "a", **options})


CLIENTS = {
    "kafka.bootstrap.servers": "host:9092",
    "kafka.sasl.jaas.config": "password=hidden",
    "kafka.group.id": "g",
    "groupIdPrefix": "p",
    "kafkaConsumer.pollTimeoutMs": "100",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "10",
}


def test_options_of_kafkas_clients_are_named_once_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    client_options.warn_of_ignored.cache_clear()

    with caplog.at_level(logging.WARNING):
        first, second = of(**CLIENTS), of(**CLIENTS)

    assert first == second == of()
    (told,) = caplog.messages
    assert all(name.lower() in told for name in CLIENTS)
    assert "hidden" not in told


def test_kafkas_isolation_level_counts() -> None:
    assert of(**{"kafka.isolation.level": "READ_UNCOMMITTED"}).isolation is IsolationLevel.READ_UNCOMMITTED
    with pytest.raises(InvalidOption, match=r"'isolationLevel' is 'snapshot', but option 'kafka.isolation.level' is"):
        of(**{"kafka.isolation.level": "read_committed", "isolationLevel": "snapshot"})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("kafka.auto.offset.reset", "startingOffsets"),
        ("kafka.transactional.id", "transactionalId"),
        ("kafka.value.deserializer", "Cast the column"),
        ("kafka.enable.auto.commit", "checkpoint"),
        ("kafka.partitioner.class", "column 'partition'"),
    ],
)
def test_a_kafka_option_that_would_change_the_job_is_refused_with_advice(name: str, advice: str) -> None:
    with pytest.raises(InvalidOption, match=f"option '{name}' is not supported.*{advice}"):
        of(**{name: "x"})


def test_a_misspelt_option_of_the_connector_is_unknown() -> None:
    with pytest.raises(InvalidOption, match=r"option 'fetchoffset.retries' is unknown"):
        of(**{"fetchOffset.retries": "3"})
