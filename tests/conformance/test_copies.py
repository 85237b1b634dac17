"""Consume, transform, produce: 500 records are copied from topic to topic, whatever aborts, dies or does not answer."""

from __future__ import annotations

from collections import defaultdict

import pytest

from eoslog.errors import AbortableError, ProducerFenced
from eoslog.session.positions import OffsetAndMetadata
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.conformance.end_to_end import Stage, polled

RECORDS = 500
GROUP = "copiers"


def fill(stage: Stage) -> None:
    with stage.process().producer() as producer:
        for number in range(RECORDS):
            producer.send("topic1", b"%d" % number, key=b"%d" % number)
            if number % 100 == 0:
                producer.flush()


class Copier:
    """One process that copies ``topic1``, each partition into that of the same number, a transaction a poll."""

    def __init__(self, stage: Stage) -> None:
        self.store: Store = stage.process()
        self.consumer = self.store.consumer(GROUP, auto_offset_reset="earliest", max_poll_records=40)
        self.producer = self.store.producer("copier", max_block_ms=30_000)

    def start(self) -> None:
        self.consumer.subscribe(["topic1"])
        self.producer.init_transactions()

    def step(self, outcome: str) -> int:
        """Copy what a poll gives, and commit or abort it. Returns how many records it were."""
        records = self.consumer.poll(0)
        if not records:
            return 0
        self.producer.begin_transaction()
        for number, record in enumerate(records):
            self.producer.send("topic2", record.value, key=record.key, partition=record.partition)
            if number == len(records) // 2:
                self.producer.flush()
        positions = {place: self.consumer.position(place) for place in self.consumer.assignment()}
        self.producer.send_offsets_to_transaction(positions, self.consumer.group_metadata())
        try:
            if outcome == "abort":
                self.producer.flush()
                self.producer.abort_transaction()
            else:
                self.producer.commit_transaction()
        except AbortableError:
            self.producer.abort_transaction()
            outcome = "abort"
        if outcome == "abort":
            self.back_to_committed()
        return len(records)

    def back_to_committed(self) -> None:
        for place, committed in self.consumer.committed(self.consumer.assignment()).items():
            self.consumer.seek(place, committed.offset if committed else 0)


def copied(store: Store, topic: str = "topic2") -> dict[int, list[bytes]]:
    """The values of each partition in the order of their offsets."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for record in polled(store, topics=[topic]):
        found[record.partition].append(record.value)
    return found


def lag(store: Store) -> int:
    """How many offsets the group has not committed yet."""
    ends = {TopicPartition("topic1", each.partition): each.last_stable_offset for each in store.admin.offsets("topic1")}
    committed = store.consumer(GROUP).committed(ends)
    return sum(end - (found.offset if (found := committed[place]) else 0) for place, end in ends.items())


@pytest.mark.scenario(124, 139)
def test_every_record_is_copied_once_while_commits_and_aborts_alternate(stage: Stage) -> None:
    fill(stage)
    copier = Copier(stage)
    copier.start()
    turns = 0
    while lag(copier.store):
        copier.step(("commit", "abort")[turns % 2])
        turns += 1

    store = stage.cold()
    values = [value for partition in copied(store).values() for value in partition]
    assert len(values) == len(set(values)) == RECORDS
    assert copied(store) == copied(store, "topic1")
    assert len(polled(store, "read_uncommitted", ["topic2"])) > RECORDS


@pytest.mark.scenario(126, 139)
def test_offsets_in_a_transaction_keep_their_metadata_and_leader_epoch(stage: Stage) -> None:
    place = TopicPartition("topic1", 0)
    position = OffsetAndMetadata(110, metadata="some metadata", leader_epoch=15)
    producer = stage.producer()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({place: position}, GROUP)
    producer.commit_transaction()

    assert stage.cold().consumer(GROUP).committed([place]) == {place: position}


@pytest.mark.scenario(125, 139)
def test_a_copier_that_was_replaced_commits_neither_rows_nor_offsets(stage: Stage) -> None:
    fill(stage)
    zombie = Copier(stage)
    zombie.start()
    zombie.step("commit")
    records = zombie.consumer.poll(0)
    zombie.producer.begin_transaction()
    for record in records:
        zombie.producer.send("topic2", record.value, partition=record.partition)
    zombie.producer.flush()
    stage.world.pass_time(50_000)
    successor = Copier(stage)
    successor.start()
    while lag(successor.store):
        successor.step("commit")

    with pytest.raises(ProducerFenced):
        zombie.producer.commit_transaction()

    store = stage.cold()
    assert copied(store) == copied(store, "topic1")
