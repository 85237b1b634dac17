"""Random histories of a topic on local disk: everything that decides which rows of which files a reader is shown."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa

import eoslog
from eoslog import Coordinator, TopicConfig, TopicPartition
from eoslog.producer.producer import Producer
from tests.unit.support.transactions import open_transaction

NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string())])
TOPIC = "t"
STEPS = ("send", "send", "send", "begin", "end", "compact_files", "compact_keys", "delete", "partitions")


class TableHistory:
    """A store with one topic, and the producers that write to it.

    Args:
        seed: decides everything.
        records: a topic of Kafka records instead of columns.
        compacted: by key.
    """

    def __init__(self, directory: Path, seed: int, *, records: bool = False, compacted: bool = False) -> None:
        self.store = eoslog.connect(str(directory / f"store-{seed}"), fsync=False)
        self.slots: list[int] = []
        self._random = random.Random(seed)
        self._records = records
        self._compacted = compacted
        self._open: dict[str, Producer] = {}
        self._sent = 0
        policy = "compact,delete" if compacted else "delete"
        config = TopicConfig(segment_batches=self._random.choice([2, 3, 5]), cleanup_policy=policy)
        schema, key = (None, ()) if records else (NUMBERS, ("text",))
        self.store.admin.create_topic(TOPIC, partitions=2, schema=schema, key=key, config=config)
        self._plain = self.store.producer()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            getattr(self, f"_{self._random.choice(STEPS)}")()
            if self._random.random() < 0.2:
                self.slots.append(self.store.read(lambda state, slot: slot))

    def _send(self) -> None:
        for _ in range(self._random.randint(1, 3)):
            producer = self._random.choice([self._plain, *self._open.values()])
            self._send_rows(producer, self._random.choice([1, 2, 7]))
            producer.flush()

    def _send_rows(self, producer: Producer, count: int) -> None:
        numbers = list(range(self._sent, self._sent + count))
        self._sent += count
        keys = [str(self._random.randint(0, 4)) for _ in numbers]
        if not self._records:
            producer.send_table(TOPIC, pa.table({"n": numbers, "text": keys}, schema=NUMBERS))
            return
        for number, key in zip(numbers, keys, strict=True):
            headers = [("h", b"%d" % number)] if number % 3 else None
            producer.send(
                TOPIC, b"%d" % number, key=key.encode(), headers=headers, timestamp=1_700_000_000_000 + number
            )

    def _begin(self) -> None:
        name = self._random.choice(["eager", "staged"])
        if name not in self._open:
            producer = open_transaction(self.store, name, staged=name == "staged")
            self._open[name] = producer

    def _end(self) -> None:
        if self._open:
            producer = self._open.pop(self._random.choice(sorted(self._open)))
            if self._random.random() < 0.5:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            producer.close()

    def _compact_files(self) -> None:
        Coordinator(self.store).seal()
        self.store.admin.compact_files()

    def _compact_keys(self) -> None:
        if self._compacted:
            Coordinator(self.store).seal()
            self.store.admin.compact_keys(TOPIC)

    def _delete(self) -> None:
        if self._random.random() < 0.3:
            for each in self.store.admin.offsets(TOPIC):
                offset = each.earliest + (each.last_stable_offset - each.earliest) // 3
                self.store.admin.delete_records({TopicPartition(TOPIC, each.partition): offset})

    def _partitions(self) -> None:
        count = self.store.admin.describe_topic(TOPIC).partitions
        if count < 4:
            self.store.admin.create_partitions(TOPIC, count + 1)
