"""Clients of Kafka for Python that write transactions, with one interface."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tests.kafka_clients.python_clients import PATIENCE_S

Row = tuple[int, int, bytes]
"""A row that a client has read: partition, offset, value."""


class Fenced(Exception):
    """A client's error that another producer has its transactional id, or that its transaction was aborted."""


class Producer(Protocol):
    """A producer with a transactional id. It is initialized when it is made. Each method may raise ``Fenced``."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Hand over a row."""

    def flush(self) -> None:
        """Wait until the gateway has acknowledged all rows."""

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        """Add a group's position in partition 0 of a topic to the transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""

    def close(self) -> None:
        """Leave the transaction as it is, and end the client."""


@dataclass(frozen=True)
class TransactionalClient:
    """A client library."""

    package: str
    producer: Callable[..., Producer]
    """Make a producer: servers, transactional id, and ``timeout_ms`` of its transactions as a keyword."""
    read: Callable[..., list[Row]]
    """Read all rows of a topic: servers, topic, its number of partitions, and ``committed`` as a keyword."""
    committed_offset: Callable[[str, str, str], int | None]
    """Return the committed offset of partition 0: servers, group, topic. It waits for open transactions."""
    waits_for_transactions: bool = True
    """False if the library does not know KIP-447. ``committed_offset`` does not wait then."""


class _Confluent:
    def __init__(self, servers: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        from confluent_kafka import Producer

        self._servers = servers
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
            }
        )
        with self._fenced():
            self._producer.init_transactions(PATIENCE_S)

    @staticmethod
    @contextmanager
    def _fenced() -> Iterator[None]:
        from confluent_kafka import KafkaError, KafkaException

        try:
            yield
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FENCED:
                raise Fenced from error
            raise

    def begin(self) -> None:
        with self._fenced():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with self._fenced():
            self._producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        with self._fenced():
            assert self._producer.flush(PATIENCE_S) == 0

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": group})
        try:
            with self._fenced():
                self._producer.send_offsets_to_transaction(
                    [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), PATIENCE_S
                )
        finally:
            consumer.close()

    def commit(self) -> None:
        with self._fenced():
            self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        with self._fenced():
            self._producer.abort_transaction(PATIENCE_S)

    def close(self) -> None:
        self._producer.purge()


def _confluent_reads(servers: str, topic: str, partitions: int, *, committed: bool = True) -> list[Row]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": _isolation(committed),
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        found: list[Row] = []
        ended = 0
        while ended < partitions:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"only {len(found)} rows came"
            if message.error() is None:
                found.append((message.partition(), message.offset(), message.value()))
                continue
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended += 1
        return sorted(found)
    finally:
        consumer.close()


def _confluent_offset(servers: str, group: str, topic: str) -> int | None:
    from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)
        return None if found.offset == OFFSET_INVALID else found.offset
    finally:
        consumer.close()


class _KafkaPython:
    def __init__(self, servers: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._sent: list[Any] = []
        with self._fenced():
            self._producer.init_transactions()

    @staticmethod
    @contextmanager
    def _fenced() -> Iterator[None]:
        from kafka.errors import KafkaError, ProducerFencedError

        try:
            yield
        except KafkaError as error:
            # A later call of a fenced producer raises KafkaError, and only its text names the fence.
            if isinstance(error, ProducerFencedError) or ProducerFencedError.__name__ in str(error):
                raise Fenced from error
            raise

    def begin(self) -> None:
        with self._fenced():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with self._fenced():
            self._sent.append(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        self._producer.flush(PATIENCE_S)
        with self._fenced():
            for each in self._sent:
                each.get(PATIENCE_S)
        self._sent.clear()

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        with self._fenced():
            self._producer.send_offsets_to_transaction(
                {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}, group
            )

    def commit(self) -> None:
        with self._fenced():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with self._fenced():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


def _kafka_python_reads(servers: str, topic: str, partitions: int, *, committed: bool = True) -> list[Row]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level=_isolation(committed))
    try:
        assigned = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        ends = consumer.end_offsets(assigned)
        found: list[Row] = []
        while any(consumer.position(each) < ends[each] for each in assigned):
            for rows in consumer.poll(timeout_ms=1_000).values():
                found += [(each.partition, each.offset, each.value) for each in rows]
        return sorted(found)
    finally:
        consumer.close()


def _kafka_python_offset(servers: str, group: str, topic: str) -> int | None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=servers, group_id=group, enable_auto_commit=False, isolation_level="read_committed"
    )
    try:
        return consumer.committed(TopicPartition(topic, 0))
    finally:
        consumer.close()


class _AioKafka:
    def __init__(self, servers: str, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka")
        self._thread.start()
        self._sent: list[Any] = []
        self._producer = self._run(self._started(servers, transactional_id, timeout_ms))

    @staticmethod
    async def _started(servers: str, transactional_id: str, timeout_ms: int) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        return producer

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        from aiokafka.errors import ProducerFenced

        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)
        except ProducerFenced as error:
            raise Fenced from error
        except AssertionError as error:
            # A later call of a fenced producer fails the library's own check of its state.
            if "FATAL_ERROR" not in str(error):
                raise
            raise Fenced from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._sent.append(self._run(self._producer.send(topic, value, partition=partition)))

    def flush(self) -> None:
        async def acknowledged() -> None:
            await asyncio.gather(*self._sent)

        self._run(acknowledged())
        self._sent.clear()

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        from aiokafka import TopicPartition

        self._run(self._producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        async def ended() -> None:
            # stop() waits for rows of an open transaction, and those of a fenced producer never leave it.
            try:
                await asyncio.wait_for(self._producer.stop(), 5)
            except Exception:
                await self._producer.client.close()

        try:
            self._run(ended())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _aiokafka_reads(servers: str, topic: str, partitions: int, *, committed: bool = True) -> list[Row]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> list[Row]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, isolation_level=_isolation(committed), enable_auto_commit=False
        )
        await consumer.start()
        try:
            assigned = [TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(assigned)
            await consumer.seek_to_beginning(*assigned)
            ends = await consumer.end_offsets(assigned)
            found: list[Row] = []
            async with asyncio.timeout(PATIENCE_S):
                while any([await consumer.position(each) < ends[each] for each in assigned]):
                    for rows in (await consumer.getmany(timeout_ms=200)).values():
                        found += [(each.partition, each.offset, each.value) for each in rows]
            return sorted(found)
        finally:
            await consumer.stop()

    return asyncio.run(read())


def _aiokafka_offset(servers: str, group: str, topic: str) -> int | None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def committed() -> int | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await consumer.committed(TopicPartition(topic, 0))
        finally:
            await consumer.stop()

    return asyncio.run(committed())


def _isolation(committed: bool) -> str:
    return "read_committed" if committed else "read_uncommitted"


CLIENTS = (
    TransactionalClient("confluent_kafka", _Confluent, _confluent_reads, _confluent_offset),
    TransactionalClient("kafka", _KafkaPython, _kafka_python_reads, _kafka_python_offset),
    TransactionalClient("aiokafka", _AioKafka, _aiokafka_reads, _aiokafka_offset, waits_for_transactions=False),
)
