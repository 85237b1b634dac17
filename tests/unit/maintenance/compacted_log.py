"""A compacted topic of one partition for tests: transactions of named producers, and what is left of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from eoslog import Store, TopicConfig
from eoslog.format.kafka_files import decode_transaction_index
from eoslog.format.segment_index import iterate_segment_index
from eoslog.maintenance.key_compaction import KeyCompactionReport, compact_keys
from eoslog.maintenance.sealing import seal_segments
from eoslog.producer.producer import Producer
from eoslog.state.partition_state import AbortedTransaction, Batch, Partition
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.unit.support.clock import Clock

DAY_MS = 24 * 3600 * 1000


class Row(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


class Elapsed(Environment):
    """Elapsed time is that of the store's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def monotonic_ms(self) -> int:
        return self._clock.now_ms


class CompactedLog:
    """The topic ``t``; every batch is a segment of its own unless ``segment_batches`` says otherwise."""

    def __init__(self, *, segment_batches: int = 1, **config: Any) -> None:
        self.clock = Clock()
        self.objects = MemoryStore(Elapsed(self.clock), wall_clock=self.clock)
        self.store = self.process()
        settings = {"cleanup_policy": "compact", "segment_batches": segment_batches} | config
        self.store.admin.create_topic("t", config=TopicConfig(**settings))
        self._producers: dict[str, Producer] = {}

    def process(self) -> Store:
        return Store(self.objects, Environment())

    def producer(self, name: str) -> Producer:
        """A transactional producer, or one without transactions if the name begins with ``plain``."""
        if name not in self._producers:
            plain = name.startswith("plain")
            self._producers[name] = self.store.producer(None if plain else name)
            if not plain:
                self._producers[name].init_transactions()
        return self._producers[name]

    def send(
        self, name: str, *keys: int, value: Any = b"value", begin: bool = False, timestamp: int | None = None
    ) -> None:
        """One batch of records with these keys."""
        producer = self.producer(name)
        if begin:
            producer.begin_transaction()
        for key in keys:
            producer.send("t", value, key=b"%d" % key)
        producer.flush()

    def write(self, name: str, *keys: int, commit: bool = True, value: Any = b"value") -> None:
        """A whole transaction of one batch."""
        self.send(name, *keys, begin=True, value=value)
        self.end(name, commit=commit)

    def end(self, name: str, *, commit: bool) -> None:
        if commit:
            self.producer(name).commit_transaction()
        else:
            self.producer(name).abort_transaction()

    def seal(self) -> None:
        seal_segments(self.store)

    def compact(self, environment: Environment | None = None, **options: Any) -> KeyCompactionReport:
        """Seal what can be, then make a pass."""
        self.seal()
        store = Store(self.objects, environment or Environment())
        return compact_keys(store, **{"force": True} | options)

    def partition(self) -> Partition:
        def look(state: StoreState, slot: int) -> Partition:
            return next(iter(state.partitions.values()))

        return self.store.read(look)

    def batches(self) -> list[Batch]:
        """All batches and control rows, sealed and active."""
        partition = self.partition()
        sealed = [
            batch
            for segment in partition.sealed
            for batch in list(iterate_segment_index(self.objects.get(segment.index.path).body, segment.index.path))
        ]
        return sealed + partition.active

    def aborted(self) -> list[AbortedTransaction]:
        """The entries of all transaction indexes."""
        return [
            entry
            for segment in self.partition().sealed
            if segment.txnindex is not None
            for entry in decode_transaction_index(self.objects.get(segment.txnindex.path).body, segment.txnindex.path)
        ]

    def markers(self) -> list[int]:
        """Offsets of the control rows that are left."""
        return [batch.base_offset for batch in self.batches() if batch.control is not None and batch.record_count]

    def rows(self, isolation: str = "read_uncommitted", **options: Any) -> list[Row]:
        table = self.process().scan("t", isolation_level=isolation, columns=["offset", "key", "value"], **options)
        return [Row(**row) for row in table.to_table().to_pylist()]

    def offsets(self) -> list[int]:
        """Offsets of the rows and control rows that are left, in their order."""
        return sorted([row.offset for row in self.rows()] + self.markers())

    def record_keys(self, isolation: str = "read_committed") -> list[int]:
        return [int(row.key or b"-1") for row in self.rows(isolation)]
