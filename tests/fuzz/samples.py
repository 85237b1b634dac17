"""Well-formed input of every kind: what a small store of each feature holds, and what users and Spark hand over."""

from __future__ import annotations

import io
import json
import uuid
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

import eoslog
from eoslog.delta.delta_log import DeltaLog
from eoslog.format.partition_rows import PARTITIONS_PREFIX
from eoslog.format.topic_schemas import encode_schema
from eoslog.gateway.live_gateways import GatewayDirectory, GatewayRecord
from eoslog.gateway.protocol import ApiKey
from eoslog.log.checkpoint import inline_body, read_root
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.entries import TopicConfig
from eoslog.state.store_state import StoreState
from eoslog.storage.object_store import ObjectStore
from eoslog.store import Store
from pyspark_eoslog.stream.stream_offsets import Began, StreamOffsets
from tests.iceberg_tables import manifests, newest_version, path_of
from tests.unit.gateway.raw_client import batch, fetch_values, frame, produce_values

TABLE: pa.Schema = pa.schema(
    [  # type: ignore[arg-type]
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
        ("raw", pa.binary()),
        ("yes", pa.bool_()),
    ]
)
SPARK_TABLE = (
    StructType()
    .add("id", LongType(), nullable=False)
    .add("name", StringType("UNICODE_CI"))
    .add("price", DecimalType(10, 2))
    .add("at", TimestampType())
    .add("tags", ArrayType(StringType()))
    .add("place", StructType().add("lat", DoubleType()).add("lon", DoubleType(), metadata={"comment": "east"}))
    .add("raw", VariantType())
    .add("counts", MapType(StringType(), IntegerType()))
)
S3_OPTIONS = {"endpoint_url": "http://127.0.0.1:9000", "anon": "true", "max_attempts": "3", "read_timeout_ms": "500"}
SPARK_OPTIONS = (
    {
        "path": "s3://bucket/fuzz",
        "subscribe": "flights,records",
        "startingOffsets": "earliest",
        "endingOffsets": '{"flights": {"0": 23}}',
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.isolation.level": "read_committed",
        "maxOffsetsPerTrigger": "100",
        "maxTriggerDelay": "15m",
        "minPartitions": "4",
        "failOnDataLoss": "false",
    },
    {
        "path": "s3://bucket/fuzz",
        "assign": '{"flights": [0, 1]}',
        "startingOffsetsByTimestamp": '{"flights": {"0": 1767225600000}}',
        "maxBytesPerTrigger": "10m",
        "columns": "id, name",
        "includeHeaders": "true",
    },
    {"path": "s3://bucket/x", "topic": "flights", "timestampAsOf": "2026-01-31T12:00:00Z", "store.region": "x"},
)
PREDICATES = (
    "id > 1000 AND name IN ('UA', 'B6') OR price BETWEEN 1.5 AND 2",
    "NOT (at >= '2026-01-01T00:00:00Z' AND name LIKE 'a%') OR yes IS TRUE OR name <=> NULL",
)


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "name": f"name {number % 5}",
                "price": None,
                "at": None,
                "tags": ["a", "b"][: number % 3],
                "place": {"lat": number / 2, "lon": None},
                "raw": bytes([number % 256]) * 20,
                "yes": number % 2 == 0,
            }
            for number in numbers
        ],
        schema=TABLE,
    )


@cache
def sample_store() -> Store:
    """A store in memory that has used everything there is."""
    store = eoslog.connect(f"memory://{uuid.uuid4().hex}")
    store.admin.create_topic("records", partitions=2, config=TopicConfig(segment_batches=3))
    store.admin.create_topic("flights", partitions=2, schema=TABLE, key="id", config=TopicConfig(segment_batches=2))
    store.admin.create_topic("gone")
    store.admin.create_topic("compacted", config=TopicConfig(cleanup_policy="compact", segment_batches=2))
    with store.producer() as idempotent:
        for number in range(4):
            idempotent.send("records", b"value", key=b"%d" % number, headers=[("h", b"1"), ("n", None)])
            idempotent.send("compacted", b"value %d" % number, key=b"%d" % (number % 2))
            idempotent.send("gone", b"value")
            idempotent.flush()
    with store.producer("etl") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send_table("flights", rows(number * 10, 10))
            producer.send("records", b"in a transaction", key=b"k%d" % number)
            producer.flush()
            producer.send_offsets_to_transaction({eoslog.TopicPartition("records", 0): number}, "readers")
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction(version=number)
    prepared = store.producer("two-phase", staged=True)
    prepared.init_transactions()
    prepared.begin_transaction()
    prepared.send("records", b"prepared", key=b"p")
    prepared.prepare_transaction()
    consumer = store.consumer("members", auto_offset_reset="earliest")
    consumer.subscribe(["records"])
    consumer.poll(0)
    consumer.commit()
    store.admin.add_columns("flights", pa.schema([("extra", pa.int32())]))
    store.admin.create_partitions("records", 3)
    store.admin.alter_topic("flights", retention_ms=10**12)
    store.admin.delete_topic("gone")
    seal_segments(store)
    store.admin.compact_keys("compacted")
    store.admin.compact_files("records")
    store.admin.delete_records({eoslog.TopicPartition("records", 0): 1})
    store.log.checkpoint()
    open_transaction = store.producer("open")
    open_transaction.init_transactions()
    open_transaction.begin_transaction()
    open_transaction.send_table("flights", rows(100, 3))
    open_transaction.flush()
    store.log.checkpoint()
    gateway = GatewayRecord(address="127.0.0.1:9092", host="h", rack="r", session_timeout_ms=15_000)
    GatewayDirectory(store.object_store, store.environment.new_id()).put(gateway)
    return store


@cache
def sample_state() -> StoreState:
    """The state of the sample store. A forked child can use it, but not the store, which is in memory."""
    return sample_store().read(lambda state, slot: state.frozen_copy(), refresh=False)


@cache
def samples() -> Mapping[str, tuple[bytes, ...]]:
    """Input by kind. The kinds are those of ``parsers.PARSERS``."""
    store = sample_store()
    sample_state()
    found: dict[str, list[bytes]] = defaultdict(list)
    for info in store.object_store.list(""):
        body = store.object_store.get(info.path).body
        if info.path == "eoslog.json":
            found["description"].append(body)
        elif "/slot/" in info.path:
            found["slot record"].append(body)
            for entry in json.loads(body.split(b"\n")[0])["entries"]:
                found["entry"].append(json.dumps(entry).encode())
        elif info.path.startswith("__transaction_state/checkpoint/") and info.path.endswith(".json"):
            found["checkpoint root"].append(body)
        elif info.path.startswith("__consumer_groups/"):
            found["heartbeat"].append(body)
        elif info.path.startswith("__gateways/"):
            found["gateway"].append(body)
        elif info.path.endswith(".index.parquet"):
            found["segment index"].append(body)
        elif info.path.endswith(".parquet"):
            kind = "data file of columns" if info.path.startswith("flights") else "data file of records"
            found[kind].append(body)
        elif info.path.endswith(".txnindex"):
            found["transaction index"].append(body)
        elif info.path.endswith(".snapshot"):
            found["producer snapshot"].append(body)
    shareable = [entry for text in found["entry"] if (entry := json.loads(text))["type"] in ("batch", "end")]
    requests = [[{"entries": [entry]}] for entry in shareable] + [[{"entries": shareable[:3]}, {"entries": []}]]
    found["message"] += [json.dumps({"name": "0" * 32, "slot": 999, "requests": each}).encode() for each in requests]
    target = eoslog.connect(f"memory://{uuid.uuid4().hex}")
    store.admin.copy(target)
    decisions = target.object_store.list(".copy/")
    found["copy decision"] += [target.object_store.get(info.path).body for info in decisions]
    for kind, path in _published(target).items():
        found[kind].append(target.object_store.get(path).body)
    _, objects, paths = iceberg_table()
    for kind, path in paths.items():
        found[kind].append(objects[path])
    for name, body in checkpoint_parts().items():
        if name == partitions_part() or "/" not in name:
            found[f"checkpoint part {name.partition('/')[0]}"].append(body)
    found["schema"].append(encode_schema(TABLE).encode())
    found["statistics"] += [text.encode() for text in store.read(_statistics)]
    found["predicate"] += [text.encode() for text in PREDICATES]
    found["offsets option"].append(b'{"flights": {"0": 23, "1": -2}, "records": {"0": -1}}')
    found["stream offsets"] += [json.dumps(each.as_json()).encode() for each in _stream_offsets()]
    found["imported JSON"].append(_json_lines())
    found["imported CSV"].append(_csv())
    found["imported Parquet"].append(_parquet())
    found["settings"].append(
        b'store = "my-store"\n[s3]\nregion = "eu-central-1"\n[vacuum]\ndeleted_file_retention_ms = 5\n'
    )
    found["S3 options"].append(json.dumps(S3_OPTIONS).encode())
    found["Spark options"] += [json.dumps(each).encode() for each in SPARK_OPTIONS]
    for kind in ("Spark types of a topic", "Spark schema of rows"):
        found[kind].append(SPARK_TABLE.json().encode())
    found["Kafka request"] += _kafka_requests()
    found["dumped checkpoint part"] += checkpoint_parts().values()
    found["history"] += found["entry"]
    found["prepared transaction"] += [b"2097152:7", b""]
    found["timestamp"] += [b"2026-01-31T12:00:00+01:00", b"1767225600000"]
    found["duration"] += [b"P7DT1H30M2.5S", b"PT5S"]
    return {kind: tuple(bodies) for kind, bodies in found.items()}


@cache
def checkpoint_parts() -> Mapping[str, bytes]:
    """The parts of the newest checkpoint by name, all together one state."""
    store = sample_store()
    reference = store.log.replica.checkpoint
    assert reference is not None
    root = read_root(store.object_store, reference)
    return {part.name: inline_body(part) for part in root.parts}


def partitions_part() -> str:
    """The part of the partitions, which are few."""
    (name,) = (name for name in checkpoint_parts() if name.startswith(PARTITIONS_PREFIX))
    return name


def _statistics(state: StoreState, slot: int) -> list[str]:
    return [
        batch.statistics
        for partition in state.partitions.values()
        for batch in partition.active
        if batch.statistics is not None
    ]


def _stream_offsets() -> tuple[StreamOffsets, StreamOffsets]:
    store = sample_store()
    topic = store.admin.describe_topic("flights")
    ends = {eoslog.TopicPartition("flights", partition): 7 for partition in range(2)}
    ids = {"flights": topic.topic_id}
    began = Began(dict.fromkeys(ends, 3))
    return (
        StreamOffsets(store.describe().store_id, ids, ends, began=began),
        StreamOffsets(store.describe().store_id, ids, {}, 12, is_initial=True, began=Began(slot=7)),
    )


def _published(store: Store) -> Mapping[str, str]:
    """The objects of a Delta log, by kind."""
    store.admin.alter_topic("flights", publish="delta")
    version = store.admin.publish("flights")[0].version
    delta_log = DeltaLog(store.object_store, store.environment, "flights")
    delta_log.refresh()
    delta_log.write_checkpoint()
    path = f"flights/_delta_log/{version:020d}"
    return {
        "Delta version": f"{path}.json",
        "Delta checkpoint": f"{path}.checkpoint.parquet",
        "last Delta checkpoint": "flights/_delta_log/_last_checkpoint",
    }


def iceberg_paths(objects: ObjectStore) -> Mapping[str, str]:
    """The paths of the objects of the newest version of an Iceberg table, by kind."""
    table = newest_version(objects, "flights")
    return {
        "Iceberg hint": "__iceberg/flights/metadata/version-hint.text",
        "Iceberg metadata": f"__iceberg/flights/metadata/v{table.version}.metadata.json",
        "Iceberg manifest list": path_of(objects, table.snapshot["manifest-list"]),
        "Iceberg manifest": path_of(objects, manifests(objects, table.snapshot)[0]["manifest_path"]),
    }


@cache
def iceberg_table() -> tuple[str, Mapping[str, bytes], Mapping[str, str]]:
    """The name of a store in memory, the objects of its Iceberg table, and their paths by kind."""
    store = eoslog.connect(f"memory://{uuid.uuid4().hex}")
    sample_store().admin.copy(store)
    store.admin.alter_topic("flights", publish="iceberg")
    store.admin.publish("flights")
    objects = {info.path: store.object_store.get(info.path).body for info in store.object_store.list("__iceberg/")}
    return store.url.rpartition("/")[2], objects, iceberg_paths(store.object_store)


def _kafka_requests() -> list[bytes]:
    rows = batch(b"some", b"rows", headers=[("h", b"1")])
    frames = [
        frame(ApiKey.PRODUCE, version, **produce_values(("flights", 0, rows), ("records", 1, rows), version=version))
        for version in (3, 9)
    ]
    frames += [frame(ApiKey.FETCH, version, **fetch_values("flights", 7, version=version)) for version in (4, 12)]
    frames.append(frame(ApiKey.API_VERSIONS, 3, client_software_name="fuzz", client_software_version="1"))
    return [each[4:] for each in frames]


def _json_lines() -> bytes:
    return b'{"id": 1, "name": "a", "price": 1.5, "tags": ["x"], "place": {"lat": 1.5}, "raw": "AA=="}\n{"id": 2}\n'


def _csv() -> bytes:
    sink = io.BytesIO()
    csv.write_csv(rows(0, 3).select(["id", "name", "yes"]), sink)
    return sink.getvalue()


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows(0, 50), sink)
    return sink.getvalue()
