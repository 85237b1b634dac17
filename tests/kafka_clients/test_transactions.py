"""Clients of Kafka for Python write transactions through the gateway.

``make test`` runs the part of these tests whose packages are in its environment.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from tests.kafka_clients.conftest import Served
from tests.kafka_clients.python_clients import CLIENTS as READERS
from tests.kafka_clients.python_clients import PATIENCE_S
from tests.kafka_clients.transactional_clients import CLIENTS, Fenced, Producer, TransactionalClient

_NOT_STABLE = "the library does not ask for stable offsets (KIP-447)"


@pytest.fixture(params=CLIENTS, ids=lambda client: client.package)
def client(request: pytest.FixtureRequest) -> TransactionalClient:
    pytest.importorskip(request.param.package)
    return request.param


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def producer(served: Served, client: TransactionalClient, transactional_id: str) -> Iterator[Callable[..., Producer]]:
    """Return a function that makes a producer with the transactional id of the test."""
    with ExitStack() as producers:

        def make(**settings: int) -> Producer:
            return producers.enter_context(closing(client.producer(served.servers, transactional_id, **settings)))

        yield make


def stored(served: Served, topic: str) -> list[tuple[int, int, bytes]]:
    """Return the committed rows as eoslog reads them."""
    return [(row["partition"], row["offset"], row["value"]) for row in served.rows(topic)]


def values(served: Served, topic: str) -> list[bytes]:
    return [value for _, _, value in stored(served, topic)]


def leave_open(producer: Producer, topic: str, value: bytes) -> None:
    """Begin a transaction, and write one row."""
    producer.begin()
    producer.send(topic, value)
    producer.flush()


def write(producer: Producer, topic: str, value: bytes) -> None:
    """Write a transaction of one row."""
    producer.begin()
    producer.send(topic, value)
    producer.commit()


def test_committed_rows_are_visible_and_aborted_ones_are_not(
    served: Served, client: TransactionalClient, producer: Callable[..., Producer]
) -> None:
    topic = served.new_topic(partitions=2)
    writer = producer()
    sent: dict[bool, list[tuple[int, bytes]]] = {True: [], False: []}

    for number in range(6):
        commits = number % 3 != 1
        writer.begin()
        for row in range(20):
            sent[commits].append((row % 2, b"%d-%d" % (number, row)))
            writer.send(topic, sent[commits][-1][1], partition=row % 2)
        writer.flush()
        if commits:
            writer.commit()
        else:
            writer.abort()

    rows = stored(served, topic)
    everything = client.read(served.servers, topic, 2, committed=False)
    assert [(partition, value) for partition, _, value in rows] == sorted(sent[True], key=lambda row: row[0])
    assert client.read(served.servers, topic, 2) == rows
    assert sorted((partition, value) for partition, _, value in everything) == sorted(sent[True] + sent[False])


def test_rows_of_an_open_transaction_are_read_uncommitted_only(
    served: Served, client: TransactionalClient, producer: Callable[..., Producer]
) -> None:
    topic = served.new_topic()
    writer = producer()
    leave_open(writer, topic, b"open")

    assert client.read(served.servers, topic, 1) == []
    assert client.read(served.servers, topic, 1, committed=False) == [(0, 0, b"open")]

    writer.commit()
    assert client.read(served.servers, topic, 1) == stored(served, topic) == [(0, 0, b"open")]


def test_an_empty_transaction_leaves_nothing(served: Served, producer: Callable[..., Producer]) -> None:
    topic = served.new_topic()
    writer = producer()

    for _ in range(2):
        writer.begin()
        writer.commit()
        writer.begin()
        writer.abort()
    write(writer, topic, b"row")

    assert stored(served, topic) == [(0, 0, b"row")]


def test_a_second_producer_fences_the_first(
    served: Served, client: TransactionalClient, producer: Callable[..., Producer]
) -> None:
    topic = served.new_topic()
    first = producer()
    leave_open(first, topic, b"of the first")

    second = producer()
    with pytest.raises(Fenced):
        first.commit()
    write(second, topic, b"of the second")

    assert values(served, topic) == [b"of the second"]
    assert client.read(served.servers, topic, 1) == stored(served, topic)


def test_a_fenced_producer_adds_no_row(served: Served, producer: Callable[..., Producer]) -> None:
    topic = served.new_topic()
    first = producer()
    write(first, topic, b"before")
    second = producer()

    with pytest.raises(Fenced):
        write(first, topic, b"of the first")
    write(second, topic, b"of the second")

    assert values(served, topic) == [b"before", b"of the second"]


def test_offsets_and_rows_of_a_transaction_take_effect_together(
    served: Served, client: TransactionalClient, producer: Callable[..., Producer], transactional_id: str
) -> None:
    source, sink = served.new_topic(), served.new_topic()
    with served.store.producer() as writer:
        for number in range(20):
            writer.send(source, b"%d" % number)
    group = f"of-{transactional_id}"
    copier = producer()

    committed = []
    for attempt in range(6):
        position = client.committed_offset(served.servers, group, source) or 0
        taken = client.read(served.servers, source, 1)[position : position + 5]
        copier.begin()
        for _, _, value in taken:
            copier.send(sink, b"copy of " + value)
        copier.send_offset(source, position + len(taken), group)
        if attempt % 3 == 1:
            copier.abort()
        else:
            copier.commit()
        committed.append(client.committed_offset(served.servers, group, source))

    assert committed == [5, 5, 10, 15, 15, 20]
    assert values(served, sink) == [b"copy of %d" % number for number in range(20)]


def test_a_committed_offset_waits_for_the_end_of_a_transaction(
    served: Served, client: TransactionalClient, producer: Callable[..., Producer], transactional_id: str
) -> None:
    if not client.waits_for_transactions:
        pytest.skip(_NOT_STABLE)
    source, sink = served.new_topic(), served.new_topic()
    group = f"of-{transactional_id}"
    copier = producer()
    with ThreadPoolExecutor(1) as thread:
        for commits, expected in ((True, 7), (False, 7)):
            copier.begin()
            copier.send(sink, b"row")
            copier.send_offset(source, 7 if commits else 9, group)

            asked = thread.submit(client.committed_offset, served.servers, group, source)
            time.sleep(1.5)
            was_pending = not asked.done()
            if commits:
                copier.commit()
            else:
                copier.abort()

            assert was_pending
            assert asked.result(PATIENCE_S) == expected


@pytest.mark.slow
def test_a_transaction_beyond_its_timeout_is_aborted(
    served: Served, client: TransactionalClient, producer: Callable[..., Producer]
) -> None:
    topic = served.new_topic()
    late = producer(timeout_ms=3_000)
    late.begin()
    late.send(topic, b"late")
    late.flush()
    with served.store.producer() as writer:
        writer.send(topic, b"behind")

    # The consumer waits for the row behind the open transaction.
    found = next(each.read for each in READERS if each.package == client.package)(served.servers, topic, 1)
    with pytest.raises(Fenced):
        late.commit()
    write(producer(), topic, b"next")

    assert [message.value for message in found] == [b"behind"]
    assert values(served, topic) == [b"behind", b"next"]
    assert client.read(served.servers, topic, 1) == stored(served, topic)


@pytest.mark.slow
def test_an_offset_waits_for_a_transaction_until_its_timeout(
    served: Served, client: TransactionalClient, producer: Callable[..., Producer], transactional_id: str
) -> None:
    if not client.waits_for_transactions:
        pytest.skip(_NOT_STABLE)
    source, sink = served.new_topic(), served.new_topic()
    group = f"of-{transactional_id}"
    late = producer(timeout_ms=3_000)
    late.begin()
    late.send(sink, b"late")
    late.send_offset(source, 7, group)

    assert client.committed_offset(served.servers, group, source) is None
    with pytest.raises(Fenced):
        late.commit()
    assert values(served, sink) == []
