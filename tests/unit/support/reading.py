"""What tests of consumers share: records to read, and consumers that read them."""

from __future__ import annotations

from typing import Any

from eoslog.consumer.consumer import Consumer
from eoslog.consumer.consumer_records import ConsumerRecord
from eoslog.state.names import TopicPartition
from eoslog.store import Store

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def send(store: Store, *values: bytes, partition: int = 0, timestamp: int | None = None) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send("t", value, partition=partition, timestamp=timestamp)


def transaction(store: Store, outcome: str, *values: bytes, partition: int = 0, transactional_id: str = "tx") -> None:
    producer = store.producer(transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.send("t", value, partition=partition)
    producer.flush()
    if outcome == "commit":
        producer.commit_transaction()
    elif outcome == "abort":
        producer.abort_transaction()


def assigned(store: Store, *places: TopicPartition, **options: Any) -> Consumer:
    consumer = store.consumer(**{"auto_offset_reset": "earliest", **options})
    consumer.assign(places or [T0, T1])
    return consumer


def taken(records: list[ConsumerRecord]) -> list[bytes]:
    return [record.value for record in records]
