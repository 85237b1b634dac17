"""A name of any length that a caller gives is refused in a message of one short line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import eoslog
from eoslog import OffsetAndMetadata, OffsetReset, Store, TopicPartition
from tests.unit.support.transactions import open_transaction

NAME = "n" * 5_000
PLACE = TopicPartition(NAME, 0)
RESET = OffsetReset(to_earliest=True)
COLUMNS = pa.schema([("id", pa.int64())])
LONGEST = 500


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    directory: Path = tmp_path_factory.mktemp("names")
    store = eoslog.connect(str(directory / "store"), fsync=False)
    store.admin.create_topic("t")
    with store.consumer(group_id="g") as consumer:
        consumer.commit({TopicPartition("t", 0): 0})
    return store


def _producer(store: Store) -> eoslog.Producer:
    return open_transaction(store, "p")


def _assigned(store: Store, place: Any = ("t", 0)) -> eoslog.Consumer:
    consumer = store.consumer("g")
    consumer.assign([place])
    return consumer


def _joined(store: Store, **options: Any) -> None:
    with store.consumer("members", **options) as consumer:
        consumer.subscribe("t")
        consumer.poll(0)


CALLS: dict[str, Callable[[Store], object]] = {
    "create_topic": lambda store: store.admin.create_topic(NAME),
    "create_topic, reserved": lambda store: store.admin.create_topic(f"__{NAME}"),
    "create_topic, key": lambda store: store.admin.create_topic("u", schema=COLUMNS, key=NAME),
    "create_topic, config": lambda store: store.admin.create_topic("u", config=NAME),  # type: ignore[arg-type]
    "create_topic, partitions": lambda store: store.admin.create_topic("u", partitions=NAME),  # type: ignore[arg-type]
    "create_topic, both": lambda store: store.admin.create_topic(NAME, partitions=0),
    "create_topic, name and config": lambda store: store.admin.create_topic(NAME, config=1),  # type: ignore[arg-type]
    "create_topic, name and key": lambda store: store.admin.create_topic(NAME, schema=COLUMNS, key="no"),
    "delete_topic": lambda store: store.admin.delete_topic(NAME),
    "describe_topic": lambda store: store.admin.describe_topic(NAME),
    "describe_partitions": lambda store: store.admin.describe_partitions(NAME),
    "alter_topic": lambda store: store.admin.alter_topic(NAME, retention_ms=1),
    "alter_topic, setting": lambda store: store.admin.alter_topic("t", **{NAME: 1}),
    "alter_topic, name and setting": lambda store: store.admin.alter_topic(NAME, **{NAME: 1}),
    "alter_topic, value": lambda store: store.admin.alter_topic("t", retention_ms=NAME),
    "alter_topic, name and value": lambda store: store.admin.alter_topic(NAME, retention_ms=NAME),
    "add_columns": lambda store: store.admin.add_columns(NAME, COLUMNS),
    "schema_history": lambda store: store.admin.schema_history(NAME),
    "create_partitions": lambda store: store.admin.create_partitions(NAME, 2),
    "create_partitions, both": lambda store: store.admin.create_partitions(NAME, 0),
    "delete_records": lambda store: store.admin.delete_records({PLACE: 0}),
    "delete_records, both": lambda store: store.admin.delete_records({PLACE: NAME}),  # type: ignore[dict-item]
    "restore_indexes": lambda store: store.admin.restore_indexes(NAME),
    "skip_damaged_files": lambda store: store.admin.skip_damaged_files(NAME),
    "compact_files": lambda store: store.admin.compact_files(NAME),
    "compact": lambda store: store.admin.compact_keys(NAME),
    "verify": lambda store: list(store.admin.verify(NAME)),
    "offsets": lambda store: store.admin.offsets(NAME),
    "describe_consumer_group": lambda store: store.admin.describe_consumer_group(NAME),
    "list_consumer_groups": lambda store: store.admin.list_consumer_groups(states=[NAME]),
    "list_consumer_group_offsets": lambda store: store.admin.list_consumer_group_offsets(NAME),
    "alter_consumer_group_offsets": lambda store: store.admin.alter_consumer_group_offsets(NAME, {("t", 0): 0}),  # type: ignore[dict-item]
    "alter_consumer_group_offsets, topic": lambda store: store.admin.alter_consumer_group_offsets("g", {PLACE: 0}),
    "alter_consumer_group_offsets, value": lambda store: store.admin.alter_consumer_group_offsets("g", {PLACE: NAME}),  # type: ignore[dict-item]
    "reset_consumer_group_offsets": lambda store: store.admin.reset_consumer_group_offsets(NAME, RESET),
    "reset_consumer_group_offsets, topic": lambda store: store.admin.reset_consumer_group_offsets(
        "g", RESET, partitions=[NAME]
    ),
    "delete_consumer_group_offsets": lambda store: store.admin.delete_consumer_group_offsets(NAME, ["t"]),
    "delete_consumer_group_offsets, topic": lambda store: store.admin.delete_consumer_group_offsets("g", [NAME]),
    "delete_consumer_group": lambda store: store.admin.delete_consumer_group(NAME),
    "remove_members": lambda store: store.admin.remove_members(NAME),
    "list_transactions, pattern": lambda store: store.admin.list_transactions(transactional_id_pattern=f"({NAME}"),
    "describe_transaction": lambda store: store.admin.describe_transaction(NAME),
    "last_committed": lambda store: store.admin.last_committed(NAME),
    "describe_producers": lambda store: store.admin.describe_producers(NAME, 0),
    "describe_producers, partition": lambda store: store.admin.describe_producers("t", NAME),  # type: ignore[arg-type]
    "abort_transaction": lambda store: store.admin.abort_transaction(NAME),
    "fence_producer": lambda store: store.admin.fence_producer(NAME),
    "force_terminate_transaction": lambda store: store.admin.force_terminate_transaction(NAME),
    "abort_transaction_at": lambda store: store.admin.abort_transaction_at(NAME, 0, 0),
    "find_hanging_transactions": lambda store: store.admin.find_hanging_transactions(topic=NAME),
    "producer": lambda store: store.producer(NAME).init_transactions(),
    "send": lambda store: _producer(store).send(NAME, b"x"),
    "send, partition": lambda store: _producer(store).send("t", b"x", partition=NAME),  # type: ignore[arg-type]
    "send, timestamp": lambda store: _producer(store).send("t", b"x", timestamp=NAME),  # type: ignore[arg-type]
    "send_table": lambda store: _producer(store).send_table(NAME, pa.table({"value": [b"x"]})),
    "send_table, column": lambda store: _producer(store).send_table("t", pa.table({NAME: [b"x"]})),
    "send_offsets_to_transaction": lambda store: _producer(store).send_offsets_to_transaction({PLACE: 0}, "g"),
    "send_offsets_to_transaction, group": lambda store: _producer(store).send_offsets_to_transaction({}, NAME),
    "commit_transaction": lambda store: _producer(store).commit_transaction(application_id=NAME, version=1),
    "commit_transaction, no version": lambda store: _producer(store).commit_transaction(application_id=NAME),
    "complete_transaction": lambda store: store.producer("q").complete_transaction(NAME),
    "consumer": lambda store: store.consumer(NAME),
    "consumer, control characters": lambda store: store.consumer("\0" * 1_000),
    "consumer, reset": lambda store: store.consumer("g", auto_offset_reset=NAME),
    "consumer, isolation": lambda store: store.consumer("g", isolation_level=NAME),
    "consumer, instance": lambda store: _joined(store, group_instance_id=NAME),
    "subscribe, pattern": lambda store: store.consumer("g").subscribe(pattern=f"({NAME}"),
    "assign": lambda store: _assigned(store, PLACE).poll(0),
    "assign, text": lambda store: _assigned(store, NAME),
    "position": lambda store: _assigned(store).position(PLACE),
    "seek": lambda store: _assigned(store).seek(PLACE, 0),
    "seek, offset": lambda store: _assigned(store).seek(TopicPartition("t", 0), NAME),  # type: ignore[arg-type]
    "seek, both": lambda store: _assigned(store, PLACE).seek(PLACE, NAME),  # type: ignore[arg-type]
    "seek_to_beginning": lambda store: _assigned(store).seek_to_beginning([PLACE]),
    "seek_to_end": lambda store: _assigned(store).seek_to_end([PLACE]),
    "pause": lambda store: _assigned(store).pause([PLACE]),
    "resume": lambda store: _assigned(store).resume([PLACE]),
    "commit": lambda store: _assigned(store).commit({PLACE: 0}),
    "commit, offset": lambda store: _assigned(store).commit({PLACE: OffsetAndMetadata(NAME)}),  # type: ignore[arg-type]
    "committed": lambda store: _assigned(store).committed([PLACE]),
    "beginning_offsets": lambda store: _assigned(store).beginning_offsets([PLACE]),
    "end_offsets": lambda store: _assigned(store).end_offsets([PLACE]),
    "offsets_for_times": lambda store: _assigned(store).offsets_for_times({PLACE: 0}),
    "offsets_for_times, both": lambda store: _assigned(store).offsets_for_times({PLACE: NAME}),  # type: ignore[dict-item]
    "lag": lambda store: _assigned(store, PLACE).lag(),
    "scan": lambda store: store.scan(NAME),
    "scan, isolation": lambda store: store.scan("t", isolation_level=NAME),
    "scan, columns": lambda store: store.scan("t", columns=[NAME]),
    "scan, columns as text": lambda store: store.scan("t", columns=NAME),  # type: ignore[arg-type]
    "scan, predicate": lambda store: store.scan("t", predicate=f"{NAME} = 1"),
    "scan, partition": lambda store: store.scan("t", partitions=[NAME]),  # type: ignore[list-item]
    "scan, slot": lambda store: store.scan("t", slot=NAME),  # type: ignore[arg-type]
    "scan, timestamp": lambda store: store.scan("t", timestamp=NAME),  # type: ignore[arg-type]
    "scan, starting_offsets": lambda store: store.scan("t", starting_offsets=NAME),  # type: ignore[arg-type]
    "commits": lambda store: next(store.commits([NAME])),
    "history": lambda store: list(store.history(NAME)),
}


@pytest.mark.parametrize("call", CALLS)
def test_its_message_is_short_and_one_line(store: Store, call: str) -> None:
    with pytest.raises(eoslog.EosLogError) as caught:
        CALLS[call](store)

    message = str(caught.value)
    assert len(message) < LONGEST, message
    assert message.isprintable()
