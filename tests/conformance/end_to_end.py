"""The stage of the end-to-end scenarios: two topics, processes that write, and readers that open the store cold.

It is set once as it is written, and once so that all that is decided lies in sealed and compacted segments (Kafka's
tiered storage): processes seal while they write, and a reader finds nothing of it but through index files.
"""

from __future__ import annotations

from collections.abc import Sequence

from eoslog.consumer.consumer_records import ConsumerRecord
from eoslog.log.replica import LogConfig
from eoslog.maintenance.sealing import seal_segments
from eoslog.producer.producer import Producer
from eoslog.state.entries import TopicConfig
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.world import World

PARTITIONS = 4
TOPICS = ("topic1", "topic2")
PLACES = [TopicPartition(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
LAYOUTS = {"as written": None, "sealed": 1, "sealed but for its end": 3}
"""How many batches make a segment."""
GROUP = "copiers"


class Stage:
    def __init__(self, world: World, layout: str) -> None:
        self.world = world
        self.segment_batches = LAYOUTS[layout]
        self.store = self.process()
        for topic in TOPICS:
            self.create_topic(topic, PARTITIONS)

    @property
    def seals(self) -> bool:
        return self.segment_batches is not None

    def create_topic(self, topic: str, partitions: int) -> None:
        batches = self.segment_batches
        config = TopicConfig() if batches is None else TopicConfig(segment_batches=batches)
        self.store.admin.create_topic(topic, partitions=partitions, config=config)

    def process(self) -> Store:
        return self.world.process(LogConfig(checkpoint_slots=4) if self.seals else None)

    def producer(self, transactional_id: str = "tx", *, store: Store | None = None, **options: int) -> Producer:
        """A producer that is initialised, in a process of its own unless one is given."""
        producer = (store or self.process()).producer(transactional_id, **options)  # type: ignore[arg-type]
        producer.init_transactions()
        return producer

    def cold(self) -> Store:
        """A process that has read nothing yet."""
        if self.seals:
            store = self.process()
            store.read(lambda state, slot: None)
            seal_segments(store)
            store.admin.compact_files()
            store.log.checkpoint()
        return self.process()

    def shown(self, isolation_level: str = "read_committed", topics: Sequence[str] = TOPICS) -> list[bytes]:
        """The values of a topic, or of both, that a consumer is given, in no order; a scan shows the same ones."""
        store = self.cold()
        values = sorted(record.value for record in polled(store, isolation_level, topics))
        scans = [store.scan(topic, isolation_level=isolation_level, columns=["value"]) for topic in topics]
        assert values == sorted(value for scan in scans for value in scan.to_table()["value"].to_pylist())
        return values


def polled(
    store: Store, isolation_level: str = "read_committed", topics: Sequence[str] = TOPICS
) -> list[ConsumerRecord]:
    """What a consumer without group is given from the beginning to the end of what it may see."""
    with store.consumer(isolation_level=isolation_level, auto_offset_reset="earliest") as consumer:
        consumer.assign(
            TopicPartition(topic, number)
            for topic in topics
            for number in range(store.admin.describe_topic(topic).partitions)
        )
        found = consumer.poll(0)
        while any(consumer.lag().values()):
            found += consumer.poll(0)
    return found


def send(producer: Producer, *values: str, topic: str = "topic1", partition: int | None = None) -> None:
    """Hand over records whose key is their value."""
    for value in values:
        producer.send(topic, value.encode(), key=value.encode(), partition=partition)


def transaction(
    producer: Producer, outcome: str, *values: str, topic: str = "topic1", partition: int | None = None
) -> None:
    """One whole transaction, written before it is ended: ``commit`` or ``abort``."""
    producer.begin_transaction()
    send(producer, *values, topic=topic, partition=partition)
    producer.flush()
    if outcome == "commit":
        producer.commit_transaction()
    else:
        producer.abort_transaction()
