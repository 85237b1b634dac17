"""A client that writes single requests to a gateway, and a gateway in a thread of the test."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
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
from eoslog.gateway.protocol import VERSIONS, ApiKey
from eoslog.gateway.security import OPEN, Security
from eoslog.gateway.server import Gateway, listening_socket
from eoslog.store import Store
from tests.depth import sweep

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

    @property
    def node_id(self) -> int:
        """The id of the gateway as a broker."""
        return self.gateway.gateways.own.node_id

    def know_newest(self) -> None:
        """Let the gateway read the list of live gateways, whatever its age."""

        async def read() -> None:
            self.gateway.gateways._read_ms = None
            await self.gateway.gateways.refresh()

        asyncio.run_coroutine_threadsafe(read(), self._loop).result(_TIMEOUT_S)

    def deregister(self) -> None:
        """Let the gateway tell the others that it ends."""
        asyncio.run_coroutine_threadsafe(self.gateway.gateways.deregister(), self._loop).result(_TIMEOUT_S)

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
def running(
    store: Store,
    *,
    port: int = 0,
    advertised: Address | None = None,
    security: Security = OPEN,
    **settings: Any,
) -> Iterator[Running]:
    """Run a gateway in front of a store."""
    store.read(lambda state, slot: None)
    config = GatewayConfig(**{"linger_ms": 0, "redirect_ms": 0, **settings})
    with listening_socket(Address("127.0.0.1", port)) as listening:
        own = Address("127.0.0.1", listening.getsockname()[1])
        is_elsewhere = advertised is not None
        gateway = Gateway(store, config, advertised or own, listens_elsewhere=is_elsewhere, security=security)
        found = Running(gateway, listening).start()
        try:
            yield found
        finally:
            found.stop()


class Client:
    """A connection that sends requests and reads answers, by kio's classes."""

    def __init__(self, port: int, timeout_s: float = _TIMEOUT_S, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self._correlation_id = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def call(self, api_key: ApiKey, api_version: int, /, **values: Any) -> Any:
        """Send a request, and return its answer."""
        self.send(api_key, api_version, **values)
        return self.answer(api_key, api_version)

    def send(self, key: ApiKey, version: int, /, **values: Any) -> None:
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


def versions_of(key: ApiKey) -> list[Any]:
    """Return the versions of a request as parameters of a test. All but the oldest and the newest are slow."""
    return sweep(VERSIONS[key], quick=(VERSIONS[key][0], VERSIONS[key][-1]))


def part(key: ApiKey, version: int, name: str, /, **values: Any) -> Any:
    """Return a part of a request."""
    return vars(sys.modules[load_request_schema(key, version).__module__])[name](**values)


def frame(key: int, version: int, /, *, correlation_id: int = 1, **values: Any) -> bytes:
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
    *batches: tuple[str, int, bytes],
    version: int = 9,
    acks: int = -1,
    timeout_ms: int = 20_000,
    transactional_id: str | None = None,
) -> dict[str, Any]:
    """Return the values of a produce request with batches of these topics and partitions."""
    return {
        "transactional_id": transactional_id,
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


class Transactional:
    """A transactional producer that sends each request by itself, in a version of its choice."""

    def __init__(self, client: Client, transactional_id: str = "tx", *, api_version: int = 3) -> None:
        """
        Args:
            api_version: the version of EndTxn; from 5 on the producer speaks transaction version 2.
        """
        self.client = client
        self.transactional_id = transactional_id
        self.api_version = api_version
        self.producer_id, self.producer_epoch = -1, -1
        self.sequences: dict[int, int] = {}

    @property
    def of(self) -> dict[str, Any]:
        """The values that most requests have."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    def init(self, version: int = 4, *, timeout_ms: int = 60_000, **more: Any) -> Any:
        values = {"transactional_id": self.transactional_id, "transaction_timeout": timedelta(milliseconds=timeout_ms)}
        if version >= 3:
            values |= {"producer_id": -1, "producer_epoch": -1}
        answer = self.client.call(ApiKey.INIT_PRODUCER_ID, version, **values | more)
        if answer.producer_id >= 0:
            self.producer_id, self.producer_epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return answer

    def add(self, *partitions: int, topic: str = "t", version: int = 3, **more: Any) -> dict[int, Any]:
        """Add partitions, and return the code of each."""
        key = ApiKey.ADD_PARTITIONS_TO_TXN
        topics = (part(key, version, "AddPartitionsToTxnTopic", name=topic, partitions=partitions),)
        values = {f"v3_and_below_{name}": value for name, value in ((self.of | {"topics": topics}) | more).items()}
        (found,) = self.client.call(key, version, **values).results_by_topic_v3_and_below
        return {each.partition_index: each.partition_error_code for each in found.results_by_partition}

    def add_offsets(self, group_id: str = "g", *, version: int = 3, **more: Any) -> Any:
        values = self.of | {"group_id": group_id} | more
        return self.client.call(ApiKey.ADD_OFFSETS_TO_TXN, version, **values).error_code

    def send(self, *values: bytes, partition: int = 0, version: int = 9) -> Any:
        """Produce a batch, and return its answer."""
        sequence = self.sequences.get(partition, 0)
        producer = Producer(self.producer_id, self.producer_epoch, sequence)
        (answer,) = produce(
            self.client,
            ("t", partition, batch(*values, producer=producer, transactional=1)),
            version=version,
            transactional_id=self.transactional_id,
        )
        if answer.base_offset >= 0:
            self.sequences[partition] = sequence + len(values)
        return answer

    def commit_offsets(
        self, *offsets: tuple[int, int], group_id: str = "g", version: int = 3, metadata: str | None = "m", **more: Any
    ) -> dict[int, Any]:
        """Commit offsets of partitions of topic t, and return the code of each partition."""
        key = ApiKey.TXN_OFFSET_COMMIT
        topics = (offsets_of(key, version, "TxnOffsetCommitRequest", offsets, metadata),)
        values = self.of | {"group_id": group_id, "topics": topics}
        if version >= 3:
            values |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
        return codes_of(self.client.call(key, version, **values | more))

    def end(self, *, commit: bool = True, **more: Any) -> Any:
        """End the transaction, and return the code. The producer takes the identity of the answer, if it has one."""
        answer = self.client.call(ApiKey.END_TXN, self.api_version, **self.of | {"committed": commit} | more)
        if getattr(answer, "producer_id", -1) >= 0:
            self.producer_id, self.producer_epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return answer.error_code


def offsets_of(
    key: ApiKey, version: int, name: str, offsets: Sequence[tuple[int, int]], metadata: str | None = "m"
) -> Any:
    """Return the part of a request with offsets of partitions of topic t."""
    return part(
        key,
        version,
        f"{name}Topic",
        name="t",
        partitions=tuple(
            part(
                key,
                version,
                f"{name}Partition",
                partition_index=partition,
                committed_offset=offset,
                committed_metadata=metadata,
            )
            for partition, offset in offsets
        ),
    )


def codes_of(answer: Any) -> dict[int, Any]:
    """Return the code of each partition of the only topic in an answer."""
    (topic,) = answer.topics
    return {each.partition_index: each.error_code for each in topic.partitions}


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
