"""The planning of a write: it finds the topics and checks the columns before anything is uploaded."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from pyspark.sql.types import StructType

from eoslog import Store
from eoslog.errors import SchemaMismatch, UnknownTopicOrPartition, UnsupportedSchema, quoted
from eoslog.producer.job import Job, write_targets
from pyspark_eoslog.options import Options
from pyspark_eoslog.spark_schemas import arrow_schema
from pyspark_eoslog.stores import recently_verified_store, verified_store
from pyspark_eoslog.write.new_columns import plan_new_columns
from pyspark_eoslog.write.row_writing import check_columns, check_routing
from pyspark_eoslog.write.tasks import WritePlan

ANY_TOPIC = "*"
_TOPICS_AGE_MS = 10_000
"""A stream's planner reads the newest topics at most this often (ms)."""


def plan_batch_write(options: Options, schema: StructType) -> tuple[WritePlan, Store]:
    """Plan a batch write on the newest state.

    Raises:
        UnknownTopicOrPartition, SchemaMismatch, UnsupportedSchema
    """
    store = verified_store(options.location)
    return _plan(options, schema, store, refresh=True), store


def plan_stream_write(options: Options, schema: StructType, job_id: str | None) -> WritePlan:
    """Plan a micro-batch. This needs no request if the known state is recent and its topic accepts the rows.

    Args:
        job_id: the stream's transactional id, if it is known before the query.

    Raises:
        UnknownTopicOrPartition, SchemaMismatch, UnsupportedSchema
    """
    store, refresh = recently_verified_store(options.location, _TOPICS_AGE_MS)
    if not refresh:
        with suppress(UnknownTopicOrPartition, SchemaMismatch, UnsupportedSchema):
            plan = _plan(options, schema, store, refresh=False)
            if plan.new_columns is None:
                return plan
    # Plan again on the newest state: the topic may have been created, or columns added, in the meantime.
    plan = _plan(options, schema, store, refresh=True)
    # Tasks upload nothing if the last committed micro-batch says so. So it must come from the newest state.
    if job_id is None:
        return plan
    job = Job(job_id=job_id, sink=plan.sink, starts_anew_after=options.start_anew_after)
    return replace(plan, last=job.last_version(store))


def _plan(options: Options, schema: StructType, store: Store, *, refresh: bool) -> WritePlan:
    columns = arrow_schema(schema)
    name = options.topic_to_write()
    new_columns = None
    try:
        store_id, targets = write_targets(store, name, refresh=refresh)
    except UnknownTopicOrPartition:
        known = ", ".join(store.read(lambda state, slot: sorted(state.topic_ids), refresh=False)) or "none"
        raise UnknownTopicOrPartition(
            f"no topic is named {quoted(name)}; the store has: {known}. Create it first: eoslog.connect(path).admin."
            "create_topic(name, partitions=…, schema=pyspark_eoslog.topic_schema(df.schema))"
        ) from None
    if name is None:
        options.refuse(("mergeSchema",), "is for a topic of columns: name it with option 'topic'")
        check_routing(columns)
        for topic, _ in targets[:1]:
            check_columns(columns, topic)
        sink = ANY_TOPIC
    else:
        ((topic, target),) = targets
        topic, new_columns = plan_new_columns(topic, options, schema, columns)
        check_columns(columns, topic)
        targets = [(topic, target)]
        sink = f"{topic.topic}:{topic.topic_id}"
    return WritePlan(
        options.location,
        store_id,
        tuple(targets),
        name is None,
        sink,
        store.object_store.clock.last_date_ms,
        store.now_ms(),
        new_columns=new_columns,
    )
