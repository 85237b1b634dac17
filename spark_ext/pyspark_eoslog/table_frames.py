"""DataFrames that describe a table: history, detail, offsets, transactions, and results of maintenance."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eoslog import (
    FileCompactionReport,
    KeyCompactionReport,
    Operation,
    PartitionDescription,
    Topic,
    VacuumReport,
)
from eoslog.session.description import StoreDescription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TEXT, _LONG, _INT, _TIME = StringType(), LongType(), IntegerType(), TimestampType()
_TEXT_MAP = MapType(_TEXT, _TEXT)


def _schema(**types: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in types.items()])


HISTORY = _schema(
    slot=_LONG,
    timestamp=_TIME,
    operation=_TEXT,
    operationParameters=_TEXT_MAP,
    topics=ArrayType(_TEXT),
    rows=_LONG,
    files=_LONG,
    bytes=_LONG,
    durationMs=_LONG,
    outcome=_TEXT,
    reason=_TEXT,
    transactionalId=_TEXT,
    producerId=_LONG,
    producerEpoch=_INT,
    txnAppId=_TEXT,
    txnVersion=_LONG,
    queryId=_TEXT,
    queryName=_TEXT,
    batchId=_LONG,
    taskCount=_INT,
    engine=_TEXT,
)
_OTHER_NAMES = {"operationParameters": "parameters", "txnAppId": "application_id", "txnVersion": "version"}
_FIELDS_OF_HISTORY = {
    column: _OTHER_NAMES.get(column) or re.sub("(?=[A-Z])", "_", column).lower() for column in HISTORY.names
}
"""The field of an operation in each column."""
DETAIL = _schema(
    format=_TEXT,
    storeId=_TEXT,
    location=_TEXT,
    topic=_TEXT,
    topicId=_TEXT,
    kind=_TEXT,
    schema=_TEXT,
    keyColumns=ArrayType(_TEXT),
    properties=_TEXT_MAP,
    numPartitions=_INT,
    numSegments=_LONG,
    numFiles=_LONG,
    sizeInBytes=_LONG,
    numRows=_LONG,
    createdSlot=_LONG,
    slot=_LONG,
    storeCreatedAt=_TIME,
    formatVersion=_INT,
    readerFeatures=ArrayType(_TEXT),
    writerFeatures=ArrayType(_TEXT),
)
OFFSETS = _schema(
    partition=_INT,
    logStartOffset=_LONG,
    lastStableOffset=_LONG,
    highWatermark=_LONG,
    openTransactions=_INT,
    numSegments=_INT,
    numFiles=_LONG,
    sizeInBytes=_LONG,
    cleanedOffset=_LONG,
    snapshotFloor=_LONG,
)
TRANSACTIONS = _schema(
    transactionalId=_TEXT, producerId=_LONG, transactionState=_TEXT, preparedTransaction=_TEXT, kind=_TEXT
)
OPTIMIZE = _schema(
    operation=_TEXT,
    partition=_INT,
    baseOffset=_LONG,
    endOffset=_LONG,
    segments=_INT,
    filesBefore=_INT,
    filesAfter=_INT,
    bytesBefore=_LONG,
    bytesAfter=_LONG,
    rowsRemoved=_LONG,
)
VACUUM = _schema(
    dryRun=BooleanType(), horizon=_TIME, numFiles=_LONG, sizeInBytes=_LONG, keptFiles=_LONG, paths=ArrayType(_TEXT)
)


def history_frame(spark: SparkSession, operations: Iterable[Operation]) -> DataFrame:
    """Return one row for each operation, in the given order."""
    return spark.createDataFrame([_history_row(each) for each in operations], HISTORY)


def detail_frame(
    spark: SparkSession,
    store: StoreDescription,
    location: str,
    *,
    topic: Topic,
    columns: StructType,
    partitions: Sequence[PartitionDescription],
    rows: int,
    slot: int,
) -> DataFrame:
    """One row."""
    config = {name: str(value) for name, value in topic.config.model_dump().items()}
    row = (
        "eoslog",
        store.store_id,
        location,
        topic.topic,
        topic.topic_id,
        topic.topic_schema.kind,
        columns.json(),
        list(topic.topic_schema.key),
        config,
        topic.partitions,
        sum(each.segments for each in partitions),
        sum(each.files for each in partitions),
        sum(each.bytes for each in partitions),
        rows,
        topic.created_slot,
        slot,
        _time(store.created_ms),
        store.format_version,
        list(store.reader_features),
        list(store.writer_features),
    )
    return spark.createDataFrame([row], DETAIL)


def optimize_frame(spark: SparkSession, files: FileCompactionReport, keys: KeyCompactionReport) -> DataFrame:
    """Return one row for each rewrite of small files, and one for each partition that was compacted by key."""
    # All fields but the topic, in the order of the columns.
    of_files = [("compact_files", *astuple(each)[1:]) for each in files.compacted]
    of_keys = [
        (
            "compact_keys",
            each.partition,
            None,
            each.cleaned_offset,
            each.segments_replaced,
            None,
            None,
            each.bytes_before,
            each.bytes_after,
            each.rows_removed,
        )
        for each in keys.partitions
    ]
    return spark.createDataFrame([*of_files, *of_keys], OPTIMIZE)


def vacuum_frame(spark: SparkSession, report: VacuumReport) -> DataFrame:
    """One row."""
    row = (
        report.dry_run,
        _time(report.horizon_ms),
        len(report.paths),
        report.bytes,
        report.kept_files,
        report.paths,
    )
    return spark.createDataFrame([row], VACUUM)


def _history_row(operation: Operation) -> tuple[Any, ...]:
    values = {column: getattr(operation, field) for column, field in _FIELDS_OF_HISTORY.items()}
    values["timestamp"] = None if operation.timestamp is None else _time(operation.timestamp)
    values["topics"] = list(operation.topics)
    values["operationParameters"] = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in operation.parameters.items()
    }
    return tuple(values.values())


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
