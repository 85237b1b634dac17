"""Connections with TLS: the certificate, its renewal, and clients that do not go along."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import struct
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from eoslog.errors import InvalidOption
from eoslog.gateway.protocol import ApiKey
from eoslog.gateway.security import Security, security
from eoslog.storage.environment import Environment
from eoslog.store import Store
from tests.certificates import CertificateFiles, write_certificate
from tests.unit.gateway.raw_client import (
    Client,
    Running,
    batch,
    fetch,
    fetch_values,
    frame,
    produce,
    running,
    values_of,
)


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return write_certificate(tmp_path)


def secured(files: CertificateFiles) -> Security:
    return security(Environment(), tls_certificate=files.certificate, tls_key=files.key)


def certificate_of(gateway: Running) -> str:
    return ssl.get_server_certificate(("127.0.0.1", gateway.port))


def until_forgotten(gateway: Running) -> None:
    deadline = time.monotonic() + 20
    while gateway.in_loop(lambda: len(gateway.gateway._connections)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_client_with_tls_writes_and_reads(store: Store, files: CertificateFiles) -> None:
    large = bytes(3 << 20)
    with running(store, security=secured(files)) as gateway, Client(gateway.port, tls=files.client_context()) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() == "TLSv1.3"
        for number in range(4):
            assert produce(client, ("t", 0, batch(large)))[0].base_offset == number
        assert values_of(fetch(client, "t", 0).records)[0] == (0, large)

    assert store.scan("t").to_table().num_rows == 4


@pytest.mark.parametrize(("version", "is_served"), [("TLSv1_1", False), ("TLSv1_2", True)])
def test_tls_has_at_least_version_1_2(store: Store, files: CertificateFiles, version: str, is_served: bool) -> None:
    context = files.client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.maximum_version = ssl.TLSVersion[version]
    with running(store, security=secured(files)) as gateway:
        if is_served:
            with Client(gateway.port, tls=context) as client:
                assert client.call(ApiKey.METADATA, 1, topics=None).topics
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                Client(gateway.port, tls=context)


@pytest.mark.parametrize("group", ["ffdhe2048", "ffdhe8192"])
def test_strangers_choose_no_group_that_is_slow_to_compute(store: Store, files: CertificateFiles, group: str) -> None:
    context = files.client_context()
    context.set_ecdh_curve(group)
    with running(store, security=secured(files)) as gateway, pytest.raises((ssl.SSLError, ConnectionError)):
        Client(gateway.port, tls=context)


def test_bytes_that_are_not_of_tls_end_a_connection_without_a_traceback(
    store: Store, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running(store, security=secured(files)) as gateway:
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"\x17\x03\x03\x00\x20" + bytes(32)):
            with Client(gateway.port, tls=files.client_context()) as client:
                with socket.socket(fileno=os.dup(client.socket.fileno())) as below:
                    below.sendall(content)
                until_forgotten(gateway)

    ended = [each for each in caplog.records if "is disconnected" in each.getMessage()]
    assert [each.levelname for each in ended] == ["INFO"] * 2
    assert not any(each.exc_info for each in caplog.records)


def test_a_renewed_certificate_is_used_without_a_restart(store: Store, files: CertificateFiles) -> None:
    with running(store, security=secured(files)) as gateway:
        earlier, text = files.client_context(), files.certificate.read_text()
        with Client(gateway.port, tls=earlier) as client:
            assert certificate_of(gateway) == text
            write_certificate(files.certificate.parent)

            assert certificate_of(gateway) == files.certificate.read_text() != text
            with pytest.raises(ssl.SSLCertVerificationError):
                Client(gateway.port, tls=earlier)
            # Open connections go on.
            assert client.call(ApiKey.METADATA, 1, topics=None).topics


@pytest.mark.parametrize("broken", ["certificate", "key", "removed"])
def test_a_broken_new_certificate_is_not_used(
    store: Store, files: CertificateFiles, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store, security=secured(files)) as gateway:
        text = files.certificate.read_text()
        if broken == "removed":
            files.key.unlink()
        else:
            path: Path = getattr(files, broken)
            path.write_bytes(path.read_bytes()[:100])

        for _ in range(3):
            assert certificate_of(gateway) == text
        warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert f"the former content of {files.certificate} stays in use" in warnings[0]

        write_certificate(files.certificate.parent)
        assert certificate_of(gateway) == files.certificate.read_text()


def test_a_client_without_tls_is_disconnected_at_once(
    store: Store, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store, security=secured(files)) as gateway:
        for content in (frame(ApiKey.METADATA, 1, topics=None), b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 10_000):
            with Client(gateway.port) as client:
                client.socket.sendall(content)
                begin = time.monotonic()
                # TLS may answer with an alert before the end.
                while not client.is_closed:
                    pass
                assert time.monotonic() - begin < 5
        until_forgotten(gateway)

    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert ["security.protocol=SSL" in each.getMessage() for each in warnings] == [True] * 3
    assert not any(each.exc_info for each in warnings)


def test_a_client_with_tls_learns_that_the_gateway_has_none(
    store: Store, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store) as gateway, pytest.raises((ssl.SSLError, ConnectionError)):
        Client(gateway.port, tls=files.client_context())

    assert "it speaks TLS, and the gateway was started without --tls-certificate" in caplog.text


def test_a_client_that_does_not_trust_the_certificate_is_forgotten(
    store: Store, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store, security=secured(files)) as gateway:
        with pytest.raises(ssl.SSLCertVerificationError):
            Client(gateway.port, tls=ssl.create_default_context())
        until_forgotten(gateway)

    assert "ALERT_UNKNOWN_CA" in caplog.text


def test_a_handshake_that_does_not_end_is_given_up(
    store: Store, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with running(store, security=secured(files), handshake_timeout_ms=100) as gateway:
        with Client(gateway.port) as silent, Client(gateway.port) as slow:
            slow.socket.sendall(struct.pack(">BHH", 22, 0x0301, 512) + b"\1")
            assert silent.is_closed
            assert slow.is_closed
        until_forgotten(gateway)

    assert caplog.text.count("did not end the handshake of TLS in time") == 2
    assert gateway.gateway.metrics().counts.strangers == 2


def test_handshakes_that_do_not_end_keep_no_client_out(store: Store, files: CertificateFiles) -> None:
    with running(store, security=secured(files), max_connections=5) as gateway, ExitStack() as clients:
        with Client(gateway.port, tls=files.client_context()) as first:
            silent = [clients.enter_context(Client(gateway.port)) for _ in range(20)]
            with Client(gateway.port, tls=files.client_context()) as second:
                for each in (first, second):
                    assert each.call(ApiKey.METADATA, 1, topics=None).topics
                assert gateway.in_loop(lambda: len(gateway.gateway._connections)) == 5
        assert all(each.is_closed for each in silent[:10])


def test_a_client_that_does_not_read_is_disconnected(store: Store, files: CertificateFiles) -> None:
    with running(store, security=secured(files), frame_timeout_ms=300) as gateway:
        with Client(gateway.port, tls=files.client_context()) as client:
            for _ in range(16):
                produce(client, ("t", 0, batch(bytes(1_000_000))))
        with Client(gateway.port, tls=files.client_context()) as slow:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            # One answer, which is larger than what the system takes.
            slow.send(ApiKey.FETCH, 11, **fetch_values("t", 0))

            until_forgotten(gateway)
        assert gateway.in_loop(lambda: gateway.gateway._counts.bytes_out) > 10_000_000


def test_connections_in_their_handshake_end_with_the_gateway(store: Store, files: CertificateFiles) -> None:
    with running(store, security=secured(files), handshake_timeout_ms=60_000) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            while not gateway.in_loop(lambda: list(gateway.gateway._strangers())):
                time.sleep(0.01)
            begin = time.monotonic()
            gateway.stop()
            assert time.monotonic() - begin < 5
            assert client.recv(1) == b""
        assert gateway.failure is None


def test_the_files_of_the_certificate_are_checked_at_the_start(files: CertificateFiles, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for certificate, key in (
        (files.certificate, write_certificate(other).key),
        (files.key, files.certificate),
        (files.certificate, tmp_path / "missing"),
    ):
        with pytest.raises(InvalidOption, match="are not a TLS certificate and its key"):
            security(Environment(), tls_certificate=certificate, tls_key=key)
    with pytest.raises(InvalidOption, match="Give --tls-certificate and --tls-key"):
        security(Environment(), tls_certificate=files.certificate)
