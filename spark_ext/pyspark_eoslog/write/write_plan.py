"""The planning of a write: it finds the topics and checks the columns before anything is uploaded."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from pyspark.sql.types import StructType

from eoslog.errors import SchemaMismatch, UnknownTopicOrPartition, UnsupportedSchema, quoted
from eoslog.format.file_writer import TopicTarget
from eoslog.state.application_versions import last_version, starts_anew
from eoslog.state.store_state import LastVersion, StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.state.transaction_entries import ApplicationToken
from eoslog.store import Store
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
    return plan if job_id is None else replace(plan, last=_last_micro_batch(options, store, job_id, plan.sink))


def _last_micro_batch(options: Options, store: Store, job_id: str, sink: str) -> LastVersion | None:
    """Return the last committed micro-batch; None if there is none, or if the user restarts after it."""

    def snapshot(state: StoreState, slot: int) -> LastVersion | None:
        last = last_version(state, job_id, job_id, sink)
        if last is None:
            return None
        token = ApplicationToken(
            application_id=job_id, sink=sink, version=0, starts_anew_after=options.start_anew_after
        )
        return None if starts_anew(token, last) else last

    return store.read(snapshot, refresh=False)


def _plan(options: Options, schema: StructType, store: Store, *, refresh: bool) -> WritePlan:
    columns = arrow_schema(schema)
    name = options.topic_to_write()
    new_columns = None

    def snapshot(state: StoreState, slot: int) -> tuple[str, list[tuple[Topic, TopicTarget]]]:
        if name is None:
            topics = [topic for topic in state.topics.values() if topic.topic_schema.kind == "records"]
        else:
            topics = [_topic(state, name)]
        return state.store_id, [(topic, TopicTarget.of(state, topic)) for topic in topics]

    store_id, targets = store.read(snapshot, refresh=refresh)
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


def _topic(state: StoreState, name: str) -> Topic:
    try:
        return topic_named(state, name)
    except UnknownTopicOrPartition:
        known = ", ".join(sorted(state.topic_ids)) or "none"
        raise UnknownTopicOrPartition(
            f"no topic is named {quoted(name)}; the store has: {known}. Create it first: eoslog.connect(path).admin."
            "create_topic(name, partitions=…, schema=pyspark_eoslog.topic_schema(df.schema))"
        ) from None
