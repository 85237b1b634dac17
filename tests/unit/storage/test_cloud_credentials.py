"""Credentials of stores on Google Cloud Storage, Azure and S3: from where they come, and how they are renewed."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from azure.core.exceptions import ClientAuthenticationError
from botocore.credentials import ReadOnlyCredentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth.exceptions import DefaultCredentialsError

from eoslog.errors import InvalidOption, NotAStore, StoreAccessDenied, StoreUnavailable
from eoslog.storage.azure_options import AzureOptions
from eoslog.storage.azure_transport import account_of
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, PutOutcome
from eoslog.storage.opening import open_object_store

_LIST = """<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>
<Blob><Name>p/t</Name><Properties><Content-Length>0</Content-Length><ResourceType>directory</ResourceType>
<Last-Modified>Thu, 26 Nov 2026 18:00:00 GMT</Last-Modified></Properties><Metadata/></Blob>
<Blob><Name>p/u</Name><Properties><Content-Length>0</Content-Length>
<Last-Modified>Thu, 26 Nov 2026 18:00:00 GMT</Last-Modified></Properties>
<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob>
<Blob><Name Encoded="true">p/t/%EF%BF%BE</Name><Properties><Content-Length>3</Content-Length>
<Last-Modified>Thu, 26 Nov 2026 18:00:00 GMT</Last-Modified></Properties><Metadata/></Blob>
</Blobs><NextMarker/></EnumerationResults>"""


class Server(ThreadingHTTPServer):
    """An object store that accepts one token, and the services that give tokens."""

    request_queue_size = 64

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.accepted = "secret-1"
        self.vended = "secret-1"
        self.refusal: tuple[int, str] = (401, "InvalidAuthenticationInfo")
        self.seen: list[str] = []
        """The tokens of requests to the object store."""
        self.asked: list[str] = []
        """The paths at which tokens were asked for."""
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        if path == "/" or path.startswith(("/computeMetadata", "/oauth", "/msi")):
            self.server.asked.append(path)
            expires = datetime.now(UTC) + timedelta(hours=1)
            vended = {"access_token": self.server.vended, "expires_in": 3600, "expires_on": int(expires.timestamp())}
            known = {"email": "me@example.com", "aliases": [], "scopes": []}
            answer = known if "recursive" in self.path else vended | {"token_type": "Bearer", "resource": "r"}
            self.answer(
                200, json.dumps(answer).encode(), {"Content-Type": "application/json", "Metadata-Flavor": "Google"}
            )
            return
        given = parse_qs(urlsplit(self.path).query)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or "".join(given.get("sig", []))
        self.server.seen.append(token)
        if self.server.accepted not in token:
            status, code = self.server.refusal
            self.answer(status, f"<Error><Code>{code}</Code></Error>".encode(), {"x-ms-error-code": code})
        elif "comp=list" in self.path:
            self.answer(200, _LIST.encode(), {})
        elif self.command == "GET":
            self.answer(200, b"", {"Last-Modified": formatdate(usegmt=True), "x-ms-meta-hdi_isfolder": "true"})
        else:
            assert body
            self.answer(200, b"{}", {})

    do_GET = do_PUT = do_POST = do_any  # noqa: N815 - http.server asks for these

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Date", formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("STORAGE_EMULATOR_HOST", "AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    found = Server()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        thread.join()
        found.server_close()


def opened(server: Server, url: str, **options: str) -> Any:
    given = {"endpoint_url": server.url, "max_attempts": "1", "retry_base_ms": "0"}
    if url.startswith("az:"):
        given["account"] = "me"
    return open_object_store(url, Environment(), **given | options)


NAMED = {"credentials": f"{__name__}:vended"}
CALLS: list[str] = []
GIVEN: list[object] = []


def vended(url: str) -> object:
    """The function that the option ``credentials`` names."""
    CALLS.append(url)
    return GIVEN[0]


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()
    GIVEN[:] = [{"token": "secret-1"}]


@pytest.mark.parametrize("url", ["gs://b/p", "az://b/p"])
@pytest.mark.parametrize("options", [{"token": "secret-1"}, NAMED])
def test_every_request_has_the_token(server: Server, url: str, options: dict[str, str]) -> None:
    store = opened(server, url, **options)

    assert store.put_if_absent("a", b"x") is PutOutcome.CREATED
    store.put_many([(f"b/{number}", b"x") for number in range(20)])

    assert server.seen == ["secret-1"] * 21
    assert ([url] if options is NAMED else []) == CALLS


@pytest.mark.parametrize("url", ["gs://b/p", "az://b/p"])
def test_after_a_refusal_the_function_is_called_again_and_the_request_sent_again(server: Server, url: str) -> None:
    store = opened(server, url, **NAMED)
    store.put("a", b"x")
    server.accepted = "secret-2"
    with pytest.raises(StoreAccessDenied, match="401 InvalidAuthenticationInfo: renew the credentials"):
        store.put("b", b"x")
    GIVEN[:] = [{"token": "secret-2", "expires_at_ms": 4_000_000_000_000}]

    assert store.put_if_absent("b", b"x") is PutOutcome.CREATED

    assert server.seen == ["secret-1", "secret-1", "secret-1", "secret-2"]
    assert [url] * 3 == CALLS


def test_a_function_of_s3_gives_keys_or_botocores_own_credentials(server: Server) -> None:
    server.accepted = "Credential=secret-1/"
    GIVEN[:] = [{"key": "secret-1", "secret": "s"}]
    opened(server, "s3://b/p", region="r", **NAMED).put("a", b"x")
    GIVEN[:] = [SimpleNamespace(get_frozen_credentials=lambda: ReadOnlyCredentials("secret-1", "s", None))]
    opened(server, "s3://b/p", region="r", **NAMED).put("a", b"x")
    session = SimpleNamespace(get_credentials=lambda: GIVEN[1])
    GIVEN[:] = [session, *GIVEN]
    opened(server, "s3://b/p", region="r", **NAMED).put("a", b"x")

    assert CALLS == ["s3://b/p"] * 3


def test_a_function_of_s3_is_called_again_for_expired_keys(server: Server) -> None:
    server.accepted, server.refusal = "Credential=secret-2/", (400, "ExpiredToken")
    GIVEN[:] = [{"key": "secret-1", "secret": "s", "token": "t"}]
    store = opened(server, "s3://b/p", region="r", **NAMED)
    with pytest.raises(StoreAccessDenied, match="ExpiredToken"):
        store.put("a", b"x")
    GIVEN[:] = [{"key": "secret-2", "secret": "s"}]

    store.put("a", b"x")

    assert len(server.seen) == 3


@pytest.mark.parametrize(("url", "wrong"), [("s3://b/p", {"key": "hush"}), ("gs://b/p", {"sas_token": "hush"})])
def test_a_function_that_gives_other_credentials_is_refused(server: Server, url: str, wrong: object) -> None:
    GIVEN[:] = [wrong]
    given = {"region": "r"} if url.startswith("s3") else {}

    with pytest.raises(StoreAccessDenied, match="returned no credentials for this store") as caught:
        opened(server, url, **given, **NAMED).put("a", b"x")

    assert "hush" not in str(caught.value)
    assert server.seen == []


def test_googles_own_credentials_renew_themselves(server: Server, tmp_path: Path) -> None:
    """The key of a service account is exchanged for tokens at the address that its file names."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"type": "service_account", "client_email": "me@example.com", "private_key": key.decode()}
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account | {"token_uri": f"{server.url}/oauth"}))
    store = opened(server, "gs://b/p", key_file=str(file))

    store.put("a", b"x")
    server.vended = server.accepted = "secret-2"
    store.put("b", b"x")

    assert server.seen == ["secret-1", "secret-1", "secret-2"]
    assert server.asked == ["/oauth", "/oauth"]


def test_the_service_account_of_a_machine_or_workload_is_found(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # google-auth reads the variable GCE_METADATA_HOST when it is imported.
    monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", server.url.removeprefix("http://"))
    monkeypatch.setenv("GCE_METADATA_IP", server.url.removeprefix("http://"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nowhere")

    opened(server, "gs://b/p").put("a", b"x")

    assert server.seen == ["secret-1"]
    assert any(path.endswith("/token") for path in server.asked)


@pytest.mark.parametrize("emulator", ["127.0.0.1:9", "http://localhost:9", "https://storage.googleapis.com"])
def test_only_the_server_for_tests_gets_anonymous_requests(
    server: Server, monkeypatch: pytest.MonkeyPatch, emulator: str
) -> None:
    """A store at another server, which ``endpoint_url`` names, keeps its credentials."""
    monkeypatch.setattr("google.auth.default", lambda scopes: (_FromEnvironment(), "project"))
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
    opened(server, "gs://b/p").put("a", b"x")
    assert server.seen == ["secret-1"]

    server.seen.clear()
    server.accepted = ""
    for name in (server.url, f"{server.url}/", server.url.removeprefix("http://")):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", name)
        opened(server, "gs://b/p").put("a", b"x")
        open_object_store("gs://b/p", Environment(), max_attempts="1").put("a", b"x")
        opened(server, "gs://b/p", token="secret-1").put("a", b"x")
    assert server.seen == ["", "", "secret-1"] * 3


@pytest.mark.parametrize("emulator", ["https://storage.googleapis.com", "https://STORAGE.googleapis.com:443"])
def test_the_cloud_never_gets_anonymous_requests_for_want_of_credentials(
    monkeypatch: pytest.MonkeyPatch, emulator: str
) -> None:
    def none(scopes: object) -> None:
        raise DefaultCredentialsError("no credentials")  # type: ignore[no-untyped-call]

    monkeypatch.setattr("google.auth.default", none)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)

    with pytest.raises(StoreAccessDenied, match="there are no credentials"):
        open_object_store("gs://b/p", Environment(), max_attempts="1").get("a")


@pytest.mark.parametrize("emulator", ["http://[::1", "ftp://127.0.0.1", "http://me:hush@127.0.0.1"])
def test_a_server_for_tests_has_an_http_address(monkeypatch: pytest.MonkeyPatch, emulator: str) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)

    with pytest.raises(InvalidOption, match="STORAGE_EMULATOR_HOST") as caught:
        open_object_store("gs://b/p", Environment(), max_attempts="1").get("a")

    assert "hush" not in str(caught.value)


class _FromEnvironment:
    """Credentials of google-auth."""

    token = "secret-1"
    expiry = None

    def refresh(self, request: object) -> None: ...


@pytest.mark.parametrize("options", [{"client_id": "mine"}, {}])
def test_a_managed_identity_of_azure_is_found_and_renewed(
    server: Server, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/msi")
    monkeypatch.setenv("IDENTITY_HEADER", "header")
    store = opened(server, "az://b/p", **options)

    store.put("a", b"x")

    assert server.seen == ["secret-1"]
    assert server.asked == ["/msi"]


def test_a_missing_library_is_named_and_what_to_install(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "google.auth", None)
    monkeypatch.setitem(__import__("sys").modules, "azure.identity", None)

    with pytest.raises(InvalidOption, match=r"Install eoslog\[gcs\]"):
        opened(server, "gs://b/p").put("a", b"x")
    with pytest.raises(InvalidOption, match=r"Install eoslog\[azure\]"):
        opened(server, "az://b/p").put("a", b"x")


def test_a_shared_access_signature_is_in_the_query_and_in_no_message(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "eoslog")
    store = opened(server, "az://b/p", sas_token="?sv=2023&sig=secret-1%3D")
    store.put("a", b"x")
    server.refusal, server.accepted = (403, "AuthenticationFailed"), "other"
    with pytest.raises(StoreAccessDenied, match="check the account's key, the SAS and its expiry") as caught:
        store.put("a", b"x")

    assert server.seen == ["secret-1=", "secret-1="]
    assert not [text for text in (repr(store), str(caught.value), caplog.text) if "secret-1" in text]
    gone = open_object_store(
        "az://b/p",
        Environment(),
        account="me",
        endpoint_url="http://127.0.0.1:9",
        max_attempts="1",
        sas_token="sig=hush",
    )
    with pytest.raises(StoreUnavailable) as silent:
        gone.get("a")
    assert "hush" not in str(silent.value)


@pytest.mark.parametrize(
    ("endpoint", "is_sent"),
    [
        ("https://mine.blob.core.windows.net", True),
        ("http://127.0.0.1:9/mine", True),
        ("http://127.0.0.1:9/devstoreaccount1", False),
        ("https://other.blob.core.windows.net", False),
    ],
)
def test_the_environments_credentials_go_to_the_server_of_their_account_only(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, is_sent: bool
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "mine")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sig=hush")

    account = account_of(AzureOptions(endpoint_url=endpoint), None)

    assert account.credentials == ({"sas_token": "sig=hush"} if is_sent else {})
    assert account.endpoint == endpoint


def test_directories_of_azure_are_no_objects(server: Server) -> None:
    store = opened(server, "az://b/p", token="secret-1")

    assert [info.path for info in store.list("")] == ["t/\ufffe"]
    with pytest.raises(ObjectNotFound):
        store.get("t")


@pytest.mark.parametrize(
    ("url", "status", "code", "kind"),
    [
        *(("gs://b/p", status, "", StoreUnavailable) for status in (408, 409, 429, 500, 502, 503, 504)),
        ("gs://b/p", 403, "rateLimitExceeded", StoreUnavailable),
        ("gs://b/p", 403, "forbidden", StoreAccessDenied),
        ("gs://b/p", 404, "NoSuchBucket", NotAStore),
        *(("az://b/p", status, "ServerBusy", StoreUnavailable) for status in (408, 429, 500, 503)),
        ("az://b/p", 409, "ContainerBeingDeleted", StoreUnavailable),
        ("az://b/p", 409, "BlobImmutableDueToPolicy", StoreAccessDenied),
        ("az://b/p", 403, "AuthorizationPermissionMismatch", StoreAccessDenied),
        ("az://b/p", 404, "ContainerNotFound", NotAStore),
    ],
)
def test_a_refusal_is_unknown_or_final(server: Server, url: str, status: int, code: str, kind: type[Exception]) -> None:
    server.accepted, server.refusal = "another", (status, code)

    with pytest.raises(kind):
        opened(server, url, token="secret-1").put_if_absent("a", b"x")


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        ("gs://b/p", 412, "conditionNotMet"),
        ("az://b/p", 409, "BlobAlreadyExists"),
        ("az://b/p", 412, "ConditionNotMet"),
    ],
)
def test_an_existing_object_is_told_by_each_clouds_answer(server: Server, url: str, status: int, code: str) -> None:
    server.accepted, server.refusal = "another", (status, code)

    assert opened(server, url, token="secret-1").put_if_absent("a", b"x") is PutOutcome.EXISTS


@pytest.mark.parametrize("url", ["gs://b/p", "az://b/p", "s3://b/p"])
@pytest.mark.parametrize("spoiled", ["hush\n", "hush\u20ac", "hush\r\nHost: other"])
def test_credentials_that_no_header_may_have_are_refused_and_not_shown(
    server: Server, caplog: pytest.LogCaptureFixture, url: str, spoiled: str
) -> None:
    caplog.set_level(logging.DEBUG, "eoslog")
    given = {"region": "r", "key": "k", "secret": "s"} if url.startswith("s3") else {}

    with pytest.raises(StoreAccessDenied, match="'a' was not requested: the credentials have a character") as caught:
        opened(server, url, token=spoiled, **given).put("a", b"x")

    assert "hush" not in f"{caught.value} {caught.value.__cause__} {caplog.text}"
    assert server.seen == []


def test_a_key_file_that_gives_no_token_is_named(server: Server, tmp_path: Path) -> None:
    for file in (tmp_path / "none.json", tmp_path):
        with pytest.raises(StoreAccessDenied, match=f"key_file '{file}' gave no access token"):
            opened(server, "gs://b/p", key_file=str(file)).put("a", b"x")


def test_a_service_that_gives_no_answer_is_no_refusal_of_the_credentials(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise ClientAuthenticationError("Authentication failed") from ConnectionError("unreachable")

    monkeypatch.setattr("azure.identity.ClientSecretCredential.get_token", silent)

    with pytest.raises(StoreUnavailable, match="Azure gave no access token"):
        opened(server, "az://b/p", tenant_id="t", client_id="c", client_secret="s").put("a", b"x")
