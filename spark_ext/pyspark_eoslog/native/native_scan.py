"""The native scan: planned files as a DataFrame that Spark's own Parquet reader scans.

A read of columns that are in the files is a plain scan of the files whose rows are all read: nothing is looked up. With
other columns, such as ``_offset``, Spark scans these files in up to two groups, because files with their own column of
offsets, or with several timestamps, need more expressions. Files with rows that must not be read form a separate group.
Files of Kafka records with timestamps that Spark cannot convert form a further group. Each group is divided again:
files in which a floating-point column may hold NaN are scanned separately.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, NullType, StructField, StructType

from eoslog import Topic
from eoslog.errors import InvalidOption
from eoslog.format.column_types import kind_of
from eoslog.format.data_file import OFFSET_DELTA_COLUMN
from eoslog.format.record_times import GREATEST_MS, LEAST_MS
from eoslog.format.topic_schemas import stored_schema
from eoslog.read.columns import CREATE_TIME
from pyspark_eoslog.native.lookup import FileExpressions, PlannedFile, check_names, file_expressions
from pyspark_eoslog.pyspark_version import types_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READ_OPTIONS = {
    # A deleted or damaged file must raise an error. To skip it would lose rows silently.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # The topic has the schema. A directory such as "year=2026" in the store's root must not add a column.
    "mergeSchema": "false",
    "recursiveFileLookup": "true",
    # eoslog writes only the proleptic Gregorian calendar.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
"""Spark's Parquet reader of the first data source API, whatever `spark.sql.sources.useV1SourceList` says.

The reader of the second API has no `_metadata`. It can also answer minima, maxima and counts by the bounds in files. It
then looks for a column at its position in the schema of the read, where the file may have another column.
"""
_TIMESTAMP = "timestamp"
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_LISTING_PARALLELISM = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_TASKS = 64
_REGEX_NAMES = "spark.sql.parser.quotedRegexColumnNames"
_GLOB_CHARACTERS = str.maketrans({character: f"\\{character}" for character in "{}[]*?\\"})
_settings = threading.RLock()
"""Held while settings of a session are changed: its threads share them."""


class NativeFiles:
    """The paths and options by which Spark finds the files of a store.

    Args:
        store_url: the URL of the store.
        options: the options of its object store.
    """

    def __init__(self, store_url: str, options: Mapping[str, str]) -> None:
        self._is_remote = store_url.startswith(("s3://", "gs://", "abfss://", "az://"))
        self._root = _hadoop_root(store_url, options).rstrip("/").translate(_GLOB_CHARACTERS)
        # Hadoop's connectors for other clouds take their credentials from Spark's configuration alone.
        self.read_options = _READ_OPTIONS | (s3a_options(options) if store_url.startswith("s3://") else {})

    def path(self, file: PlannedFile) -> str:
        """Return the file's path in Hadoop's form."""
        return f"{self._root}/{file.path}"

    def listing_setting(self, file_count: int, known: Callable[[str], int]) -> dict[str, str]:
        """Return the setting with which Spark looks up this many files without a task for each.

        In a cloud several tasks look up the files, because each lookup is a request. On local disk the driver does it.
        """
        if self._is_remote:
            return {_LISTING_PARALLELISM: str(_LISTING_TASKS)} if known(_LISTING_PARALLELISM) > _LISTING_TASKS else {}
        return {_LISTING_THRESHOLD: str(file_count)} if known(_LISTING_THRESHOLD) < file_count else {}


def _hadoop_root(store_url: str, options: Mapping[str, str]) -> str:
    """Return the URL by which Hadoop's connectors know the root of a store.

    Raises:
        InvalidOption: an ``az://`` URL, and no option names the account. Hadoop's URL has it.
    """
    scheme, separator, rest = store_url.partition("://")
    if not separator:
        return f"file:{os.path.realpath(store_url)}"
    if scheme == "s3":
        return f"s3a://{rest}"
    if scheme == "az":
        container, _, prefix = rest.partition("/")
        if not options.get("account"):
            raise InvalidOption(
                f"Spark reads the files of {store_url} by abfss://, which needs the storage account. Give option "
                "store.account, or the store's URL as abfss://container@account.dfs.core.windows.net/prefix."
            )
        return f"abfss://{container}@{options['account']}.dfs.core.windows.net/{prefix}"
    return store_url


def s3a_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of an S3 store as options of Hadoop's ``s3a``. Options that Hadoop lacks are left out."""
    found = {
        hadoop: options[name]
        for name, hadoop in (
            ("endpoint_url", "fs.s3a.endpoint"),
            ("region", "fs.s3a.endpoint.region"),
            ("key", "fs.s3a.access.key"),
            ("secret", "fs.s3a.secret.key"),
            ("token", "fs.s3a.session.token"),
        )
        if options.get(name)
    }
    if "fs.s3a.endpoint" in found:
        found["fs.s3a.path.style.access"] = "true"
        if found["fs.s3a.endpoint"].lower().startswith("http://"):
            found["fs.s3a.connection.ssl.enabled"] = "false"
    provider = None
    if options.get("anon", "").lower() == "true":
        provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    elif "token" in options and "key" in options:
        provider = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    elif "key" in options:
        provider = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    if provider is not None:
        found["fs.s3a.aws.credentials.provider"] = provider
    return found


def native_frame(
    spark: SparkSession, native_files: NativeFiles, topic: Topic, *, files: Sequence[PlannedFile], wanted: StructType
) -> DataFrame:
    """Return a DataFrame of the rows of these files with the columns ``wanted``. Every column may be null.

    ``check_columns`` has accepted the columns.
    """
    if not files:
        return spark.createDataFrame([], wanted.toNullable())
    in_file = _in_files(topic, wanted)
    has_times = topic.topic_schema.kind == "records" and any(field.name.lower() == _TIMESTAMP for field in in_file)

    def kind(file: PlannedFile) -> tuple[bool, bool, bool, bool]:
        computed = file.first_offset is not None and len({each.timestamp for each in file.times}) == 1
        is_looked_up = not (len(in_file) == len(wanted) or computed or file.hidden_rows)
        is_late = has_times and any(each.timestamp > GREATEST_MS for each in file.times)
        return is_late, file.hidden_rows, is_looked_up, bool(file.may_hold_nan)

    with _changed(spark, native_files.listing_setting(len(files), lambda name: int(spark.conf.get(name) or 0))):
        frames = []
        for (is_late, *_), group in groupby(sorted(files, key=kind), key=kind):
            frames.append(
                _scan(spark, native_files, topic, files=list(group), wanted=wanted, in_file=in_file, is_late=is_late)
            )
        frame = reduce(lambda left, right: left.unionAll(right), frames)
        # The analysis looks up the files. Without this line, Spark Connect would do it later, without the setting.
        _ = frame.schema
    return frame


def float_columns(topic: Topic, wanted: StructType) -> dict[str, pa.DataType]:
    """Return the floating-point columns among the wanted ones, with their types in the files."""
    return {
        field.name: field.type
        for field in stored_schema(topic)
        if kind_of(field.type) == "float" and field.name in wanted.names
    }


def _in_files(topic: Topic, wanted: StructType) -> list[StructField]:
    """Return the columns that Spark reads from the files. The others are computed from facts of the log."""
    stored = set(stored_schema(topic).names)
    return [field for field in wanted if field.name in stored and not isinstance(field.dataType, NullType)]


def _scan(
    spark: SparkSession,
    native_files: NativeFiles,
    topic: Topic,
    *,
    files: Sequence[PlannedFile],
    wanted: StructType,
    in_file: Sequence[StructField],
    is_late: bool,
) -> DataFrame:
    """Return one scan of the files of one group.

    Args:
        is_late: True if records have timestamps that Spark's reader cannot convert. It reads them as numbers.
    """
    paths = [native_files.path(file) for file in files]
    reader = spark.read.format(_PARQUET).options(**native_files.read_options)
    with_nan = frozenset[str]().union(*(file.may_hold_nan for file in files))
    if not is_late and in_file and len(in_file) == len(wanted) and not any(file.hidden_rows for file in files):
        check_names(files)
        frame = reader.schema(wanted).load(paths)
        # Spark optimizes the expressions again for each action, although the action does not use them.
        return frame.selectExpr(*(_unpushed(field.name, with_nan) for field in wanted)) if with_nan else frame
    scanned = [_as_number(field) if is_late else field for field in in_file]
    if any(file.first_offset is None for file in files):
        scanned.append(StructField(OFFSET_DELTA_COLUMN.name, LongType()))
    told = file_expressions(files, [field.name for field in scanned])
    # Parquet cannot read without a column, so name one that the query does not use.
    schema = StructType(scanned or [StructField(OFFSET_DELTA_COLUMN.name, LongType())])
    frame = reader.schema(schema).load(paths)
    if told.columns:
        frame = frame.selectExpr(*(_unpushed(field.name, with_nan) for field in scanned), *told.columns)
        with_nan = frozenset()
    if told.condition is not None:
        frame = frame.where(told.condition)
    return frame.selectExpr(
        *(_column(field, topic, in_file, told=told, with_nan=with_nan, is_late=is_late) for field in wanted)
    )


def _unpushed(name: str, with_nan: frozenset[str]) -> str:
    """Return the SQL of a column in the files. Spark pushes no filter on a column that may hold NaN into the files.

    A file of an earlier version may have bounds that leave NaN out. Spark takes them for bounds of all values, and
    would skip rows with NaN. `nanvl` does not change a value, and Spark does not know that.
    """
    column = quoted(name)
    return f"nanvl({column}, {column}) as {column}" if name in with_nan else column


def _as_number(field: StructField) -> StructField:
    return StructField(field.name, LongType()) if field.name.lower() == _TIMESTAMP else field


def _column(
    field: StructField,
    topic: Topic,
    in_file: Sequence[StructField],
    *,
    told: FileExpressions,
    with_nan: frozenset[str],
    is_late: bool,
) -> str:
    if is_late and field.name.lower() == _TIMESTAMP:
        shown = f"least(greatest({quoted(field.name)}, {LEAST_MS}), {GREATEST_MS})"
        return f"timestamp_millis({shown}) as {quoted(field.name)}"
    if field in in_file:
        return _unpushed(field.name, with_nan)
    # Constants must be nullable, as in every other read. ``nullif`` makes them nullable.
    known = {
        "topic": f"nullif('{topic.topic}', '')",
        "partition": told.partition,
        "offset": told.offset,
        "timestamp": told.timestamp,
        "timestamptype": f"nullif({CREATE_TIME}, -1)",
    }
    value = "null" if isinstance(field.dataType, NullType) else known[field.name.lower().removeprefix("_")]
    return f"{value} as {quoted(field.name)}"


def quoted(name: str) -> str:
    """Return a column's name in SQL. It may have any characters."""
    return "`" + name.replace("`", "``") + "`"


def check_columns(topic: Topic, wanted: StructType) -> None:
    """Raises: InvalidOption: Spark's Parquet reader cannot read a column."""
    stored = stored_schema(topic).names
    for field in wanted:
        if field.name.lower() == "_metadata" and field.name in stored:
            reason = "has a name that Spark reserves for file metadata"
        elif _contains_type(field.dataType, *types_named("TimeType")):
            reason = f"is {field.dataType.simpleString()}, which Spark's Parquet reader does not support"
        else:
            continue
        raise InvalidOption(
            f"topic {topic.topic}: column {field.name!r} {reason}. Leave it out of columns=[…], or read the topic with "
            'spark.read.format("eoslog")'
        )


def _contains_type(data_type: DataType, *wanted: type[DataType]) -> bool:
    """Return True if a type or a type within it is one of the wanted types."""
    parts: list[DataType] = []
    if isinstance(data_type, StructType):
        parts = [field.dataType for field in data_type.fields]
    elif isinstance(data_type, ArrayType):
        parts = [data_type.elementType]
    elif isinstance(data_type, MapType):
        parts = [data_type.keyType, data_type.valueType]
    return isinstance(data_type, wanted) or any(_contains_type(part, *wanted) for part in parts)


@contextmanager
def native_settings(spark: SparkSession) -> Iterator[None]:
    """Take a quoted name for a name within this context, and never for a regular expression."""
    is_regex = (spark.conf.get(_REGEX_NAMES, "false") or "").lower() == "true"
    with _changed(spark, {_REGEX_NAMES: "false"} if is_regex else {}):
        yield


@contextmanager
def _changed(spark: SparkSession, changes: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session within this context. Its threads share them, so they take turns."""
    with _settings:
        before = {name: spark.conf.get(name) for name in changes}
        try:
            for name, value in changes.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name, was in before.items():
                if was is not None:
                    spark.conf.set(name, was)
