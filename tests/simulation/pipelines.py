"""Simulated pipelines: consume-transform-produce by a consumer group, and a streaming job's driver."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from eoslog.consumer.consumer import Consumer
from eoslog.consumer.consumer_records import ConsumerRecord
from eoslog.errors import Replayed
from eoslog.format.file_writer import DataFileWriter, TopicTarget
from eoslog.format.topic_schemas import RECORDS_SCHEMA
from eoslog.producer.producer import Producer
from eoslog.state.end_requests import TransactionContent
from eoslog.state.jobs import CommitJob
from eoslog.state.names import TopicPartition
from eoslog.state.topics import topic_named
from eoslog.state.transaction_entries import ApplicationVersion, CommitSummary
from eoslog.store import Store
from tests.requests import Applying
from tests.simulation.ledger import Ledger, Outcome, Work
from tests.simulation.service import IN, JOB, OUT, PARTITIONS, Service, open_store, until_done
from tests.simulation.world import Process, World
from tests.simulation.writers import TwoPhaseService, commit

GROUP = "pipeline"


class Pipeline(TwoPhaseService):
    """Consume, transform, produce: each input row becomes one output row, whoever dies, in one phase or in two."""

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        producer = self.recover(store)
        consumer = store.consumer(
            GROUP,
            auto_offset_reset="earliest",
            max_poll_records=5,
            session_timeout_ms=6_000,
            group_instance_id=self.random.choice((None, self.name)),
        )
        consumer.subscribe([IN])
        while not self.world.stopping:
            records = until_done(lambda: consumer.poll(timeout=2.0))
            if not records:
                self.pause(process)
                continue
            work = self.ledger.begin(self.name)
            self._transform(producer, consumer, records, work)
            if self.random.random() < 0.2:
                work.outcome = Outcome.ABORTED
                until_done(producer.abort_transaction)
            elif self.random.random() < 0.3:
                self.commit_in_two_phases(process, producer, work)
            else:
                commit(producer, work)
            if work.outcome is not Outcome.COMMITTED:
                self._go_back(consumer)

    def _transform(self, producer: Producer, consumer: Consumer, records: Sequence[ConsumerRecord], work: Work) -> None:
        producer.begin_transaction()
        for record in records:
            partition = self.random.randrange(PARTITIONS[OUT])
            value = b"%s#%d|%s" % (work.name.encode(), len(work.rows), record.value)
            work.rows.append((OUT, partition, value))
            producer.send(OUT, value, partition=partition)
            place = TopicPartition(record.topic, record.partition)
            if self.random.random() < 0.2:
                producer.send_offsets_to_transaction({place: record.offset + 1}, consumer.group_metadata())
        positions = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())

    def _go_back(self, consumer: Consumer) -> None:
        """Read again from what the group has committed."""
        committed = until_done(lambda: consumer.committed(consumer.assignment()))
        for place, found in committed.items():
            consumer.seek(place, found.offset if found is not None else 0)


class Job(Service):
    """A streaming job's driver: micro-batches are planned durably, committed in one slot, replayed after a crash."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self.planned: list[Work] = []
        self.done = 0

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        owner = store.environment.new_id()
        while not self.world.stopping:
            if self.done == len(self.planned):
                work = self.ledger.begin(self.name)
                for _ in range(self.random.randrange(0, 5)):
                    work.row(JOB, self.random.randrange(PARTITIONS[JOB]))
                self.planned.append(work)
            number = self.done
            work = self.planned[number]
            try:
                self._micro_batch(store, owner, number, work)
            except Replayed:
                self.world.marks["micro-batch replayed"] += 1
            work.outcome = Outcome.COMMITTED
            self.done = max(self.done, number + 1)
            self.pause(process)

    def _micro_batch(self, store: Store, owner: str, number: int, work: Work) -> None:
        topic = store.read(lambda state, slot: topic_named(state, JOB))
        target = store.read(lambda state, slot: TopicTarget.of(state, topic), refresh=False)
        upload_ms = store.now_ms()
        upload_ms = store.object_store.clock.last_date_ms
        writer = DataFileWriter(store.object_store, store.environment.new_id)
        for partition in range(PARTITIONS[JOB]):
            values = [value for _, place, value in work.rows if place == partition]
            if values:
                writer.add(target, partition, _records(values, upload_ms))
        files = until_done(lambda: writer.flush(upload_ms))
        application_version = ApplicationVersion(application_id="query", sink=f"{JOB}:{topic.topic_id}", version=number)
        until_done(
            lambda: store.append(
                Applying(
                    lambda draft: CommitJob(
                        job_id=self.name,
                        owner=owner,
                        take_over=True,
                        content=TransactionContent(
                            batches=[file.staged(0) for file in files],
                            upload_ms=upload_ms,
                            application_version=application_version,
                            task_count=1,
                            summary=CommitSummary(rows=len(work.rows)),
                        ),
                        time_ms=store.now_ms(),
                    ).apply(draft)
                )
            )
        )


def _records(values: list[bytes], timestamp: int) -> pa.Table:
    rows = [{"key": None, "value": value, "headers": None, "timestamp": timestamp} for value in values]
    return pa.Table.from_pylist(rows, schema=RECORDS_SCHEMA)
