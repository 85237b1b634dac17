"""Requests to an S3 server of one's own: certificates, renewed credentials, encryption, and bodies without chunks."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from eoslog.errors import InvalidOption, StoreAccessDenied, StoreUnavailable
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import PutOutcome
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store
from tests.certificates import CertificateFiles, write_certificate


class Server(ThreadingHTTPServer):
    """Takes every put, and refuses all access keys but one."""

    daemon_threads = True
    accepted_key = "key"
    refusal = "ExpiredToken"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.puts: list[dict[str, str]] = []
        self.refused = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length")
        self.rfile.read(int(length or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if f"Credential={self.server.accepted_key}/" not in headers["authorization"]:
            self.server.refused += 1
            self.answer(400, f"<Error><Code>{self.server.refusal}</Code></Error>".encode())
            return
        if length is None or "aws-chunked" in headers.get("content-encoding", ""):
            self.answer(411, b"<Error><Code>MissingContentLength</Code></Error>")
            return
        self.server.puts.append(headers)
        self.answer(200, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Date", formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as found:
        yield found


def store(server: Server, *, scheme: str = "http", **options: str) -> S3Store:
    given = {"endpoint_url": f"{scheme}://127.0.0.1:{server.server_port}", "region": "r", "max_attempts": "1"}
    return S3Store("bucket", "store", Environment(), S3Options.of(given | options))


KEYS = {"key": "key", "secret": "secret"}


def test_a_server_of_ones_own_gets_bodies_with_a_length(server: Server) -> None:
    for body in (b"x", b"x" * (2 << 20)):
        assert store(server, **KEYS).put_if_absent("a", body) is PutOutcome.CREATED

    assert [put["content-length"] for put in server.puts] == ["1", str(2 << 20)]
    assert not any("trailer" in name for put in server.puts for name in put)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_of_the_environment_is_ones_own_too(
    server: Server, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, f"http://127.0.0.1:{server.server_port}")

    S3Store("bucket", "store", Environment(), S3Options(region="r", **KEYS)).put("a", b"x")

    assert len(server.puts) == 1


def test_every_put_asks_for_encryption(server: Server) -> None:
    encrypted = store(server, server_side_encryption="aws:kms", sse_kms_key_id="mine", **KEYS)

    encrypted.put_if_absent("a", b"x")
    encrypted.put("b", b"x")
    encrypted.put_new([("c", b"x")])
    store(server, **KEYS).put("d", b"x")

    assert [put.get("x-amz-server-side-encryption") for put in server.puts] == ["aws:kms"] * 3 + [None]
    assert {put.get("x-amz-server-side-encryption-aws-kms-key-id") for put in server.puts[:3]} == {"mine"}


@pytest.mark.parametrize(
    "options", [{"server_side_encryption": "AES-256"}, {"sse_kms_key_id": "k"}, KEYS | {"server_side_encryption": ""}]
)
def test_an_unknown_encryption_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match="server_side_encryption"):
        S3Options.of(options)


def write_credentials(path: Path, key: str, token: str) -> None:
    path.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=s\naws_session_token={token}\n")


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    write_credentials(tmp_path / "credentials", "key", "first")
    return tmp_path / "credentials"


@pytest.mark.parametrize("refusal", ["ExpiredToken", "InvalidAccessKeyId", "InvalidToken"])
def test_renewed_credentials_are_read_again(server: Server, credentials: Path, refusal: str) -> None:
    writer = store(server)
    writer.put("a", b"x")
    server.refusal, server.accepted_key = refusal, "second"
    with pytest.raises(StoreAccessDenied, match=refusal):
        writer.put("b", b"x")
    write_credentials(credentials, "second", "renewed")

    assert writer.put_if_absent("b", b"x") is PutOutcome.CREATED
    writer.put_many([(f"c{number}", b"x") for number in range(20)])

    assert server.refused == 2
    assert {put["x-amz-security-token"] for put in server.puts[1:]} == {"renewed"}


def test_requests_that_are_refused_at_once_all_succeed_with_renewed_credentials(
    server: Server, credentials: Path
) -> None:
    writer = store(server)
    writer.put("a", b"x")
    server.accepted_key = "second"
    write_credentials(credentials, "second", "renewed")

    writer.put_many([(f"c{number}", b"x") for number in range(30)])

    assert len(server.puts) == 31


def test_credentials_of_options_are_never_replaced(server: Server, credentials: Path) -> None:
    server.accepted_key = "second"
    write_credentials(credentials, "second", "renewed")

    with pytest.raises(StoreAccessDenied, match="ExpiredToken"):
        store(server, **KEYS).put("a", b"x")


def server_with(files: CertificateFiles) -> Server:
    """A server that speaks TLS with a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    server = Server()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def test_a_certificate_of_ones_own_needs_a_variable_that_the_error_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_certificate(tmp_path)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    with running(server_with(files)) as server:
        with pytest.raises(StoreUnavailable, match=r"certificate is not trusted.*set AWS_CA_BUNDLE"):
            store(server, scheme="https", **KEYS).put("a", b"x")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(files.certificate))

        assert store(server, scheme="https", **KEYS).put_if_absent("a", b"x") is PutOutcome.CREATED

    assert [put["content-length"] for put in server.puts] == ["1"]


class Tunnel(BaseHTTPRequestHandler):
    """A proxy that knows CONNECT only."""

    server: ThreadingHTTPServer
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_CONNECT(self) -> None:
        self.asked.append((self.path, self.headers["Proxy-Authorization"]))
        host, _, port = self.path.partition(":")
        with socket.create_connection((host, int(port))) as onward:
            self.send_response_only(200)
            self.end_headers()
            back = threading.Thread(target=self.pass_on, args=(onward, self.connection))
            back.start()
            self.pass_on(self.connection, onward)
            back.join()

    @staticmethod
    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def test_requests_over_tls_pass_through_a_tunnel_and_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_certificate(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(files.certificate))
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Tunnel)
    proxy.daemon_threads = True
    monkeypatch.setenv("https_proxy", f"http://user:word@127.0.0.1:{proxy.server_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with running(server_with(files)) as server:
            writer = store(server, scheme="https", **KEYS)
            for number in range(3):
                assert writer.put_if_absent(f"a{number}", b"x" * (number << 20)) is PutOutcome.CREATED

            assert len(server.puts) == 3
            assert Tunnel.asked == [(f"127.0.0.1:{server.server_port}", "Basic dXNlcjp3b3Jk")]
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
