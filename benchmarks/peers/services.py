"""What the parts start: a Kafka broker, an S3 server behind a delay, and Spark with the peers' connectors."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.delay import Delay, delayed
from tests.s3.servers import S3Server, real_s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
PEERS = REPOSITORY / ".cache" / "peers"
START_S = 60
_CONNECTORS = (
    "commons-pool2",
    "delta-",
    "iceberg-",
    "kafka-clients",
    "spark-sql-kafka",
    "spark-token-",
    "unitycatalog-",
)
_BROKER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions={partitions}
"""


@dataclass(frozen=True)
class Broker:
    """A Kafka broker on this machine."""

    servers: str
    pid: int

    def create_topic(self, name: str, partitions: int = 1) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        client = AdminClient({"bootstrap.servers": self.servers})
        for made in client.create_topics([NewTopic(name, partitions, 1)]).values():
            made.result(START_S)


@contextmanager
def kafka_broker(directory: Path, jars: Path = PEERS / "kafka", partitions: int = 1) -> Iterator[Broker]:
    """A broker of one node (KRaft) with its data below ``directory``. It ends with the block.

    Args:
        jars: the directory of Kafka's jars.
        partitions: the partitions of a topic that the broker creates by itself.
    """
    command = [java(), "-Xmx1g", "-Xms1g", "-cp", f"{jars}/*"]
    place = directory / "kafka"
    place.mkdir()
    ports = {"broker": free_port(), "controller": free_port()}
    settings = place / "server.properties"
    settings.write_text(_BROKER.format(data=place / "data", partitions=partitions, **ports))
    # The id of a cluster is a UUID in Kafka's own spelling.
    cluster = "AAAAAAAAAAAAAAAAAAAAAQ"
    subprocess.run(
        [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)],
        check=True,
        capture_output=True,
    )
    with (place / "broker.log").open("wb") as log:
        broker = subprocess.Popen([*command, "kafka.Kafka", str(settings)], stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_for(ports["broker"], broker)
        yield Broker(f"127.0.0.1:{ports['broker']}", broker.pid)
    finally:
        broker.terminate()
        try:
            broker.wait(START_S)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()


def java() -> str:
    """The command that starts Java."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def free_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended with exit code {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"the broker did not listen within {START_S} s")


@dataclass(frozen=True)
class S3:
    """A real S3 server, reached through a delay that also counts the requests."""

    server: S3Server
    delay: Delay

    def use(self) -> None:
        """Set the variables by which each client of this process, and of those it starts, reaches the server."""
        os.environ.update(self.server.variables())

    def new_bucket(self) -> str:
        return self.server.new_bucket()

    def delta_options(self) -> dict[str, str]:
        """Options of delta-rs, with the store's own put-if-absent."""
        return {"AWS_ALLOW_HTTP": "true", "conditional_put": "etag", **self.server.variables()}

    def iceberg_options(self) -> dict[str, str]:
        """Options of a catalog of PyIceberg."""
        return {
            "s3.endpoint": self.server.endpoint_url,
            "s3.access-key-id": self.server.key,
            "s3.secret-access-key": self.server.secret,
            "s3.region": "us-east-1",
            # The multipart uploads of Arrow's own client are refused by the S3 server of these measurements.
            "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        }


@contextmanager
def s3_server() -> Iterator[S3]:
    """A real S3 server behind a delay of 0 ms. Both end with the block."""
    with real_s3_server() as server, delayed(server.endpoint_url) as delay:
        yield S3(server.behind(delay.url), delay)


@contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """Spark on two cores with all connectors; the catalog ``ice`` is Iceberg's. It ends with the block."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.jars": ",".join(_jars()),
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(directory / "iceberg"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory}",
    }
    builder = SparkSession.builder.master("local[2]").appName("peers")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def _jars() -> Sequence[str]:
    return sorted(str(jar) for jar in (PEERS / "spark").glob("*.jar") if jar.name.startswith(_CONNECTORS))


def new_name(kind: str) -> str:
    """A name that no table, topic or directory of this run has yet."""
    return f"{kind}_{uuid.uuid4().hex[:12]}"
