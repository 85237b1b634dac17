"""Simulated processes around a topic that is deleted and created again: who does it, who writes, reads and copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eoslog.errors import (
    CorruptRecord,
    EosLogError,
    FatalError,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from eoslog.producer.producer import Producer
from eoslog.state.entries import TopicConfig
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.simulation.ledger import Ledger, Outcome, Sent, Work
from tests.simulation.maintenance import DELETED_FILE_RETENTION_MS
from tests.simulation.recreated import PARTITION_COUNT, RECREATED, check_copied, check_shown, life_during, lives
from tests.simulation.service import OTHER, GaveUp, Service, open_store, until_done
from tests.simulation.world import Process, World
from tests.simulation.writers import commit

GROUP = "recreated"


class _OfRecreated(Service):
    """A client of the topic, which may find it gone at any time."""

    def incarnation(self, process: Process) -> None:
        try:
            self.run(process, open_store(process))
        except UnknownTopicOrPartition as error:
            self.world.marks["recreated: topic found gone"] += 1
            raise GaveUp from error

    def run(self, process: Process, store: Store) -> None:
        raise NotImplementedError

    def send(self, producer: Producer, work: Work) -> None:
        """Hand a row over."""
        number = sum(sent.work is work for sent in self.ledger.sent.values())
        value = f"{work.name}#{number}".encode()
        partition = self.random.randrange(PARTITION_COUNT)
        self.ledger.sent[value] = Sent(work, partition, max(self.world.every_slot))
        producer.send(RECREATED, value, partition=partition)

    @contextmanager
    def work(self) -> Iterator[Work]:
        """Work whose rows note when it ended, if that is told."""
        work = self.ledger.begin(self.name)
        yield work
        if work.outcome is Outcome.COMMITTED:
            newest = max(self.world.every_slot)
            mine = [sent for sent in self.ledger.sent.values() if sent.work is work]
            for sent in mine:
                sent.ended_slot = newest
            if mine and life_during(self.world, mine[0].sent_slot, newest) is None:
                self.world.marks["recreated: acknowledged across lives"] += 1


class Recreator(Service):
    """Deletes the topic and creates it again, at any time; in some lives it keeps its rows for a short time only."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self._deletions_left = self.random.choice((1, 2, 4, 1_000))

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        while not self.world.stopping:
            self._create(store)
            self.pause(process, self.random.choice((2_000, 10_000, 60_000)))
            if not self._deletions_left:
                continue
            if self._happens(lambda: store.admin.delete_topic(RECREATED), UnknownTopicOrPartition):
                self._deletions_left -= 1
                self.world.marks["recreated: topic deleted"] += 1
            self.pause(process, self.random.choice((2, 2_000)))

    def settle(self, process: Process) -> None:
        self._create(open_store(process))

    def check(self, store: Store) -> None:
        (*_, life) = lives(self.world)
        rows = store.scan(RECREATED, columns=["partition", "value"]).to_table().to_pylist()
        newest = max(self.world.every_slot)
        check_shown(self.ledger, life, [(row["partition"], row["value"]) for row in rows], newest, whole=True)

    def _create(self, store: Store) -> None:
        config = TopicConfig(segment_batches=3, retention_ms=self.random.choice((-1, -1, -1, 5_000)))
        self._happens(
            lambda: store.admin.create_topic(RECREATED, partitions=PARTITION_COUNT, config=config), TopicAlreadyExists
        )

    def _happens(self, call: Callable[[], object], done_before: type[EosLogError]) -> bool:
        try:
            until_done(call)
        except done_before:
            return False
        return True


class RecreatedWriter(_OfRecreated):
    """Transactions of rows in the topic, and in one that stays."""

    def run(self, process: Process, store: Store) -> None:
        producer = store.producer(
            self.name,
            transaction_timeout_ms=self.random.choice((20_000, 120_000)),
            staged=self.random.random() < 0.4,
        )
        until_done(producer.init_transactions)
        while not self.world.stopping:
            with self.work() as work:
                self._transaction(process, producer, work)
            self.pause(process)

    def _transaction(self, process: Process, producer: Producer, work: Work) -> None:
        try:
            producer.begin_transaction()
            for _ in range(self.random.randrange(1, 5)):
                if self.random.random() < 0.2:
                    producer.send(OTHER, work.row(OTHER, 0), partition=0)
                else:
                    self.send(producer, work)
                if self.random.random() < 0.3:
                    until_done(producer.flush)
                if self.random.random() < 0.2:
                    self.pause(process, 5_000)
        except EosLogError as error:
            work.outcome = Outcome.ABORTED
            if isinstance(error, FatalError) and not isinstance(error, UnknownTopicOrPartition):
                raise
            try:
                until_done(producer.abort_transaction)
            except FatalError as fatal:
                raise GaveUp from fatal
            return
        commit(producer, work)


class RecreatedIdempotent(_OfRecreated):
    """Rows without a transaction, one by one."""

    def run(self, process: Process, store: Store) -> None:
        producer = store.producer()
        while not self.world.stopping:
            with self.work() as work:
                self.send(producer, work)
                until_done(producer.flush)
                work.outcome = Outcome.COMMITTED
            self.pause(process, 2_000)


class RecreatedReader(_OfRecreated):
    """Reads the topic again and again."""

    def run(self, process: Process, store: Store) -> None:
        while not self.world.stopping:
            isolation = self.random.choice(("read_committed", "snapshot"))
            first_slot, started_ms = max(self.world.every_slot), self.world.time_ms
            try:
                scan = store.scan(RECREATED, isolation_level=isolation, columns=["partition", "value"])
                rows = scan.to_table().to_pylist()
            except OffsetOutOfRange:
                continue
            except CorruptRecord:
                # A reader that was paused for longer than files are kept may find its files gone.
                if self.world.time_ms - started_ms < DELETED_FILE_RETENTION_MS and not process.cut_reads:
                    raise
                continue
            life = life_during(self.world, first_slot, max(self.world.every_slot))
            if life is not None:
                found = [(row["partition"], row["value"]) for row in rows]
                check_shown(self.ledger, life, found, first_slot, whole=isolation == "snapshot")
                self.world.marks["recreated: read"] += bool(found)
            self.pause(process)


class RecreatedPipeline(_OfRecreated):
    """Copies the topic into one that stays: of each life, what its group has consumed."""

    def run(self, process: Process, store: Store) -> None:
        producer = store.producer(self.name, transaction_timeout_ms=20_000, staged=self.random.random() < 0.5)
        until_done(producer.init_transactions)
        consumer = store.consumer(GROUP, auto_offset_reset="earliest", max_poll_records=3, session_timeout_ms=6_000)
        consumer.subscribe([RECREATED])
        while not self.world.stopping:
            records = until_done(lambda: consumer.poll(timeout=2.0))
            if not records:
                self.pause(process)
                continue
            work = self.ledger.begin(self.name)
            producer.begin_transaction()
            for record in records:
                value = b"%s#%d|%s" % (work.name.encode(), len(work.rows), record.value)
                work.rows.append((OTHER, 0, value))
                producer.send(OTHER, value, partition=0)
            if self.random.random() < 0.5:
                self.pause(process, 10_000)
                until_done(producer.flush)
            positions = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            if self.random.random() < 0.3:
                self.pause(process, 10_000)
            commit(producer, work)
            if work.outcome is not Outcome.COMMITTED:
                raise GaveUp
            self.world.marks["recreated: copied"] += 1

    def check(self, store: Store) -> None:
        (*_, life) = lives(self.world)
        if life.loses_rows:
            return
        places = [TopicPartition(RECREATED, partition) for partition in range(PARTITION_COUNT)]
        committed = store.consumer(GROUP).committed(places)
        ends = {place.partition: found.offset if found is not None else 0 for place, found in committed.items()}
        rows = store.scan(RECREATED, columns=["partition", "offset", "value"]).to_table().to_pylist()
        values = [row["value"] for row in store.scan(OTHER, columns=["value"]).to_table().to_pylist()]
        check_copied(
            [row["value"] for row in rows if row["offset"] < ends[row["partition"]]],
            Counter(value.partition(b"|")[2] for value in values if b"|" in value),
            {row["value"] for row in rows},
        )
