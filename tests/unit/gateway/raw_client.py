"""A client that writes single requests to a gateway, and a gateway in a thread of the test."""

from __future__ import annotations

import asyncio
import io
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from eoslog.gateway.addresses import Address
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.protocol import ApiKey
from eoslog.gateway.server import Gateway, listening_socket
from eoslog.store import Store

_TIMEOUT_S = 30


class Running:
    """A gateway that runs in a thread."""

    def __init__(self, gateway: Gateway, listening: socket.socket) -> None:
        self.gateway = gateway
        self._listening = listening
        self.port: int = listening.getsockname()[1]
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self.gateway.run(self._listening, self._ready.set, self._stop))
        except BaseException as error:
            self.failure = error
        finally:
            self._ready.set()
            self._loop.close()

    def start(self) -> Running:
        self._thread.start()
        assert self._ready.wait(_TIMEOUT_S)
        return self

    def in_loop(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns in the gateway's event loop."""

        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(_TIMEOUT_S)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_TIMEOUT_S)
        assert not self._thread.is_alive()


@contextmanager
def running(store: Store, **settings: Any) -> Iterator[Running]:
    """Run a gateway in front of a store."""
    store.read(lambda state, slot: None)
    config = GatewayConfig(**{"linger_ms": 0, **settings})
    with listening_socket(Address("127.0.0.1", 0)) as listening:
        found = Running(Gateway(store, config, Address("127.0.0.1", listening.getsockname()[1])), listening).start()
        try:
            yield found
        finally:
            found.stop()


class Client:
    """A connection that sends requests and reads answers, by kio's classes."""

    def __init__(self, port: int, timeout_s: float = _TIMEOUT_S) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def call(self, key: ApiKey, version: int, **values: Any) -> Any:
        """Send a request, and return its answer."""
        self.send(key, version, **values)
        return self.answer(key, version)

    def send(self, key: ApiKey, version: int, **values: Any) -> None:
        self._correlation_id += 1
        self.socket.sendall(frame(key, version, correlation_id=self._correlation_id, **values))

    def answer(self, key: ApiKey, version: int) -> Any:
        """Return the next answer."""
        content = self.content()
        response: Any = load_response_schema(key, version)
        _, size = entity_reader(response.__header_schema__)(content, 0)
        found, read = entity_reader(response)(content, size)
        assert size + read == len(content)
        return found

    def content(self) -> bytes:
        """Return the bytes of the next answer."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise ConnectionError(f"the connection ended after {len(found)} of {size} bytes")
            found += part
        return bytes(found)

    @property
    def is_closed(self) -> bool:
        """True if the gateway has closed the connection, or closes it within the time-out."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True
        except TimeoutError:
            return False


def part(key: ApiKey, version: int, name: str, /, **values: Any) -> Any:
    """Return a part of a request."""
    return vars(sys.modules[load_request_schema(key, version).__module__])[name](**values)


def frame(key: int, version: int, *, correlation_id: int = 1, **values: Any) -> bytes:
    """Return the bytes of a request."""
    request: Any = load_request_schema(key, version)
    header: Any = request.__header_schema__
    buffer = io.BytesIO()
    entity_writer(header)(
        buffer,
        header(request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id="tests"),
    )
    entity_writer(request)(buffer, request(**values))
    content = buffer.getvalue()
    return struct.pack(">i", len(content)) + content


class Producer(NamedTuple):
    """The producer of a batch."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


NO_PRODUCER = Producer()


def batch(*values: bytes | None, producer: Producer = NO_PRODUCER, compression: int = 0, **more: Any) -> bytes:
    """Return a record batch, as another client writes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=more.get("transactional", 0),
        batch_size=1 << 30,
        **producer._asdict(),
    )
    for number, value in enumerate(values):
        builder.append(number, 1_700_000_000_000 + number, more.get("key"), value, more.get("headers", []))
    return bytes(builder.build())


def produce_values(
    *batches: tuple[str, int, bytes], version: int = 9, acks: int = -1, timeout_ms: int = 20_000
) -> dict[str, Any]:
    """Return the values of a produce request with batches of these topics and partitions."""
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": timedelta(milliseconds=timeout_ms),
        "topic_data": tuple(
            part(
                ApiKey.PRODUCE,
                version,
                "TopicProduceData",
                name=topic,
                partition_data=(part(ApiKey.PRODUCE, version, "PartitionProduceData", index=index, records=records),),
            )
            for topic, index, records in batches
        ),
    }


def produce(client: Client, *batches: tuple[str, int, bytes], version: int = 9, **more: Any) -> list[Any]:
    """Produce batches, and return the answer for each."""
    answer = client.call(ApiKey.PRODUCE, version, **produce_values(*batches, version=version, **more))
    return [each for topic in answer.responses for each in topic.partition_responses]


def fetch_values(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    version: int = 11,
    isolation: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 30,
    partition_max_bytes: int = 1 << 30,
) -> dict[str, Any]:
    """Return the values of a fetch request for one partition."""
    wanted = part(
        ApiKey.FETCH,
        version,
        "FetchPartition",
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
    )
    values = {
        "max_wait": timedelta(milliseconds=max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation,
        "topics": (part(ApiKey.FETCH, version, "FetchTopic", topic=topic, partitions=(wanted,)),),
    }
    return values if version < 7 else values | {"forgotten_topics_data": ()}


def fetch(client: Client, topic: str, offset: int, *, version: int = 11, **more: Any) -> Any:
    """Fetch from one partition, and return the answer for it."""
    answer = client.call(ApiKey.FETCH, version, **fetch_values(topic, offset, version=version, **more))
    return answer.responses[0].partitions[0]


class FetchedRecord(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class FetchedBatch(NamedTuple):
    base_offset: int
    next_offset: int
    is_control: bool
    records: list[FetchedRecord]


def batches_of(content: bytes) -> list[FetchedBatch]:
    """Return the record batches of an answer, as another client reads them."""
    found = []
    while content:
        size = 12 + struct.unpack_from(">i", content, 8)[0]
        each = DefaultRecordBatch(content[:size])
        assert each.validate_crc()
        records = [FetchedRecord(one.offset, one.key, one.value, one.headers) for one in each]
        found.append(FetchedBatch(each.base_offset, each.next_offset, bool(each.is_control_batch), records))
        content = content[size:]
    return found


def values_of(content: bytes) -> list[tuple[int, bytes | None]]:
    """Return the offsets and values of the records in an answer."""
    return [
        (each.offset, each.value) for found in batches_of(content) if not found.is_control for each in found.records
    ]
