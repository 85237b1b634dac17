"""What the roles of the page on security do, each in a process of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from kio.schema.errors import ErrorCode

import eoslog
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.entries import TopicConfig
from eoslog.store import Store
from tests.unit.gateway.group_clients import GroupClient
from tests.unit.gateway.raw_client import Client, batch, running
from tests.unit.gateway.raw_client import produce as produce_batches

Process = Callable[[], Store]
"""Opens the store as a new process of the role does."""

_SECOND_IS_OVER_S = 2.1
"""S3 tells whole seconds, and a server may be late by one."""


def administer(process: Process) -> None:
    store = process()
    store.admin.create_topic("payments", partitions=2, config=TopicConfig(segment_batches=2, publish="delta"))
    store.admin.create_topic("flights", schema=pa.schema([("id", pa.int64())]), key="id")
    assert list(store.admin.verify()) == []


def produce(process: Process) -> None:
    store = process()
    with store.producer("etl") as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send("payments", b"value", key=b"%d" % number, partition=0)
            producer.send_table("flights", pa.table({"id": [number]}))
            producer.flush()
            producer.send_offsets_to_transaction({eoslog.TopicPartition("payments", 0): number}, "g")
            producer.commit_transaction(version=number)
    with store.producer() as idempotent:
        idempotent.send("payments", b"value", partition=1)
        idempotent.flush()
        # As it is on systems without turns.
        store.object_store.host_queue = None
        idempotent.send("payments", b"value", partition=1)
    for thread in threading.enumerate():
        if thread.name == "eoslog-background":
            thread.join()
    store.log.before_checkpoint()
    store.log.checkpoint()


def consume_in_a_group(process: Process) -> None:
    with process().consumer("readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["payments"])
        while not consumer.poll(0.1):
            pass
        consumer.commit()
        # Whoever is not alone looks for members that have fallen silent.
        with process().consumer("readers") as another:
            another.subscribe(["payments"])
            another.poll(0.1)


def serve_clients(process: Process) -> None:
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}
    with running(process(), **settings) as first, running(process(), **settings) as second:
        second.know_newest()
        with Client(first.port) as client, Client(second.port) as other:
            assert produce_batches(client, ("payments", 1, batch(b"value")))[0].error_code is ErrorCode.none
            member = GroupClient(client, "clients", topics=["payments"])
            assert member.join().error_code is ErrorCode.none
            assert GroupClient(other, "clients").join().error_code is ErrorCode.not_coordinator
            assert member.leave() is ErrorCode.none


def read(process: Process) -> None:
    store = process()
    assert store.scan("flights").to_table().num_rows == 3
    assert store.scan("payments").to_table().num_rows >= 5
    assert len(list(store.commits("flights"))) == 3
    assert list(store.history())
    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([eoslog.TopicPartition("payments", 0)])
        assert consumer.poll(0.1)
    store.admin.list_transactions()
    store.admin.offsets("payments")


def coordinate(process: Process) -> None:
    store = process()
    store.admin.vacuum(staged_max_age_ms=0, deleted_file_retention_ms=0)
    # In the second of the horizon nothing that is uploaded can be named.
    time.sleep(_SECOND_IS_OVER_S)
    store.admin.delete_topic("flights")
    store.admin.compact_files("payments")
    assert [each.error for each in Coordinator(store).run_once() if each.error is not None] == []
    store.log.checkpoint()
    # Nor is what was dropped in this second old.
    time.sleep(_SECOND_IS_OVER_S)
    store.admin.vacuum(staged_max_age_ms=0, deleted_file_retention_ms=0)


ROLES: dict[str, Callable[[Process], None]] = {
    "The administrator": administer,
    "A producer": produce,
    "A member of a consumer group": consume_in_a_group,
    "A gateway": serve_clients,
    "A reader": read,
    "The coordinator": coordinate,
}
"""By the headings of the page, in an order in which they can act on one store."""
