"""Bad input gets an error that says what was wrong, where, and what to do; and nothing changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import eoslog
from eoslog import Store

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = eoslog.connect(str(tmp_path / "store"), fsync=False)
    store.admin.create_topic("typed", partitions=2, schema=SCHEMA, key="id")
    store.admin.create_topic("records", partitions=2)
    with store.producer() as producer:
        producer.send_table("typed", pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    return store


def _everything(store: Store) -> dict[str, bytes]:
    objects = store.object_store
    return {info.path: objects.get(info.path).body for info in objects.list("")}


def _send(store: Store, topic: str, table: pa.Table) -> None:
    producer = store.producer()
    producer.send_table(topic, table)
    producer.flush()


def _assigned(store: Store) -> eoslog.Consumer:
    consumer = store.consumer()
    consumer.assign([eoslog.TopicPartition("typed", 0)])
    return consumer


REFUSALS: dict[str, tuple[Callable[[Store], object], type[eoslog.EosLogError], str]] = {
    "an unknown topic": (
        lambda store: _send(store, "absent", pa.table({"id": [1]})),
        eoslog.UnknownTopicOrPartition,
        "absent.*records, typed",
    ),
    "an unknown topic to read": (lambda store: store.scan("absent"), eoslog.UnknownTopicOrPartition, "records, typed"),
    "half a surrogate pair in a group id": (
        lambda store: store.consumer("\ud800"),
        eoslog.InvalidRequest,
        "group id .* half a surrogate pair",
    ),
    "half a surrogate pair in a transactional id": (
        lambda store: store.producer("\ud800"),
        eoslog.InvalidRequest,
        "transactional id .* half a surrogate pair",
    ),
    "a vacuum of files that are not there yet": (
        lambda store: store.admin.vacuum(staged_max_age_ms=-(10**12)),
        eoslog.InvalidOption,
        "staged_max_age_ms is -1000000000000; it must be a whole number, 0 or more",
    ),
    "a vacuum without a retention": (
        lambda store: store.admin.vacuum(deleted_file_retention_ms="1d"),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        "deleted_file_retention_ms is '1d'",
    ),
    "files of no size": (
        lambda store: store.admin.compact_files(target_file_bytes=0),
        eoslog.InvalidOption,
        "target_file_bytes is 0; it must be a whole number, 1 or more",
    ),
    "an unknown partition": (
        lambda store: store.producer().send("records", b"x", partition=2),
        eoslog.UnknownTopicOrPartition,
        "partitions 0 to 1, not 2",
    ),
    "the partition that means any to other clients": (
        lambda store: store.producer().send("records", b"x", partition=-1),
        eoslog.UnknownTopicOrPartition,
        "topic records has no partition -1. Give None to let the partitioner choose one",
    ),
    "an unknown partition in a row": (
        lambda store: _send(store, "records", pa.table({"value": [b"x"], "partition": [9]})),
        eoslog.UnknownTopicOrPartition,
        "partitions 0 to 1, not 9",
    ),
    "a missing column": (
        lambda store: _send(store, "typed", pa.table({"id": [1], "nome": ["a"]})),
        eoslog.SchemaMismatch,
        "nome",
    ),
    "a wrong type": (
        lambda store: _send(store, "typed", pa.table({"id": ["one"], "name": ["a"]})),
        eoslog.SchemaMismatch,
        r"id.*int64.*string|id.*string.*int64",
    ),
    "text where bytes belong": (
        lambda store: store.producer().send("records", "text"),  # type: ignore[arg-type]
        eoslog.SchemaMismatch,
        r"value must be bytes or None, not str\. Encode it, or give the producer a value_serializer",
    ),
    "rows that are no Arrow stream": (
        lambda store: store.producer().send_table("typed", {"id": [1]}),  # type: ignore[arg-type]
        eoslog.SchemaMismatch,
        "__arrow_c_stream__, not dict",
    ),
    "headers that are no pairs": (
        lambda store: store.producer().send("records", b"x", headers=["name"]),  # type: ignore[list-item]
        eoslog.SchemaMismatch,
        "a pair of str and bytes",
    ),
    "headers in a dictionary": (
        lambda store: store.producer().send("records", b"x", headers={"name": b"value"}),  # type: ignore[arg-type]
        eoslog.SchemaMismatch,
        r"headers are a list of pairs, not a mapping\. Give headers\.items\(\)",
    ),
    "a partition without its topic": (
        lambda store: store.consumer().assign(["records"]),  # type: ignore[list-item]
        eoslog.InvalidRequest,
        r"TopicPartition\(topic, partition\), not 'records'",
    ),
    "a configuration that is none": (
        lambda store: store.admin.create_topic("t", config=["retention.ms=1"]),  # type: ignore[arg-type]
        eoslog.InvalidTopic,
        "segment_bytes, segment_batches",
    ),
    "a time-out in words": (
        lambda store: store.producer("etl", transaction_timeout_ms="5s"),  # type: ignore[arg-type]
        eoslog.InvalidTransactionTimeout,
        "is '5s'; it must be a whole number of ms",
    ),
    "a record into a topic of columns": (
        lambda store: store.producer().send("typed", b"x"),
        eoslog.SchemaMismatch,
        "send_table",
    ),
    "an illegal topic name": (
        lambda store: store.admin.create_topic("../etc"),
        eoslog.InvalidTopic,
        "1 to 249 of the characters",
    ),
    "a reserved topic name": (
        lambda store: store.admin.create_topic("__transaction_state"),
        eoslog.InvalidTopic,
        "reserved",
    ),
    "a topic that exists": (
        lambda store: store.admin.create_topic("typed"),
        eoslog.TopicAlreadyExists,
        "typed exists already",
    ),
    "a topic without partitions": (
        lambda store: store.admin.create_topic("t", partitions=0),
        eoslog.InvalidTopic,
        "1 to 10000",
    ),
    "a schema that cannot be stored": (
        lambda store: store.admin.create_topic("t", schema=pa.schema([("m", pa.month_day_nano_interval())])),
        eoslog.UnsupportedSchema,
        "m",
    ),
    "a key that is no column": (
        lambda store: store.admin.create_topic("t", schema=SCHEMA, key="nome"),
        eoslog.InvalidTopic,
        "nome.*id, name",
    ),
    "an unknown isolation level": (
        lambda store: store.scan("typed", isolation_level="serializable"),
        eoslog.InvalidOption,
        "read_committed, read_uncommitted, snapshot",
    ),
    "an unknown column to read": (
        lambda store: store.scan("typed", columns=["nome"]),
        eoslog.InvalidOption,
        "nome.*id, name",
    ),
    "a time-out that is too long": (
        lambda store: store.producer("etl", transaction_timeout_ms=900_001).init_transactions(),
        eoslog.InvalidTransactionTimeout,
        "at most 900000",
    ),
    "an empty transactional id": (
        lambda store: store.producer(""),
        eoslog.InvalidRequest,
        "transactional id must be a string that is not empty",
    ),
    "an unknown transactional id": (
        lambda store: store.admin.abort_transaction("nobody"),
        eoslog.TransactionalIdNotFound,
        "nobody",
    ),
    "an offset of a partition that is not there": (
        lambda store: store.scan("typed", starting_offsets={2: 1}),
        eoslog.UnknownTopicOrPartition,
        "partitions 0 to 1, not 2",
    ),
    "a partition's number as text": (
        lambda store: store.scan("typed", ending_offsets={"0": 1}),  # type: ignore[dict-item]
        eoslog.UnknownTopicOrPartition,
        "partitions 0 to 1, not '0'",
    ),
    "an offset that is no number": (
        lambda store: store.scan("typed", starting_offsets={0: 1.5}),  # type: ignore[dict-item]
        eoslog.InvalidOption,
        "starting_offsets of partition typed-0 is an offset, not 1.5",
    ),
    "offsets that are of no partition": (
        lambda store: store.scan("typed", ending_offsets=5),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        "ending_offsets are offsets by partition",
    ),
    "a column named twice": (
        lambda store: store.scan("typed", columns=["id", "id"]),
        eoslog.InvalidOption,
        "each column can be read once",
    ),
    "one column instead of a list": (
        lambda store: store.scan("typed", columns="id"),
        eoslog.InvalidOption,
        "columns are a list of names, not 'id'",
    ),
    "a number of partitions that is none": (
        lambda store: store.admin.create_partitions("typed", True),
        eoslog.InvalidTopic,
        "the number of partitions must be 1 to 10000, not True",
    ),
    "a seek to what is no number": (
        lambda store: _assigned(store).seek(eoslog.TopicPartition("typed", 0), 1.5),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        "the offset of typed-0 must be an integer, not 1.5",
    ),
    "an offset for a time that is no number": (
        lambda store: _assigned(store).offsets_for_times({eoslog.TopicPartition("typed", 0): "now"}),  # type: ignore[dict-item]
        eoslog.InvalidRequest,
        "the timestamp for typed-0 must be an integer in ms, 0 or more, not 'now'",
    ),
    "times without partitions": (
        lambda store: _assigned(store).offsets_for_times([eoslog.TopicPartition("typed", 0)]),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        r"times are given by partition, such as \{TopicPartition\('payments', 0\): 1767225600000\}, not \[Topic",
    ),
    "a slot that is no number": (
        lambda store: store.scan("typed", slot="1"),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        "a slot is a number of the log, not '1'",
    ),
    "commits after a slot that is no number": (
        lambda store: store.commits("typed", after_slot=1.5),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        "a slot is a number of the log, not 1.5",
    ),
    "a time that is none": (
        lambda store: store.scan("typed", timestamp=pd.NaT),
        eoslog.InvalidOption,
        "timestamp NaT is not a point in time",
    ),
    "a topic in a list to write to": (
        lambda store: store.producer().send(["typed"], b""),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        r"\['typed'\] is not a topic name\. Give a string",
    ),
    "rows for a topic in a list": (
        lambda store: store.producer().send_table(["typed"], pa.table({"id": [1]})),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        r"\['typed'\] is not a topic name\. Give a string",
    ),
    "a subscription to a name that is none": (
        lambda store: store.consumer().subscribe(["records", None]),  # type: ignore[list-item]
        eoslog.InvalidRequest,
        r"topics must be a name or a list of names, not \['records', None\]",
    ),
    "an offset of more than 64 bits": (
        lambda store: _assigned(store).seek(eoslog.TopicPartition("typed", 0), 2**63),
        eoslog.InvalidRequest,
        "the offset of typed-0 must be an integer, not 9223372036854775808",
    ),
    "a wait for a close in words": (
        lambda store: store.producer().close("5"),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        "timeout is '5'; it must be a number of seconds",
    ),
    "headers that are a number": (
        lambda store: store.producer().send("records", b"x", headers=5),  # type: ignore[arg-type]
        eoslog.SchemaMismatch,
        "headers are a list of pairs, not 5",
    ),
    "members that are a number": (
        lambda store: store.admin.remove_members("g", 5),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        "members must be a name or a list of names, not 5",
    ),
    "a reset that is none": (
        lambda store: store.admin.reset_consumer_group_offsets("g", "to_earliest"),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        r"reset is OffsetReset\(to_earliest=True\) or another one, not 'to_earliest'",
    ),
    "a reset to a time that is none": (
        lambda store: eoslog.OffsetReset(to_datetime="2026-01-31"),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        "to_datetime is '2026-01-31'; it must be a datetime",
    ),
    "findings that are none": (
        lambda store: store.admin.repair(["x"]),  # type: ignore[list-item]
        eoslog.InvalidRequest,
        "findings are those that verify",
    ),
    "a copy to a URL": (
        lambda store: store.admin.copy("memory://"),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        "target is a store, as eoslog.connect",
    ),
    "a function of progress with other arguments": (
        lambda store: store.admin.verify(progress=lambda done: None),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        "progress must be a function of 3 arguments",
    ),
    "an id of a group that is none": (
        lambda store: store.admin.describe_consumer_group(None),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        "group id must be a string that is not empty",
    ),
    "an interval of no step": (
        lambda store: eoslog.Coordinator(store, intervals_ms={"vacuum": "1d"}),  # type: ignore[dict-item]
        eoslog.InvalidOption,
        "the interval of vacuum is '1d'; it must be a whole number",
    ),
    "a misspelled topic": (
        lambda store: store.scan("tpyed"),
        eoslog.UnknownTopicOrPartition,
        r"no topic is named 'tpyed'\. Did you mean 'typed'\? The store has: records, typed",
    ),
    "a misspelled setting": (
        lambda store: eoslog.TopicConfig(retention=5),  # type: ignore[call-arg]
        eoslog.InvalidTopic,
        "setting 'retention' is unknown. Did you mean 'retention_ms'",
    ),
    "a misspelled setting to alter": (
        lambda store: store.admin.alter_topic("records", retention_mss=5),
        eoslog.InvalidTopic,
        "setting 'retention_mss' is unknown. Did you mean 'retention_ms'",
    ),
    "a place that is none": (
        lambda store: eoslog.connect(None),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        "a string or a Path, not None",
    ),
    "a place in bytes": (
        lambda store: eoslog.connect(b"/tmp/x"),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        "a string or a Path, not b'/tmp/x'",
    ),
    "a file of settings in place of settings": (
        lambda store: eoslog.connect("x", settings="eoslog.toml"),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        r"as load_settings\(path\) returns them, not 'eoslog\.toml'",
    ),
    "settings of the log as a dict": (
        lambda store: eoslog.connect("x", log_config={"checkpoint_slots": 1}),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        "log_config must be a LogConfig",
    ),
    "one partition that is no list": (
        lambda store: store.scan("typed", partitions=0),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        r"a list of numbers, as \[0, 2\], not 0",
    ),
    "a key that is no name": (
        lambda store: store.admin.create_topic("t", schema=SCHEMA, key=5),  # type: ignore[arg-type]
        eoslog.InvalidTopic,
        "key is the name of a column, or a list of names, not 5",
    ),
    "a topic in place of offsets to delete": (
        lambda store: store.admin.delete_records("records"),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        "offsets are given by partition",
    ),
    "a negative buffer": (
        lambda store: store.producer(buffer_bytes=-5),
        eoslog.InvalidOption,
        "buffer_bytes is -5; it must be a whole number, 1 or more",
    ),
    "a number of records in words": (
        lambda store: store.consumer(max_poll_records="all"),
        eoslog.InvalidOption,
        "max_poll_records is 'all'; it must be a whole number, 1 or more",
    ),
    "a wait in words": (
        lambda store: _assigned(store).poll("1s"),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        "timeout is '1s'; it must be 0 or more, a number of seconds",
    ),
    "a subscription to nothing": (
        lambda store: store.consumer("g").subscribe(None),  # type: ignore[arg-type]
        eoslog.InvalidRequest,
        "topics must be a name or a list of names, not None",
    ),
    "a consumer without a store": (
        lambda store: eoslog.Consumer({"bootstrap.servers": "broker:9092"}),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        r"a consumer needs a store, not dict\. Call eoslog\.connect\(url\)\.consumer\(config=…\)",
    ),
    "a coordinator of a path": (
        lambda store: eoslog.Coordinator(store.url),  # type: ignore[arg-type]
        eoslog.InvalidOption,
        r"a coordinator needs a store, as eoslog\.connect\(url\) returns it",
    ),
    "an offset that is not there": (
        lambda store: store.scan("typed", starting_offsets={0: 999}),
        eoslog.OffsetOutOfRange,
        "holds offsets 0 to",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_is_refused_and_changes_nothing(store: Store, what: str) -> None:
    call, error, message = REFUSALS[what]
    before = _everything(store)

    with pytest.raises(error, match=message) as caught:
        call(store)

    assert str(caught.value).startswith(f"[{error.code}]")
    assert _everything(store) == before


def test_a_relative_place_is_told_with_what_it_is_relative_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(eoslog.NotAStore, match=rf"no eoslog store at here \({tmp_path}/here\)"):
        eoslog.connect("here").scan("t")


@pytest.mark.usefixtures("files_are_objects")
def test_the_directory_of_a_topic_is_named_as_such(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    store = eoslog.connect(root)
    store.admin.create_topic("payments")
    with store.producer() as producer:
        producer.send("payments", b"v")

    with pytest.raises(
        eoslog.NotAStore,
        match=rf"the directory of topic 'payments' in the store {re.escape(root)}\. .*option\('topic', 'payments'\)",
    ):
        eoslog.connect(f"{root}/payments/").admin.list_topics()


def test_a_store_that_lost_its_description_is_named_as_such(tmp_path: Path) -> None:
    eoslog.connect(str(tmp_path)).admin.create_topic("payments")
    (tmp_path / "eoslog.json").unlink()

    with pytest.raises(eoslog.NotAStore, match=r"Its log is there, but eoslog\.json is not\. Run eoslog verify"):
        eoslog.connect(str(tmp_path)).admin.list_topics()


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_file_in_place_of_a_directory_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")

    with pytest.raises(
        eoslog.StoreAccessDenied, match=r"there is a file in place of a directory of the store.*another path"
    ):
        eoslog.connect(f"{tmp_path}/file{below}").admin.create_topic("t")

    assert (tmp_path / "file").read_text() == "mine"


def test_a_stored_setting_of_a_newer_version_is_ignored() -> None:
    assert eoslog.TopicConfig.model_validate({"retention_ms": 7, "of_the_future": 1}).retention_ms == 7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda store: store.scan(["typed"]), r"\['typed'\] is not a topic name\. Give a string"),
        (lambda store: store.commits(7), "topics must be a name or a list of names, not 7"),
        (lambda store: store.admin.delete_records({"typed": 1}), r"TopicPartition\(topic, partition\), not 'typed'"),
        (lambda store: store.consumer("g").committed(["typed"]), r"TopicPartition\(topic, partition\), not 'typed'"),
    ],
)
def test_topics_and_partitions_given_in_another_form_are_named(
    store: Store, call: Callable[[Store], object], message: str
) -> None:
    before = _everything(store)

    with pytest.raises(eoslog.InvalidRequest, match=message):
        call(store)

    assert _everything(store) == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": [1]}, "topic sites: column 'site' is missing, but its string may not be null: add it to the rows"),
        (
            {"site": ["a", None, None]},
            "topic sites: column 'site' has 2 nulls, but the topic allows none: fill them, or drop these rows",
        ),
    ],
    ids=["a missing column", "nulls"],
)
def test_rows_that_lack_values_name_the_topic_and_the_next_step(
    store: Store, rows: dict[str, list[object]], message: str
) -> None:
    schema = pa.schema([pa.field("site", pa.string(), nullable=False), pa.field("id", pa.int64())])
    store.admin.create_topic("sites", schema=schema)

    with pytest.raises(eoslog.SchemaMismatch, match=message):
        _send(store, "sites", pa.table(rows))
