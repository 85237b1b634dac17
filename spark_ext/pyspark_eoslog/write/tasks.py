"""A writing task: it uploads files that no reader sees yet, and reports them to the process that commits.

It assigns each row to a topic and converts the rows to the columns of that topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from eoslog import Topic
from eoslog.errors import InvalidRequest, SchemaMismatch, UnknownTopicOrPartition
from eoslog.format.column_types import kind_of
from eoslog.format.file_writer import DataFileWriter, Placement, TopicTarget, WrittenFile
from eoslog.format.limited_groups import Limit, limited_groups
from eoslog.producer.job import WorkVersion, check_task
from eoslog.producer.new_columns import NewColumns
from eoslog.producer.rows import rows_by_partition, rows_to_write
from eoslog.storage.object_store import ObjectStore
from pyspark_eoslog.options import StoreLocation
from pyspark_eoslog.pyspark_version import readable
from pyspark_eoslog.worker import object_store, this_worker
from pyspark_eoslog.write.checkpoint_locations import PlannedCheckpoint

_BATCH_ID = "streaming.sql.batchId"
_CONTINUOUS = "__is_continuous_processing"
_ROOT_EXECUTION = "spark.sql.execution.root.id"
_MOST_INLINE_BYTES = 64 << 10
"""The largest size of the files in a task's commit message (bytes). The driver holds the messages of all tasks."""
_GATHERED_ROWS = 64 * 1024
_GATHERED_BYTES = 16 << 20
_TOPIC_COLUMN = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """The plan of a write, for its tasks. So tasks need not read the log."""

    location: StoreLocation
    store_id: str
    targets: tuple[tuple[Topic, TopicTarget], ...]
    by_column: bool
    """True if each row names its topic."""
    sink: str
    """The scope of the application version: a topic with its id, or ``*``."""
    upload_ms: int
    """A lower bound of the time at which any task begins to upload (ms by the store's clock)."""
    planned_ms: int
    replayed: bool = False
    """True if this version was committed before. Then tasks write nothing, and the commit only checks the replay."""
    compared: bool = False
    """True if this version is the last one that was committed. Then the commit compares the rows with it."""
    last: WorkVersion | None = None
    """The last committed version under the stream's ``transactionalId``, or from the location of its checkpoint."""
    known_queries: frozenset[str] = frozenset()
    """The queries that have committed. A known query may continue at the location of ``last``."""
    checkpoint: PlannedCheckpoint | None = None
    """The checkpoint of the stream."""
    new_columns: NewColumns | None = None
    """The columns that the commit adds. The topic in ``targets`` already has them."""
    inline_limit_bytes: int = 0
    """A file up to this size is not uploaded. Its rows come with the task's commit message (bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCommit(WriterCommitMessage):
    """The report of a task to the commit."""

    task: int
    files: tuple[WrittenFile, ...]
    store_id: str
    sink: str
    upload_ms: int
    planned_ms: int
    run_id: str | None
    query_id: str | None
    batch_id: int | None
    rows: int = 0
    compared: tuple[WrittenFile, ...] = ()
    """Descriptions of the files that the task would have uploaded, if the commit compares a repetition."""
    invocation: str | None = None
    """The execution of Spark that the write belongs to. All writes of one call of ``foreachBatch`` have the same."""
    held_back: bool = False
    """True if the task uploaded nothing, because the plan says that the work was committed before, or will be refused.
    This report must not be committed."""
    new_columns: NewColumns | None = None
    """The columns of the files that the topic lacked at planning."""
    checkpoint: PlannedCheckpoint | None = None


def write_task(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
    """Upload a task's rows. A failed or repeated attempt is harmless: readers see only committed files.

    Raises:
        InvalidRequest: the query uses continuous processing, or the job has too many tasks.
    """
    context = TaskContext.get()
    assert context is not None
    if context.getLocalProperty(_CONTINUOUS) == "true":
        raise InvalidRequest("continuous processing has no micro-batches to commit. Use another trigger")
    task = context.partitionId()
    # The commit checks this too, but only after all tasks have uploaded.
    check_task(task)
    query_id, batch_id = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty(_BATCH_ID)
    files: list[WrittenFile] = []
    compared: list[WrittenFile] = []
    rows = 0
    held_back = plan.replayed or _is_known(plan, query_id, batch_id)
    if not held_back:
        files = _upload(plan, batches, task, object_store(plan.location))
        this_worker().environment.reached("spark.task.files_uploaded")
        rows = sum(file.record_count for file in files)
    elif plan.compared:
        compared = _upload(plan, batches, task, _NoUploads())
        rows = sum(file.record_count for file in compared)
    elif plan.last is not None and plan.last.query_id == query_id:
        # Count the rows: a replayed micro-batch must have as many as the committed one.
        rows = sum(batch.num_rows for batch in batches)
    return TaskCommit(
        task=task,
        files=tuple(files),
        store_id=plan.store_id,
        sink=plan.sink,
        upload_ms=plan.upload_ms,
        planned_ms=plan.planned_ms,
        run_id=context.getLocalProperty("spark.jobGroup.id"),
        query_id=query_id,
        batch_id=None if batch_id is None else int(batch_id),
        rows=rows,
        compared=tuple(compared),
        invocation=_invocation(context),
        held_back=held_back,
        new_columns=plan.new_columns,
        checkpoint=plan.checkpoint,
    )


def _is_known(plan: WritePlan, query_id: str | None, batch_id: str | None) -> bool:
    """Return True if the commit will find a replay, or will refuse the micro-batch of another query."""
    last, checkpoint = plan.last, plan.checkpoint
    if last is None:
        return False
    if checkpoint is not None and checkpoint.of_query(query_id) != checkpoint.of_query(checkpoint.query_id):
        # The planned checkpoint is another query's. So ``last`` was committed from another location.
        return False
    if last.query_id is not None and query_id != last.query_id:
        return query_id not in plan.known_queries
    return batch_id is not None and int(batch_id) <= last.version


def _invocation(context: TaskContext) -> str | None:
    application, root = context.getLocalProperty("spark.app.id"), context.getLocalProperty(_ROOT_EXECUTION)
    return None if application is None or root is None else f"{application}:{root}"


class _NoUploads:
    """Stands in for an object store if the rows were committed before: the files are only described."""

    def put_new(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Drop the files."""


def _upload(
    plan: WritePlan, batches: Iterator[pa.RecordBatch], task: int, store: ObjectStore | _NoUploads
) -> list[WrittenFile]:
    writer = DataFileWriter(store, this_worker().environment.new_id)
    topics = {topic.topic: topic for topic, _ in plan.targets}
    targets = {topic.topic_id: target for topic, target in plan.targets}
    files: list[WrittenFile] = []

    def now_ms() -> int:
        return plan.planned_ms if isinstance(store, _NoUploads) else max(plan.planned_ms, store.clock.now_ms())

    for table in _gather(batches):
        for topic, rows in rows_by_topic(table, topics, by_column=plan.by_column, append_time_ms=now_ms()):
            for partition, part in rows_by_partition(topic, rows, task % topic.partitions):
                writer.add(targets[topic.topic_id], partition, part)
        files += writer.make_room(now_ms())
    # The rows of a repetition are only described, never sent.
    inline_limit_bytes = 0 if isinstance(store, _NoUploads) else plan.inline_limit_bytes
    # Spark's jobs read large tables as objects, so their files share none.
    return files + writer.flush(now_ms(), Placement(inline_bytes=inline_limit_bytes, room_bytes=_MOST_INLINE_BYTES))


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine several batches to one table, because partitioning has a cost per table and partition."""
    limits = Limit(lambda batch: batch.num_rows, _GATHERED_ROWS), Limit(lambda batch: batch.nbytes, _GATHERED_BYTES)
    filled = (batch for batch in map(readable, batches) if batch.num_rows)
    return map(pa.Table.from_batches, limited_groups(filled, *limits))


def rows_by_topic(
    table: pa.Table, topics: Mapping[str, Topic], *, by_column: bool, append_time_ms: int
) -> Iterator[tuple[Topic, pa.Table]]:
    """Yield the rows of each topic, ready to be partitioned.

    Args:
        topics: the possible topics, by name; exactly one unless ``by_column``.
        by_column: True if the column ``topic`` names the topic of each row.
        append_time_ms: the timestamp of Kafka records that have none (ms since the epoch).

    Raises:
        SchemaMismatch, UnknownTopicOrPartition
    """
    if not by_column:
        (topic,) = topics.values()
        yield topic, _topic_rows(topic, table, append_time_ms)
        return
    check_routing(table.schema)
    names = table[_TOPIC_COLUMN]
    for name in names.unique().to_pylist():
        if name is None:
            raise UnknownTopicOrPartition("a row's column 'topic' is null. Give a topic, or use option 'topic'")
        if name not in topics:
            known = ", ".join(sorted(topics)) or "none"
            raise UnknownTopicOrPartition(
                f"a row names the topic {name!r}, but the store's topics of Kafka records are: {known}"
            )
        yield topics[name], _topic_rows(topics[name], table.filter(pc.equal(names, name)), append_time_ms)


def check_columns(schema: pa.Schema, topic: Topic) -> None:
    """Check that the topic accepts rows of these columns, by their types.

    Raises:
        SchemaMismatch: a column does not fit. The message names it, and the expected and found types.
    """
    for _ in rows_by_partition(topic, _topic_rows(topic, schema.empty_table(), 0), 0):
        raise AssertionError("an empty table was partitioned into rows")


def check_routing(schema: pa.Schema) -> None:
    """Raises: SchemaMismatch: there is no string column ``topic``."""
    if _TOPIC_COLUMN not in schema.names or kind_of(schema.field(_TOPIC_COLUMN).type) != "text":
        raise SchemaMismatch(
            "no topic is given for the rows. Use option 'topic', or a string column 'topic' for Kafka records"
        )


def _topic_rows(topic: Topic, table: pa.Table, append_time_ms: int) -> pa.Table:
    if topic.topic_schema.kind == "records" and "value" not in table.schema.names:
        raise SchemaMismatch(f"topic {topic.topic} holds Kafka records: the column 'value' is missing")
    return rows_to_write(topic, table, append_time_ms)
