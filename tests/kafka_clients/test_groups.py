"""Clients of Kafka share the partitions of a topic in groups of the gateway.

``make test`` runs the part of these tests whose packages are in its environment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from tests.kafka_clients.conftest import PLACES, Served
from tests.kafka_clients.gateway_process import frozen
from tests.kafka_clients.group_members import CLIENTS, GroupClient, Member, MemberProcess, Refused, Row
from tests.kafka_clients.python_clients import PATIENCE_S

PARTITIONS = 4
Join = Callable[..., Member]
_QUIET_S = 0.5
"""Rows that come twice would come within this time (s)."""


@pytest.fixture(scope="module", params=PLACES)
def served(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> Served:
    """A gateway that does not wait for more members of an empty group."""
    return served_at(request.param, "--group-initial-rebalance-delay-ms", "0")


@pytest.fixture
def topic(served: Served) -> str:
    return served.new_topic(PARTITIONS)


# kafka-python's polls take long.
_PARAMS = [pytest.param(each, marks=[pytest.mark.slow] if each.package == "kafka" else []) for each in CLIENTS]


@pytest.fixture(params=_PARAMS, ids=lambda client: client.package)
def client(request: pytest.FixtureRequest) -> GroupClient:
    found: GroupClient = request.param
    pytest.importorskip(found.package)
    return found


@pytest.fixture
def join(served: Served, client: GroupClient, topic: str) -> Iterator[Join]:
    """Return a function that makes a member of a group that has the topic's name."""
    with ExitStack() as members:

        def make(**settings: str) -> Member:
            return members.enter_context(closing(client.member(served.servers, topic, topic, **settings)))

        yield make


def write(served: Served, topic: str, rows: int = 40) -> list[Row]:
    """Write rows to all partitions in turn, and return them as readers get them."""
    before = {(row["partition"], row["offset"]) for row in served.rows(topic)}
    with served.store.producer() as producer:
        for number in range(rows):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    found = [(row["partition"], row["offset"], row["value"]) for row in served.rows(topic)]
    return [row for row in found if row[:2] not in before]


def poll(members: Sequence[Member]) -> list[list[Row]]:
    """Poll members at the same time: during a rebalance they wait for each other."""
    with ThreadPoolExecutor(len(members)) as threads:
        return list(threads.map(lambda member: member.poll(), members))


def rebalance(*members: Member) -> list[set[int]]:
    """Poll until the members share all partitions, and return the partitions of each."""
    end = time.monotonic() + PATIENCE_S
    while True:
        assert not any(poll(members))
        shares = [each.partitions() for each in members]
        if all(shares) and sorted(number for share in shares for number in share) == list(range(PARTITIONS)):
            return shares
        assert time.monotonic() < end, shares


def read(count: int, *members: Member) -> list[list[Row]]:
    """Return what each member reads until all have this many rows, and the rows that come soon after that."""
    found: list[list[Row]] = [[] for _ in members]
    end = time.monotonic() + PATIENCE_S
    last = None
    while last is None or time.monotonic() < last:
        for rows, new in zip(found, poll(members), strict=True):
            rows += new
        assert time.monotonic() < end, found
        if last is None and sum(map(len, found)) >= count:
            last = time.monotonic() + _QUIET_S
    return found


def merged(found: list[list[Row]]) -> list[Row]:
    return sorted(row for rows in found for row in rows)


def committed(served: Served, group: str) -> dict[int, int]:
    """Return the committed offsets as eoslog reads them."""
    found = served.store.admin.list_consumer_group_offsets(group)
    return {partition.partition: committed.offset for partition, committed in found.items()}


def ends(served: Served, topic: str) -> dict[int, int]:
    return {row["partition"]: row["offset"] + 1 for row in served.rows(topic)}


def generation(served: Served, group: str) -> int:
    return served.store.admin.describe_consumer_group(group).generation


def test_members_share_the_partitions_and_the_others_go_on_from_commits(served: Served, topic: str, join: Join) -> None:
    first = join()
    assert rebalance(first) == [{0, 1, 2, 3}]
    second = join()
    shares = rebalance(first, second)
    assert [len(share) for share in shares] == [2, 2]

    rows = write(served, topic)
    found = read(len(rows), first, second)
    assert [{row[0] for row in rows} for rows in found] == shares
    assert merged(found) == rows
    first.commit()
    second.commit()
    assert committed(served, topic) == ends(served, topic)

    second.close()
    rebalance(first)
    rows = write(served, topic)
    assert merged(read(len(rows), first)) == rows


def test_a_member_begins_at_the_committed_offsets(served: Served, topic: str, join: Join) -> None:
    rows = write(served, topic)
    first = join()
    assert merged(read(len(rows), first)) == rows
    first.commit()
    not_committed = write(served, topic, 7)
    assert merged(read(7, first)) == not_committed
    first.close()

    assert merged(read(7, join())) == not_committed
    assert sum(committed(served, topic).values()) == len(rows)


def test_a_static_member_that_starts_again_causes_no_rebalance(served: Served, topic: str, join: Join) -> None:
    first, second = join(instance_id="a"), join(instance_id="b")
    shares = rebalance(first, second)
    before = generation(served, topic)

    first.close()
    first = join(instance_id="a")

    assert rebalance(first, second) == shares
    assert generation(served, topic) == before
    rows = write(served, topic)
    assert merged(read(len(rows), first, second)) == rows
    first.commit()
    second.commit()
    assert committed(served, topic) == ends(served, topic)


@pytest.mark.slow
def test_members_with_the_cooperative_assignor_share_the_partitions(served: Served, topic: str) -> None:
    pytest.importorskip("confluent_kafka")
    client = CLIENTS[0]
    with ExitStack() as members:

        def join() -> Member:
            member = client.member(served.servers, topic, topic, assignor="cooperative-sticky")
            return members.enter_context(closing(member))

        first = join()
        rebalance(first)
        second = join()
        kept, given = rebalance(first, second)
        assert [len(kept), len(given)] == [2, 2]
        rows = write(served, topic)
        assert merged(read(len(rows), first, second)) == rows
        first.commit()
        second.commit()

        third = join()
        shares = rebalance(first, second, third)
        assert shares[0] <= kept
        assert shares[1] <= given
        first.close()
        rebalance(second, third)
        rows = write(served, topic)
        assert merged(read(len(rows), second, third)) == rows


@pytest.mark.slow
def test_a_member_that_was_evicted_cannot_commit(served: Served, topic: str, client: GroupClient, join: Join) -> None:
    with closing(MemberProcess(client, served.servers, topic, topic)) as first:
        rebalance(first)
        rows = write(served, topic)
        assert merged(read(len(rows), first)) == rows
        with frozen(first.pid):
            second = join()
            # The first one is evicted at the end of its session.
            assert merged(read(len(rows), second)) == rows
            assert committed(served, topic) == {}
        with pytest.raises(Refused):
            first.commit()
    assert committed(served, topic) == {}
    second.commit()
    assert committed(served, topic) == ends(served, topic)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["confluent_kafka", "kafka"])
def test_clients_describe_a_group_of_consumers_of_eoslog(served: Served, topic: str, package: str) -> None:
    pytest.importorskip(package)
    with served.store.consumer(topic, client_id="own") as consumer:
        consumer.subscribe(topic)
        consumer.poll()
        ((member_id, partitions),) = _described(package, served.servers, topic).items()
        (member,) = served.store.admin.describe_consumer_group(topic).members
        assert (member_id, partitions) == (member.member_id, [(topic, number) for number in range(PARTITIONS)])


def _described(package: str, servers: str, group: str) -> dict[str, list[tuple[str, int]]]:
    """Return the partitions of each member of a stable group of consumers, as an admin client shows them."""
    if package == "confluent_kafka":
        from confluent_kafka import ConsumerGroupState
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": servers})
        found = client.describe_consumer_groups([group])[group].result(PATIENCE_S)
        assert (found.state, found.partition_assignor) == (ConsumerGroupState.STABLE, "eoslog")
        return {
            member.member_id: sorted((each.topic, each.partition) for each in member.assignment.topic_partitions)
            for member in found.members
        }
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        described = admin.describe_groups([group])[group]
    finally:
        admin.close()
    assert (described["group_state"], described["protocol_data"]) == ("Stable", "eoslog")
    return {
        member["member_id"]: sorted(
            (topic["topic"], number)
            for topic in member["member_assignment"]["assigned_partitions"]
            for number in topic["partitions"]
        )
        for member in described["members"]
    }
