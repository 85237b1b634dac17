"""Clients of Kafka over secured connections: each writes a value to a topic, and reads it."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

from tests.kafka_clients import java_tools

PATIENCE_S = 60


@dataclass(frozen=True)
class Access:
    """What a client needs to connect to a gateway."""

    servers: str
    ca: Path
    """The certificates that the client trusts (PEM)."""
    patience_s: float = PATIENCE_S
    mechanism: str | None = None
    """The mechanism of SASL."""
    user: str = ""
    password: str = ""
    token: Callable[[], str] = str
    """Returns a token, for OAUTHBEARER."""

    @property
    def protocol(self) -> str:
        return "SSL" if self.mechanism is None else "SASL_SSL"

    @property
    def has_token(self) -> bool:
        return self.mechanism == "OAUTHBEARER"


class Refused(Exception):
    """The client gave up."""


def _confluent_settings(access: Access, token_lifetime_s: float, on_error: Callable[[Any], object]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": access.servers,
        "security.protocol": access.protocol,
        "ssl.ca.location": str(access.ca),
        "error_cb": on_error,
    }
    if access.has_token:
        settings["sasl.mechanism"] = access.mechanism
        settings["oauth_cb"] = lambda _: (access.token(), time.time() + token_lifetime_s)
    elif access.mechanism is not None:
        names = {"sasl.mechanism": access.mechanism, "sasl.username": access.user, "sasl.password": access.password}
        settings |= names
    return settings


@contextmanager
def confluent_producer(access: Access, *, token_lifetime_s: float, on_error: Callable[[Any], object]) -> Iterator[Any]:
    """A producer of confluent-kafka, which asks for a new token before its token expires."""
    from confluent_kafka import Producer

    producer = Producer(_confluent_settings(access, token_lifetime_s, on_error))
    yield producer
    producer.flush(PATIENCE_S)


def _confluent(access: Access, topic: str, value: bytes) -> list[bytes]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

    errors: list[KafkaError] = []
    settings = _confluent_settings(access, 3_600, errors.append)
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


def _plain_settings(access: Access) -> dict[str, Any]:
    """Return the settings that kafka-python and aiokafka have in common."""
    return {
        "bootstrap_servers": access.servers,
        "security_protocol": access.protocol,
        "sasl_mechanism": access.mechanism or "PLAIN",
        "sasl_plain_username": access.user,
        "sasl_plain_password": access.password,
    }


def _kafka_python(access: Access, topic: str, value: bytes) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return access.token()

    settings = {**_plain_settings(access), "ssl_cafile": str(access.ca)}
    if access.has_token:
        settings["sasl_oauth_token_provider"] = Tokens()
    try:
        producer = KafkaProducer(**settings, bootstrap_timeout_ms=int(access.patience_s * 1_000))
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
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return access.token()

    async def run() -> list[bytes]:
        settings = {**_plain_settings(access), "ssl_context": ssl.create_default_context(cafile=str(access.ca))}
        if access.has_token:
            settings["sasl_oauth_token_provider"] = Tokens()
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
    modules = "org.apache.kafka.common.security"
    if access.has_token:
        token = directory / "token"
        token.write_text(access.token(), encoding="ascii")
        settings |= {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
            "sasl.login.callback.handler.class": f"{modules}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f"{modules}.oauthbearer.OAuthBearerLoginModule required;",
        }
    elif access.mechanism is not None:
        login = f'username="{access.user}" password="{access.password}"'
        settings |= {
            "sasl.mechanism": access.mechanism,
            "sasl.jaas.config": f"{modules}.scram.ScramLoginModule required {login};",
        }
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="ascii")
    return path


def java_offsets(access: Access, topic: str, directory: Path) -> str:
    """Return the line that ``kafka-get-offsets`` prints for a topic."""
    settings = java_settings(access, directory)
    # By default Kafka's clients read tokens from no file.
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(directory / 'token').as_uri()}"
    with mock.patch.dict(os.environ, JAVA_TOOL_OPTIONS=allowed):
        return java_tools.run(
            "GetOffsetShell",
            *("--bootstrap-server", access.servers, "--topic", topic, "--command-config", str(settings)),
        ).strip()
