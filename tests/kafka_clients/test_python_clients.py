"""Clients of Kafka for Python write to topics through the gateway, and read rows that eoslog has written.

``make test`` runs the part of these tests whose packages are in its environment.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kafka_clients.conftest import Served
from tests.kafka_clients.python_clients import CLIENTS, Client, Message

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_START_MS = 1_704_067_200_000
MESSAGES = [
    *(Message(b"k%d" % number, b"v%d" % number, timestamp_ms=_START_MS + number) for number in range(500)),
    Message(None, b"no key"),
    Message(b"a tombstone", None),
    Message(b"", b""),
    Message(b"large", bytes(range(256)) * 2_000),
    Message(b"headers", b"v", (("a", b"1"), ("a", b"2"), ("none", None), ("\N{SNOWMAN}", b"\xff"))),
]


@pytest.fixture(params=CLIENTS, ids=lambda client: client.package)
def client(request: pytest.FixtureRequest) -> Client:
    pytest.importorskip(request.param.package)
    return request.param


def sendable(client: Client) -> list[Message]:
    """Return the messages without headers that the client cannot send."""
    if client.sends_null_headers:
        return MESSAGES
    return [
        replace(message, headers=tuple(header for header in message.headers if header[1] is not None))
        for message in MESSAGES
    ]


def stored(served: Served, topic: str) -> list[Message]:
    """Return the rows of partition 0 as eoslog reads them."""
    return [
        Message(
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            round(row["timestamp"].timestamp() * 1000),
        )
        for row in served.rows(topic)
    ]


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "not idempotent"])
def test_rows_of_a_client_are_rows_of_the_topic(served: Served, client: Client, idempotent: bool) -> None:
    topic = served.new_topic()

    client.send(served.servers, topic, sendable(client), idempotent=idempotent)

    assert stored(served, topic) == sendable(client)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_batches_are_read(served: Served, client: Client, compression: str) -> None:
    if package := client.compression_packages.get(compression):
        pytest.importorskip(package)
    topic = served.new_topic()

    client.send(served.servers, topic, sendable(client), compression=compression)

    assert stored(served, topic) == sendable(client)


def test_a_client_reads_rows_that_eoslog_wrote(served: Served, client: Client) -> None:
    topic = served.new_topic()
    with served.store.producer() as producer:
        for message in MESSAGES:
            producer.send(
                topic,
                message.value,
                key=message.key,
                headers=list(message.headers),
                timestamp=message.timestamp_ms,
            )

    found = client.read(served.servers, topic, len(MESSAGES))

    assert found == MESSAGES
    assert [message.offset for message in found] == list(range(len(MESSAGES)))


def test_a_client_gets_committed_rows_only_and_their_offsets(served: Served, client: Client) -> None:
    topic = served.new_topic()
    with served.store.producer(transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    found = client.read(served.servers, topic, 3)

    assert [message.value for message in found] == [b"0", b"2", b"4"]
    assert [message.offset for message in found] == [row["offset"] for row in served.rows(topic)]
