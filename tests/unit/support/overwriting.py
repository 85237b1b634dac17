"""Overwrites: a job replaces the rows of a topic in one slot."""

from __future__ import annotations

import pyarrow as pa

from eoslog import Store
from eoslog.format.file_writer import DataFileWriter, TopicTarget
from eoslog.producer.job import Job, JobCommit
from eoslog.state.topics import topic_named


def overwrite(store: Store, topic: str, rows: pa.Table, partition: int = 0) -> int:
    """Replace all rows of a topic by others in one partition. Return the slot."""
    name = store.environment.new_id()
    target = store.read(lambda state, slot: TopicTarget.of(state, topic_named(state, topic)))
    writer = DataFileWriter(store.object_store, store.environment.new_id)
    writer.add(target, partition, rows)
    commit = JobCommit(
        job=Job(job_id=f"overwrite-{name}", sink="*"),
        owner=name,
        take_over=True,
        replaces=target.topic_id,
        operation="overwrite",
        files=[(0, file) for file in writer.flush(store.now_ms())],
        task_count=1,
        upload_ms=store.object_store.clock.last_date_ms,
        duration_ms=1,
    )
    return commit.append(store)
