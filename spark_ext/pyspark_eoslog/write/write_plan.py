"""The planning of a write: it finds the topics and checks the columns before anything is uploaded.

With ``mergeSchema`` it also plans the columns that the topic lacks. The slot that commits the write adds them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.types import StructType

from eoslog import Store, Topic
from eoslog.errors import (
    EosLogError,
    InvalidOption,
    NotAStore,
    SchemaMismatch,
    UnknownTopicOrPartition,
    UnsupportedSchema,
)
from eoslog.format.spark_json import arrow_schema, described_columns
from eoslog.format.topic_schemas import RESERVED_NAMES, decode_schema, encode_schema, stored_schema
from eoslog.producer.job import Job, write_targets
from eoslog.producer.new_columns import NewColumns, missing_columns, with_columns
from eoslog.wording import without_code
from pyspark_eoslog.options import Options, StoreLocation
from pyspark_eoslog.worker import new_store, recently_verified_store, verified_store
from pyspark_eoslog.write.checkpoint_locations import PlannedCheckpoint, planned_checkpoint
from pyspark_eoslog.write.created_topics import check_created, check_creation, create_topic
from pyspark_eoslog.write.tasks import WritePlan, check_columns, check_routing

ANY_TOPIC = "*"
T = TypeVar("T")
_TOPICS_AGE_MS = 10_000
"""A stream's planner reads the newest topics at most this often (ms)."""


def plan_batch_write(options: Options, schema: StructType) -> tuple[WritePlan, Store]:
    """Plan a batch write on the newest state.

    Raises:
        UnknownTopicOrPartition, SchemaMismatch, UnsupportedSchema
    """
    store = _opened(options, schema, verified_store)
    return _plan(options, schema, store, refresh=True), store


def plan_stream_write(options: Options, schema: StructType) -> WritePlan:
    """Plan a micro-batch. This needs no request if the known state is recent and its topic accepts the rows.

    Raises:
        UnknownTopicOrPartition, SchemaMismatch, UnsupportedSchema
    """
    checkpoint = _checkpoint(options)
    store, refresh = _opened(
        options,
        schema,
        lambda location: recently_verified_store(location, _TOPICS_AGE_MS, may_vanish=options.create_topic),
    )
    if not refresh:
        with suppress(UnknownTopicOrPartition, SchemaMismatch, UnsupportedSchema):
            plan = _plan(options, schema, store, refresh=False)
            if plan.new_columns is None:
                return replace(plan, checkpoint=checkpoint)
    # Plan again on the newest state: the topic may have been created, or columns added, in the meantime.
    plan = replace(_plan(options, schema, store, refresh=True), checkpoint=checkpoint)
    # If the last committed micro-batch shows a replay, tasks upload nothing. So it must come from the newest state.
    if options.transactional_id is not None:
        job = Job(job_id=options.transactional_id, sink=plan.sink, starts_anew_after=options.start_anew_after)
        return replace(plan, last=job.last_version(store))
    if checkpoint is None:
        return plan
    location = checkpoint.of_query(checkpoint.query_id)
    job = Job(job_id=location.name, sink=plan.sink, location=location, starts_anew_after=options.start_anew_after)
    last, known_queries = job.last_at_location(store)
    return replace(plan, last=last, known_queries=known_queries)


def _checkpoint(options: Options) -> PlannedCheckpoint | None:
    """Return the checkpoint of a stream; None if the user names the job, or Spark does not pass the location."""
    if options.transactional_id is not None or options.checkpoint_location is None:
        return None
    return planned_checkpoint(options.checkpoint_location)


def _opened(options: Options, schema: StructType, opened: Callable[[StoreLocation], T]) -> T:
    """Open the store. With ``createTopic``, create it with the topic if it does not exist."""
    check_creation(options)
    try:
        return opened(options.location)
    except NotAStore:
        if not options.create_topic:
            raise
        create_topic(options, schema, new_store(options.location))
        return opened(options.location)


def _plan(options: Options, schema: StructType, store: Store, *, refresh: bool) -> WritePlan:
    columns = arrow_schema(schema.json())
    name = options.topic_to_write()
    new_columns = None
    try:
        store_id, targets = write_targets(store, name, refresh=refresh)
    except UnknownTopicOrPartition as error:
        # A state that is not the newest may lack a topic that exists.
        if refresh and options.create_topic:
            create_topic(options, schema, store)
            return _plan(options, schema, store, refresh=True)
        raise UnknownTopicOrPartition(
            f"{without_code(error)}. Create it with the write by option createTopic=true (with options partitions and "
            "key), or first: eoslog.connect(path).admin.create_topic(name, partitions=…, schema=df.schema, key=…)"
        ) from None
    if name is None:
        options.refuse(("mergeSchema",), "is for a topic of columns: name it with option 'topic'")
        options.refuse(("publishOnCommit",), "is for one topic: name it with option 'topic'")
        check_routing(columns)
        for topic, _ in targets[:1]:
            check_columns(columns, topic)
        sink = ANY_TOPIC
    else:
        ((topic, target),) = targets
        check_created(options, topic)
        if options.publish_on_commit and not topic.config.is_published:
            raise InvalidOption(
                "option 'publishOnCommit' needs a published topic. Set publish to delta or iceberg: "
                f"eoslog.connect(path).admin.alter_topic({topic.topic!r}, publish='delta')"
            )
        topic, new_columns = plan_new_columns(topic, options, schema, columns)
        check_columns(columns, topic)
        targets = [(topic, target)]
        sink = f"{topic.topic}:{topic.topic_id}"
    return WritePlan(
        location=options.location,
        store_id=store_id,
        targets=tuple(targets),
        by_column=name is None,
        sink=sink,
        upload_ms=store.object_store.clock.last_date_ms,
        planned_ms=store.now_ms(),
        new_columns=new_columns,
        inline_limit_bytes=store.log.config.inline_limit_bytes,
    )


def plan_new_columns(
    topic: Topic, options: Options, schema: StructType, columns: pa.Schema
) -> tuple[Topic, NewColumns | None]:
    """Return the topic as it will be after the commit, and the columns that the job adds.

    Args:
        columns: ``schema`` in the Arrow types of the rows that Spark passes.

    Raises:
        SchemaMismatch: the topic lacks a column of the rows, and ``mergeSchema`` is not set; or a column has another
            type.
        UnsupportedSchema: a new column cannot be stored.
    """
    if topic.topic_schema.kind != "columns":
        if options.merge_schema:
            raise InvalidOption(
                f"option 'mergeSchema' is for topics of columns; topic {topic.topic} holds Kafka records, whose "
                "columns are always the same"
            )
        return topic, None
    rows = pa.schema([field for field in columns if field.name not in RESERVED_NAMES])
    described = described_columns(schema.json(), rows.names)
    if not options.merge_schema:
        _refuse_new_columns(topic, rows, described)
        return topic, None
    merged = with_columns(topic, rows, described)
    if merged == topic.topic_schema:
        return topic, None
    assert merged.arrow is not None
    known = stored_schema(topic)
    new = [
        field
        for field in decode_schema(merged.arrow)
        if field.name not in known.names or known.field(field.name) != field
    ]
    names = [field.name for field in new]
    added = NewColumns(topic.topic_id, encode_schema(pa.schema(new)), described_columns(schema.json(), names))
    return replace(topic, topic_schema=merged), added


def _refuse_new_columns(topic: Topic, rows: pa.Schema, described: str) -> None:
    """Raises: SchemaMismatch: the rows have columns that the topic lacks, and would fit with them."""
    try:
        merged = with_columns(topic, rows, described)
    except EosLogError:
        # The rows do not fit in any case. A later check raises an error that names the column.
        return
    if merged != topic.topic_schema:
        listed = ", ".join(map(repr, missing_columns(topic, merged)))
        raise SchemaMismatch(
            f"topic {topic.topic} has no column {listed}. Its columns are: {', '.join(stored_schema(topic).names)}. "
            "Option mergeSchema=true adds missing columns"
        )
