"""What readers show of a partition, and the ways in which the log may keep it: no reader may tell them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eoslog.consumer.consumer import Consumer
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.partitions import partition_of

PLACE = TopicPartition("t", 0)
Keep = Callable[[Store], None]


def _active(store: Store) -> None:
    """The batches stay in the log's state."""


def _sealed(store: Store) -> None:
    store.log.before_checkpoint()
    assert partition_of(store, "t").sealed


def _merged(store: Store) -> None:
    _sealed(store)
    store.admin.compact_files("t")


any_keep = pytest.mark.parametrize("keep", [_active, _sealed, _merged], ids=["active", "sealed", "merged"])
"""Runs a test on a log whose batches are in the state, in a segment each, and together in one file."""


def producer_of(store: Store, transactional_id: str = "tx") -> Producer:
    producer = store.producer(transactional_id)
    producer.init_transactions()
    return producer


def send(producer: Producer, *values: bytes, begin: bool = False) -> None:
    """One batch of a transaction."""
    if begin:
        producer.begin_transaction()
    for value in values:
        producer.send("t", value, partition=0)
    producer.flush()


def assigned(store: Store, isolation_level: str, **options: Any) -> Consumer:
    """A consumer of the partition, from its first row on."""
    consumer = store.consumer(isolation_level=isolation_level, **{"auto_offset_reset": "earliest", **options})
    consumer.assign([PLACE])
    return consumer


def consumed(store: Store, isolation_level: str = "read_committed", start: int = 0) -> list[bytes]:
    """What a consumer and a scan show from an offset on, which is the same."""
    consumer = assigned(store, isolation_level, max_poll_records=3)
    consumer.seek(PLACE, start)
    records = []
    while polled := consumer.poll(0):
        records += polled
    columns = ["offset", "value"]
    scan = store.scan(
        "t", isolation_level=isolation_level, columns=columns, partitions=[0], starting_offsets={0: start}
    )
    scanned = [(row["offset"], row["value"]) for row in scan.to_table().to_pylist()]
    assert scanned == [(record.offset, record.value) for record in records]
    return [record.value for record in records]
