"""Clients of Kafka that encrypt their connections: each writes a value to a topic, and reads it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tests.kafka_clients import java_tools

PATIENCE_S = 60


@dataclass(frozen=True)
class Access:
    """What a client needs to connect to a gateway."""

    servers: str
    ca: Path
    """The certificates that the client trusts (PEM)."""
    patience_s: float = PATIENCE_S

    @property
    def protocol(self) -> str:
        return "SSL"


class Refused(Exception):
    """The client gave up."""


def _confluent(access: Access, topic: str, value: bytes) -> list[bytes]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

    errors: list[KafkaError] = []
    settings = {
        "bootstrap.servers": access.servers,
        "security.protocol": access.protocol,
        "ssl.ca.location": str(access.ca),
        "error_cb": errors.append,
    }
    producer = Producer(settings)
    producer.produce(topic, value)
    if producer.flush(access.patience_s):
        producer.purge()
        raise Refused(errors)
    consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    (found,) = consumer.consume(1, access.patience_s)
    consumer.close()
    return [found.value()]


def _kafka_python(access: Access, topic: str, value: bytes) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError

    settings = {
        "bootstrap_servers": access.servers,
        "security_protocol": access.protocol,
        "ssl_cafile": str(access.ca),
    }
    try:
        producer = KafkaProducer(**settings, max_block_ms=int(access.patience_s * 1_000))
        try:
            producer.send(topic, value).get(access.patience_s)
        finally:
            producer.close(0)
        consumer = KafkaConsumer(**settings, consumer_timeout_ms=PATIENCE_S * 1_000)
    except KafkaError as error:
        raise Refused(repr(error)) from error
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [each.value for each in islice(consumer, 1)]
    consumer.close()
    return found


def _aiokafka(access: Access, topic: str, value: bytes) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError

    async def run() -> list[bytes]:
        settings: dict[str, Any] = {
            "bootstrap_servers": access.servers,
            "security_protocol": access.protocol,
            "ssl_context": ssl.create_default_context(cafile=str(access.ca)),
        }
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, value)
        except KafkaError as error:
            raise Refused(repr(error)) from error
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(**settings, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            async with asyncio.timeout(PATIENCE_S):
                return [(await consumer.getone()).value]
        finally:
            await consumer.stop()

    return asyncio.run(run())


CLIENTS: dict[str, Callable[[Access, str, bytes], list[bytes]]] = {
    "confluent_kafka": _confluent,
    "kafka": _kafka_python,
    "aiokafka": _aiokafka,
}
"""By the package of the client: it returns what it has read, or raises Refused."""


def java_settings(access: Access, directory: Path) -> Path:
    """Write the settings of Kafka's tools into a file."""
    path = directory / "client.properties"
    settings = {
        "security.protocol": access.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(access.ca),
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="ascii")
    return path


def java_offsets(access: Access, topic: str, directory: Path) -> str:
    """Return the line that ``kafka-get-offsets`` prints for a topic."""
    return java_tools.run(
        "GetOffsetShell",
        *("--bootstrap-server", access.servers, "--topic", topic),
        *("--command-config", str(java_settings(access, directory))),
    ).strip()
