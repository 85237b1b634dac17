"""Administration of topics, records, files, transactions and consumer groups (Kafka's ``Admin``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from eoslog.admin.group_admin import GroupAdministration
from eoslog.admin.topic_admin import (
    AddColumns,
    AlterTopic,
    DeleteRecords,
    PartitionDescription,
    TopicSchemaVersion,
    changed_config,
    describe_partition,
    end_slots_of_cuts,
    schema_history,
    segments_cut,
    settings_given,
)
from eoslog.admin.transaction_admin import TransactionAdministration
from eoslog.arguments import Count, Natural
from eoslog.copying.store_copy import CopyReport, StoreCopy
from eoslog.errors import CorruptRecord, InvalidRequest, InvalidTopic
from eoslog.format.arrow_input import GivenSchema, arrow_columns
from eoslog.format.partitioner import check_key_type
from eoslog.format.spark_json import check_spark_schema
from eoslog.format.topic_schemas import check_storable, decode_schema, encode_schema, normalize_schema
from eoslog.maintenance.file_compaction import FileCompactionReport, compact_files
from eoslog.maintenance.file_skipping import DamagedDataFile, skip_damaged_files
from eoslog.maintenance.index_restore import DamagedFile, restore_index_files
from eoslog.maintenance.key_compaction import KeyCompactionReport, compact_keys
from eoslog.maintenance.publication import Publication, Publisher
from eoslog.maintenance.sealing import seal_now
from eoslog.maintenance.segment_rewriting import TARGET_FILE_BYTES
from eoslog.maintenance.table_formats import check_publishable
from eoslog.maintenance.vacuum import VacuumReport, vacuum
from eoslog.session.client_options import ADMIN_CALLS, named_options, named_otherwise
from eoslog.session.positions import PartitionOffsets
from eoslog.session.serializers import check_callable
from eoslog.session.session import Session
from eoslog.state.entries import TopicConfig, TopicCreated, TopicSchema
from eoslog.state.expiry import DELETED_FILE_RETENTION_MS, STAGED_MAX_AGE_MS
from eoslog.state.names import TopicPartition, check_topic_name
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import CreatePartitions, CreateTopic, DeleteTopic, topic_named
from eoslog.storage.calls import ExclusiveIterator
from eoslog.verification.findings import Finding, Progress, no_progress
from eoslog.verification.repair import Repair, repair_store
from eoslog.verification.store_checks import verify_store
from eoslog.wording import counted, quoted, shortened

_logger = logging.getLogger(__name__)

_LARGEST_PARTITION_COUNT = 10_000


@named_otherwise(ADMIN_CALLS)
class Admin(TransactionAdministration, GroupAdministration):
    """Inspects a store and changes it. Every answer is that of the newest state of the log.

    Threads may share it. Only one thread at a time may use an iterator that it returns.
    """

    def __init__(self, store: Session) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"Admin({self._store.url!r})"

    @named_options("create_topic()")
    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        schema: GivenSchema | None = None,
        key: str | Sequence[str] = (),
        spark_schema: str | None = None,
        config: TopicConfig | Mapping[str, Any] | None = None,
    ) -> Topic:
        """Create a topic. If the store does not exist, create it too.

        Args:
            schema: the topic's columns; if None, the topic holds Kafka records (key, value, headers, timestamp).
                Give a pyarrow schema, a dict such as ``{"carrier": "string", "miles": pa.int64()}``, the schema of a
                Spark DataFrame, or an object with ``__arrow_c_schema__``, such as the schema of a Polars DataFrame. An
                Arrow table or a data frame of pandas or Polars gives its columns, but no rows.
            key: the columns whose values choose the partition of a row. A row with a null in all of them goes to a
                partition that its writer chooses.
            spark_schema: the schema as Spark's JSON, for Spark types that Arrow does not have. The schema of a Spark
                DataFrame includes it.
            config: the settings of the topic, or a mapping by Kafka's names, such as ``{"cleanup.policy": "compact"}``;
                the defaults if None.

        Raises:
            TopicAlreadyExists, InvalidTopic
            InvalidRequest: ``schema`` or ``spark_schema`` is no schema.
            UnsupportedSchema: a column cannot be stored, or a format of ``config.publish`` lacks its type.
        """
        check_topic_name(topic)
        check_partition_count(topic, partitions)
        if isinstance(config, Mapping):
            config = changed_config(topic, TopicConfig(), settings_given(topic, config))
        if config is not None and not isinstance(config, TopicConfig):
            raise InvalidTopic(
                f"topic {topic}: config must be a TopicConfig({', '.join(TopicConfig.model_fields)}), "
                f"not {quoted(config)}"
            )
        if not isinstance(key, Iterable):
            raise InvalidTopic(f"topic {topic}: key is the name of a column, or a list of names, not {quoted(key)}")
        keys = (key,) if isinstance(key, str) else tuple(key)
        topic_schema = _topic_schema(topic, schema, keys, spark_schema)
        if config is not None and topic_schema.arrow is not None:
            check_publishable(topic, config.formats, decode_schema(topic_schema.arrow))
        self._store.ensure_created()
        entry = TopicCreated(
            topic=topic,
            topic_id=self._store.environment.new_id(),
            partitions=partitions,
            topic_schema=topic_schema,
            config=config or TopicConfig(),
            time_ms=self._store.now_ms(),
        )
        created = self._store.append(CreateTopic(entry))
        # The topic exists now, so an error of a log handler of the application must not reach the caller.
        with suppress(Exception):
            _logger.info("%s: created topic %s with %s", self._store.url, topic, counted(partitions, "partition"))
        return created

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. A later vacuum deletes its files.

        Raises:
            UnknownTopicOrPartition
        """
        self._store.append(DeleteTopic(topic))

    def alter_topic(self, topic: str, **settings: Any) -> Topic:
        """Change settings of a topic (Kafka's ``incrementalAlterConfigs``). Other settings stay as they are.

        Args:
            settings: fields of ``TopicConfig``, such as ``retention_ms=86_400_000``. None resets a field to its
                default.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: a setting is unknown, or its value is not allowed.
            UnsupportedSchema: a format of ``publish`` has no type for a column, or forbids its name.
        """
        return self._store.append(AlterTopic(topic, settings))

    @named_options("add_columns()")
    def add_columns(self, topic: str, columns: GivenSchema, *, spark_schema: str | None = None) -> Topic:
        """Add columns to a topic of columns, after its existing ones. Existing rows have nulls in the new columns.

        ``columns`` may include columns that the topic already has; they stay as they are. New fields of a struct are
        added in the same way, also within lists and maps. No column is ever changed or dropped, and new columns are
        nullable.

        Args:
            columns: the new columns, in any form of ``schema`` in ``create_topic``.
            spark_schema: the columns as Spark's JSON, for Spark types that Arrow does not have.

        Returns:
            The topic with its new ``schema_version``. If it already has all columns, it is unchanged.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: the topic holds Kafka records.
            SchemaMismatch: the topic has a column of this name with another type.
            InvalidRequest: ``columns`` is no schema.
            UnsupportedSchema: a column cannot be stored, or a format of the published topic lacks its type.
        """
        found = arrow_columns(topic, columns)
        described = found.spark if spark_schema is None else spark_schema
        return self._store.append(AddColumns(topic, found.schema, described, self._store.now_ms()))

    def schema_history(self, topic: str) -> list[TopicSchemaVersion]:
        """Return all schemas of a topic, from the first to the current one, with their slots and times.

        Raises:
            UnknownTopicOrPartition
        """
        return schema_history(self.describe_topic(topic))

    def create_partitions(self, topic: str, total: int) -> Topic:
        """Raise a topic's number of partitions to ``total``. The number can never be lowered.

        Existing rows stay where they are, but a key may belong to another partition from now on. Then its later rows
        are not ordered with its earlier ones. Subscribed consumers find the new partitions in one of their next polls.
        Their groups assign them, and consumers read them from their first offset (with
        ``new_partitions_from_beginning=False``, as ``auto_offset_reset`` says). So do Spark streams.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: the topic already has ``total`` partitions or more, or ``total`` is not a valid number.
        """
        check_partition_count(topic, total)
        return self._store.append(CreatePartitions(topic, total))

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset of each partition, in one step. A later vacuum deletes their files.

        Args:
            offsets: by partition, the first offset to keep. -1 deletes all records up to the last stable offset. An
                offset below the log start deletes nothing.

        Returns:
            The new first offset of each partition.

        Raises:
            UnknownTopicOrPartition
            OffsetOutOfRange: an offset lies beyond the last stable offset. Rows of open transactions cannot be deleted.
            InvalidRequest: an offset is not an integer, or the topic's ``cleanup_policy`` does not include ``delete``.
        """
        if not isinstance(offsets, Mapping):
            raise InvalidRequest(
                f"offsets are given by partition, such as {{TopicPartition('payments', 0): 100}}, not {quoted(offsets)}"
            )
        wanted = dict(offsets)
        cuts = self._store.read(lambda state, slot: segments_cut(state, wanted))
        end_slots = end_slots_of_cuts(self._store.indexes, cuts)
        return self._store.append(DeleteRecords(wanted, end_slots))

    @named_options("restore_indexes()")
    def restore_indexes(self, topic: str, *, dry_run: bool = False) -> list[DamagedFile]:
        """Restore missing or damaged ``.txnindex`` and ``.snapshot`` files of a topic's sealed segments.

        Args:
            dry_run: only list the files, and restore nothing.

        Returns:
            The files that were missing or damaged.

        Raises:
            UnknownTopicOrPartition
            CorruptRecord: a file cannot be restored, because no other object has its content. This is so for an
                ``.index.parquet``, and for a ``.snapshot`` whose preceding segment was dropped. All other files are
                restored. A dry run lists it instead.
        """
        store = self._store
        store.describe()
        found = restore_index_files(store, topic, dry_run=dry_run)
        lost = [each for each in found if not each.restored]
        if lost and not dry_run:
            raise CorruptRecord(
                f"{counted(len(lost), 'file')} of topic {topic} cannot be restored, because no other object has the "
                f"content. The first is {lost[0].path} ({lost[0].problem}). Bring them back from a backup or an "
                "earlier version"
            )
        return found

    @named_options("skip_damaged_files()")
    def skip_damaged_files(
        self, topic: str, *, dry_run: bool = False, progress: Progress | None = None
    ) -> list[DamagedDataFile]:
        """Read all data files of a topic, and leave out the rows of those that are missing or damaged.

        One such file makes its partition unreadable. Use this only if no backup has the file: its rows are lost for
        good. Readers meet a gap in the offsets in their place, and streams that have not read them report the loss. The
        log records each file. Rows above a last stable offset stay, because their transactions are open. A damaged
        index cannot be skipped: delete the records up to the end of its segment.

        Args:
            dry_run: only list the files.
            progress: called with the kind of object, the number of read ones, and their total.

        Returns:
            The files that were missing or damaged.

        Raises:
            UnknownTopicOrPartition
            CorruptRecord: the index of a segment is missing or damaged.
            RequestTimedOut: other processes changed a partition at each attempt. Call again.
        """
        check_callable("progress", progress, 3)
        self._store.describe()
        return skip_damaged_files(self._store, topic, dry_run=dry_run, progress=progress or no_progress)

    @named_options("compact_files()")
    def compact_files(
        self, topic: str | None = None, *, target_file_bytes: Count = TARGET_FILE_BYTES, now: bool = False
    ) -> FileCompactionReport:
        """Rewrite small data files of sealed segments into large ones. Readers see the same rows as before.

        Args:
            topic: the topic; all topics if None.
            now: first seal the active segments, even if they are small and new. Then all rows below the last stable
                offset are compacted, also those of a new topic.
            target_file_bytes: the largest size of the new files (bytes). Files of at least half this size stay as they
                are.

        Raises:
            UnknownTopicOrPartition
            InvalidOption: the size is not a whole number of 1 or more.
        """
        store = self._store
        store.describe()
        if now:
            seal_now(store, self.list_topics() if topic is None else [topic])
        return compact_files(store, topic=topic, target_file_bytes=target_file_bytes)

    def publish(self, topic: str) -> list[Publication]:
        """Publish the newest slot of a topic as a version of each table that its setting ``publish`` names.

        If a table shows the topic's rows and columns already, it gets no version. A coordinator publishes all these
        topics in the same way.

        Returns:
            The newest version of each table.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: the topic's setting ``publish`` is ``none``.
            UnsupportedSchema: a format has no such type, or allows no such column name.
            RetriableError: the version may be there or not. Publish again.
        """
        self._store.describe()
        return Publisher.of(self._store).publish(topic)

    @named_options("compact_keys()")
    def compact_keys(self, topic: str | None = None, *, now: bool = False) -> KeyCompactionReport:
        """Keep only the newest row of each key in the sealed segments of topics with ``cleanup_policy=compact``.

        Args:
            topic: the topic to compact, even if it is not due. If None, compact every partition that is due.
            now: first seal the active segments, even if they are small and new. Then all rows below the last stable
                offset are compacted, also those of a new topic.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: the topic is not compacted.
        """
        store = self._store
        if topic is not None and not self.describe_topic(topic).config.is_compacted:
            raise InvalidTopic(f"topic {topic} is not compacted. Set its cleanup_policy to compact")
        store.describe()
        if now:
            seal_now(store, self._compacted_topics() if topic is None else [topic])
        return compact_keys(store, topic=topic, force=topic is not None)

    def _compacted_topics(self) -> list[str]:
        return self._store.read(
            lambda state, slot: [topic.topic for topic in state.topics.values() if topic.config.is_compacted]
        )

    @named_options("vacuum()")
    def vacuum(
        self,
        *,
        # A negative age would set a horizon in the future. It would refuse every writer until then, and the horizon
        # never moves back.
        staged_max_age_ms: Natural = STAGED_MAX_AGE_MS,
        deleted_file_retention_ms: Natural = DELETED_FILE_RETENTION_MS,
        dry_run: bool = False,
    ) -> VacuumReport:
        """Delete data files of all topics that no entry of the log references and that none can reference later.

        Args:
            staged_max_age_ms: delete unreferenced files that are older than this (ms). A writer that takes longer from
                its first upload to its commit is refused with ``StagedFilesExpired``. Shared objects are deleted after
                24 hours if this is longer.
            deleted_file_retention_ms: keep files that were dropped from the log for this long (ms), because readers
                that planned before may still need them. It should be longer than the longest read. Less than an hour
                logs a warning.
            dry_run: report the files, and delete nothing.

        Raises:
            InvalidOption: an age is not a whole number of 0 or more. Nothing was done.
        """
        store = self._store
        store.describe()
        return vacuum(
            store,
            staged_max_age_ms=staged_max_age_ms,
            deleted_file_retention_ms=deleted_file_retention_ms,
            dry_run=dry_run,
        )

    @named_options("copy()")
    def copy(
        self,
        target: Session,
        *,
        new_identity: bool = False,
        update: bool = False,
        slot: int | None = None,
        timestamp: datetime | int | str | None = None,
        progress: Progress | None = None,
    ) -> CopyReport:
        """Copy the store at one slot, by default the newest one, to an empty location. Others may use it meanwhile.

        The target is no store until the copy is complete and verified. A copy that was interrupted is continued by the
        same call. A complete copy of this store stays as it is, unless it is to be updated. See docs/backup.md.

        Args:
            target: the new location, as ``eoslog.connect(url, …)`` returns it, with options of its own.
            new_identity: give the copy a new store id. Spark checkpoints of the source then refuse it. Otherwise the
                copy takes the source's place, and only one of the two may be written from then on.
            update: bring a complete copy to the newest slot, or to a later ``slot``. Only files that it lacks are
                copied.
            slot: copy the store as it was after this slot of the log. It is refused if the log no longer has the state
                of that slot, or vacuum has deleted files of it. By default the newest slot is copied.
            timestamp: copy the store as it was at this time by the store's clock, instead of ``slot``: a datetime with
                a time zone, a text in ISO 8601 with a time zone, or milliseconds since the epoch.
            progress: called with the kind of object, the number done so far, and the total number.

        Raises:
            StoreAlreadyExists, NotAStore, InvalidRequest: the target is another store, is not empty, or lies in this
                store; or it is a copy that was written to, or of another slot than the given one.
            InvalidOption: a slot and a timestamp are given, or the slot or the time is in the future.
            OffsetOutOfRange: the given slot or time can no longer be copied. The message names the oldest that can.
            CorruptRecord: this store is damaged. There is no copy then.
            PutIfAbsentUnsupported: the target cannot hold a store.
            RetriableError: call again.
        """
        check_callable("progress", progress, 3)
        return StoreCopy(
            self._store,
            target,
            new_identity=new_identity,
            update=update,
            slot=slot,
            timestamp=timestamp,
            progress=progress or no_progress,
        ).run()

    @named_options("verify()")
    def verify(
        self, topic: str | None = None, *, data: bool = False, progress: Progress | None = None
    ) -> Iterator[Finding]:
        """Check every object of the store against the log, and report differences. Nothing is written.

        Other processes may write at the same time: files that they drop or replace are not reported. The log is always
        checked as a whole.

        Args:
            topic: check only the files of this topic; all topics if None.
            data: read every data file completely. Otherwise, only its presence and length are checked.
            progress: called with the kind of object, the number checked so far, and the total number.

        Raises:
            NotAStore, UnknownTopicOrPartition, UnsupportedFormat, StoreUnavailable, StoreAccessDenied: raised by the
                iterator; the store could not be checked.
        """
        check_callable("progress", progress, 3)
        return ExclusiveIterator(verify_store(self._store, topic, data, progress or no_progress))

    def repair(self, findings: Iterable[Finding]) -> Iterator[Repair]:
        """Repair the findings that are ``repairable``: those whose repair cannot lose anything.

        A repair writes checkpoints again, restores index files for other tools, and removes old temporary files of
        writers that died. It never touches a slot, a row or a data file. Nothing is repaired if the store's description
        cannot be read, or if a finding is ``log_in_doubt``: then the object to replace may be the only one that is
        right. The log is checked again for such findings first.

        Raises:
            NotAStore, UnsupportedFormat, StoreUnavailable, StoreAccessDenied: raised by the iterator; the log could not
                be checked.
        """
        found = list(findings) if isinstance(findings, Iterable) else [findings]
        for each in found:
            if not isinstance(each, Finding):
                raise InvalidRequest(f"findings are those that verify() returns, not {quoted(each)}")
        return ExclusiveIterator(repair_store(self._store, found))

    def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return self._store.read(lambda state, slot: sorted(state.topic_ids))

    def describe_topic(self, topic: str) -> Topic:
        """Return a topic's id, partitions, schema and configuration.

        Raises:
            UnknownTopicOrPartition
        """
        return self._store.read(lambda state, slot: topic_named(state, topic))

    def describe_partitions(self, topic: str) -> list[PartitionDescription]:
        """Return offsets, segments, files and bytes of each partition, all from one state.

        Raises:
            UnknownTopicOrPartition
        """

        def snapshot(state: StoreState, slot: int) -> list[PartitionDescription]:
            partition_ids = topic_named(state, topic).partition_ids()
            return [describe_partition(partition_of(state, partition_id)) for partition_id in partition_ids]

        return self._store.read(snapshot)

    def offsets(self, topic: str) -> list[PartitionOffsets]:
        """Return the earliest offset, last stable offset and high watermark of each partition.

        Raises:
            UnknownTopicOrPartition
        """

        def snapshot(state: StoreState, slot: int) -> list[PartitionOffsets]:
            partitions = [
                partition_of(state, partition_id) for partition_id in topic_named(state, topic).partition_ids()
            ]
            return [
                PartitionOffsets(
                    partition.id.partition,
                    partition.log_start_offset,
                    partition.last_stable_offset,
                    partition.high_watermark,
                )
                for partition in partitions
            ]

        return self._store.overdue_transactions.read_unblocked(
            snapshot, lambda found: any(each.last_stable_offset < each.high_watermark for each in found)
        )


def check_partition_count(topic: str, partitions: object) -> None:
    """Check the number of a topic's partitions.

    Raises:
        InvalidTopic
    """
    if (
        not isinstance(partitions, int)
        or isinstance(partitions, bool)
        or not 1 <= partitions <= _LARGEST_PARTITION_COUNT
    ):
        raise InvalidTopic(
            f"topic {shortened(topic)}: the number of partitions must be 1 to {_LARGEST_PARTITION_COUNT}, "
            f"not {quoted(partitions)}"
        )


def _topic_schema(topic: str, given: GivenSchema | None, key: tuple[str, ...], spark_schema: str | None) -> TopicSchema:
    if given is None:
        if key:
            raise InvalidTopic(
                f"topic {topic}: Kafka records are partitioned by their key. Give a schema to name columns"
            )
        return TopicSchema(kind="records")
    found = arrow_columns(topic, given)
    spark_schema = found.spark if spark_schema is None else spark_schema
    schema = normalize_schema(found.schema)
    check_storable(schema)
    for name in key:
        if name not in schema.names:
            raise InvalidTopic(f"topic {topic}: key column {quoted(name)} is not one of {', '.join(schema.names)}")
        check_key_type(name, schema.field(name).type)
    if spark_schema is not None:
        check_spark_schema(spark_schema)
    return TopicSchema(kind="columns", arrow=encode_schema(schema), spark=spark_schema, key=key)
