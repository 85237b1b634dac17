"""Kafka Connect copies each line of a file into a topic once, however often its workers or the gateway are killed.

A file connector writes lines in transactions, with the place that it has read up to (KIP-618). Another connector, a
member of a group, appends the rows of the topic to a file. It is at-least-once: after a kill it may repeat lines.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import Served
from tests.kafka_clients.gateway_process import killed_every
from tests.kafka_clients.kafka_connect import file_sink, file_source, running_worker, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("java") is None or not any(java_tools.JARS.glob("connect-file-*.jar")),
        reason="there is no Java, or no Kafka Connect in .cache/kafka-clients: run make test-kafka-clients",
    ),
]
_LINES_AT_ONCE = 20


class Files:
    """The file that one connector reads, and the file that the other one writes."""

    def __init__(self, directory: Path) -> None:
        self.source = directory / "source.txt"
        self.sink = directory / "sink.txt"
        self.source.touch()
        self.lines = 0

    def add_lines(self, count: int) -> None:
        """Append numbered lines to the file that is read."""
        with self.source.open("a", encoding="ascii") as source:
            source.writelines(f"line {number}\n" for number in range(self.lines, self.lines + count))
        self.lines += count

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Append lines again and again until the block ends."""
        ended = threading.Event()

        def grow() -> None:
            while not ended.wait(0.2):
                self.add_lines(_LINES_AT_ONCE)

        thread = threading.Thread(target=grow, name="lines")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def arrived(self) -> list[int]:
        """Return the numbers of the lines in the file that is written."""
        # A worker that is killed between a line and its end leaves the next line behind it.
        text = self.sink.read_text(encoding="ascii") if self.sink.exists() else ""
        return [int(number) for number in re.findall(r"line (\d+)", text)]

    def wait_for_more(self) -> None:
        before = len(self.arrived())
        until(lambda: len(self.arrived()) > before + 100, "no more lines arrive")

    def wait_for_all(self) -> None:
        until(lambda: self.arrived()[-1:] == [self.lines - 1], "the last line does not arrive")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def rows_of(served: Served, topic: str) -> list[bytes]:
    return [row["value"] for row in served.rows(topic)]


def check_that_lines_arrived_once(served: Served, topic: str, files: Files) -> None:
    """Check that the topic has each line once and in order, and that the other file lacks none of them."""
    assert rows_of(served, topic) == [b"line %d" % number for number in range(files.lines)]
    following = 0
    for number in files.arrived():
        assert number <= following, f"line {following} is missing before line {number}"
        following = number + 1


def test_lines_go_from_a_file_through_a_topic_to_a_file(own: Served, tmp_path: Path, files: Files) -> None:
    topic = own.new_topic()
    files.add_lines(500)
    with running_worker(own.servers, topic, tmp_path) as worker:
        worker.create("source", file_source(files.source, topic))
        worker.create("sink", file_sink(topic, files.sink))
        files.wait_for_all()
        with files.growing():
            time.sleep(3)
        files.wait_for_all()

    assert rows_of(own, topic) == [b"line %d" % number for number in range(files.lines)]
    assert files.sink.read_bytes() == files.source.read_bytes()


def test_a_worker_that_is_killed_loses_and_doubles_no_line(own: Served, tmp_path: Path, files: Files) -> None:
    topic = own.new_topic()
    with running_worker(own.servers, topic, tmp_path) as worker:
        worker.create("source", file_source(files.source, topic))
        worker.create("sink", file_sink(topic, files.sink))
        with files.growing():
            for _ in range(2):
                files.wait_for_more()
                worker.kill()
                worker.start()
        files.wait_for_all()

    check_that_lines_arrived_once(own, topic, files)


def test_a_worker_waits_for_the_end_of_an_open_transaction_and_no_longer(
    local: Served, tmp_path: Path, files: Files
) -> None:
    """A worker that starts reads the committed places of connectors up to the end of their topic, and joins only then.

    A task that was killed may have left a transaction open there. Nothing else ends it than its timeout.
    """
    topic = local.new_topic()
    files.add_lines(100)
    with running_worker(local.servers, topic, tmp_path) as worker:
        worker.create("source", file_source(files.source, topic))
        until(lambda: len(rows_of(local, topic)) == 100, "the lines do not arrive")
        worker.kill()
        killed = local.store.producer(transactional_id=f"{topic}-killed", transaction_timeout_ms=30_000)
        killed.init_transactions()
        killed.begin_transaction()
        killed.send(f"{topic}-offsets", b"{}", key=b"[]", partition=0)
        killed.flush()
        worker.start()
        worker.create("sink", file_sink(topic, files.sink))
        files.wait_for_all()

    check_that_lines_arrived_once(local, topic, files)


def test_a_worker_that_pauses_gets_no_line_in_after_another_took_over(
    local: Served, tmp_path: Path, files: Files
) -> None:
    topic = local.new_topic()
    with (
        running_worker(local.servers, topic, tmp_path) as first,
        running_worker(local.servers, topic, tmp_path) as second,
    ):
        first.create("source", file_source(files.source, topic))
        first.create("sink", file_sink(topic, files.sink))
        until(lambda: first.worker_of("source") in (first.address, second.address), "the cluster is not stable")
        paused, other = (first, second) if first.worker_of("source") == first.address else (second, first)
        with files.growing():
            files.wait_for_more()
            paused.pause()
            until(lambda: other.worker_of("source") == other.address, "no other worker takes over")
            before = len(rows_of(local, topic))
            until(lambda: len(rows_of(local, topic)) > before + 100, "no more lines arrive")
            paused.resume()
            time.sleep(5)
        files.wait_for_all()

    check_that_lines_arrived_once(local, topic, files)


def test_a_gateway_that_is_killed_loses_and_doubles_no_line(local: Served, tmp_path: Path, files: Files) -> None:
    topic = local.new_topic()
    with running_worker(local.servers, topic, tmp_path) as worker:
        worker.create("source", file_source(files.source, topic))
        worker.create("sink", file_sink(topic, files.sink))
        with files.growing(), killed_every(local.gateway, 3, progress=lambda: len(files.arrived())):
            until(lambda: local.gateway.starts > 4, "the gateway is not killed")
        files.wait_for_all()

    check_that_lines_arrived_once(local, topic, files)
