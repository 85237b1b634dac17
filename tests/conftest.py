"""Object stores for tests: a local directory, memory, and clouds against servers that the session starts."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoslog.log.replica import LogConfig
from eoslog.producer import exit_flush
from eoslog.storage.environment import Environment
from eoslog.storage.http_store import HttpStore
from eoslog.storage.local_store import LocalStore
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store
from tests.clouds.servers import AzureServer, CloudServer, GcsServer, azure_server, cloud_store_at, gcs_server
from tests.depth import register_profiles
from tests.fault_proxy import FaultProxy
from tests.s3.servers import S3Server, ServerMissing, pretended_s3_server, real_s3_server

register_profiles()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        choices=["local", "s3"],
        default="local",
        help="where the tests of Spark keep their stores: on disk, or on a real S3 server (make s3 builds it)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("pyspark"):
            from pyspark_eoslog.pyspark_version import is_at_least

            if not is_at_least(*map(int, marker.args[0].split("."))):
                item.add_marker(pytest.mark.skip(reason=f"needs PySpark {marker.args[0]}"))


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: nothing of them is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt what was collected from garbage collection, also from that of pytest at the end of the session."""
    gc.freeze()
    gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        # The summary at the end names it too, but a run that is stopped has no end.
        print(f"\nfailed: {report.nodeid}", file=sys.stderr)


@pytest.fixture(autouse=True)
def _handler_of_sigterm_stays() -> Iterator[None]:
    """A handler that a test leaves is inherited by forked children, which then do not end when they are told to."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture(autouse=True)
def _nothing_left_for_the_exit() -> Iterator[None]:
    """Forget producers that a test leaves with rows, so that the exit does not flush them."""
    yield
    exit_flush._holders.clear()


@pytest.fixture
def files_are_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no rows travel in records or shared objects, in this process and those that it starts."""
    monkeypatch.setenv("EOSLOG_LOG__INLINE_LIMIT_BYTES", "0")
    monkeypatch.setenv("EOSLOG_LOG__SHARED_LIMIT_BYTES", "0")
    *others, _, _ = LogConfig.__init__.__defaults__ or ()
    monkeypatch.setattr(LogConfig.__init__, "__defaults__", (*others, 0, 0))


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
def moto_server() -> Iterator[S3Server]:
    """A pretended S3 server, in this process."""
    with pretended_s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def real_server() -> Iterator[S3Server]:
    """A real S3 server with its data on disk; a test that asks for it is skipped where there is none."""
    try:
        with real_s3_server() as server:
            yield server
    except ServerMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def any_s3_server(request: pytest.FixtureRequest) -> S3Server:
    """The real S3 server, or where there is none the pretended one, which takes longer to start and to answer."""
    server: S3Server
    try:
        server = request.getfixturevalue("real_server")
    except pytest.skip.Exception:
        server = request.getfixturevalue("moto_server")
    return server


@pytest.fixture(scope="session", params=[pytest.param("moto", marks=pytest.mark.slow), "real"])
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    """Each S3 server in turn."""
    server: S3Server = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """A new, empty bucket."""
    return s3_server.new_bucket()


@pytest.fixture
def s3_store(s3_server: S3Server, s3_bucket: str, environment: Environment) -> S3Store:
    return s3_store_at(s3_server, s3_bucket, environment)


@pytest.fixture
def fault_proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """A proxy in front of the S3 server that loses, delays and spoils what it is told to."""
    with FaultProxy(s3_server.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def faulty_s3_store(fault_proxy: FaultProxy, s3_server: S3Server, s3_bucket: str, environment: Environment) -> S3Store:
    """An S3 store behind ``fault_proxy``."""
    return s3_store_at(s3_server.behind(fault_proxy.url), s3_bucket, environment)


@pytest.fixture(scope="session")
def gs_server() -> Iterator[GcsServer]:
    """A server with the interface of Google Cloud Storage; a test that asks for it is skipped where there is none."""
    try:
        with gcs_server() as server:
            yield server
    except ServerMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def az_server() -> Iterator[AzureServer]:
    """A server with the interface of Azure Blob Storage; a test that asks for it is skipped where there is none."""
    try:
        with azure_server() as server:
            yield server
    except ServerMissing as error:
        pytest.skip(str(error))


CLOUDS = [
    pytest.param("moto", marks=[pytest.mark.s3, pytest.mark.slow]),
    pytest.param("real", marks=pytest.mark.s3),
    pytest.param("gs", marks=pytest.mark.clouds),
    pytest.param("az", marks=pytest.mark.clouds),
]


@pytest.fixture(scope="session", params=CLOUDS)
def cloud_server(request: pytest.FixtureRequest) -> CloudServer:
    """The server of each cloud in turn, and moto's."""
    server: CloudServer = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture
def cloud_bucket(cloud_server: CloudServer) -> str:
    """A new, empty bucket."""
    return cloud_server.new_bucket()


@pytest.fixture
def cloud_store(cloud_server: CloudServer, cloud_bucket: str, environment: Environment) -> HttpStore:
    return cloud_store_at(cloud_server, cloud_bucket, environment)


@pytest.fixture
def cloud_proxy(cloud_server: CloudServer) -> Iterator[FaultProxy]:
    """A proxy in front of the cloud's server that loses, delays and spoils what it is told to."""
    with FaultProxy(cloud_server.endpoint_url) as proxy:
        if isinstance(cloud_server, GcsServer):
            # The server knows itself by its own address only.
            proxy.ignored_headers.add("host")
        yield proxy


@pytest.fixture
def faulty_store(
    cloud_proxy: FaultProxy, cloud_server: CloudServer, cloud_bucket: str, environment: Environment
) -> HttpStore:
    """A store behind ``cloud_proxy``."""
    return cloud_store_at(cloud_server.behind(cloud_proxy.url), cloud_bucket, environment)


@pytest.fixture(params=["local", "memory", *CLOUDS])
def any_store(request: pytest.FixtureRequest, environment: Environment) -> ObjectStore:
    """Each kind of store in turn, with those on the server of each cloud."""
    if request.param not in ("local", "memory"):
        server: CloudServer = request.getfixturevalue(f"{request.param}_server")
        return cloud_store_at(server, server.new_bucket(), environment)
    store: ObjectStore = request.getfixturevalue(f"{request.param}_store")
    return store


def s3_store_at(server: S3Server, bucket: str, environment: Environment) -> S3Store:
    options = S3Options.of(server.options() | {"read_timeout_ms": 20_000, "max_attempts": 3, "retry_base_ms": 1})
    return S3Store(bucket, "some/prefix", environment, options)
