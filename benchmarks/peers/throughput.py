"""How many records a second one producer sends and one consumer reads, and the memory that they take.

``python -m benchmarks.peers.throughput CLIENT RECORDS PLACE TOPIC`` is one client, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import eoslog
from benchmarks.peers.data import VALUE_BYTES, payloads, values
from benchmarks.peers.measurements import Results
from benchmarks.peers.services import REPOSITORY, Broker, kafka_broker, new_name
from benchmarks.peers.sizes import Sizes

TITLE = "Producers and consumers"
INTRO = """\
One idempotent producer sends {records} records of {bytes} bytes and waits until all are written; then one consumer
reads them from the beginning. Kafka's consumer counts from its first record on, so that its connection does not
count. Each is a process of its own, which has sent or read one record before; its peak is its largest resident
memory. Kafka's clients are librdkafka's for Python; a record is an object in both. `send_table` and `scan` take and
return Arrow tables, which Kafka has no equivalent of. The broker's memory is that of its JVM, which may take 1 GiB of
heap; eoslog has no broker."""

BATCH = 10_000
_PATIENCE_S = 60


def run(results: Results, sizes: Sizes, directory: Path) -> None:
    results.settings |= {"records": f"{sizes.records:,}", "bytes": str(VALUE_BYTES)}
    with kafka_broker(directory) as broker:
        filled: dict[str, tuple[str, str]] = {}

        def produce(system: str, client: str) -> Mapping[str, float]:
            filled[client] = _new_topic(client, broker, directory)
            return _run_client(client, sizes.records, *filled[client])

        producers = {"Kafka": "kafka-send", "eoslog, send()": "send", "eoslog, send_table()": "send-table"}
        works = {system: partial(produce, system, client) for system, client in producers.items()}
        results.rounds("producer", works, sizes.rounds)
        consumers = {
            "Kafka": ("kafka-consume", "kafka-send"),
            "eoslog, poll()": ("poll", "send-table"),
            "eoslog, scan()": ("scan", "send-table"),
        }
        readers = {
            system: partial(_run_client, client, sizes.records, *filled[source])
            for system, (client, source) in consumers.items()
            if source in filled
        }
        results.rounds("consumer", readers, sizes.rounds)
        results.add("broker", "Kafka", {"peak memory (MiB)": peak_mib(broker.pid)})


def _new_topic(client: str, broker: Broker, directory: Path) -> tuple[str, str]:
    topic = new_name("t")
    if client.startswith("kafka"):
        broker.create_topic(topic)
        return broker.servers, topic
    place = directory / new_name("store")
    eoslog.connect(place).admin.create_topic(topic)
    return str(place), topic


def _run_client(client: str, records: int, place: str, topic: str) -> Mapping[str, float]:
    command = [sys.executable, "-m", __name__, client, str(records), place, topic]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {name: float(value) for name, value in found.items()}


def peak_mib(pid: int | str = "self") -> float:
    """The largest resident memory of a process so far (MiB)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) / 1024
    raise RuntimeError("this system does not tell the peak memory of a process")


def kafka_send(records: int, servers: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for value in payloads(records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(_PATIENCE_S):
        raise RuntimeError("not all records were written")


def kafka_consume(records: int, servers: str, topic: str) -> float:
    """Return the time from the first record to the last (s), so that the connection does not count."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        count = len(consumer.consume(1, _PATIENCE_S))
        began = time.perf_counter()
        while count < records:
            found = consumer.consume(min(BATCH, records - count), _PATIENCE_S)
            if not found:
                raise RuntimeError(f"{count} of {records} records came")
            count += sum(len(record.value()) == VALUE_BYTES for record in found)
        return time.perf_counter() - began
    finally:
        consumer.close()


def send(records: int, place: str, topic: str) -> None:
    with eoslog.connect(place).producer() as producer:
        for value in payloads(records):
            producer.send(topic, value)


def send_table(records: int, place: str, topic: str) -> None:
    with eoslog.connect(place).producer() as producer:
        for first in range(0, records, 10 * BATCH):
            producer.send_table(topic, values(min(10 * BATCH, records - first)))


def poll(records: int, place: str, topic: str) -> None:
    with eoslog.connect(place).consumer(max_poll_records=BATCH) as consumer:
        consumer.assign([eoslog.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        count = 0
        while count < records:
            found = consumer.poll(_PATIENCE_S)
            if not found:
                raise RuntimeError(f"{count} of {records} records came")
            count += sum(len(record.value or b"") == VALUE_BYTES for record in found)


def scan(records: int, place: str, topic: str) -> None:
    count = sum(batch.num_rows for batch in eoslog.connect(place).scan(topic).to_batches())
    if count < records:
        raise RuntimeError(f"{count} of {records} records came")


CLIENTS: Mapping[str, Callable[[int, str, str], float | None]] = {
    "kafka-send": kafka_send,
    "kafka-consume": kafka_consume,
    "send": send,
    "send-table": send_table,
    "poll": poll,
    "scan": scan,
}


def main(client: str, records: int, place: str, topic: str) -> None:
    # Imports and what is done once in a process are not part of the work.
    CLIENTS[client](1, place, topic)
    start = time.perf_counter()
    took = CLIENTS[client](records, place, topic) or time.perf_counter() - start
    rate = records / took
    print(json.dumps({"records/s": rate, "peak memory (MiB)": peak_mib()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:5])
