"""Clients of Kafka over TLS, which authenticate themselves by SCRAM and by tokens."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eoslog.gateway.scram import write_user
from eoslog.storage.environment import Environment
from tests.certificates import write_certificate
from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import Served
from tests.kafka_clients.secure_clients import CLIENTS, Access, Refused, confluent_producer, java_offsets
from tests.tokens import AUDIENCE, ISSUER, Issuer, KeyServer, key_server

pytestmark = pytest.mark.slow
needs_java = pytest.mark.skipif(
    shutil.which("java") is None or not any(java_tools.JARS.glob("kafka-tools-*.jar")),
    reason="there is no Java, or no Kafka in .cache/kafka-clients: run make test-kafka-clients",
)
PASSWORD = "alice's, secret="
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_SOON_S = 5
TrustedGateway = tuple[Served, Access]


def _with_token(access: Access, issuer: Issuer, **claims: Any) -> Access:
    return replace(access, mechanism="OAUTHBEARER", token=lambda: issuer.token(**claims))


REFUSED: dict[str, Callable[[Access, Issuer], Access]] = {
    "SCRAM-SHA-512: there is no user 'alice', or the password is wrong": lambda access, issuer: replace(
        access, mechanism=SCRAM[1], password="wrong password"
    ),
    "SCRAM-SHA-256: there is no user 'bob', or the password is wrong": lambda access, issuer: replace(
        access, mechanism=SCRAM[0], user="bob"
    ),
    "OAUTHBEARER: the token has expired": lambda access, issuer: _with_token(access, issuer, lifetime_s=-1),
    "OAUTHBEARER: the token is for another audience": lambda access, issuer: _with_token(access, issuer, aud="other"),
    "before it was authenticated": lambda access, issuer: access,
}
"""Clients by the reason that the gateway's log gives."""


@pytest.fixture(scope="module")
def encrypted(served_at: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> TrustedGateway:
    """A gateway with TLS."""
    files = write_certificate(tmp_path_factory.mktemp("tls"))
    served = served_at("local", "--tls-certificate", str(files.certificate), "--tls-key", str(files.key))
    return served, Access(served.servers, files.certificate)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def keys(issuer: Issuer) -> Iterator[KeyServer]:
    with key_server(issuer) as server:
        yield server


@pytest.fixture(scope="module")
def secured(
    served_at: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory, keys: KeyServer
) -> TrustedGateway:
    """A gateway with TLS and SASL."""
    directory = tmp_path_factory.mktemp("sasl")
    files = write_certificate(directory)
    write_user(directory / "users", "alice", PASSWORD, Environment())
    served = served_at(
        "local",
        *("--tls-certificate", str(files.certificate), "--tls-key", str(files.key)),
        *("--users", str(directory / "users")),
        *("--oauth-jwks-url", keys.url, "--oauth-issuer", ISSUER, "--oauth-audience", AUDIENCE),
    )
    return served, Access(served.servers, files.certificate, user="alice", password=PASSWORD)


@pytest.mark.parametrize("package", CLIENTS)
def test_clients_write_and_read_over_tls(encrypted: TrustedGateway, package: str) -> None:
    pytest.importorskip(package)
    served, access = encrypted
    topic = served.new_topic()

    assert CLIENTS[package](access, topic, b"encrypted") == [b"encrypted"]
    assert [row["value"] for row in served.rows(topic)] == [b"encrypted"]


@pytest.mark.parametrize("package", CLIENTS)
def test_clients_refuse_a_certificate_that_they_do_not_trust(
    encrypted: TrustedGateway, package: str, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    served, access = encrypted
    topic = served.new_topic()

    with pytest.raises(Refused):
        CLIENTS[package](replace(access, ca=write_certificate(tmp_path).certificate, patience_s=_SOON_S), topic, b"v")

    assert served.rows(topic) == []


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize("package", CLIENTS)
def test_clients_with_a_password_write_and_read(secured: TrustedGateway, package: str, mechanism: str) -> None:
    pytest.importorskip(package)
    served, access = secured
    topic = served.new_topic()

    assert CLIENTS[package](replace(access, mechanism=mechanism), topic, b"v") == [b"v"]
    assert [row["value"] for row in served.rows(topic)] == [b"v"]


@pytest.mark.parametrize("package", CLIENTS)
def test_clients_with_a_token_write_and_read(secured: TrustedGateway, issuer: Issuer, package: str) -> None:
    pytest.importorskip(package)
    served, access = secured
    topic = served.new_topic()

    assert CLIENTS[package](replace(access, mechanism="OAUTHBEARER", token=issuer.token), topic, b"v") == [b"v"]
    assert [row["value"] for row in served.rows(topic)] == [b"v"]


@pytest.mark.parametrize("package", CLIENTS)
@pytest.mark.parametrize("reason", REFUSED)
def test_other_clients_are_refused(secured: TrustedGateway, issuer: Issuer, package: str, reason: str) -> None:
    pytest.importorskip(package)
    served, access = secured
    topic = served.new_topic()
    begin = served.gateway.log.stat().st_size

    with pytest.raises(Refused):
        CLIENTS[package](replace(REFUSED[reason](access, issuer), patience_s=_SOON_S), topic, b"v")

    assert served.rows(topic) == []
    said = served.gateway.log.read_text()[begin:]
    assert reason in said
    assert "Traceback" not in said


def test_a_client_goes_on_with_new_tokens_on_its_connection(secured: TrustedGateway, issuer: Issuer) -> None:
    pytest.importorskip("confluent_kafka")
    served, access = secured
    topic = served.new_topic()
    begin = served.gateway.log.stat().st_size
    lifetime_s, values = 8, [b"%d" % number for number in range(24)]
    errors: list[object] = []
    with confluent_producer(
        replace(access, mechanism="OAUTHBEARER", token=lambda: issuer.token(lifetime_s=lifetime_s)),
        # The client asks for its next token some time before this one expires.
        token_lifetime_s=lifetime_s - 2,
        on_error=errors.append,
    ) as producer:
        for value in values:
            producer.produce(topic, value)
            assert producer.flush(_SOON_S) == 0
            time.sleep(0.5)

    assert [row["value"] for row in served.rows(topic)] == values
    assert errors == []
    assert "its session has ended" not in served.gateway.log.read_text()[begin:]


@needs_java
def test_a_client_in_java_uses_tls(encrypted: TrustedGateway, tmp_path: Path) -> None:
    served, access = encrypted
    topic = served.new_topic()
    with served.store.producer() as producer:
        producer.send(topic, b"v")

    assert java_offsets(access, topic, tmp_path) == f"{topic}:0:1"


@needs_java
@pytest.mark.parametrize("mechanism", [*SCRAM, "OAUTHBEARER"])
def test_a_client_in_java_authenticates_itself(
    secured: TrustedGateway, issuer: Issuer, mechanism: str, tmp_path: Path
) -> None:
    served, access = secured
    topic = served.new_topic()
    with served.store.producer() as producer:
        producer.send(topic, b"v")

    access = replace(access, mechanism=mechanism, token=issuer.token)
    assert java_offsets(access, topic, tmp_path) == f"{topic}:0:1"
