"""``EosLogTable``: a topic as a table, similar to ``delta.tables.DeltaTable``.

It works with classic sessions and with sessions of Spark Connect. The process that holds the table plans the reads. So
a Spark Connect client must be able to reach the store.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from eoslog import IsolationLevel, KeyCompactionReport, Scan, Store, Topic
from eoslog.errors import InvalidOption, NotAStore, StoreVanished, UnknownTopicOrPartition
from eoslog.read.columns import TRANSACTION_COLUMNS
from eoslog.read.embedded_files import put_embedded_files
from eoslog.read.read_request import compiled
from eoslog.read.topics_snapshot import topics_snapshot
from eoslog.session.client_options import named_otherwise
from eoslog.session.settings import load_settings
from pyspark_eoslog import table_frames
from pyspark_eoslog.native.lookup import planned_files
from pyspark_eoslog.native.native_scan import (
    NativeFiles,
    check_columns,
    float_columns,
    native_frame,
    native_settings,
    quoted,
)
from pyspark_eoslog.native.newest_rows import newest_columns, newest_rows
from pyspark_eoslog.options import STORE_PREFIX, Options
from pyspark_eoslog.options.offset_options import EARLIEST, LATEST
from pyspark_eoslog.spark_schemas import default_schema
from pyspark_eoslog.worker import recently_verified_store, verified_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NEW_VERSIONS = "df.write to append new versions of rows, and toDF(latest_by_key=True) to read the newest of each key,"
_CALLS = {
    "alias": "toDF().alias(name)",
    "delete": "df.write to append a row of nulls beside the key, and toDF(latest_by_key=True) to read the rest,",
    "merge": _NEW_VERSIONS,
    "restoreToTimestamp": "toDF(timestamp=…, metadata_columns=False), and write its rows with mode('overwrite'),",
    "restoreToVersion": "toDF(slot=…, metadata_columns=False), and write its rows with mode('overwrite'),",
    "update": _NEW_VERSIONS,
}
"""The calls that replace the methods of ``DeltaTable`` that a table does not have."""
_VERIFIED_MS = 60_000
"""How long the plan of a read trusts that no other store has replaced this one. A stream trusts it as long."""


@named_otherwise(_CALLS)
class EosLogTable:
    """A topic of a store. Make one with ``forPath``."""

    def __init__(self, spark: SparkSession, options: Options, topic: str) -> None:
        self._spark = spark
        self._options = options
        self._topic = topic

    def __repr__(self) -> str:
        return f"EosLogTable({self._options.location.url!r}, {self._topic!r})"

    @classmethod
    def forPath(  # noqa: N802 - Delta's name
        cls, spark: SparkSession, root: str | os.PathLike[str], topic: str, **store_options: Any
    ) -> EosLogTable:
        """Return the table of a topic.

        Args:
            spark: a classic or Spark Connect session. Its executors read the files.
            root: the root of the store: a path or ``s3://bucket/prefix``.
            store_options: options of ``eoslog.connect``, such as ``endpoint_url``. For scans of files on S3 they are
                also passed to Hadoop's ``s3a``, which takes all other options from Spark's configuration.

        Raises:
            NotAStore, UnknownTopicOrPartition, InvalidOption
        """
        table = cls(spark, _options(root, topic, store_options), topic)
        table._store().admin.describe_topic(topic)
        return table

    @classmethod
    def isEosLogTable(  # noqa: N802 - Delta's name
        cls, spark: SparkSession, root: str | os.PathLike[str], topic: str | None = None, **store_options: Any
    ) -> bool:
        """Return True if a store exists at ``root``, and a topic of this name if one is given.

        Raises:
            InvalidOption
            StoreUnavailable, StoreAccessDenied: the store could not be read.
        """
        try:
            store = verified_store(_options(root, topic, store_options).location)
            topics = store.admin.list_topics()
        except NotAStore:
            return False
        return topic is None or topic in topics

    def toDF(  # noqa: N802 - Delta's name
        self,
        *,
        isolation_level: str | IsolationLevel | None = None,
        starting_offsets: str | Mapping[int, int] | None = None,
        ending_offsets: str | Mapping[int, int] | None = None,
        slot: int | None = None,
        timestamp: datetime | int | str | None = None,
        transaction_consistent: bool = False,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        predicate: str | None = None,
        metadata_columns: bool = True,
        include_headers: bool = False,
        latest_by_key: bool = False,
    ) -> DataFrame:
        """Return the visible rows, scanned by Spark's own Parquet reader. It gets the filters and columns.

        Rows, offsets, names and types are the same as with ``spark.read.format("eoslog")``; every column may be null.
        This call plans the read once, so the DataFrame shows the same rows as long as its files exist. Vacuum keeps a
        replaced file for ``deleted_file_retention_ms`` (24 hours). After that, reading a deleted file is an error.
        Spark does not compare the lengths and checksums of files with the log, as ``format("eoslog")`` does. Rows in
        records and shared objects are put as files first, which needs the permission to put them.

        Args:
            isolation_level: ``read_committed`` if None; ``snapshot`` if a slot or a timestamp is given.
            starting_offsets: the first offset to read, by partition (inclusive), or ``earliest``. Default: the log
                start.
            ending_offsets: the end, by partition (exclusive), or ``latest``. Default: the end of the visible rows.
            slot: for ``snapshot``: read the transactions that had ended by this slot; the newest slot if None.
            timestamp: for ``snapshot``: read the transactions that had ended by this time of the log. Give a datetime
                with a time zone, its text in ISO 8601, such as ``2026-01-31T12:00:00Z``, or ms since the epoch.
            transaction_consistent: under ``read_committed``: choose ends that split no committed transaction.
            partitions: the partitions to read; all if None.
            columns: the columns to read, in this order; all if None. Give them to leave out a column whose type Spark's
                Parquet reader does not support. To read less, ``select`` on the DataFrame is enough.
            predicate: which rows to read, as in ``Store.scan``. Spark does not open files that the log's statistics
                exclude. A filter on the DataFrame skips parts of files by the statistics of Parquet.
            metadata_columns: for a topic of columns: add ``_topic, _partition, _offset, _timestamp``.
            include_headers: for a topic of Kafka records: add ``headers``.
            latest_by_key: return only the newest row of each key, as in ``Store.scan``. Spark finds the newest offsets
                by the key columns, and joins the rows with them. The columns of the values are read too, because a
                tombstone has nulls in all of them.

        Raises:
            UnknownTopicOrPartition, OffsetOutOfRange, InvalidOption
            StoreAccessDenied: rows are in records or shared objects, and this process may not put them as files.
        """

        def plan(store: Store) -> Scan:
            return store.scan(
                self._topic,
                isolation_level=isolation_level,
                columns=columns,
                partitions=partitions,
                starting_offsets=_by_partition("starting_offsets", starting_offsets, EARLIEST),
                ending_offsets=_by_partition("ending_offsets", ending_offsets, LATEST),
                slot=slot,
                timestamp=timestamp,
                transaction_consistent=transaction_consistent,
                predicate=predicate,
                latest_by_key=latest_by_key,
            )

        store, _ = recently_verified_store(self._options.location, _VERIFIED_MS)
        try:
            scan = plan(store)
        except StoreVanished:
            # Another store may be here now.
            store = self._store()
            scan = plan(store)
        # The scan has just refreshed the state, so this sends no request.
        topic = topics_snapshot(store, self._options.topics_to_read(), refresh=False).topics[0].topic
        if any(plan.topic_id != topic.topic_id for plan in scan.plans):
            raise UnknownTopicOrPartition(
                f"topic {self._topic} was deleted and created again while a read of it was planned. Plan it again"
            )
        wanted = self._columns(topic, columns, metadata_columns=metadata_columns, include_headers=include_headers)
        native_files = NativeFiles(store.url, dict(self._options.location.options))
        is_whole = predicate is None and not latest_by_key
        used = [] if predicate is None else compiled(predicate, topic).columns.names
        of_rows = newest_columns(topic) if latest_by_key else ()
        read = wanted if is_whole else self._columns(topic, list(dict.fromkeys([*wanted.names, *used, *of_rows])))
        files = planned_files(scan.plans, float_columns(topic, read))
        put_embedded_files(store.object_store, filter(None, (file.embedded_file for file in files)))
        check_columns(topic, read)
        with native_settings(self._spark):
            frame = native_frame(self._spark, native_files, topic, files=files, wanted=read)
            if is_whole:
                return frame
            if latest_by_key:
                frame = newest_rows(frame, topic)
            if predicate is not None:
                # In brackets and on a line of its own: the predicate may end with a comment, which must not hide the
                # bracket.
                frame = frame.where(f"({predicate}\n)")
            return frame.selectExpr(*map(quoted, wanted.names))

    def createOrReplaceTempView(self, name: str, **options: Any) -> None:  # noqa: N802 - Spark's name
        """Create a temporary view of the rows that are visible now.

        Args:
            options: the arguments of ``toDF``.
        """
        self.toDF(**options).createOrReplaceTempView(name)

    def history(self, limit: int | None = None) -> DataFrame:
        """Return one row for each operation on the topic, the newest first; see ``Store.history``.

        The history begins at the oldest slot that was not deleted.
        """
        return table_frames.history_frame(self._spark, self._store().history(self._topic, limit=limit))

    def detail(self) -> DataFrame:
        """Return one row: the store, the topic, its schema and settings, and its size.

        ``numRows`` counts the rows that ``read_committed`` shows. The files and bytes include aborted rows.
        """
        store = self._store()
        topic = store.admin.describe_topic(self._topic)
        scan = store.scan(self._topic)
        return table_frames.detail_frame(
            self._spark,
            store.describe(),
            store.url,
            topic=topic,
            columns=self._columns(topic, None, metadata_columns=False),
            partitions=store.admin.describe_partitions(self._topic),
            rows=scan.record_count,
            slot=scan.slot,
        )

    def offsets(self) -> DataFrame:
        """Return one row for each partition: its offsets and its size."""
        found = self._store().admin.describe_partitions(self._topic)
        return self._spark.createDataFrame([tuple(each) for each in found], table_frames.OFFSETS)

    def transactions(self) -> DataFrame:
        """Return one row for each transactional id of the store, including those of jobs' tasks."""
        found = self._store().admin.list_transactions()
        return self._spark.createDataFrame([tuple(each) for each in found], table_frames.TRANSACTIONS)

    def optimize(self, *, target_file_bytes: int | None = None, now: bool = False) -> DataFrame:
        """Compact the topic in this call: small files of sealed segments, and by key if ``cleanup_policy`` says so.

        Args:
            now: first seal the active segments, even if they are small and new. Then a new topic is compacted, too.
            target_file_bytes: the largest size of a new file (bytes); if None, as in ``Admin.compact_files``.

        Returns:
            One row for each run of segments whose files were compacted, and each partition compacted by key.
        """
        admin = self._store().admin
        is_compacted = admin.describe_topic(self._topic).config.is_compacted
        keys = admin.compact_keys(self._topic, now=now) if is_compacted else KeyCompactionReport()
        size = {} if target_file_bytes is None else {"target_file_bytes": target_file_bytes}
        files = admin.compact_files(self._topic, now=now and not is_compacted, **size)
        return table_frames.optimize_frame(self._spark, files, keys)

    def vacuum(
        self,
        *,
        staged_max_age_ms: int | None = None,
        deleted_file_retention_ms: int | None = None,
        dry_run: bool = False,
    ) -> DataFrame:
        """Delete, in this call, files that no entry of the log names. It covers all topics of the store.

        Args:
            staged_max_age_ms: as in ``Admin.vacuum`` (ms); if None, from the settings.
            deleted_file_retention_ms: as in ``Admin.vacuum`` (ms); if None, from the settings.
            dry_run: return the paths of the files, and delete nothing.

        Returns:
            One row, with the paths of the files.
        """
        ages = load_settings().vacuum
        if staged_max_age_ms is None:
            staged_max_age_ms = ages.staged_max_age_ms
        if deleted_file_retention_ms is None:
            deleted_file_retention_ms = ages.deleted_file_retention_ms
        report = self._store().admin.vacuum(
            staged_max_age_ms=staged_max_age_ms,
            deleted_file_retention_ms=deleted_file_retention_ms,
            dry_run=dry_run,
        )
        return table_frames.vacuum_frame(self._spark, report)

    def _store(self) -> Store:
        return verified_store(self._options.location)

    def _columns(
        self,
        topic: Topic,
        names: Sequence[str] | None,
        *,
        metadata_columns: bool = True,
        include_headers: bool = True,
    ) -> StructType:
        for name in names or ():
            if name in TRANSACTION_COLUMNS.names:
                raise InvalidOption(
                    f"topic {self._topic}: column {name!r} comes from the log, not from files. Read it with "
                    'spark.read.format("eoslog").option("includeTransactionColumns", "true")'
                )
        options = replace(
            self._options,
            columns=None if names is None else tuple(names),
            metadata_columns=metadata_columns,
            include_headers=include_headers,
        )
        return default_schema([topic], options)


def _options(
    root: str | os.PathLike[str],
    topic: str | None,
    store_options: Mapping[str, Any],
) -> Options:
    given = {f"{STORE_PREFIX}{name}": str(value) for name, value in store_options.items()}
    named = {} if topic is None else {"topic": topic}
    return Options.of({"path": os.fspath(root), **named, **given})


def _by_partition(name: str, offsets: str | Mapping[int, int] | None, everything: str) -> Mapping[int, int] | None:
    if isinstance(offsets, str):
        if offsets != everything:
            raise InvalidOption(
                f"{name} is {offsets!r}. Give {everything!r} or offsets by partition, such as {{0: 100}}"
            )
        return None
    return offsets
