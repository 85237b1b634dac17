"""A member of a group in a process of its own. It copies rows with transactions, which have the offsets of the rows."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.kafka_clients.group_members import SESSION_TIMEOUT_MS

_ROWS = 20
"""The most rows of a transaction."""
_PATIENCE_S = 120


def say(kind: str, value: object = None) -> None:
    print(json.dumps([kind, value]), flush=True)


def repeated(call: Callable[[float], object]) -> None:
    """Call a method of a producer until it has an outcome. Raises: KafkaException: it is not retriable."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            call(10)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise


class Copier:
    """A member that copies."""

    def __init__(self, servers: str, source: str, sink: str, number: str, pause_s: str) -> None:
        self._sink = sink
        self._pause_s = float(pause_s)
        self._rows: list[Any] = []
        """The rows of the next transaction, all of this generation."""
        self._generation: Any = None
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": f"{sink}-{number}",
                "reconnect.backoff.max.ms": 500,
            }
        )
        repeated(self._producer.init_transactions)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": sink,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.subscribe([source], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, consumer: Any, partitions: object) -> None:
        self._generation = consumer.consumer_group_metadata()

    def _revoked(self, consumer: object, partitions: object) -> None:
        self._generation = None
        self._rows.clear()

    def run(self) -> None:
        """Copy rows until a transaction fails."""
        while True:
            message = self._consumer.poll(0.3)
            if message is not None and message.error() is None:
                self._rows.append(message)
            if len(self._rows) >= _ROWS or (message is None and self._rows):
                self._copy()
                self._rows.clear()

    def _copy(self) -> None:
        producer = self._producer
        producer.begin_transaction()
        for row in self._rows:
            producer.produce(self._sink, row.value(), partition=row.partition())
        producer.flush(_PATIENCE_S)
        say("written")
        time.sleep(self._pause_s)
        ends = {row.partition(): row.offset() + 1 for row in self._rows}
        offsets = [TopicPartition(self._rows[0].topic(), partition, end) for partition, end in ends.items()]
        repeated(lambda timeout: producer.send_offsets_to_transaction(offsets, self._generation, timeout))
        repeated(producer.commit_transaction)
        say("committed")


def main(*arguments: str) -> None:
    """Copy until the process is killed. A copier whose transaction fails is replaced by a new one."""
    while True:
        copier = Copier(*arguments)
        try:
            copier.run()
        except KafkaException as error:
            say("refused", error.args[0].name())
            # The next copier aborts the transaction, as it has the same transactional id.
            copier._consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
