"""The programs of the gateway's pages run as they are printed, except for the address of the gateway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoslog.gateway.scram import write_user
from eoslog.storage.environment import Environment
from tests.certificates import write_certificate
from tests.kafka_clients.conftest import Served
from tests.pages import REPOSITORY, fenced_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
_GATEWAY = REPOSITORY / "docs" / "gateway.md"
_CLIENTS = REPOSITORY / "docs" / "kafka-clients.md"
_TOPIC = '"payments"'


def program(page: Path, number: int, served: Served, topic: str, address: str = "127.0.0.1:9092") -> str:
    """Return a program of a page, for this gateway and a topic of its own."""
    text = fenced_blocks(page, "python")[number]
    assert address in text
    assert _TOPIC in text
    return text.replace(address, served.servers).replace(_TOPIC, repr(topic))


def test_the_programs_of_confluent_kafka_write_and_read_a_topic(served: Served) -> None:
    pytest.importorskip("confluent_kafka")
    topic = served.new_topic()
    names: dict[str, Any] = {}

    exec(program(_CLIENTS, 0, served, topic), {})
    exec(program(_CLIENTS, 1, served, topic), names)

    assert names["values"] == [row["value"] for row in served.rows(topic)]
    assert names["values"] == [b"%d" % number for number in range(1000)]


def test_the_program_with_tls_and_a_password_writes_a_row(served_at: Callable[..., Served], tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    files, users, password = write_certificate(tmp_path), tmp_path / "users", "the password of alice"
    write_user(users, "alice", password, Environment())
    tls = ("--tls-certificate", str(files.certificate), "--tls-key", str(files.key))
    secured = served_at("local", *tls, "--users", str(users))
    topic = secured.new_topic()
    text = program(_GATEWAY, 0, secured, topic, "kafka.example.com:9092")
    assert password in text

    exec(text.replace("ca.pem", str(files.certificate)), {})

    assert [row["value"] for row in secured.rows(topic)] == [b"1"]


def test_the_program_with_a_transaction_moves_each_row_once(served: Served) -> None:
    pytest.importorskip("confluent_kafka")
    orders, payments = served.new_topic(), served.new_topic()
    text = program(_GATEWAY, 1, served, payments).replace('"orders"', repr(orders))
    text = text.replace('"billing', f'"billing-{orders}')
    moved = []
    for _ in range(2):
        with served.store.producer() as producer:
            producer.send(orders, b"order")
        exec(text, {})
        moved.append([row["value"] for row in served.rows(payments)])

    assert moved == [[b"order"], [b"order"] * 2]


def test_the_program_of_a_group_reads_each_row_once(served: Served) -> None:
    pytest.importorskip("confluent_kafka")
    topic = served.new_topic(partitions=2)
    # On a busy machine the first rows may need longer than 10 s.
    text = program(_GATEWAY, 2, served, topic).replace("payments-sum", f"sum-{topic}")
    text = text.replace("timeout=10", "timeout=25")
    found = []
    for rows in (10, 5):
        with served.store.producer() as producer:
            for number in range(rows):
                producer.send(topic, b"%d" % number)
        names: dict[str, Any] = {}
        exec(text, names)
        found.append((names["read"], names["total"]))

    assert found == [(10, 45), (5, 10)]


def test_the_program_of_spark_writes_and_reads_a_topic(spark: SparkSession, served: Served) -> None:
    topic = served.new_topic()
    names: dict[str, Any] = {"spark": spark}

    exec(program(_CLIENTS, 2, served, topic), names)

    found = {(bytes(row.key), bytes(row.value)) for row in names["squares"].collect()}
    assert found == {(b"%d" % number, b"%d" % (number * number)) for number in range(100)}
    assert len(served.rows(topic)) == 100
