"""Kafka's ``TransactionalMessageCopier`` copies each row once, however often it or the gateway is killed.

This is Kafka's own system test (``transactions_test``): several copiers, each with a transactional id and a partition
of its own, copy a topic. They abort some of their transactions, and are killed and started again.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import Served
from tests.kafka_clients.gateway_process import killed_every
from tests.kafka_clients.test_java_tools import needs_java

pytestmark = [pytest.mark.slow, needs_java, pytest.mark.timeout(900)]
COPIERS = 3
ROWS = 7_000
"""The rows of each partition."""
_PATIENCE_S = 400


class Copier:
    """A copier of one partition, or a member of a group, whose process is killed and started again."""

    def __init__(self, served: Served, source: str, sink: str, partition: int, *, in_group: bool) -> None:
        self._command = java_tools.command(
            "TransactionalMessageCopier",
            *("--broker-list", served.servers, "--transactional-id", f"{sink}-{partition}"),
            *("--input-topic", source, "--input-partition", str(partition), "--output-topic", sink),
            *("--consumer-group", f"{sink}-group", "--transaction-size", "100", "--transaction-timeout", "30000"),
            *("--enable-random-aborts", "--use-group-metadata", *(["--group-mode"] if in_group else [])),
        )
        self._random = random.Random(partition)
        self.kills = 0
        self.progress = 0
        """How often it has told that it has copied more."""
        self.exit_codes: list[int] = []

    def run(self, kills: int) -> None:
        """Run the copier until it ends by itself. Kill it this many times in the middle of its work."""
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            with expiring(process, end - time.monotonic()):
                assert process.stdout is not None
                consumed = 0
                for event in (event for line in process.stdout for event in java_tools.events(line)):
                    self.progress += event["consumed"] > consumed
                    consumed = event["consumed"]
                    if self.kills < kills and consumed:
                        time.sleep(self._random.uniform(0, 0.5))
                        process.kill()
                        self.kills += 1
                        break
                self.exit_codes.append(process.wait())
            if self.exit_codes[-1] == 0:
                return


@contextmanager
def expiring(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Kill a process at the end of the block, or after this time."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


def copiers_of(served: Served, source: str, sink: str, *, in_group: bool = False) -> list[Copier]:
    """Return as many copiers as a topic has partitions.

    Args:
        in_group: they share the partitions as members of a group. Otherwise each has one of its own.
    """
    return [Copier(served, source, sink, number, in_group=in_group) for number in range(COPIERS)]


def run(copiers: list[Copier], *, kills: int) -> None:
    """Run copiers until they have copied the topic."""
    with ThreadPoolExecutor(COPIERS) as threads:
        for done in [threads.submit(each.run, kills) for each in copiers]:
            done.result()
    assert [each.exit_codes[-1] for each in copiers] == [0] * COPIERS
    assert sum(each.kills for each in copiers) >= kills * (COPIERS - 1)


def filled_topic(served: Served, rows: int = ROWS) -> str:
    """Return a topic with numbered rows in each partition."""
    topic = served.new_topic(COPIERS)
    with served.store.producer() as writer:
        for number in range(rows):
            for partition in range(COPIERS):
                writer.send(topic, b"%d" % number, key=b"%d" % partition, partition=partition)
    return topic


def contents(served: Served, topic: str) -> list[tuple[int, bytes, bytes]]:
    return [(row["partition"], row["key"], row["value"]) for row in served.rows(topic)]


def test_copiers_that_are_killed_copy_each_row_once(own: Served) -> None:
    source, sink = filled_topic(own), own.new_topic(COPIERS)

    run(copiers_of(own, source, sink), kills=2)

    assert contents(own, sink) == contents(own, source)
    printed = java_tools.run(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", own.servers, "--topic", sink, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(ROWS), "--timeout-ms", "60000", "--isolation-level", "read_committed"),
    )
    assert printed.split() == [str(number) for number in range(ROWS)]


def test_copiers_copy_each_row_once_while_the_gateway_is_killed(own: Served) -> None:
    source, sink = filled_topic(own), own.new_topic(COPIERS)

    copiers = copiers_of(own, source, sink)

    with killed_every(own.gateway, 2, progress=lambda: sum(each.progress for each in copiers)):
        run(copiers, kills=1)

    assert own.gateway.starts > 2
    assert contents(own, sink) == contents(own, source)


def test_copiers_in_a_group_that_are_killed_copy_each_row_once(own: Served) -> None:
    source, sink = filled_topic(own), own.new_topic(COPIERS)

    run(copiers_of(own, source, sink, in_group=True), kills=2)

    assert contents(own, sink) == contents(own, source)


def test_copiers_in_a_group_copy_each_row_once_while_the_gateway_is_killed(own: Served) -> None:
    source, sink = filled_topic(own, rows=3_000), own.new_topic(COPIERS)

    copiers = copiers_of(own, source, sink, in_group=True)

    with killed_every(own.gateway, 2, progress=lambda: sum(each.progress for each in copiers)):
        run(copiers, kills=1)

    assert own.gateway.starts > 2
    assert contents(own, sink) == contents(own, source)
