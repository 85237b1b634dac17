"""``repr()`` of each public object: short, without I/O, without credentials."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

import eoslog
import pyspark_eoslog
from pyspark_eoslog.table import EosLogTable, _options
from tests.unit.support.transactions import open_transaction

LONGEST = 1_200
LONG = "x" * 249
SECRET = "hush-hush"
NO_SESSION: Any = None


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """An object of each public class, of a store whose values are long."""
    store = eoslog.connect("memory://representations")
    admin = store.admin
    admin.create_topic(LONG)
    topic = admin.create_topic("wide", schema=pa.schema([(f"column_{n}", pa.string()) for n in range(300)]))
    producer = open_transaction(store, LONG)
    pending = producer.send(LONG, value=b"v" * 100_000, key=b"k" * 10_000, headers=[("h", b"h" * 10_000)])
    assert isinstance(pending, Future)
    shown_before = repr(pending)
    producer.send_offsets_to_transaction({eoslog.TopicPartition(LONG, 0): 1}, "group")
    producer.commit_transaction()
    consumer = store.consumer("g" * 249, auto_offset_reset="earliest", with_transaction=True)
    consumer.subscribe(LONG)
    (record,) = consumer.poll(1.0)
    place = eoslog.TopicPartition(LONG, 0)
    times = consumer.offsets_for_times({place: 0})
    scan = store.scan(LONG)
    file = next(iter(scan.files()))
    history = store.history()
    return {
        "Admin": admin,
        "Commit": next(iter(store.commits(LONG))),
        "Consumer": consumer,
        "ConsumerRecord": record,
        "Coordinator": eoslog.Coordinator(store),
        "FileCompactionReport": admin.compact_files(),
        "GroupMetadata": consumer.group_metadata(),
        "History": history,
        "IsolationLevel": eoslog.IsolationLevel.READ_COMMITTED,
        "KeyCompactionReport": admin.compact_keys(),
        "LastCommitted": admin.last_committed(LONG),
        "OffsetAndMetadata": eoslog.OffsetAndMetadata(1),
        "OffsetAndTimestamp": times[place],
        "OffsetReset": eoslog.OffsetReset(to_earliest=True),
        "Operation": next(iter(history)),
        "PartitionDescription": admin.describe_partitions(LONG)[0],
        "PartitionOffsets": admin.offsets(LONG)[0],
        "Processor": store.processor(LONG, print, group_id=LONG, transactional_id=LONG),
        "ProcessorOutput": eoslog.ProcessorOutput(producer),
        "Producer": producer,
        "Progress": eoslog.Progress(1, 2, 3, 4, 5, 6),
        "RecordMetadata": pending.result(),
        "RecordTransaction": record.transaction,
        "RowRange": file.ranges[0],
        "Scan": store.scan("wide"),
        "ScanFile": file,
        "Store": store,
        "Topic": topic,
        "TopicConfig": topic.config,
        "TopicPartition": place,
        "TransactionListing": admin.list_transactions()[0],
        "VacuumReport": admin.vacuum(),
        "pending future": shown_before,
        "future": pending,
    }


def test_each_public_object_of_the_library_is_shown_in_short(objects: dict[str, Any]) -> None:
    assert set(eoslog._PUBLIC) - {"connect"} <= set(objects)
    for name, each in objects.items():
        text = each if isinstance(each, str) else repr(each)
        assert len(text) <= LONGEST, (name, text)
        assert " object at 0x" not in text, (name, text)


def test_a_representation_sends_no_request(objects: dict[str, Any]) -> None:
    store = objects["Store"]
    before = +store.requests

    for each in objects.values():
        repr(each)

    assert +store.requests == before


def test_representations_say_which_object_it_is(objects: dict[str, Any]) -> None:
    url = "memory://representations"

    assert repr(objects["Admin"]) == f"Admin('{url}')"
    assert repr(objects["Coordinator"]) == f"Coordinator('{url}')"
    assert repr(objects["Producer"]).endswith("...', state='ready')")
    assert repr(eoslog.connect("memory://x").producer()) == "Producer('memory://x', state='uninitialized')"
    assert objects["pending future"] == f"RecordFuture(topic='{LONG}', partition=0, pending)"
    assert repr(objects["future"]) == f"RecordFuture(topic='{LONG}', partition=0, offset=0)"
    assert repr(objects["Scan"]).startswith(f"Scan('{url}', slot=")


def test_a_closed_consumer_says_so() -> None:
    consumer = eoslog.connect("memory://x").consumer()
    consumer.close()

    assert repr(consumer) == "Consumer('memory://x', closed)"


def test_a_failed_future_shows_the_code_of_its_error() -> None:
    store = eoslog.connect("memory://failed")
    store.admin.create_topic("t")
    with open_transaction(store, "etl") as producer:
        future = producer.send("t", b"v")
        producer.abort_transaction()

    assert repr(future) == "RecordFuture(topic='t', partition=0, error=EOSLOG_TRANSACTION_ABORTED)"


def test_no_representation_shows_a_credential() -> None:
    given = {"key": SECRET, "secret": SECRET, "token": SECRET}
    store = eoslog.connect("s3://bucket/prefix", **given)
    options = {"path": "s3://bucket/prefix", "topic": "t", **{f"eoslog.{name}": text for name, text in given.items()}}

    shown = [
        *map(repr, (store, store.admin, store.producer(), store.consumer(), eoslog.Coordinator(store))),
        repr(store.object_store),
        repr(pyspark_eoslog.DefaultSource(options)),
        repr(EosLogTable(NO_SESSION, _options("s3://bucket/prefix", "t", given), "t")),
    ]

    assert [
        text for text in shown if SECRET in text or " object at 0x" in text or "s3://bucket/prefix" not in text
    ] == []
    assert set(pyspark_eoslog.__all__) == {"DefaultSource", "EosLogTable", "activate", "topic_schema"}
