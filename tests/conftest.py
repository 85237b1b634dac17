"""Object stores for tests: a local directory, memory, and S3 over HTTP against a server that the session starts."""

from __future__ import annotations

import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoslog.store.environment import Environment
from eoslog.store.local import LocalStore
from eoslog.store.memory import MemoryStore
from eoslog.store.object_store import ObjectStore
from eoslog.store.s3 import S3Store
from eoslog.store.s3_options import S3Options
from tests.fault_proxy import FaultProxy


@pytest.fixture
def environment() -> Environment:
    return Environment()


@pytest.fixture
def local_store(tmp_path: Path, environment: Environment) -> LocalStore:
    return LocalStore(tmp_path / "store", environment)


@pytest.fixture
def memory_store(environment: Environment) -> MemoryStore:
    return MemoryStore(environment)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The URL of an S3 server on this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> str:
    """A new, empty bucket."""
    bucket = f"test-{uuid.uuid4().hex}"
    urllib.request.urlopen(urllib.request.Request(f"{s3_endpoint}/{bucket}", method="PUT")).close()
    return bucket


@pytest.fixture
def s3_store(s3_endpoint: str, s3_bucket: str, environment: Environment) -> S3Store:
    return s3_store_at(s3_endpoint, s3_bucket, environment)


@pytest.fixture
def fault_proxy(s3_endpoint: str) -> Iterator[FaultProxy]:
    """A proxy in front of the S3 server that loses, delays and spoils what it is told to."""
    with FaultProxy(s3_endpoint) as proxy:
        yield proxy


@pytest.fixture
def faulty_s3_store(fault_proxy: FaultProxy, s3_bucket: str, environment: Environment) -> S3Store:
    """An S3 store behind ``fault_proxy``."""
    return s3_store_at(fault_proxy.url, s3_bucket, environment)


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def any_store(request: pytest.FixtureRequest) -> ObjectStore:
    """Each kind of store in turn."""
    store: ObjectStore = request.getfixturevalue(f"{request.param}_store")
    return store


def s3_store_at(endpoint_url: str, bucket: str, environment: Environment) -> S3Store:
    options = S3Options(
        endpoint_url=endpoint_url,
        key="test-key",
        secret="test-secret",
        region="us-east-1",
        read_timeout_ms=20_000,
        max_attempts=3,
        retry_base_ms=1,
    )
    return S3Store(bucket, "some/prefix", environment, options)
