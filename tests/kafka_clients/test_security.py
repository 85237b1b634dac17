"""Clients of Kafka over TLS."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificates import write_certificate
from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import Served
from tests.kafka_clients.secure_clients import CLIENTS, Access, Refused, java_offsets

pytestmark = pytest.mark.slow
needs_java = pytest.mark.skipif(
    shutil.which("java") is None or not any(java_tools.JARS.glob("kafka-tools-*.jar")),
    reason="no tools of Kafka: run make test-kafka-clients",
)
_SOON_S = 5


@pytest.fixture(scope="module")
def encrypted(served_at: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> tuple[Served, Access]:
    """A gateway with TLS."""
    files = write_certificate(tmp_path_factory.mktemp("tls"))
    options = ("--tls-certificate", str(files.certificate), "--tls-key", str(files.key))
    served = served_at("local", *options)
    return served, Access(served.servers, files.certificate)


@pytest.mark.parametrize("package", CLIENTS)
def test_clients_write_and_read_over_tls(encrypted: tuple[Served, Access], package: str) -> None:
    pytest.importorskip(package)
    served, access = encrypted
    topic = served.new_topic()

    assert CLIENTS[package](access, topic, b"encrypted") == [b"encrypted"]
    assert [row["value"] for row in served.rows(topic)] == [b"encrypted"]


@pytest.mark.parametrize("package", CLIENTS)
def test_clients_refuse_a_certificate_that_they_do_not_trust(
    encrypted: tuple[Served, Access], package: str, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    served, access = encrypted
    topic = served.new_topic()

    with pytest.raises(Refused):
        CLIENTS[package](replace(access, ca=write_certificate(tmp_path).certificate, patience_s=_SOON_S), topic, b"v")

    assert served.rows(topic) == []


@needs_java
def test_a_client_in_java_uses_tls(encrypted: tuple[Served, Access], tmp_path: Path) -> None:
    served, access = encrypted
    topic = served.new_topic()
    with served.store.producer() as producer:
        producer.send(topic, b"v")

    assert java_offsets(access, topic, tmp_path) == f"{topic}:0:1"
