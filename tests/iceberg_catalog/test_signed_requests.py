"""Requests to a catalog of AWS: each has a signature that AWS's own library computes again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from eoslog.iceberg.rest_catalog import CatalogFailed, RestCatalog
from eoslog.session.settings import IcebergSettings
from eoslog.storage.environment import Environment
from eoslog.storage.renewed_credentials import Clocks

KEYS = {"key": "AKIDEXAMPLE", "secret": "hush", "token": "session"}
RENEWED = {"key": "AKIDEXAMPLE", "secret": "whisper"}


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def is_signed_by(self, keys: dict[str, str], url: str) -> bool:
        """Return True if the signature is that of some keys for the region and service of these tests."""
        authorization = self.headers["authorization"]
        names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        request = AWSRequest(self.method, url + self.path, {name: self.headers[name] for name in names}, self.body)
        request.context["timestamp"] = self.headers["x-amz-date"]
        signer = SigV4Auth(Credentials(keys["key"], keys["secret"], keys.get("token")), "glue", "eu-central-1")
        canonical = signer.canonical_request(request)
        signature = signer.signature(signer.string_to_sign(request, canonical), request)
        return (
            authorization.endswith(f"Signature={signature}")
            and "/eu-central-1/glue/aws4_request" in authorization
            and self.headers.get("x-amz-security-token") == keys.get("token")
        )


class Catalog:
    """A catalog that takes every request, after it has refused some."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.refusals = 0
        """The number of the next requests that are refused."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Catalog:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(catalog) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a ``self`` of its own
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                catalog.received.append(Received(self.command, self.path, headers, body))
                status, found = 200, b"{}"
                if catalog.refusals:
                    catalog.refusals -= 1
                    status = 403
                elif self.path.startswith("/v1/config"):
                    found = json.dumps({"overrides": {"prefix": "catalogs/123456789012"}}).encode()
                elif self.command == "GET":
                    status = 404
                self.send_response(status)
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

            def log_message(self, *_: object) -> None:
                pass

        for method in ("GET", "POST"):
            setattr(Handler, f"do_{method}", Handler.answer)
        return Handler


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with Catalog() as found:
        yield found


@pytest.fixture
def client(catalog: Catalog, environment: Environment) -> RestCatalog:
    """A client that signs for the service ``glue``."""
    settings = IcebergSettings(
        catalog_uri=catalog.url,
        warehouse="123456789012",
        namespace="lake.inner",
        signing_name="glue",
        signing_region="eu-central-1",
        credentials=f"{__name__}:keys",
    )
    return RestCatalog(settings, environment, Clocks(lambda: 0, environment.monotonic_ms))


_given: list[dict[str, str]] = []


def keys(_: str) -> dict[str, str]:
    """The function of the setting ``credentials``."""
    return _given.pop(0) if len(_given) > 1 else _given[0]


def test_every_request_has_the_signature_of_its_content(catalog: Catalog, client: RestCatalog) -> None:
    _given[:] = [KEYS]

    client.point("a b", location="s3://bucket/t", metadata_location="s3://bucket/t/metadata/v1.metadata.json")

    assert [each.method for each in catalog.received] == ["GET", "GET", "POST"]
    assert catalog.received[-1].path == "/v1/catalogs/123456789012/namespaces/lake%1Finner/register"
    for each in catalog.received:
        assert each.is_signed_by(KEYS, catalog.url), each.path
        assert not each.is_signed_by(KEYS | {"secret": "wrong"}, catalog.url)
        assert KEYS["secret"] not in str(each.headers)


def test_a_refused_signature_is_renewed_once(catalog: Catalog, client: RestCatalog) -> None:
    _given[:] = [KEYS, RENEWED]
    catalog.refusals = 1

    client.point("t", location="s3://bucket/t", metadata_location="s3://bucket/t/metadata/v1.metadata.json")

    assert catalog.received[0].is_signed_by(KEYS, catalog.url)
    assert all(each.is_signed_by(RENEWED, catalog.url) for each in catalog.received[1:])


def test_the_keys_of_the_environment_sign(
    catalog: Catalog, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS["secret"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", KEYS["token"])
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    settings = IcebergSettings(catalog_uri=catalog.url, signing_name="glue")
    client = RestCatalog(settings, environment, Clocks(lambda: 0, environment.monotonic_ms))

    client.point("t", location="s3://bucket/t", metadata_location="s3://bucket/t/metadata/v1.metadata.json")

    assert all(each.is_signed_by(KEYS, catalog.url) for each in catalog.received)


def test_without_keys_or_a_region_the_error_says_what_is_missing(
    catalog: Catalog, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def point(**settings: str) -> None:
        client = RestCatalog(
            IcebergSettings(catalog_uri=catalog.url, signing_name="glue", **settings),
            environment,
            Clocks(lambda: 0, environment.monotonic_ms),
        )
        client.point("t", location="s3://bucket/t", metadata_location="s3://bucket/t/metadata/v1.metadata.json")

    with pytest.raises(CatalogFailed, match="there are no credentials of AWS"):
        point()
    _given[:] = [KEYS]
    with pytest.raises(CatalogFailed, match=r"no region is known .* Set iceberg\.signing_region"):
        point(credentials=f"{__name__}:keys")
    assert catalog.received == []
