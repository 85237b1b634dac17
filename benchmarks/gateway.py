"""The gateway beside a Kafka broker in one run: CPU for each record of 100 bytes, acknowledgements and transactions.

``python -m benchmarks.gateway [records]`` with the environment of ``conf/kafka_clients.sh``. Both write to the same
disk. The gateway also writes to a real S3 server; its times are beside the time of a PUT there. Each request to this
server takes a millisecond or two, and those to an object store of a cloud take longer. So acknowledgements and
transactions are measured behind a delay, too. Consumers read the records twice: after the producer, and from a gateway
that has just started, which reads them from the store.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

import eoslog
from benchmarks.delay import delayed
from benchmarks.peers.services import REPOSITORY, kafka_broker
from eoslog.storage.environment import Environment
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_store import S3Store
from tests.kafka_clients.gateway_process import running_gateway
from tests.s3.servers import real_s3_server

_VALUE = b"v" * 100
_ROUNDS = 100
_PATIENCE_S = 120
_PRODUCERS = 8
_TOGETHER_S = 5.0
_DELAY_MS = 10
_ROWS_OF_TRANSACTION = 10
_TOPIC, _WARM_UP = "benchmark", "warm-up"


def produce(servers: str, records: int, topic: str = _TOPIC) -> float:
    """Write records to a topic, and return the time until the last acknowledgement (s)."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": records + 1,
        }
    )
    producer.list_topics(topic, _PATIENCE_S)
    start = time.perf_counter()
    for _ in range(records):
        producer.produce(topic, _VALUE, partition=0)
    if producer.flush(_PATIENCE_S):
        raise RuntimeError("not all records were written")
    return time.perf_counter() - start


def consume(servers: str, records: int, topic: str = _TOPIC) -> float:
    """Read records from the beginning of a topic, and return the time that it takes (s)."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    try:
        start = time.perf_counter()
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        count = 0
        while count < records:
            found = consumer.consume(min(10_000, records - count), _PATIENCE_S)
            if not found:
                raise RuntimeError(f"{count} of {records} records came")
            count += len(found)
        return time.perf_counter() - start
    finally:
        consumer.close()


def acknowledgement_ms(servers: str) -> float:
    """Return the median time from a record's send to its acknowledgement, one record at a time (ms)."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})

    def send() -> None:
        producer.produce(_TOPIC, _VALUE, partition=0)
        if producer.flush(_PATIENCE_S):
            raise RuntimeError("the record was not written")

    send()
    return median_ms(send)


class Transactional:
    """A producer that writes one transaction after the other."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "linger.ms": 0})
        self._producer.init_transactions(_PATIENCE_S)
        self.commit()

    def commit(self) -> None:
        """Write a transaction, and wait until it is committed."""
        self._producer.begin_transaction()
        for _ in range(_ROWS_OF_TRANSACTION):
            self._producer.produce(_TOPIC, _VALUE, partition=0)
        self._producer.commit_transaction(_PATIENCE_S)


def transactions(servers: str) -> list[str]:
    """Return the median time of a transaction (ms), the rate of several producers, and the share of the slowest."""
    alone_ms = median_ms(Transactional(servers, "alone").commit)
    producers = [Transactional(servers, f"producer-{number}") for number in range(_PRODUCERS)]
    end = time.perf_counter() + _TOGETHER_S

    def commit_until_end(producer: Transactional) -> int:
        count = 0
        while time.perf_counter() < end:
            producer.commit()
            count += 1
        return count

    with ThreadPoolExecutor(_PRODUCERS) as threads:
        counts = list(threads.map(commit_until_end, producers))
    slowest = min(counts) / statistics.mean(counts)
    return [f"{alone_ms:.1f}", f"{sum(counts) / _TOGETHER_S:,.0f}", f"{slowest:.2f}"]


def median_ms(work: Callable[[], object]) -> float:
    """Return the median time of a piece of work (ms)."""
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far (s)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(name: str, servers: str, pid: int, records: int) -> list[str]:
    """Return a row of the table."""
    # The first records and the compilers of a JVM are not part of the measurement.
    produce(servers, records // 10)
    produce(servers, 1, _WARM_UP)
    before = cpu_s(pid)
    produce_s = produce(servers, records)
    after = cpu_s(pid)
    return [
        name,
        f"{(after - before) / records * 1e6:.2f}",
        f"{records / produce_s:,.0f}",
        *measured_reads(servers, pid, records),
        f"{acknowledgement_ms(servers):.1f}",
        *transactions(servers),
    ]


def measured_reads(servers: str, pid: int, records: int) -> list[str]:
    """Return the CPU time for each record that a consumer reads, and the records in a second."""
    consume(servers, 1, _WARM_UP)
    before = cpu_s(pid)
    consume_s = consume(servers, records)
    return [f"{(cpu_s(pid) - before) / records * 1e6:.2f}", f"{records / consume_s:,.0f}"]


def create_topics(store: eoslog.Store) -> None:
    for topic in (_TOPIC, _WARM_UP):
        store.admin.create_topic(topic)


def main(records: int) -> None:
    table = Table(
        "",
        "CPU in (µs)",
        "in (records/s)",
        "CPU out (µs)",
        "out (records/s)",
        "ack p50 (ms)",
        "txn p50 (ms)",
        f"txn/s of {_PRODUCERS}",
        "slowest/mean",
    )
    with tempfile.TemporaryDirectory(prefix="eoslog-gateway-") as temporary:
        directory = Path(temporary)
        with kafka_broker(directory, REPOSITORY / ".cache/kafka-clients/kafka") as broker:
            for topic in (_TOPIC, _WARM_UP):
                broker.create_topic(topic)
            table.add_row(*measured("Kafka, one broker", broker.servers, broker.pid, records))
        place = str(directory / "store")
        create_topics(eoslog.connect(place))
        with running_gateway(place, directory / "local.log") as gateway:
            table.add_row(*measured("gateway, disk", gateway.servers, gateway.pid, records))
        with running_gateway(place, directory / "local.log", "--linger-ms", "0") as gateway:
            reads = measured_reads(gateway.servers, gateway.pid, records)
            table.add_row(
                "gateway, disk, restarted, no linger", "", "", *reads, f"{acknowledgement_ms(gateway.servers):.1f}"
            )
        with real_s3_server() as server:
            bucket = server.new_bucket()
            options = S3Options.of(server.options())
            objects = S3Store(server.new_bucket(), "put", Environment(), options)
            put_ms = median_ms(lambda: objects.put("object", _VALUE))
            create_topics(eoslog.connect(server.url(bucket), **server.options()))
            for label, linger in (("", ()), (", restarted, no linger", ("--linger-ms", "0"))):
                with running_gateway(
                    server.url(bucket), directory / "s3.log", *linger, variables=server.variables()
                ) as gateway:
                    if linger:
                        reads = measured_reads(gateway.servers, gateway.pid, records)
                        row = ["", "", *reads, f"{acknowledgement_ms(gateway.servers):.1f}"]
                    else:
                        row = measured("", gateway.servers, gateway.pid, records)[1:]
                    table.add_row(f"gateway, S3{label}", *row)
            table.add_row("a PUT on the S3 server", *[""] * 4, f"{put_ms:.1f}")
            with delayed(server.endpoint_url) as delay:
                delay.set(_DELAY_MS)
                behind = server.behind(delay.url)
                objects = S3Store(server.new_bucket(), "put", Environment(), S3Options.of(behind.options()))
                put_ms = median_ms(lambda: objects.put("object", _VALUE))
                with running_gateway(server.url(bucket), directory / "s3.log", variables=behind.variables()) as gateway:
                    waits = f"{acknowledgement_ms(gateway.servers):.1f}", *transactions(gateway.servers)
                table.add_row(f"gateway, S3 at {_DELAY_MS} ms", *[""] * 4, *waits)
                table.add_row(f"a PUT at {_DELAY_MS} ms", *[""] * 4, f"{put_ms:.1f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
