"""Gateways for tests of Kafka's clients: on a local store and on a real S3 server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import eoslog
from tests.kafka_clients.gateway_process import GatewayProcess, rolling_gateways, running_gateway
from tests.s3.servers import S3Server
from tests.spark.local_spark import python_environment, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECTOR = Path(__file__).resolve().parents[2] / ".cache" / "kafka-clients" / "spark"
_JARS = ("commons-pool2-", "kafka-clients-", "spark-sql-kafka-", "spark-token-provider-kafka-")
AS_TESTS_OF_CLIENTS_EXPECT = ("--auto-create-topics", "--default-partitions", "4")
"""Options of a gateway on which the own tests of librdkafka and kafka-python run."""
PLACES = ["local", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.slow])]
"""Where the store of a gateway is."""
ROLLING = "rolling"
PLACES_OF_KILLS = [*PLACES, pytest.param(ROLLING, marks=pytest.mark.slow)]
"""Tests that kill a gateway also run on three gateways on disk, of which one after the other is restarted meanwhile."""


@dataclass(frozen=True)
class Served:
    """A store, and the gateway in front of it."""

    store: eoslog.Store
    gateway: GatewayProcess

    @property
    def servers(self) -> str:
        return self.gateway.servers

    def new_topic(self, partitions: int = 1) -> str:
        """Create a topic, and return its name."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        self.store.admin.create_topic(name, partitions=partitions)
        return name

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """Return the committed rows of a topic, by partition and offset."""
        table = self.store.scan(topic).to_table()
        return table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()


@pytest.fixture(scope="session")
def served_at(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Served]:
    """Return a function that starts a gateway, or three that are restarted, in front of a new store.

    They end with the session, or with a fixture whose request the function gets as ``until``.
    """

    def serve(place: str, *options: str, until: pytest.FixtureRequest | None = None) -> Served:
        directory = tmp_path_factory.mktemp("gateway")
        if place in ("local", ROLLING):
            url, variables, settings = str(directory / "store"), {}, {}
        else:
            server = request.getfixturevalue("real_server")
            url, variables, settings = server.url(server.new_bucket()), server.variables(), server.options()
        store = eoslog.connect(url, **settings)
        # The first topic creates the store.
        store.admin.create_topic("first")
        running = ExitStack()
        # Not at the end of this fixture: the S3 server began later, and so it ends earlier.
        (until or request.session).addfinalizer(running.close)
        gateway = (
            rolling_gateways(url, directory, *options)
            if place == ROLLING
            else running_gateway(url, directory / "gateway.log", *options, variables=variables)
        )
        return Served(store, running.enter_context(gateway))

    return serve


@pytest.fixture(scope="session", params=PLACES)
def served(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> Served:
    """A gateway on each kind of store in turn. Tests share it, and each has topics of its own."""
    return served_at(request.param)


@pytest.fixture(params=PLACES_OF_KILLS)
def own(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> Served:
    """A gateway on each kind of store in turn that no other test uses."""
    return served_at(request.param, until=request)


@pytest.fixture
def local(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> Served:
    """A gateway on disk that no other test uses."""
    return served_at("local", until=request)


@pytest.fixture
def second(local: Served, tmp_path: Path) -> Iterator[GatewayProcess]:
    """Another gateway in front of the same store."""
    with running_gateway(local.gateway.store_url, tmp_path / "second.log") as gateway:
        yield gateway


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, real_server: S3Server) -> Iterator[SparkSession]:
    """A session with Spark's Kafka connector."""
    jars = sorted(str(jar) for jar in _CONNECTOR.glob("*.jar") if jar.name.startswith(_JARS))
    if not jars:
        pytest.skip("no connector in .cache/kafka-clients: run make test-kafka-clients")
    with pytest.MonkeyPatch.context() as patch:
        # Spark's processes have the variables of the moment at which the JVM starts.
        for name, value in (python_environment() | real_server.variables()).items():
            patch.setenv(name, value)
        session = start_session(
            tmp_path_factory.mktemp("spark"), {"spark.jars": ",".join(jars), "spark.sql.session.timeZone": "UTC"}
        )
        yield session
        session.stop()
