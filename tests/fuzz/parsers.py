"""Every parser of what a store, a user or Spark hands over. Each may raise the project's own errors, and no other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from eoslog.cli.dump import part_lines
from eoslog.cli.table_files import first_columns, read_tables
from eoslog.copying.decisions import decode_decision
from eoslog.delta.delta_log import DeltaLog
from eoslog.errors import EosLogError, InvalidOption, InvalidRequest
from eoslog.format import checkpoint_codec as checkpoint
from eoslog.format.data_file import DataFile
from eoslog.format.kafka_files import decode_producer_snapshot, decode_transaction_index
from eoslog.format.segment_index import SegmentIndexes, decode_txnindex_copy, iterate_segment_index
from eoslog.format.spark_json import check_spark_schema, merged_spark_schema
from eoslog.format.statistics import UNKNOWN, decode_statistics
from eoslog.format.topic_schemas import RECORDS_SCHEMA, decode_schema
from eoslog.gateway.live_gateways import decode_gateway
from eoslog.gateway.protocol import UnsupportedRequest, decode_request
from eoslog.gateway.request_decoder import MalformedRequest
from eoslog.iceberg.iceberg_log import IcebergLog
from eoslog.log.checkpoint import decode_root, inline_body
from eoslog.log.messages import decode_message
from eoslog.log.slots import CHECKPOINT_ENTRY, SlotRecord, decode_checkpoint_entry, decode_line, decode_tail, first_line
from eoslog.read.history import _decode, operations_of
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import ReadPlanner
from eoslog.read.predicate_text import _collated_columns, compile_predicate
from eoslog.read.time_travel import timestamp_ms
from eoslog.session.description import decode_description
from eoslog.session.heartbeats import _session_timeout
from eoslog.session.metrics import CallCounts, LogCounts, parse_duration, store_metrics
from eoslog.session.settings import load_settings
from eoslog.session.store_machine import StoreMachine
from eoslog.state.prepared import parse_prepared_state
from eoslog.state.state_machine import decode_entry
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.s3_options import S3Options
from pyspark_eoslog.options.offset_options import starting_offsets
from pyspark_eoslog.options.source_options import Options
from pyspark_eoslog.spark_schemas import as_described
from pyspark_eoslog.stream.stream_offsets import StreamOffsets
from tests.fuzz.samples import (
    SPARK_TABLE,
    TABLE,
    checkpoint_parts,
    iceberg_table,
    partitions_part,
    sample_state,
    samples,
)

NAME = "some/path"
LAST_CHECKPOINT = {"_last_checkpoint": b'{"version": 7}'}


def _state() -> StoreState:
    return sample_state().frozen_copy()


def _slot_record(body: bytes) -> None:
    line = first_line(body)
    try:
        slot = json.loads(line)["slot"]
    except Exception:
        slot = 3
    slot = slot if type(slot) is int else 3
    record = decode_line(line, slot)
    decode_tail(body, slot)
    for entry in record.entries:
        _decoded(entry)


def _entry(body: bytes) -> None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict) and value.get("type") == CHECKPOINT_ENTRY:
        decode_checkpoint_entry(value)
        return
    state = _state()
    StoreMachine().fold(state, 1_000, [value])
    _use(state)
    decode_entry(value)


def _decoded(entry: dict[str, Any]) -> None:
    with suppress(EosLogError):
        decode_checkpoint_entry(entry) if entry.get("type") == CHECKPOINT_ENTRY else decode_entry(entry)


def _message(body: bytes) -> None:
    """As a process takes in what another one has sent: valid requests alone change its draft."""
    machine = StoreMachine()
    state = _state()
    draft = machine.new_draft(state, 1_000)
    for _, request in decode_message(body).with_ids:
        child = draft.child()
        with suppress(Exception):
            machine.append_for_another(child, request.entries, request.contents())
            child.merge()
    written = [machine.encode_entry(entry) for entry in draft.entries]
    assert machine.fold(_state(), 1_000, written) is None
    draft.merge()
    _use(state)


def _delta_log(objects: Mapping[str, bytes]) -> None:
    store = MemoryStore(Environment())
    for name, body in objects.items():
        store.put(f"t/_delta_log/{name}", body)
    DeltaLog(store, Environment(), "t").refresh()


def _iceberg(kind: str) -> Callable[[bytes], None]:
    """Return a reader of an Iceberg table whose object of this kind has other bytes."""

    def read(body: bytes) -> None:
        name, objects, paths = iceberg_table()
        store = MemoryStore(Environment(), name)
        for path, each in objects.items():
            store.put(path, each)
        store.put(paths[kind], body)
        table = IcebergLog(store, Environment(), "flights").refresh(check=True)
        for path in table.paths:
            table.range_of(path)
        _ignore((table.newest, table.metadata and table.metadata.description))

    return read


def _last_delta_checkpoint(body: bytes) -> None:
    (checkpoint,) = samples()["Delta checkpoint"]
    _delta_log({"_last_checkpoint": body, f"{0:020d}.checkpoint.parquet": checkpoint})


def _checkpoint_root(body: bytes) -> None:
    for part in decode_root(body, NAME).parts:
        if part.path is None:
            inline_body(part)


def _checkpoint_part(name: str) -> Callable[[bytes], None]:
    def parse(body: bytes) -> None:
        _use(checkpoint.restore({**checkpoint_parts(), name: body}))

    return parse


def _use(state: StoreState) -> None:
    """A state that was taken for valid serves every use."""
    machine = StoreMachine()
    for part in machine.parts(state, 1_000_000):
        part.encode()
    store_metrics(
        state,
        1,
        1,
        slots_since_checkpoint=1,
        publications={},
        requests={},
        appends={},
        call_times_ns={},
        log_counts=LogCounts(),
        call_counts=CallCounts(),
    )
    indexes = SegmentIndexes(MemoryStore(Environment()))
    for topic in state.topics.values():
        for place in topic.partition_ids():
            partition = state.partitions[place]
            planner = ReadPlanner(indexes, topic.topic, IsolationLevel.READ_UNCOMMITTED)
            planner.plan(partition, max(partition.log_start_offset, partition.segment_base_offset))
    machine.fold(state, 1_000_001, [{"type": "horizon", "horizon_ms": 2**52}])


def _segment_index(body: bytes) -> None:
    batches = list(iterate_segment_index(body, NAME))
    for batch in batches:
        assert 0 <= batch.base_offset < batch.end_offset <= 2**63
    decode_txnindex_copy(body, NAME)


def _data_file(schema: pa.Schema, expected_rows: int | None) -> Callable[[bytes], None]:
    def parse(body: bytes) -> None:
        for rows in (10, 3, 1, 2, 5) if expected_rows is None else (expected_rows,):
            try:
                for batch in DataFile(body, schema, rows, name=NAME).batches():
                    batch.validate(full=True)
                return
            except Exception as error:
                if "but its entry says" not in str(error):
                    raise

    return parse


def _text(parse: Callable[[str], object]) -> Callable[[bytes], None]:
    def parse_text(body: bytes) -> None:
        parse(body.decode("utf-8", "surrogatepass") if _is_text(body) else body.decode("latin-1"))

    return parse_text


def _is_text(body: bytes) -> bool:
    try:
        body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _stream_offsets(body: bytes) -> None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    StreamOffsets.of(value).as_json()


def _imported(kind: str) -> Callable[[bytes], None]:
    def parse(body: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=f".{kind}") as file:
            file.write(body)
            file.flush()
            path = Path(file.name)
            first_columns(path, kind, TABLE)
            for _ in read_tables(path, kind, TABLE):
                pass

    return parse


def _settings(body: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(body)
        file.flush()
        load_settings(file.name)


def _statistics(text: str) -> None:
    decode_statistics(text, {field.name: field.type for field in TABLE})


def _flights() -> Topic:
    state = sample_state()
    return state.topics[state.topic_ids["flights"]]


def _predicate(text: str) -> None:
    compile_predicate(text, _flights()).may_match(lambda column: UNKNOWN)


def _spark_types(text: str) -> None:
    """Spark's types as a store describes them: to readers of rows, and to predicates."""
    topic = _flights()
    described = topic.topic_schema.model_copy(update={"spark": text})
    assert isinstance(_collated_columns(replace(topic, topic_schema=described)), frozenset)
    as_described(SPARK_TABLE, text, "flights").json()


def _spark_schema(text: str) -> None:
    """A schema in Spark's JSON that is merged with a known one, either way round."""
    check_spark_schema(text)
    known = SPARK_TABLE.json()
    for first, second in ((known, text), (text, known), (text, text), (None, text)):
        merged = merged_spark_schema(first, second)
        assert merged is not None
        check_spark_schema(merged)


def _dumped_part(body: bytes) -> None:
    for line in part_lines(NAME, body):
        line.text()
        line.json()


def _history(body: bytes) -> None:
    """What an intact record of any entries did, as the history tells it."""
    try:
        entry = json.loads(body)
    except (ValueError, RecursionError):
        return
    if isinstance(entry, dict):
        decoded = _decode(SlotRecord(slot=3, append_id="ab" * 16, prev="", entries=[entry]))
        for topic_id in (None, _flights().topic_id):
            for operation in operations_of(3, decoded.time_ms, decoded.entries, names={}, topic_id=topic_id):
                assert operation.slot == 3


def _duration(text: str) -> None:
    """Options and commands tell the refusal of a duration as their own."""
    try:
        parse_duration(text)
    except ValueError as error:
        raise InvalidOption(str(error)) from error


def _spark_options(body: bytes) -> None:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return
    if isinstance(given, dict):
        Options.of({name: each if isinstance(each, str) else json.dumps(each) for name, each in given.items()})


def _s3_options(body: bytes) -> None:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return
    if isinstance(given, dict):
        S3Options.of({name: each if isinstance(each, str) else json.dumps(each) for name, each in given.items()})


def _kafka_request(body: bytes) -> None:
    try:
        decode_request(body)
    except (MalformedRequest, UnsupportedRequest) as error:
        raise InvalidRequest(str(error)) from None


PARSERS: Mapping[str, Callable[[bytes], None]] = {
    "description": lambda body: _ignore(decode_description(body, "memory://fuzz")),
    "slot record": _slot_record,
    "entry": _entry,
    "message": _message,
    "copy decision": lambda body: _ignore(decode_decision(body, NAME)),
    "Delta version": lambda body: _delta_log({f"{0:020d}.json": body}),
    "Delta checkpoint": lambda body: _delta_log({f"{7:020d}.checkpoint.parquet": body, **LAST_CHECKPOINT}),
    "last Delta checkpoint": _last_delta_checkpoint,
    "Iceberg hint": _iceberg("Iceberg hint"),
    "Iceberg metadata": _iceberg("Iceberg metadata"),
    "Iceberg manifest list": _iceberg("Iceberg manifest list"),
    "Iceberg manifest": _iceberg("Iceberg manifest"),
    "checkpoint root": _checkpoint_root,
    "checkpoint part store": _checkpoint_part("store"),
    "checkpoint part transactions": _checkpoint_part("transactions"),
    "checkpoint part producers": _checkpoint_part("producers"),
    "checkpoint part application_versions": _checkpoint_part("application_versions"),
    "checkpoint part topics": _checkpoint_part("topics"),
    "checkpoint part partitions": lambda body: _checkpoint_part(partitions_part())(body),
    "heartbeat": lambda body: _ignore(_session_timeout(body)),
    "gateway": lambda body: _ignore(decode_gateway(body)),
    "segment index": _segment_index,
    "transaction index": lambda body: _ignore(decode_transaction_index(body, NAME)),
    "producer snapshot": lambda body: _ignore(decode_producer_snapshot(body, NAME)),
    "data file of columns": _data_file(TABLE, None),
    "data file of records": _data_file(RECORDS_SCHEMA, None),
    "schema": _text(decode_schema),
    "statistics": _text(_statistics),
    "predicate": _text(_predicate),
    "offsets option": _text(lambda text: starting_offsets({"startingoffsets": text})),
    "stream offsets": _stream_offsets,
    "imported JSON": _imported("json"),
    "imported CSV": _imported("csv"),
    "imported Parquet": _imported("parquet"),
    "settings": _settings,
    "S3 options": _s3_options,
    "Kafka request": _kafka_request,
    "Spark options": _spark_options,
    "Spark types of a topic": _text(_spark_types),
    "Spark schema of rows": _text(_spark_schema),
    "dumped checkpoint part": _dumped_part,
    "history": _history,
    "prepared transaction": _text(parse_prepared_state),
    "timestamp": _text(timestamp_ms),
    "duration": _text(_duration),
}


def _ignore(value: object) -> None:
    """The value is right; what it is does not matter."""
