"""Kafka Connect in distributed mode, with connectors that copy the lines of a file to a topic, and to another file."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.services import free_port, java
from tests.kafka_clients.java_tools import JARS

PATIENCE_S = 120
_CONNECTORS = "org.apache.kafka.connect.file"
_SETTINGS = """\
bootstrap.servers={servers}
group.id={cluster}
listeners=http://127.0.0.1:{port}
exactly.once.source.support=enabled
config.storage.topic={cluster}-configs
offset.storage.topic={cluster}-offsets
status.storage.topic={cluster}-status
offset.storage.partitions=1
status.storage.partitions=1
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.flush.interval.ms=500
scheduled.rebalance.max.delay.ms=0
session.timeout.ms=6000
heartbeat.interval.ms=1000
consumer.session.timeout.ms=6000
consumer.heartbeat.interval.ms=1000
consumer.isolation.level=read_committed
plugin.discovery=only_scan
"""
"""A worker that was killed leaves its groups after 6 s, and another one takes its connectors over at once."""


class Worker:
    """A worker process of a Connect cluster, which tests kill and start again."""

    def __init__(self, servers: str, cluster: str, directory: Path) -> None:
        """
        Args:
            servers: the address of the server (``bootstrap.servers``).
            cluster: the name of the cluster. All its workers share their connectors.
            directory: a directory for the settings and the output of the worker.
        """
        self._port = free_port()
        self._settings = directory / f"worker-{self._port}.properties"
        self._settings.write_text(_SETTINGS.format(servers=servers, cluster=cluster, port=self._port), encoding="ascii")
        self._output = self._settings.with_suffix(".out")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the worker, and wait until it is a member of its cluster."""
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", main, str(self._settings)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        until(lambda: self._answers("/connectors") is not None, "the worker does not start")

    def kill(self) -> None:
        """End the worker with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Stop the process until ``resume``, as a long pause of a machine does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, and wait until its task runs."""
        body = json.dumps({"name": name, "config": dict(config)}).encode()
        until(lambda: self._answers("/connectors", body) is not None, f"connector {name} was not created")
        self.wait_for_task(name)

    def wait_for_task(self, name: str) -> None:
        """Wait until the task of a connector runs in some worker of the cluster."""
        until(lambda: self._state(name) == "RUNNING", f"connector {name} does not run")

    def worker_of(self, name: str) -> str:
        """Return the address of the worker in which the task of a connector runs."""
        return str(self._answers(f"/connectors/{name}/status")["tasks"][0]["worker_id"])

    @property
    def address(self) -> str:
        """The worker's name in its cluster."""
        return f"127.0.0.1:{self._port}"

    def _state(self, name: str) -> str | None:
        found = self._answers(f"/connectors/{name}/status")
        tasks = [] if found is None else found["tasks"]
        if tasks and tasks[0]["state"] == "FAILED":
            raise AssertionError(f"connector {name} failed: {tasks[0]['trace']}")
        return tasks[0]["state"] if tasks else None

    def _answers(self, path: str, body: bytes | None = None) -> Any:
        """Return the answer of the worker, or None if it cannot answer yet."""
        assert self._process is not None
        if self._process.poll() is not None:
            said = self._output.read_text(encoding="utf-8", errors="replace")[-2_000:]
            raise AssertionError(f"the worker ended with exit code {self._process.returncode}: {said}")
        request = urllib.request.Request(
            f"http://{self.address}{path}", body, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            # A worker that rebalances answers 409, and one that does not know a connector yet answers 404.
            if error.code not in (404, 409, 500, 503):
                raise AssertionError(f"{path}: {error.read().decode(errors='replace')}") from None
            return None
        except OSError:
            return None


@contextmanager
def running_worker(servers: str, cluster: str, directory: Path) -> Iterator[Worker]:
    """Run a worker until the block ends."""
    worker = Worker(servers, cluster, directory)
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


def until(is_true: Callable[[], bool], otherwise: str, *, seconds: float = PATIENCE_S) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, f"{otherwise} within {seconds} s"
        time.sleep(0.2)


def file_source(file: Path, topic: str) -> dict[str, str]:
    """Return the settings of a connector that writes each line of a file to a topic once."""
    return {
        "connector.class": f"{_CONNECTORS}.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        "exactly.once.support": "required",
    }


def file_sink(topic: str, file: Path) -> dict[str, str]:
    """Return the settings of a connector that appends each row of a topic to a file as a line."""
    return {
        "connector.class": f"{_CONNECTORS}.FileStreamSinkConnector",
        "tasks.max": "1",
        "topics": topic,
        "file": str(file),
    }
