"""Three gateways serve one store: clients that know one of them find the others, and go on while gateways end.

Clients that are not installed are skipped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kafka_clients import java_tools
from tests.kafka_clients.conftest import PLACES, Served
from tests.kafka_clients.gateway_process import GatewayProcess, running_gateway
from tests.kafka_clients.group_members import CLIENTS, GroupClient, Member
from tests.kafka_clients.test_java_tools import needs_java

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PARTITIONS = 6
_PATIENCE_S = 240
_ENDS: Sequence[Callable[[GatewayProcess], object]] = (GatewayProcess.stop, GatewayProcess.kill)


class Three:
    """Three gateways in front of one store."""

    def __init__(self, served: Served, others: Sequence[GatewayProcess]) -> None:
        self.served = served
        self.gateways = [served.gateway, *others]

    @contextmanager
    def rolling(self, progress: Callable[[], int], rounds: int = 2) -> Iterator[Callable[[], bool]]:
        """End each gateway in turn, by SIGTERM and by SIGKILL, and start it again. Yield whether all of it is done.

        A gateway ends only after the clients have got on, so that they use all gateways.
        """
        errors: list[BaseException] = []

        def roll() -> None:
            try:
                for number in range(rounds * len(self.gateways)):
                    wait_for(progress)
                    gateway = self.gateways[number % len(self.gateways)]
                    _ENDS[number % len(_ENDS)](gateway)
                    wait_for(progress)
                    gateway.start()
                wait_for(progress)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=roll)
        thread.start()
        try:
            yield lambda: not thread.is_alive()
        finally:
            thread.join()
            for gateway in self.gateways:
                if not gateway.is_running:
                    gateway.start()
        if errors:
            raise errors[0]


def wait_for(progress: Callable[[], int]) -> None:
    """Wait until the clients have got on."""
    before, end = progress(), time.monotonic() + _PATIENCE_S
    while progress() <= before:
        assert time.monotonic() < end, "no progress"
        time.sleep(0.1)
    time.sleep(1)


@pytest.fixture(params=PLACES)
def three(request: pytest.FixtureRequest, served_at: Callable[..., Served], tmp_path: Path) -> Iterator[Three]:
    options = ("--group-initial-rebalance-delay-ms", "300")
    served = served_at(request.param, *options, until=request)
    with ExitStack() as running:
        others = [
            running.enter_context(
                running_gateway(
                    served.gateway.store_url, tmp_path / f"{number}.log", *options, variables=served.gateway.variables
                )
            )
            for number in range(2)
        ]
        yield Three(served, others)


@pytest.fixture(params=CLIENTS, ids=lambda client: client.package)
def client(request: pytest.FixtureRequest) -> GroupClient:
    found: GroupClient = request.param
    pytest.importorskip(found.package)
    return found


def write(served: Served, topic: str, first: int, rows: int) -> None:
    with served.store.producer() as producer:
        for number in range(first, first + rows):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def values(served: Served, topic: str) -> list[list[int]]:
    """Return the numbers of each partition in the order of their offsets."""
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    for row in served.rows(topic):
        found[row["partition"]].append(int(row["value"]))
    return list(found.values())


def written(count: int) -> list[list[int]]:
    return [list(range(first, count, PARTITIONS)) for first in range(PARTITIONS)]


def test_members_that_start_at_different_gateways_share_a_group(three: Three, client: GroupClient) -> None:
    topic = three.served.new_topic(PARTITIONS)
    write(three.served, topic, 0, 60)
    seen: set[tuple[int, int]] = set()

    def work(member: Member) -> set[int]:
        found = member.poll()
        seen.update((partition, offset) for partition, offset, _ in found)
        if found:
            # While the coordinator changes, a commit may fail. The next one has later positions.
            with suppress(Exception):
                member.commit()
        return member.partitions()

    with ExitStack() as stack:
        members = [stack.enter_context(closing(client.member(each.servers, topic, topic))) for each in three.gateways]
        threads = stack.enter_context(ThreadPoolExecutor(len(members)))

        def is_shared(shares: list[set[int]]) -> bool:
            return all(shares) and sorted(each for share in shares for each in share) == list(range(PARTITIONS))

        def coordinator(*, former: GatewayProcess | None = None) -> GatewayProcess:
            """Poll until the members share the topic and have read all of it. Return the gateway that coordinates."""
            end = time.monotonic() + _PATIENCE_S
            while True:
                shares = list(threads.map(work, members))
                if len(seen) == count and is_shared(shares):
                    found = coordinator_in_log(three, topic)
                    # A client keeps its partitions, and reads on, before it learns that the coordinator has ended.
                    if found is not None and found is not former:
                        return found
                assert time.monotonic() < end, (shares, len(seen))

        count = 60
        for end in _ENDS:
            former = coordinator()
            end(former)
            write(three.served, topic, count, 30)
            count += 30
            coordinator(former=former)
            former.start()
    assert len(seen) == count


def coordinator_in_log(three: Three, group: str) -> GatewayProcess | None:
    """Return the gateway that coordinates a group, or None between two of them."""
    addresses = {member.address for member in three.served.store.admin.describe_consumer_group(group).members}
    return next((each for each in three.gateways if each.servers in addresses), None)


def test_an_idempotent_producer_that_knows_one_gateway_writes_each_row_once(three: Three) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    topic = three.served.new_topic(PARTITIONS)
    errors: list[object] = []
    acknowledged = 0

    def delivered(error: object, message: object) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if error:
            errors.append(error)

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": three.gateways[1].servers,
            "enable.idempotence": True,
            "message.timeout.ms": 2 * _PATIENCE_S * 1000,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 1_000,
            "error_cb": lambda error: error.fatal() and errors.append(error),
        }
    )
    count = 0
    with three.rolling(lambda: acknowledged) as is_done:
        while not is_done() and not errors:
            producer.produce(topic, b"%d" % count, partition=count % PARTITIONS, on_delivery=delivered)
            count += 1
            producer.poll(0.002)
    assert producer.flush(_PATIENCE_S) == 0
    assert not errors, errors[0]
    assert values(three.served, topic) == written(count)


@pytest.mark.parametrize("package", ["kafka", "aiokafka"])
def test_idempotent_producers_in_python_write_each_row_once(three: Three, package: str) -> None:
    pytest.importorskip(package)
    topic = three.served.new_topic(PARTITIONS)
    count = 0
    with three.rolling(lambda: count) as is_done, closing(_PRODUCERS[package](three.gateways[1].servers)) as producer:
        while not is_done():
            producer.send(topic, count)
            count += 1
    assert values(three.served, topic) == written(count)


class _KafkaPython:
    def __init__(self, servers: str) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=servers,
            enable_idempotence=True,
            delivery_timeout_ms=_PATIENCE_S * 1000,
            request_timeout_ms=10_000,
            reconnect_backoff_max_ms=500,
        )

    def send(self, topic: str, number: int) -> None:
        self._producer.send(topic, b"%d" % number, partition=number % PARTITIONS).get(_PATIENCE_S)

    def close(self) -> None:
        self._producer.close()


class _AioKafka:
    def __init__(self, servers: str) -> None:
        import asyncio

        from aiokafka import AIOKafkaProducer

        self._loop = asyncio.new_event_loop()

        async def start() -> Any:
            producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, request_timeout_ms=60_000)
            await producer.start()
            return producer

        self._producer = self._loop.run_until_complete(start())

    def send(self, topic: str, number: int) -> None:
        self._loop.run_until_complete(
            self._producer.send_and_wait(topic, b"%d" % number, partition=number % PARTITIONS)
        )

    def close(self) -> None:
        self._loop.run_until_complete(self._producer.stop())
        self._loop.close()


_PRODUCERS: dict[str, Callable[[str], Any]] = {"kafka": _KafkaPython, "aiokafka": _AioKafka}


def test_transactions_are_there_once_or_not_at_all(three: Three) -> None:
    pytest.importorskip("confluent_kafka")
    from tests.kafka_clients.test_transaction_kills import end, producer, repeated

    topic = three.served.new_topic(PARTITIONS)

    def new() -> Any:
        return producer(three.gateways[2].servers, topic, topic_metadata_refresh_interval_ms=1_000)

    writer = new()
    repeated(writer.init_transactions)
    committed: list[int] = []
    outcomes = 0
    count = 0
    with three.rolling(lambda: outcomes) as is_done:
        while not is_done():
            writer.begin_transaction()
            rows = range(count, count + 3 * PARTITIONS)
            count = rows.stop
            for number in rows:
                writer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
            writer, is_committed = end(writer, new, commits=outcomes % 4 != 3)
            if is_committed:
                committed += rows
            outcomes += 1
    expected = [[each for each in committed if each % PARTITIONS == number] for number in range(PARTITIONS)]
    assert values(three.served, topic) == expected


def test_admin_clients_list_each_group_once(three: Three) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka.admin")
    kafka = pytest.importorskip("kafka")
    topic = three.served.new_topic(PARTITIONS)
    groups = [f"{topic}-{number}" for number in range(6)]
    for number, group in enumerate(groups):
        servers = three.gateways[number % 3].servers
        with closing(CLIENTS[0].member(servers, topic, group)) as member:
            end = time.monotonic() + _PATIENCE_S
            while not member.partitions():
                member.poll()
                assert time.monotonic() < end
            admin = confluent_kafka.AdminClient({"bootstrap.servers": servers})
            found = admin.list_consumer_groups().result()
            assert sorted(each.group_id for each in found.valid) == sorted(groups[: number + 1])
    with closing(kafka.KafkaAdminClient(bootstrap_servers=three.gateways[0].servers)) as admin:
        listed = [each["group_id"] for each in admin.list_groups()]
    assert sorted(listed) == groups


def test_a_consumer_reads_from_the_gateway_in_its_rack(
    served_at: Callable[..., Served], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    served = served_at("local", "--rack", "a")
    topic = served.new_topic(PARTITIONS)
    write(served, topic, 0, 60)
    caplog.set_level(logging.DEBUG)
    with running_gateway(served.gateway.store_url, tmp_path / "b.log", "--rack", "b"):
        settings = {"bootstrap.servers": served.servers, "group.id": topic, "client.rack": "b", "debug": "fetch"}
        consumer = confluent_kafka.Consumer(settings, logger=logging.getLogger("librdkafka"))
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: set[bytes] = set()
        end = time.monotonic() + _PATIENCE_S
        while len(found) < 60:
            found.update(message.value() for message in consumer.consume(60, 1) if message.error() is None)
            assert time.monotonic() < end
        consumer.close()
    assert found == {b"%d" % number for number in range(60)}
    assert "preferred replica" in caplog.text


@needs_java
def test_kafkas_tool_lists_and_describes_groups_through_any_gateway(three: Three) -> None:
    pytest.importorskip("confluent_kafka")
    topic = three.served.new_topic(PARTITIONS)
    groups = [f"{topic}-{number}" for number in range(3)]
    with ExitStack() as stack:
        for gateway, group in zip(three.gateways, groups, strict=True):
            member = stack.enter_context(closing(CLIENTS[0].member(gateway.servers, topic, group)))
            end = time.monotonic() + _PATIENCE_S
            while not member.partitions():
                member.poll()
                assert time.monotonic() < end
        for gateway in three.gateways:
            tool = "consumer.group.ConsumerGroupCommand"
            found = java_tools.run(tool, "--bootstrap-server", gateway.servers, "--list")
            assert sorted(found.split()) == groups
            for group in groups:
                described = java_tools.run(
                    tool, "--bootstrap-server", gateway.servers, "--describe", "--group", group, "--state"
                )
                assert "Stable" in described
                assert group in described
