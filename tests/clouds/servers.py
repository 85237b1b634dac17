"""Servers with the interfaces of Google's and Azure's object stores, on this machine."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

from eoslog.storage.azure_options import AzureOptions
from eoslog.storage.azure_transport import AzureTransport
from eoslog.storage.environment import Environment
from eoslog.storage.http_store import HttpStore, Request
from eoslog.storage.opening import open_object_store
from eoslog.storage.renewed_credentials import Clocks
from tests.s3.servers import REPOSITORY, started_by_script

GCS_SCRIPT = REPOSITORY / "conf/gcs_server.sh"
AZURE_SCRIPT = REPOSITORY / "conf/azure_server.sh"


class CloudServer(Protocol):
    """Where a server listens, and credentials that it accepts."""

    def options(self) -> dict[str, str]:
        """Options of ``eoslog.connect``."""

    def variables(self) -> dict[str, str]:
        """Environment variables with which every client of the cloud uses this server."""

    def url(self, bucket: str) -> str:
        """The URL of a bucket."""

    def behind(self, proxy_url: str) -> CloudServer:
        """The same server, reached through a proxy."""

    def new_bucket(self) -> str:
        """Make a bucket and return its name."""

    @property
    def endpoint_url(self) -> str: ...

    @property
    def secret(self) -> str:
        """A text that no message may show."""


@dataclass(frozen=True, slots=True)
class GcsServer:
    """A ``CloudServer`` that takes every request."""

    endpoint_url: str
    secret: str = field(default="no-secret-at-all", repr=False)

    def options(self) -> dict[str, str]:
        return {"endpoint_url": self.endpoint_url, "token": self.secret}

    def variables(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.endpoint_url}

    def url(self, bucket: str) -> str:
        return f"gs://{bucket}"

    def behind(self, proxy_url: str) -> GcsServer:
        return replace(self, endpoint_url=proxy_url)

    def new_bucket(self) -> str:
        name = f"test-{uuid.uuid4().hex}"
        body = json.dumps({"name": name}).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(UrlRequest(f"{self.endpoint_url}/storage/v1/b?project=p", body, headers)) as answer:
            assert answer.status == 200
        return name


@dataclass(frozen=True, slots=True)
class AzureServer:
    """A ``CloudServer`` with one storage account."""

    connection_string: str = field(repr=False)
    proxy_url: str | None = None

    @property
    def _parts(self) -> dict[str, str]:
        return dict(part.partition("=")[::2] for part in self.connection_string.split(";") if part)

    @property
    def secret(self) -> str:
        return self._parts["AccountKey"]

    @property
    def account(self) -> str:
        return self._parts["AccountName"]

    @property
    def endpoint_url(self) -> str:
        """The URL of the server, without the account."""
        return self.proxy_url or self._parts["BlobEndpoint"].rpartition("/")[0]

    def options(self) -> dict[str, str]:
        return {"endpoint_url": f"{self.endpoint_url}/{self.account}", "account_key": self.secret}

    def variables(self) -> dict[str, str]:
        text = f"AccountName={self.account};AccountKey={self.secret};BlobEndpoint={self.endpoint_url}/{self.account};"
        return {"AZURE_STORAGE_CONNECTION_STRING": text}

    def url(self, bucket: str) -> str:
        return f"az://{bucket}"

    def behind(self, proxy_url: str) -> AzureServer:
        return replace(self, proxy_url=proxy_url)

    def new_bucket(self) -> str:
        name = f"test-{uuid.uuid4().hex}"
        options = AzureOptions.of(self.options())
        transport = AzureTransport(name, None, options, "az://", Clocks(lambda: 0, lambda: 0))
        answer = transport.send(Request("PUT", "CreateContainer", "PUT", query={"restype": "container"}))
        assert answer.status == 201, answer
        return name


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """A server with an empty directory of its own. Raises ``ServerMissing`` where there is none."""
    with started_by_script(GCS_SCRIPT, "run") as variables:
        yield GcsServer(variables["STORAGE_EMULATOR_HOST"])


@contextmanager
def azure_server() -> Iterator[AzureServer]:
    """A server with an empty directory of its own. Raises ``ServerMissing`` where there is none."""
    with started_by_script(AZURE_SCRIPT, "run") as variables:
        yield AzureServer(variables["AZURE_STORAGE_CONNECTION_STRING"])


def cloud_store_at(
    server: CloudServer, bucket: str, environment: Environment, prefix: str = "some/prefix"
) -> HttpStore:
    """A store that gives up after three attempts."""
    given = {"read_timeout_ms": "20000", "max_attempts": "3", "retry_base_ms": "1"}
    store = open_object_store(f"{server.url(bucket)}/{prefix}", environment, **server.options(), **given)
    assert isinstance(store, HttpStore)
    return store
