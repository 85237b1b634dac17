"""Serializers and deserializers of the application, and what remains of records and positions when they fail."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
from typing import Any

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.store import Store
from tests.unit.support.reading import T0, T1, assigned, send
from tests.unit.support.world import World, values


def to_json(given: Any) -> bytes:
    return json.dumps(given).encode()


def test_objects_come_back(store: Store) -> None:
    with store.producer(key_serializer=str.encode, value_serializer=to_json) as producer:
        producer.send("t", {"n": 1}, key="k", partition=0)
        producer.send("t", None, key="k", partition=0)
        producer.send("t", 2, partition=0)

    records = assigned(store, T0, key_deserializer=bytes.decode, value_deserializer=json.loads).poll(0)

    assert [(record.key, record.value) for record in records] == [("k", {"n": 1}), ("k", None), (None, 2)]


def test_the_serialized_key_chooses_the_partition(store: Store) -> None:
    with store.producer(key_serializer=lambda number: b"%d" % number) as producer:
        futures = [producer.send("t", b"v", key=number) for number in range(20)]
        plain = store.producer()
        same = [plain.send("t", b"v", key=b"%d" % number) for number in range(20)]
        plain.close()

    assert [each.result().partition for each in futures] == [each.result().partition for each in same]


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_serializer_that_raises_leaves_nothing_and_the_transaction_goes_on(
    store: Store, world: World, part: str
) -> None:
    producer = store.producer("tx", **{f"{part}_serializer": to_json})
    other = "value" if part == "key" else "key"
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", **{part: "good", other: b"g"})

    with pytest.raises(errors.SerializationFailed, match=f"topic t: the {part} serializer raised TypeError") as raised:
        producer.send("t", **{part: {1, 2}, other: b"b"})
    assert isinstance(raised.value.__cause__, TypeError)
    producer.commit_transaction()

    assert len(values(world.process())) == 1


def test_a_serializer_that_returns_no_bytes_is_refused(store: Store) -> None:
    with pytest.raises(errors.SchemaMismatch, match="value must be bytes or None, not str"):
        store.producer(value_serializer=json.dumps).send("t", {})


def test_a_record_that_cannot_be_read_is_named_after_those_before_it(store: Store) -> None:
    send(store, b"0", b"1", b"{", b"3")
    consumer = assigned(store, T0, value_deserializer=json.loads, group_id="g")

    assert [record.value for record in consumer.poll(0)] == [0, 1]
    for _ in range(2):
        with pytest.raises(
            errors.RecordDeserializationFailed, match=r"t, partition 0, offset 2: the value des"
        ) as raised:
            consumer.poll(0)
        assert consumer.position(T0) == 2
    error = raised.value
    assert (error.topic, error.partition, error.offset) == ("t", 0, 2)
    consumer.commit()
    assert consumer.committed([T0])[T0].offset == 2  # type: ignore[union-attr]

    consumer.seek(T0, error.offset + 1)
    assert [record.value for record in consumer.poll(0)] == [3]


def test_a_loop_raises_at_the_record_and_goes_on_behind_it(store: Store) -> None:
    send(store, b"0", b"{", b"2")
    consumer = assigned(store, T0, value_deserializer=json.loads, consumer_timeout_ms=0)
    seen = []

    with pytest.raises(errors.RecordDeserializationFailed) as raised:
        seen += [record.value for record in consumer]  # The list is lost with the error.
    consumer.seek(T0, raised.value.offset + 1)
    seen += [record.value for record in consumer]

    assert seen == [2]


def test_a_bad_record_does_not_stop_other_partitions(store: Store) -> None:
    send(store, b"{", partition=0)
    send(store, b"1", partition=1)
    consumer = assigned(store, value_deserializer=json.loads)
    seen = []

    for _ in range(4):
        with contextlib.suppress(errors.RecordDeserializationFailed):
            seen += [record.value for record in consumer.poll(0)]

    assert seen == [1]
    assert (consumer.position(T0), consumer.position(T1)) == (0, 1)


def test_the_key_that_cannot_be_read_is_named(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"v", key=b"\xff", partition=0)

    with pytest.raises(errors.RecordDeserializationFailed, match="the key deserializer raised UnicodeDecodeError"):
        assigned(store, T0, key_deserializer=bytes.decode).poll(0)


def test_topics_of_columns_are_not_deserialized(store: Store) -> None:
    store.admin.create_topic("columns", schema=pa.schema([("n", pa.int64())]))
    with store.producer(value_serializer=to_json) as producer:
        producer.send_table("columns", pa.table({"n": [1]}))
    consumer = store.consumer(auto_offset_reset="earliest", value_deserializer=json.loads)
    consumer.subscribe("columns")

    assert [record.value for record in consumer.poll(0)] == [{"n": 1}]


def test_the_error_can_be_sent_to_another_process() -> None:
    error = errors.RecordDeserializationFailed("bad", topic="t", partition=1, offset=2)

    copied = pickle.loads(pickle.dumps(error))

    assert (str(copied), copied.topic, copied.partition, copied.offset) == (str(error), "t", 1, 2)


@pytest.mark.parametrize("name", ["key_serializer", "value_serializer", "key_deserializer", "value_deserializer"])
def test_an_object_that_is_no_function_is_refused(store: Store, name: str) -> None:
    opening = store.consumer if name.endswith("deserializer") else store.producer

    key = name.replace("_", ".")
    with pytest.raises(errors.InvalidOption, match=f"{re.escape(key)} must be a function"):
        opening(config={key: "org.apache.kafka.StringSerializer"})


@pytest.mark.parametrize("option", ["key_serializer", "value_serializer", "key_deserializer", "value_deserializer"])
def test_a_function_of_two_arguments_is_refused_when_the_client_is_opened(store: Store, option: str) -> None:
    def with_context(value: Any, context: Any) -> Any:
        return value

    connected = store.producer if option.endswith("_serializer") else store.consumer

    with pytest.raises(
        errors.InvalidOption, match=rf"{option} must be a function of one argument.*Wrap a function with a context"
    ):
        connected(**{option: with_context})  # type: ignore[arg-type]
