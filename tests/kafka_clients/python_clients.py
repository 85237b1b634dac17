"""Clients of Kafka for Python with one interface: each sends messages to partition 0 of a topic, and reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

PATIENCE_S = 60
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Message:
    """A record as clients send and get it."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 1_700_000_000_000
    offset: int = field(default=-1, compare=False)


def _arguments(message: Message) -> dict[str, Any]:
    """Return the arguments with which kafka-python and aiokafka send a message."""
    return {
        "key": message.key,
        "value": message.value,
        "headers": list(message.headers),
        "partition": 0,
        "timestamp_ms": message.timestamp_ms,
    }


def _message(found: Any) -> Message:
    """Return the message of a record of kafka-python or aiokafka."""
    return Message(found.key, found.value, tuple(found.headers), found.timestamp, found.offset)


@dataclass(frozen=True)
class Client:
    """A client library."""

    package: str
    send: Callable[..., None]
    """Send messages: servers, topic, messages, then ``compression`` and ``idempotent`` as keywords."""
    read: Callable[[str, str, int], list[Message]]
    """Read the first rows of a topic: servers, topic, the number of rows."""
    compression_packages: Mapping[str, str] = field(default_factory=dict)
    """The package that it needs for each kind of compression."""
    sends_null_headers: bool = True
    """False if a header without a value cannot be sent. It can be read."""


def _confluent_sends(
    servers: str, topic: str, messages: Sequence[Message], *, compression: str = "none", idempotent: bool = True
) -> None:
    from confluent_kafka import Producer

    errors = []
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": idempotent, "compression.type": compression}
    )
    for message in messages:
        producer.produce(
            topic,
            message.value,
            message.key,
            partition=0,
            headers=list(message.headers),
            timestamp=message.timestamp_ms,
            on_delivery=lambda error, _: error and errors.append(error),
        )
    left = producer.flush(PATIENCE_S)
    assert not errors, errors[0]
    assert left == 0


def _confluent_reads(servers: str, topic: str, count: int) -> list[Message]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    # The consumer asks for a group's name, and asks the broker for nothing about it: no offset is committed.
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[Message] = []
        while len(found) < count:
            some = consumer.consume(count - len(found), PATIENCE_S)
            assert some, f"only {len(found)} of {count} rows came"
            for each in some:
                assert each.error() is None, each.error()
                headers = tuple(each.headers() or ())
                found.append(Message(each.key(), each.value(), headers, each.timestamp()[1], each.offset()))
        return found
    finally:
        consumer.close()


def _kafka_python_sends(
    servers: str, topic: str, messages: Sequence[Message], *, compression: str = "none", idempotent: bool = True
) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=idempotent,
        compression_type=None if compression == "none" else compression,
    )
    try:
        for each in [producer.send(topic, **_arguments(message)) for message in messages]:
            each.get(PATIENCE_S)
    finally:
        producer.close()


def _kafka_python_reads(servers: str, topic: str, count: int) -> list[Message]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", consumer_timeout_ms=PATIENCE_S * 1000
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found = [_message(each) for each in islice(consumer, count)]
        assert len(found) == count, f"only {len(found)} of {count} rows came"
        return found
    finally:
        consumer.close()


def _aiokafka_sends(
    servers: str, topic: str, messages: Sequence[Message], *, compression: str = "none", idempotent: bool = True
) -> None:
    from aiokafka import AIOKafkaProducer

    async def send() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            enable_idempotence=idempotent,
            compression_type=None if compression == "none" else compression,
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, **_arguments(message)) for message in messages]
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        finally:
            await producer.stop()

    asyncio.run(send())


def _aiokafka_reads(servers: str, topic: str, count: int) -> list[Message]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> list[Message]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False
        )
        await consumer.start()
        try:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            async with asyncio.timeout(PATIENCE_S):
                return [_message(await consumer.getone()) for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


CLIENTS = (
    Client("confluent_kafka", _confluent_sends, _confluent_reads),
    Client(
        "kafka",
        _kafka_python_sends,
        _kafka_python_reads,
        {"snappy": "snappy", "lz4": "lz4", "zstd": "zstandard"},
        sends_null_headers=False,
    ),
    Client("aiokafka", _aiokafka_sends, _aiokafka_reads, dict.fromkeys(("snappy", "lz4", "zstd"), "cramjam")),
)
