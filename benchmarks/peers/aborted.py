"""What aborted transactions cost the readers of the committed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import eoslog
from benchmarks.peers.data import VALUE_BYTES, payloads, values
from benchmarks.peers.measurements import TIME, Results
from benchmarks.peers.services import Broker, kafka_broker, new_name
from benchmarks.peers.sizes import ABORTED_PERCENT, Sizes
from benchmarks.peers.throughput import kafka_consume, poll

TITLE = "Committed rows among aborted ones"
INTRO = """\
A topic has {records} committed records of {bytes} bytes in {transactions} transactions; aborted transactions of the
same size lie between them. A reader with `read_committed` reads all from the beginning: Kafka's with librdkafka, from
its first record on, so that its connection does not count, eoslog's with `poll()` and with `scan()`. A Kafka consumer
fetches aborted records and drops them. eoslog's readers do not fetch them."""

TRANSACTIONS = 45
POLL, SCAN = "eoslog, poll()", "eoslog, scan()"


def run(results: Results, sizes: Sizes, directory: Path) -> None:
    each = max(1, sizes.records // TRANSACTIONS)
    committed = each * TRANSACTIONS
    results.settings |= {"records": f"{committed:,}", "bytes": str(VALUE_BYTES), "transactions": str(TRANSACTIONS)}
    with kafka_broker(directory) as broker:
        for percent in ABORTED_PERCENT:
            outcomes = outcomes_of(TRANSACTIONS, percent)
            topic, store = new_name("t"), directory / new_name("store")
            _fill_kafka(broker, topic, each, outcomes)
            _fill_eoslog(store, each, outcomes)
            works: dict[str, Callable[[], Mapping[str, float] | None]] = {
                "Kafka": partial(_read_kafka, broker, topic, committed),
                POLL: partial(poll, committed, str(store), "t"),
                SCAN: partial(_scan, store, committed),
            }
            results.rounds(f"{percent} % aborted", works, sizes.rounds, warm=1)


def outcomes_of(committed: int, percent: int) -> list[bool]:
    """True for each transaction that commits: ``committed`` of them, and aborted ones spread between them."""
    total = round(committed * 100 / (100 - percent))
    return [(number + 1) * committed // total > number * committed // total for number in range(total)]


def _fill_kafka(broker: Broker, topic: str, each: int, outcomes: list[bool]) -> None:
    from confluent_kafka import Producer

    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions()
    for commits in outcomes:
        producer.begin_transaction()
        for record in payloads(each):
            while True:
                try:
                    producer.produce(topic, record)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
        (producer.commit_transaction if commits else producer.abort_transaction)()


def _fill_eoslog(place: Path, each: int, outcomes: list[bool]) -> None:
    store = eoslog.connect(place, fsync=False)
    store.admin.create_topic("t")
    rows = values(each)
    with store.producer("writer") as producer:
        producer.init_transactions()
        for commits in outcomes:
            producer.begin_transaction()
            producer.send_table("t", rows)
            producer.flush()
            (producer.commit_transaction if commits else producer.abort_transaction)()


def _read_kafka(broker: Broker, topic: str, expected: int) -> Mapping[str, float]:
    return {TIME: kafka_consume(expected, broker.servers, topic)}


def _scan(place: Path, expected: int) -> None:
    count = eoslog.connect(place).scan("t").to_table().num_rows
    if count != expected:
        raise RuntimeError(f"{count} records were read, and {expected} were committed")
