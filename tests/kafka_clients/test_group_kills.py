"""Members of groups are killed and stopped, and so are gateways: members that commit after their work miss no row, and
members that write transactions copy each row once.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from tests.kafka_clients.conftest import PLACES_OF_KILLS, Served
from tests.kafka_clients.gateway_process import REPOSITORY, GatewayProcess, frozen, killed_every
from tests.kafka_clients.group_members import CLIENTS, SESSION_TIMEOUT_MS, GroupClient, MemberProcess, Refused

# They take long and load the machine, so they run only where all clients are installed.
pytest.importorskip("confluent_kafka", reason="run make test-kafka-clients, which has all clients")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PARTITIONS = 3
EVERY_S = 2
KILLS = 4
_PATIENCE_S = 240
_FORGOTTEN_S = 20
"""By then other gateways no longer name one that is frozen (s)."""


@pytest.fixture(params=PLACES_OF_KILLS)
def own(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> Served:
    """A gateway that no other test uses. An empty group waits for a short time, as the gateway is killed so often."""
    return served_at(request.param, "--group-initial-rebalance-delay-ms", "300", until=request)


@pytest.fixture(params=CLIENTS, ids=lambda client: client.package)
def client(request: pytest.FixtureRequest) -> GroupClient:
    found: GroupClient = request.param
    pytest.importorskip(found.package)
    return found


def write(served: Served, topic: str, rows: int) -> None:
    """Write numbered rows to each partition."""
    with served.store.producer() as producer:
        for number in range(rows):
            for partition in range(PARTITIONS):
                producer.send(topic, b"%d" % number, partition=partition)


def write_until(served: Served, topic: str, is_done: Callable[[], bool]) -> int:
    """Write numbered rows to each partition again and again, and return their number."""
    end = time.monotonic() + _PATIENCE_S
    rows = 0
    with served.store.producer() as producer:
        while not is_done():
            assert time.monotonic() < end
            for _ in range(5):
                for partition in range(PARTITIONS):
                    producer.send(topic, b"%d" % rows, partition=partition)
                rows += 1
            producer.flush()
            time.sleep(0.1)
    return rows


def contents(served: Served, topic: str) -> list[tuple[int, bytes]]:
    return [(row["partition"], row["value"]) for row in served.rows(topic)]


def copied(served: Served, sink: str, copiers: int) -> list[tuple[int, bytes]]:
    """Return the rows of copiers that have ended, after the transactions that they have left open are aborted.

    An open transaction hides the later rows of others in its partitions.
    """
    for number in range(copiers):
        with served.store.producer(transactional_id=f"{sink}-{number}") as producer:
            producer.init_transactions()
    return contents(served, sink)


def committed(served: Served, group: str) -> dict[int, int]:
    """Return the committed offsets of a group; none if it does not exist yet."""
    admin = served.store.admin
    if group not in {each.group_id for each in admin.list_consumer_groups()}:
        return {}
    return {each.partition: found.offset for each, found in admin.list_consumer_group_offsets(group).items()}


def wait_until(is_reached: Callable[[], bool], seconds: float = _PATIENCE_S) -> None:
    end = time.monotonic() + seconds
    while not is_reached():
        assert time.monotonic() < end
        time.sleep(0.1)


class Program:
    """A client in a process of its own, which prints a line of JSON for each thing that it has done."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._events: list[list[Any]] = []
        self.start()

    def start(self) -> None:
        """Start the program. It is started again after a kill."""
        process = subprocess.Popen(self._command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        self._process = process
        threading.Thread(target=self._read, args=[process], daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            # The last line of a process that was killed may be a part of one.
            if line.endswith("\n"):
                with self._lock:
                    self._events.append(json.loads(line))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def events(self, kind: str) -> list[Any]:
        """Return the values that were printed for events of a kind."""
        with self._lock:
            return [value for name, value in self._events if name == kind]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    close = kill


@contextmanager
def programs(count: int, start: Callable[[int], Program]) -> Iterator[list[Program]]:
    """Run programs until the block ends. None of them may end by itself."""
    with ExitStack() as started:
        yield [started.enter_context(closing(start(number))) for number in range(count)]


class Progress:
    """The committed offsets of a group, which never go back."""

    def __init__(self, served: Served, group: str) -> None:
        self._served = served
        self._group = group
        self.offsets: dict[int, int] = {}

    def reaches(self, rows: int) -> bool:
        """Look at the offsets, and return whether they are at this row in each partition."""
        now = committed(self._served, self._group)
        assert all(now.get(partition, 0) >= offset for partition, offset in self.offsets.items()), (self.offsets, now)
        self.offsets = now
        return now == dict.fromkeys(range(PARTITIONS), rows)


def reader(client: GroupClient, servers: str, topic: str) -> Program:
    """Return a member that prints rows and commits them after that."""
    return Program("tests.kafka_clients.group_reader", client.package, servers, topic, topic)


def rows_read(readers: list[Program]) -> set[tuple[int, int]]:
    """Return the partitions and offsets that the members have printed."""
    return {(partition, offset) for each in readers for rows in each.events("rows") for partition, offset in rows}


def test_no_row_is_missing_while_the_gateway_is_killed(own: Served, client: GroupClient) -> None:
    topic = own.new_topic(PARTITIONS)
    progress = Progress(own, topic)

    with programs(2, lambda _: reader(client, own.servers, topic)) as readers:

        def commits() -> int:
            return sum(len(each.events("committed")) for each in readers)

        with killed_every(own.gateway, EVERY_S, progress=commits):
            rows = write_until(own, topic, lambda: own.gateway.starts > KILLS)
            wait_until(lambda: progress.reaches(rows))
        assert rows_read(readers) == {(partition, offset) for partition in range(PARTITIONS) for offset in range(rows)}


# Transactions


def copier(served: Served, source: str, sink: str, number: int, *, pause_s: float = 0.0) -> Program:
    """Return a member that copies rows with transactions.

    Args:
        pause_s: how long it waits before it adds its offsets to a transaction.
    """
    arguments = (served.servers, source, sink, str(number), str(pause_s))
    return Program("tests.kafka_clients.group_copier", *arguments)


def test_the_late_commit_of_a_stopped_member_is_refused(own: Served) -> None:
    pytest.importorskip("confluent_kafka")
    source, sink = own.new_topic(PARTITIONS), own.new_topic(PARTITIONS)
    write(own, source, 200)
    progress = Progress(own, sink)

    with programs(2, lambda number: copier(own, source, sink, number, pause_s=0.3)) as copiers:
        zombie = copiers[0]
        wait_until(lambda: len(zombie.events("committed")) > 1)
        written = len(zombie.events("written"))
        wait_until(lambda: len(zombie.events("written")) > written)
        with frozen(zombie.pid):
            wait_until(lambda: progress.reaches(200))
            assert zombie.events("refused") == []
        wait_until(lambda: len(zombie.events("refused")) > 0)

        assert zombie.events("refused")[0] in {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}
        assert progress.reaches(200)
    assert copied(own, sink, 2) == contents(own, source)


@contextmanager
def disturbed(members: list[Program], chance: random.Random, done: dict[str, int]) -> Iterator[None]:
    """Kill members and start them again, and stop members for longer than their session, until the block ends.

    Args:
        done: counts what was done.
    """
    ended = threading.Event()
    errors: list[BaseException] = []

    def disturb() -> None:
        try:
            while not ended.wait(chance.uniform(1, 3)):
                member = chance.choice(members)
                if member.has_ended or chance.random() < 0.5:
                    member.kill()
                    member.start()
                    done["killed"] += 1
                else:
                    with frozen(member.pid):
                        ended.wait(SESSION_TIMEOUT_MS / 1000 + 3)
                    done["stopped"] += 1
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=disturb, name="disturber")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("kills_gateway", [False, True], ids=["members", "members and gateway"])
def test_members_that_are_killed_and_stopped_copy_each_row_once(own: Served, kills_gateway: bool) -> None:
    pytest.importorskip("confluent_kafka")
    source, sink = own.new_topic(PARTITIONS), own.new_topic(PARTITIONS)
    progress = Progress(own, sink)
    done = {"killed": 0, "stopped": 0}

    with programs(3, lambda number: copier(own, source, sink, number)) as copiers, ExitStack() as trouble:

        def commits() -> int:
            return sum(len(each.events("committed")) for each in copiers)

        if kills_gateway:
            trouble.enter_context(killed_every(own.gateway, EVERY_S, progress=commits))
        trouble.enter_context(disturbed(copiers, random.Random(5), done))
        rows = write_until(
            own, source, lambda: min(done.values()) > 2 and (own.gateway.starts > KILLS or not kills_gateway)
        )
        wait_until(lambda: progress.reaches(rows))

    assert copied(own, sink, 3) == contents(own, source)


# Two gateways


def coordinator_of(served: Served, group: str, gateways: list[GatewayProcess]) -> GatewayProcess:
    """Return the gateway that coordinates a group."""
    (member,) = served.store.admin.describe_consumer_group(group).members
    (found,) = (each for each in gateways if each.servers == member.address)
    return found


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_members_go_on_through_another_gateway(local: Served, second: GatewayProcess, end: signal.Signals) -> None:
    # kafka-python and aiokafka ask only the gateway that they have found at their start.
    pytest.importorskip("confluent_kafka")
    client = CLIENTS[0]
    topic = local.new_topic(PARTITIONS)
    write(local, topic, 50)
    progress = Progress(local, topic)
    servers = f"{local.servers},{second.servers}"

    with programs(2, lambda _: reader(client, servers, topic)) as readers:
        wait_until(lambda: progress.reaches(50))
        ended = coordinator_of(local, topic, [local.gateway, second])
        if end is signal.SIGTERM:
            ended.stop()
        else:
            ended.kill()
        try:
            write(local, topic, 50)
            wait_until(lambda: progress.reaches(100), 120)
            assert coordinator_of(local, topic, [local.gateway, second]) is not ended
            assert rows_read(readers) == {(partition, offset) for partition in range(3) for offset in range(100)}
        finally:
            ended.start()


def test_a_commit_that_waits_in_a_frozen_gateway_is_refused(
    local: Served, second: GatewayProcess, client: GroupClient
) -> None:
    topic = local.new_topic(PARTITIONS)
    write(local, topic, 10)
    # The members end before the threads, which wait for them.
    with ThreadPoolExecutor(1) as threads, ExitStack() as members:
        zombie = members.enter_context(closing(MemberProcess(client, local.servers, topic, topic)))
        read = 0
        while read < 10 * PARTITIONS:
            read += len(zombie.poll())
        (log_member,) = local.store.admin.describe_consumer_group(topic).members
        coordinator, other = local.gateway, second
        if log_member.address == second.servers:
            coordinator, other = second, local.gateway
        with ExitStack() as gateway_is_frozen:
            gateway_is_frozen.enter_context(frozen(coordinator.pid))
            late = threads.submit(zombie.commit)
            time.sleep(1)
            # Otherwise it would join again, at the other gateway.
            with frozen(zombie.pid):
                # A client that learns of the frozen gateway may wait for it for minutes.
                time.sleep(_FORGOTTEN_S)
                successor = members.enter_context(closing(MemberProcess(client, other.servers, topic, topic)))
                write(local, topic, 10)
                read = 0
                end = time.monotonic() + _PATIENCE_S
                while read < 20 * PARTITIONS:
                    read += len(successor.poll())
                    assert time.monotonic() < end
                successor.commit()
                gateway_is_frozen.close()
                # The gateway finds the commit in its socket.
                time.sleep(2)
                assert committed(local, topic) == dict.fromkeys(range(PARTITIONS), 20)
        with pytest.raises((Refused, TimeoutError)):
            late.result(_PATIENCE_S)
        assert committed(local, topic) == dict.fromkeys(range(PARTITIONS), 20)
