"""A producer without transactions: each flush is an operation, and its rows go to any of three topics."""

from __future__ import annotations

import logging
from concurrent.futures import Future

import eoslog
from eoslog.errors import ApplicationRecoverableError, EosLogError, FatalError, StoreAccessDenied
from tests.checker import Kind, Outcome
from tests.soak.history import send_of
from tests.soak.layout import NEWEST, ORDERS, PARTITIONS, RECENT
from tests.soak.process import MAX_BLOCK_MS, SoakProcess, main, until_answered

_KEYS = 5
_PAUSE_S = 0.15


class IdempotentProducer(SoakProcess):
    def work(self) -> None:
        producer = self.store.producer(max_block_ms=MAX_BLOCK_MS)
        while True:
            self._send(producer)
            if self.is_done:
                break
            self.pause(_PAUSE_S)
        producer.close()

    def _send(self, producer: eoslog.Producer) -> None:
        topic = self.random.choices([ORDERS, NEWEST, RECENT], [6, 1, 1])[0]
        rows = [self._new_row(topic) for _ in range(self.random.randint(1, 20))]
        operation = self.history.begin(Kind.SEND, [send_of(topic, partition, value) for partition, value in rows])
        handed_over: list[Future[eoslog.RecordMetadata]] = []
        try:
            for partition, value in rows:
                handed_over.append(until_answered(_hand_over, producer, topic, partition, value))
            until_answered(producer.flush)
        except EosLogError as error:
            logging.warning("%s: %s", type(error).__name__, error)
            self.history.end(operation, _outcome(error, handed_over))
            if isinstance(error, (ApplicationRecoverableError, FatalError)) and not isinstance(
                error, StoreAccessDenied
            ):
                raise
            return
        offsets = [each.result().offset for each in handed_over]
        sends = [
            send_of(topic, partition, value, offset if offset >= 0 else None)
            for (partition, value), offset in zip(rows, offsets, strict=True)
        ]
        self.history.end(operation, Outcome.OK, sends)

    def _new_row(self, topic: str) -> tuple[int, str]:
        """A row of the compacted topic tells its key, which belongs to this process and to one partition."""
        partition = self.random.randrange(PARTITIONS[topic])
        value = self.new_value()
        return (
            partition,
            value if topic != NEWEST else f"{value}@{self.name}-{partition}-{self.random.randrange(_KEYS)}",
        )


def _hand_over(producer: eoslog.Producer, topic: str, partition: int, value: str) -> Future[eoslog.RecordMetadata]:
    _, _, key = value.partition("@")
    return producer.send(topic, value.encode(), key=key.encode() or None, partition=partition)


def _outcome(error: EosLogError, handed_over: list[Future[eoslog.RecordMetadata]]) -> Outcome:
    """A refusal says that nothing was written, if none of the rows was written by a flush before it."""
    refused = all(each.done() and isinstance(each.exception(), StoreAccessDenied) for each in handed_over)
    return Outcome.FAIL if isinstance(error, StoreAccessDenied) and refused else Outcome.INFO


if __name__ == "__main__":
    main(IdempotentProducer)
