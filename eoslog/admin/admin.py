"""Administration: topics and their records and files, and with them transactions and groups (Kafka's ``Admin``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from eoslog.admin.group_admin import GroupAdministration
from eoslog.admin.partition_descriptions import PartitionDescription, describe_partition
from eoslog.admin.records_deletion import DeleteRecords, end_slots_of_cuts, segments_cut
from eoslog.admin.topic_columns import AddColumns, TopicSchemaVersion, check_spark_schema, schema_history
from eoslog.admin.topic_config import AlterTopic
from eoslog.admin.transaction_admin import TransactionAdministration
from eoslog.admin.verification import repair_store, verify_store
from eoslog.errors import InvalidOption, InvalidRequest, InvalidTopic, quoted, shortened
from eoslog.format.partitioner import check_key_type
from eoslog.format.topic_schema_json import check_storable, encode_schema, normalise_schema
from eoslog.maintenance.file_compaction import MergeReport, merge_files
from eoslog.maintenance.index_restore import DamagedFile, rebuild_derived_files
from eoslog.maintenance.key_compaction import CompactionReport, compact
from eoslog.maintenance.segment_rewriting import TARGET_FILE_BYTES
from eoslog.maintenance.vacuum import VacuumReport, vacuum
from eoslog.session.positions import PartitionOffsets
from eoslog.session.session import Session
from eoslog.state.expiry import READER_GRACE_MS, STAGED_MAX_AGE_MS
from eoslog.state.names import TopicPartition, check_topic_name
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topic_entries import TopicConfig, TopicCreated, TopicSchema
from eoslog.state.topics import CreatePartitions, CreateTopic, DeleteTopic, topic_named
from eoslog.storage.exclusive import ExclusiveIterator
from eoslog.verification.findings import Finding, Progress, no_progress
from eoslog.verification.repair import Repair

_LARGEST_PARTITION_COUNT = 10_000


class Admin(TransactionAdministration, GroupAdministration):
    """Looks at a store and changes it. Every answer is as of the log's tail.

    Safe to share between threads; an iterator that it returns belongs to one thread at a time.
    """

    def __init__(self, store: Session) -> None:
        self._store = store

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        schema: pa.Schema | None = None,
        key: str | Sequence[str] = (),
        spark_schema: str | None = None,
        config: TopicConfig | None = None,
    ) -> Topic:
        """Create a topic, and the store with it if there is none.

        Args:
            schema: the topic's columns; without it the topic holds Kafka records (key, value, headers, timestamp).
            key: the columns whose values choose a row's partition; rows without stay with their writer's partition.
            spark_schema: the schema as Spark's JSON, for types that Arrow does not name.

        Raises:
            TopicAlreadyExists, InvalidTopic, UnsupportedSchema
        """
        check_topic_name(topic)
        _check_partition_count(topic, partitions)
        if config is not None and not isinstance(config, TopicConfig):
            raise InvalidTopic(
                f"topic {topic}: config must be a TopicConfig({', '.join(TopicConfig.model_fields)}), "
                f"not {quoted(config)}"
            )
        keys = (key,) if isinstance(key, str) else tuple(key)
        topic_schema = _topic_schema(topic, schema, keys, spark_schema)
        self._store.ensure_created()
        entry = TopicCreated(
            topic=topic,
            topic_id=self._store.environment.new_token(),
            partitions=partitions,
            topic_schema=topic_schema,
            config=config or TopicConfig(),
            time_ms=self._store.now_ms(),
        )
        return self._store.append(CreateTopic(entry))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. Its files go when vacuum runs.

        Raises:
            UnknownTopicOrPartition
        """
        self._store.append(DeleteTopic(topic))

    def alter_topic(self, topic: str, **settings: Any) -> Topic:
        """Change settings of a topic (Kafka's ``incrementalAlterConfigs``); those not named stay as they are.

        Args:
            settings: fields of ``TopicConfig``, as ``retention_ms=86_400_000``; None sets the default again.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: an unknown setting, or a value that it may not have.
        """
        return self._store.append(AlterTopic(topic, settings))

    def add_columns(self, topic: str, columns: pa.Schema, *, spark_schema: str | None = None) -> Topic:
        """Give a topic of columns more of them, behind those it has. Rows so far have nulls there.

        Columns that the topic has may be among them and stay as they are. A struct is given the fields that it lacks in
        the same way, also within lists and maps. Nothing is ever changed or dropped, and what is new may be null.

        Args:
            spark_schema: the columns as Spark's JSON, for types that Arrow does not name.

        Returns:
            The topic, with its new ``schema_version``; as it was if it has all the columns already.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: the topic holds Kafka records.
            SchemaMismatch: a column is there already, and of another type.
            UnsupportedSchema: a column cannot be stored.
        """
        if not isinstance(columns, pa.Schema):
            raise InvalidRequest(f"topic {topic}: columns are a pyarrow.Schema, not {type(columns).__name__}")
        return self._store.append(AddColumns(topic, columns, spark_schema, self._store.now_ms()))

    def schema_history(self, topic: str) -> list[TopicSchemaVersion]:
        """The schemas that a topic had, from the first one to that of now, with their slots and times.

        Raises:
            UnknownTopicOrPartition
        """
        return schema_history(self.describe_topic(topic))

    def create_partitions(self, topic: str, total: int) -> Topic:
        """Raise a topic's number of partitions to ``total``; it never goes down.

        Rows stay where they are, but a key may belong to another partition from here on: its later rows are then not
        in one order with its earlier ones. Consumers that subscribe find the new partitions in one of their next polls,
        share them out in their groups, and begin there as ``auto_offset_reset`` says. Spark streams read them from
        their first offset.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: the topic has as many partitions already, or ``total`` is no number of partitions.
        """
        _check_partition_count(topic, total)
        return self._store.append(CreatePartitions(topic, total))

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset of each partition, in one step for all of them. Files go by vacuum.

        Args:
            offsets: by partition, the first offset to keep; -1 deletes everything up to the last stable offset. An
                offset below the log start deletes nothing.

        Returns:
            The first offset that each partition holds now.

        Raises:
            UnknownTopicOrPartition
            OffsetOutOfRange: an offset lies beyond the last stable offset: what an open transaction wrote stays.
            InvalidRequest: an offset is no number, or the topic's cleanup_policy is to compact only.
        """
        wanted = dict(offsets)
        cuts = self._store.read(lambda state, slot: segments_cut(state, wanted))
        end_slots = end_slots_of_cuts(self._store.indexes, cuts)
        return self._store.append(DeleteRecords(wanted, end_slots))

    def rebuild_indexes(self, topic: str, *, dry_run: bool = False) -> list[DamagedFile]:
        """Put back ``.txnindex`` and ``.snapshot`` files of a topic's sealed segments that are missing or damaged.

        Returns:
            What was found missing or damaged; with ``dry_run`` nothing is put back.

        Raises:
            UnknownTopicOrPartition
            CorruptRecord: a file cannot be put back, because nothing else in the store has its content: an
                ``.index.parquet``, or a ``.snapshot`` whose segment before was dropped. A dry run lists it instead.
        """
        store = self._store
        store.describe()
        return rebuild_derived_files(store.log, store.object_store, store.environment, topic, dry_run=dry_run)

    def merge_files(self, topic: str | None = None, *, target_file_bytes: int = TARGET_FILE_BYTES) -> MergeReport:
        """Merge the small data files of sealed segments into large ones; no reader is shown anything else than before.

        Args:
            topic: all if None.
            target_file_bytes: how large the files may become (bytes). Those half as large are left alone.

        Raises:
            UnknownTopicOrPartition
            InvalidOption: the size is no whole number of bytes, 1 or more.
        """
        _check_number("target_file_bytes", target_file_bytes, 1)
        store = self._store
        store.describe()
        return merge_files(
            store.log, store.object_store, store.environment, topic=topic, target_file_bytes=target_file_bytes
        )

    def compact(self, topic: str | None = None) -> CompactionReport:
        """Keep only the newest row of each key in what is sealed of a topic whose ``cleanup_policy`` is ``compact``.

        Args:
            topic: compacted now, whether that is due or not; if None, whatever is due.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: the topic is not compacted.
        """
        store = self._store
        if topic is not None and not self.describe_topic(topic).config.is_compacted:
            raise InvalidTopic(f"topic {topic} is not compacted: set its cleanup_policy to compact")
        store.describe()
        return compact(store.log, store.object_store, store.environment, topic=topic, force=topic is not None)

    def vacuum(
        self,
        *,
        staged_max_age_ms: int = STAGED_MAX_AGE_MS,
        reader_grace_ms: int = READER_GRACE_MS,
        dry_run: bool = False,
    ) -> VacuumReport:
        """Delete the files of the store, of all its topics, that no entry names and none can name any more.

        Args:
            staged_max_age_ms: files that no entry names are deleted when they are older (ms). A writer that takes
                longer from its first upload to its commit is refused with ``StagedFilesExpired``.
            reader_grace_ms: how long readers that planned before may still need files that were dropped (ms).
            dry_run: tell which they are, and delete nothing.

        Raises:
            InvalidOption: an age is no whole number of ms, 0 or more. Nothing is done.
        """
        # A horizon in the future would refuse every writer until then, and never moves back.
        _check_number("staged_max_age_ms", staged_max_age_ms, 0)
        _check_number("reader_grace_ms", reader_grace_ms, 0)
        store = self._store
        store.describe()
        return vacuum(
            store.log,
            store.object_store,
            staged_max_age_ms=staged_max_age_ms,
            reader_grace_ms=reader_grace_ms,
            dry_run=dry_run,
        )

    def verify(
        self, topic: str | None = None, *, data: bool = False, progress: Progress = no_progress
    ) -> Iterator[Finding]:
        """Look at all that lies in the store, and tell what is not as the log says. Nothing is written.

        Others may be at work meanwhile: what they drop or replace is no finding. The log is always looked at whole.

        Args:
            topic: only this one's files, all if None.
            data: read every data file whole; else their presence and length count.
            progress: called with what is looked at, how many of it were, and of how many.

        Raises:
            NotAStore, UnknownTopicOrPartition, UnsupportedFormat, StoreUnavailable, StoreAccessDenied: as the iterator
                is taken from; the store could not be looked at.
        """
        return ExclusiveIterator(verify_store(self._store, topic, data, progress))

    def repair(self, findings: Iterable[Finding]) -> Iterator[Repair]:
        """Put right what of these findings can be without losing anything: those that are ``repairable``.

        Checkpoints are written anew from what can be read, index files for other tools are put back as they were, and
        old leftovers of writers that died are removed. No slot, row or data file is touched. Nothing is where the
        store's description cannot be read, or a finding (one of these, or the log is looked at again and shows one)
        is ``log_in_doubt``: what would be replaced may be all that tells what is right.

        Raises:
            NotAStore, UnsupportedFormat, StoreUnavailable, StoreAccessDenied: as the iterator is taken from; the log
                could not be looked at.
        """
        return ExclusiveIterator(repair_store(self._store, findings))

    def list_topics(self) -> list[str]:
        """The topics' names, in their order."""
        return self._store.read(lambda state, slot: sorted(state.topic_ids))

    def describe_topic(self, topic: str) -> Topic:
        """A topic's id, partitions, schema and configuration.

        Raises:
            UnknownTopicOrPartition
        """
        return self._store.read(lambda state, slot: topic_named(state, topic))

    def describe_partitions(self, topic: str) -> list[PartitionDescription]:
        """Offsets, segments, files and bytes of each partition, all of one state.

        Raises:
            UnknownTopicOrPartition
        """

        def look(state: StoreState, slot: int) -> list[PartitionDescription]:
            places = topic_named(state, topic).partition_ids()
            return [describe_partition(partition_of(state, place)) for place in places]

        return self._store.read(look)

    def offsets(self, topic: str) -> list[PartitionOffsets]:
        """Earliest offset, last stable offset and high watermark of each partition.

        Raises:
            UnknownTopicOrPartition
        """

        def look(state: StoreState, slot: int) -> list[PartitionOffsets]:
            partitions = [partition_of(state, place) for place in topic_named(state, topic).partition_ids()]
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
            look, lambda found: any(each.last_stable_offset < each.high_watermark for each in found)
        )


def _check_partition_count(topic: str, partitions: object) -> None:
    if (
        not isinstance(partitions, int)
        or isinstance(partitions, bool)
        or not 1 <= partitions <= _LARGEST_PARTITION_COUNT
    ):
        raise InvalidTopic(
            f"topic {shortened(topic)}: the number of partitions must be 1 to {_LARGEST_PARTITION_COUNT}, "
            f"not {quoted(partitions)}"
        )


def _check_number(name: str, value: object, at_least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise InvalidOption(f"{name} is {quoted(value)}; it must be a whole number, {at_least} or more")


def _topic_schema(topic: str, schema: pa.Schema | None, key: tuple[str, ...], spark_schema: str | None) -> TopicSchema:
    if schema is None:
        if key:
            raise InvalidTopic(
                f"topic {topic}: Kafka records are partitioned by their key; give a schema to name columns"
            )
        return TopicSchema(kind="records")
    if not isinstance(schema, pa.Schema):
        raise InvalidRequest(f"topic {topic}: the schema must be a pyarrow.Schema, not {type(schema).__name__}")
    schema = normalise_schema(schema)
    check_storable(schema)
    for name in key:
        if name not in schema.names:
            raise InvalidTopic(f"topic {topic}: key column {quoted(name)} is not one of {', '.join(schema.names)}")
        check_key_type(name, schema.field(name).type)
    if spark_schema is not None:
        check_spark_schema(spark_schema)
    return TopicSchema(kind="columns", arrow=encode_schema(schema), spark=spark_schema, key=key)
