"""Open transactions that tests look at."""

from __future__ import annotations

from typing import Any

from eoslog.producer.producer import Producer
from eoslog.store import Store


def open_transaction(store: Store, transactional_id: str, **options: Any) -> Producer:
    """Return a producer that has begun a transaction."""
    producer = store.producer(transactional_id, **options)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def begun(store: Store, transactional_id: str, *partitions: int, **options: Any) -> Producer:
    """A producer with an open transaction that has a row in each of the partitions of ``t``."""
    producer = open_transaction(store, transactional_id, **options)
    for partition in partitions:
        producer.send("t", b"v", partition=partition)
    producer.flush()
    return producer
