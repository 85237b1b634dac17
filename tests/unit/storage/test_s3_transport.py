"""Where requests to S3 go, how they are signed, and over which connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse  # type: ignore[import-untyped]
from botocore.loaders import JSONFileLoader  # type: ignore[import-untyped]

from eoslog.errors import StoreAccessDenied, StoreUnavailable
from eoslog.storage.environment import Environment
from eoslog.storage.http_store import Answer, Request
from eoslog.storage.object_store import PutOutcome
from eoslog.storage.renewed_credentials import Clocks
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store
from eoslog.storage.s3_transport import S3Transport
from eoslog.storage.xml_answers import xml_of
from tests.fault_proxy import FaultProxy

KEYS = {"key": "k", "secret": "s"}
GET = Request("GET", "GetObject", "GET", "some/key ü+~(1).json")


def transport_of(bucket: str, options: S3Options) -> S3Transport:
    return S3Transport(bucket, options, f"s3://{bucket}", Clocks(lambda: 0, lambda: 0))


def test_connections_of_a_process_share_the_description_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    options = S3Options(endpoint_url="http://127.0.0.1:1", region="r", **KEYS)
    transport_of("b", options)._connect()
    read: list[object] = []
    load_file = JSONFileLoader.load_file

    def noted(self: Any, path: str) -> Any:
        read.append(path)
        return load_file(self, path)

    monkeypatch.setattr(JSONFileLoader, "load_file", noted)

    transport_of("b", options)._connect()

    assert read == []


def sent(transport: S3Transport, request: Request, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, str]]:
    """The URL and the headers of a request, which is not sent."""
    seen: list[tuple[str, dict[str, str]]] = []

    def exchange(self: object, method: str, url: str, headers: dict[str, str], body: object) -> Any:
        seen.append((url, headers))
        return 200, {}, b""

    monkeypatch.setattr("eoslog.storage.s3_transport._Connections.exchange", exchange)
    transport.send(request)
    return seen[0]


def sent_by_botocore(transport: S3Transport, bucket: str) -> tuple[str, dict[str, str]]:
    """The URL and the headers that botocore's own client would send for the same object."""
    seen: list[tuple[str, dict[str, str]]] = []

    def noted(request: Any, **_: object) -> AWSResponse:
        headers = {name: each.decode() if isinstance(each, bytes) else each for name, each in request.headers.items()}
        seen.append((request.url, headers))
        return AWSResponse(request.url, 404, {}, None)

    transport._client.meta.events.register("before-send.s3.GetObject", noted)
    with pytest.raises(Exception):  # noqa: B017, PT011 - the made-up answer has no body
        transport._client.get_object(Bucket=bucket, Key=GET.key)
    return seen[0]


def scope_of(headers: dict[str, str]) -> str:
    """The region and the service for which a request is signed; empty without a signature."""
    return "/".join(headers.get("Authorization", "").partition("Credential=")[2].partition(",")[0].split("/")[2:])


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file of AWS, empty at first."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.mark.parametrize(
    ("bucket", "options", "configured", "expected", "scope"),
    [
        ("bucket", {}, "", "https://bucket.s3.eu-west-1.amazonaws.com/", "eu-west-1/s3/aws4_request"),
        ("bucket", {"region": "us-east-1"}, "", "https://bucket.s3.amazonaws.com/", "us-east-1/s3/aws4_request"),
        ("bucket", {"region": "cn-north-1"}, "", "https://bucket.s3.cn-north-1.amazonaws.com.cn/", None),
        ("a.bucket", {}, "", "https://s3.eu-west-1.amazonaws.com/a.bucket/", None),
        ("bucket", {}, "addressing_style = path", "https://s3.eu-west-1.amazonaws.com/bucket/", None),
        ("bucket", {}, "use_dualstack_endpoint = true", "https://bucket.s3.dualstack.eu-west-1.amazonaws.com/", None),
        ("bucket", {"endpoint_url": "https://s3.example"}, "", "https://s3.example/bucket/", None),
        ("bucket", {"endpoint_url": "https://s3.example:9000/a/b/"}, "", "https://s3.example:9000/a/b/bucket/", None),
        (
            "bucket",
            {"endpoint_url": "https://s3.example"},
            "addressing_style = virtual",
            "https://bucket.s3.example/",
            None,
        ),
        (
            "arn:aws:s3:eu-west-2:123456789012:accesspoint/mine",
            {},
            "",
            "https://mine-123456789012.s3-accesspoint.eu-west-2.amazonaws.com/",
            "eu-west-2/s3/aws4_request",
        ),
        (
            "mine-0123456789abcdefghijklmnopqrstuvwxyzs-s3alias",
            {},
            "",
            "https://mine-0123456789abcdefghijklmnopqrstuvwxyzs-s3alias.s3.eu-west-1.amazonaws.com/",
            None,
        ),
        ("bucket", {"anon": "true"}, "", "https://bucket.s3.eu-west-1.amazonaws.com/", ""),
    ],
)
def test_a_request_goes_where_botocore_would_send_it_with_the_same_scope(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    bucket: str,
    options: dict[str, str],
    configured: str,
    expected: str,
    scope: str | None,
) -> None:
    config.write_text(f"[default]\ns3 =\n    {configured}\n" if configured else "")
    given = {"region": "eu-west-1", **({} if "anon" in options else KEYS), **options}
    transport = transport_of(bucket, S3Options.of(given))

    url, headers = sent(transport, GET, monkeypatch)

    theirs, their_headers = sent_by_botocore(transport, bucket)
    assert url == theirs == f"{expected}some/key%20%C3%BC%2B~%281%29.json"
    assert scope_of(headers) == scope_of(their_headers)
    assert scope is None or scope_of(headers) == scope


def test_a_directory_bucket_is_asked_with_the_credentials_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = transport_of("b--use1-az4--x-s3", S3Options(region="us-east-1", **KEYS))
    transport._connect()
    session = {"AccessKeyId": "sk", "SecretAccessKey": "ss", "SessionToken": "st", "Expiration": "2099-01-01T00:00:00Z"}
    monkeypatch.setattr(transport._client, "create_session", lambda **_: {"Credentials": session}, raising=False)

    url, headers = sent(transport, GET, monkeypatch)

    assert url.startswith("https://b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com/some/key")
    assert headers["x-amz-s3session-token"] == "st"
    assert "Credential=sk/" in headers["Authorization"]
    assert scope_of(headers) == "us-east-1/s3express/aws4_request"


class Server(ThreadingHTTPServer):
    """A server whose answers a test decides."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str]] = []
        """The method and the scope of each request."""
        self.region: str | None = None
        self.tells_region = True
        self.closes_silently = False
        self.late = threading.Event()
        self.late_path = ""
        self.refuses_early = False
        self.list = b""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def handle_expect_100(self) -> bool:
        if self.server.refuses_early:
            self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return False
        return super().handle_expect_100()

    def do_any(self) -> None:
        scope = scope_of(dict(self.headers.items()))
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, scope))
        if self.server.late_path and self.server.late_path in self.path:
            self.server.late.wait(30)
        if self.command == "HEAD":
            self.answer(200, b"", **{"x-amz-bucket-region": self.server.region or ""})
        elif self.server.region is not None and not scope.startswith(self.server.region):
            told = {"x-amz-bucket-region": self.server.region} if self.server.tells_region else {}
            self.answer(301, b"<Error><Code>PermanentRedirect</Code></Error>", **told)
        elif "list-type" in self.path:
            self.answer(200, self.server.list)
        else:
            body = self.path.encode() if self.command == "GET" else b""
            self.answer(200, body, **{"Last-Modified": "Thu, 26 Nov 2026 18:00:00 GMT"})
        if self.server.closes_silently:
            self.close_connection = True

    do_GET = do_PUT = do_HEAD = do_any  # noqa: N815 - http.server asks for these

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        found.late.set()
        found.shutdown()
        thread.join()
        found.server_close()


def store(server: Server, **options: str) -> S3Store:
    given = {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "region": "us-east-1", "max_attempts": "1"}
    return S3Store("bucket", "store", Environment(), S3Options.of(given | KEYS | options))


@pytest.mark.parametrize("is_told", [True, False])
def test_requests_go_to_the_region_of_the_bucket(server: Server, is_told: bool) -> None:
    """If no refusal tells the region, a HEAD of the bucket does."""
    server.region, server.tells_region = "eu-west-3", is_told
    writer = store(server)

    assert writer.put_if_absent("a", b"x") is PutOutcome.CREATED
    writer.put("b", b"x")

    puts = [scope.split("/")[0] for method, scope in server.seen if method == "PUT"]
    assert puts == ["us-east-1", "eu-west-3", "eu-west-3"]
    assert writer.requests["PUT"] == 3
    assert len(server.seen) == (3 if is_told else 4)


def test_a_region_that_is_no_name_is_not_followed(server: Server) -> None:
    server.region = "example.com/?"

    with pytest.raises(StoreAccessDenied, match="301 PermanentRedirect: set the region"):
        store(server).put("a", b"x")

    assert len(server.seen) == 1


def test_a_connection_that_the_server_has_closed_is_not_used_again(server: Server) -> None:
    server.closes_silently = True
    writer = store(server)

    for number in range(20):
        assert writer.put_if_absent(f"a{number}", b"x") is PutOutcome.CREATED
        (transport,) = writer._transports.values()
        assert isinstance(transport, S3Transport)
        assert transport._address is not None
        (connection,) = transport._address.connections._idle
        # The end of the connection arrives.
        connection.sock.recv(1, socket.MSG_PEEK)

    assert len(server.seen) == 20


def test_an_answer_that_comes_too_late_is_not_taken_for_another_one(server: Server) -> None:
    server.late_path = "late"
    reader = store(server, read_timeout_ms="200")
    with pytest.raises(StoreUnavailable):
        reader.get("late")
    server.late.set()

    assert reader.get("other").body == b"/bucket/store/other"


def test_the_body_of_a_long_upload_that_is_refused_is_not_sent(server: Server) -> None:
    server.refuses_early = True
    writer = store(server)
    with pytest.raises(StoreAccessDenied):
        writer.put("a", bytes(2 << 20))
    server.refuses_early = False

    writer.put("a", bytes(2 << 20))

    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b"<ListBucketResult><Contents><Key>store/a</Key></Contents></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        b"<Error><Code>InternalError</Code></Error>",
        b'<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult/>',
        '<!DOCTYPE a [<!ENTITY b "c">]><ListBucketResult/>'.encode("utf-16"),
    ],
)
def test_a_list_in_another_form_is_no_list(server: Server, body: bytes) -> None:
    server.list = body

    with pytest.raises(StoreUnavailable, match="no S3 server sends"):
        list(store(server).list(""))


def test_entities_are_refused() -> None:
    body = b'<!DOCTYPE a [<!ENTITY b "bbbb">]><ListBucketResult>&b;</ListBucketResult>'

    with pytest.raises(ValueError, match="document type"):
        xml_of(Answer(200, {}, body), "ListBucketResult")


def test_requests_pass_through_the_proxy_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultProxy(f"http://127.0.0.1:{server.server_port}") as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//user:password@"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)

        writer = store(server, endpoint_url="http://storage.example")
        assert writer.put_if_absent("a", b"x") is PutOutcome.CREATED
        assert writer.get("a").body.endswith(b"/store/a")

        assert proxy.counts == {"PUT": 1, "GET": 1}


def test_no_more_requests_than_the_limit_run_at_once(server: Server) -> None:
    server.late_path = "late"
    reader = store(server)
    threads = [threading.Thread(target=reader.get_many, args=([f"late{at}-{n}" for n in range(30)],)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            if len(server.seen) >= 32:
                break
            threading.Event().wait(0.05)
        threading.Event().wait(0.2)
        assert len(server.seen) == 32
    finally:
        server.late.set()
        for thread in threads:
            thread.join()
    assert len(server.seen) == 60
