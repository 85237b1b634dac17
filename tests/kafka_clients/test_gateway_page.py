"""The programs of the gateway's pages run as they are printed, except for the address of the gateway."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.peers.services import free_port
from eoslog.gateway.scram import write_user
from eoslog.storage.environment import Environment
from tests.certificates import write_certificate
from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import Served
from tests.kafka_clients.kafka_connect import until
from tests.pages import REPOSITORY, fenced_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
_GATEWAY = fenced_blocks(REPOSITORY / "docs" / "gateway.md", "python")
_CLIENTS_PAGE = REPOSITORY / "docs" / "kafka-clients.md"
_CLIENTS = fenced_blocks(_CLIENTS_PAGE, "python")
_ADDRESS = "127.0.0.1:9092"
_TOPIC = '"payments"'


def program(text: str, served: Served, topic: str, address: str = _ADDRESS) -> str:
    """Return a program of a page, for this gateway and a topic of its own."""
    assert address in text
    assert _TOPIC in text
    return text.replace(address, served.servers).replace(_TOPIC, f'"{topic}"')


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    """A directory with Kafka's jars in ``libs``, and the command of Connect in ``bin``."""
    if shutil.which("javac") is None or not any(java_tools.JARS.glob("connect-file-*.jar")):
        pytest.skip("there is no JDK, or no Kafka in .cache/kafka-clients: run make test-kafka-clients")
    (tmp_path / "libs").symlink_to(java_tools.JARS)
    # As in Kafka's distribution, a worker finds the file connectors only by its plugin.path.
    jars = ":".join(f"libs/{jar.name}" for jar in java_tools.JARS.glob("*.jar") if "connect-file" not in jar.name)
    command = tmp_path / "bin" / "connect-distributed.sh"
    command.parent.mkdir()
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command.write_text(f'#!/usr/bin/env bash\nexec java -Xmx256m -cp {jars} {main} "$@"\n', encoding="ascii")
    command.chmod(0o755)
    return tmp_path


def test_the_programs_of_confluent_kafka_write_and_read_a_topic(served: Served) -> None:
    pytest.importorskip("confluent_kafka")
    topic = served.new_topic()
    names: dict[str, Any] = {}

    exec(program(_CLIENTS[0], served, topic), {})
    exec(program(_CLIENTS[1], served, topic), names)

    assert names["values"] == [row["value"] for row in served.rows(topic)]
    assert names["values"] == [b"%d" % number for number in range(1000)]


def test_the_program_with_tls_and_a_password_writes_a_row(served_at: Callable[..., Served], tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    files, users, password = write_certificate(tmp_path), tmp_path / "users", "the password of alice"
    write_user(users, "alice", password, Environment())
    tls = ("--tls-certificate", str(files.certificate), "--tls-key", str(files.key))
    secured = served_at("local", *tls, "--users", str(users))
    topic = secured.new_topic()
    text = program(_GATEWAY[0], secured, topic, "kafka.example.com:9092")
    assert password in text

    exec(text.replace("ca.pem", str(files.certificate)), {})

    assert [row["value"] for row in secured.rows(topic)] == [b"1"]


def test_the_program_with_a_transaction_moves_each_row_once(served: Served) -> None:
    pytest.importorskip("confluent_kafka")
    orders, payments = served.new_topic(), served.new_topic()
    text = program(_GATEWAY[1], served, payments).replace('"orders"', repr(orders))
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
    text = program(_GATEWAY[2], served, topic).replace("payments-sum", f"sum-{topic}")
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

    exec(program(_CLIENTS[2], served, topic), names)

    found = {(bytes(row.key), bytes(row.value)) for row in names["squares"].collect()}
    assert found == {(b"%d" % number, b"%d" % (number * number)) for number in range(100)}
    assert len(served.rows(topic)) == 100


def test_the_program_in_java_writes_and_reads_a_topic(served: Served, kafka: Path) -> None:
    topic = served.new_topic()
    (text,) = fenced_blocks(_CLIENTS_PAGE, "java")
    run, *_ = fenced_blocks(_CLIENTS_PAGE, "bash")
    # On a busy machine the first rows may need longer than 10 s.
    text = program(text, served, topic).replace("ofSeconds(10)", "ofSeconds(25)")
    (kafka / "Payments.java").write_text(text, encoding="ascii")

    done = subprocess.run(["bash", "-ec", run], cwd=kafka, capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stdout) == (0, f"{sum(range(1000))}\n"), done.stderr[-2000:]
    found = [(row["key"], row["value"]) for row in served.rows(topic)]
    assert found == [(b"account-%d" % (number % 10), b"%d" % number) for number in range(1000)]


@contextmanager
def running(command: str, directory: Path) -> Iterator[None]:
    """Run a command of a page until the block ends."""
    process = subprocess.Popen(["bash", "-ec", command], cwd=directory, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_connectors_copy_a_file_to_a_topic_and_the_topic_to_a_file(local: Served, kafka: Path) -> None:
    local.store.admin.create_topic("payments")
    (settings,) = fenced_blocks(_CLIENTS_PAGE, "properties")
    source, sink = fenced_blocks(_CLIENTS_PAGE, "json")
    _, start, create = fenced_blocks(_CLIENTS_PAGE, "bash")
    worker = "127.0.0.1:8083"
    own_worker = f"127.0.0.1:{free_port()}"
    assert _ADDRESS in settings
    assert worker in settings
    assert worker in create
    settings = settings.replace(_ADDRESS, local.servers).replace(worker, own_worker)
    for name, text in (("connect.properties", settings), ("source.json", source), ("sink.json", sink)):
        (kafka / name).write_text(text, encoding="ascii")

    create = create.replace(worker, own_worker)
    copy = kafka / "copy.txt"

    with running(start, kafka):
        # A worker that starts or rebalances refuses connectors.
        until(lambda: subprocess.run(["bash", "-ec", create], cwd=kafka).returncode == 0, "there are no connectors")
        until(lambda: copy.exists() and copy.read_bytes().count(b"\n") >= 1000, "the rows do not arrive")

    lines = [b"%d" % number for number in range(1, 1001)]
    assert [row["value"] for row in local.rows("payments")] == lines
    assert copy.read_bytes().splitlines() == lines
