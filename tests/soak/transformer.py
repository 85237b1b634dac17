"""Consume, transform, produce: a member of a group that turns orders into invoices, exactly once."""

from __future__ import annotations

from collections.abc import Iterable

import eoslog
from eoslog.errors import EosLogError, TransactionAborted
from tests.checker import Kind, Outcome
from tests.soak.history import place_name, poll_of, send_of
from tests.soak.layout import INVOICES, INVOICING, ORDERS, PARTITIONS
from tests.soak.process import MAX_BLOCK_MS, SoakProcess, main, until_answered
from tests.soak.transactions import TransactionOperation

_RECORDS_A_TRANSACTION = 60


class Transformer(SoakProcess):
    def work(self) -> None:
        self._moved: set[str] = set()
        with (
            self.store.consumer(
                INVOICING,
                auto_offset_reset="earliest",
                max_poll_records=_RECORDS_A_TRANSACTION,
                session_timeout_ms=self.run.session_timeout_ms,
            ) as consumer,
            self.store.producer(
                self.name, transaction_timeout_ms=self.run.transaction_timeout_ms, max_block_ms=MAX_BLOCK_MS
            ) as producer,
        ):
            until_answered(producer.init_transactions)
            self.history.end(self.history.begin(Kind.SUBSCRIBE), Outcome.OK)
            consumer.subscribe(ORDERS, on_assigned=self._move, on_revoked=self._move, on_lost=self._move)
            while not self.stopping:
                records = until_answered(consumer.poll, timeout=0.5)
                if records:
                    self._transform(consumer, producer, records)

    def _move(self, places: Iterable[eoslog.TopicPartition]) -> None:
        self._moved |= {place_name(*each) for each in places}

    def _transform(
        self, consumer: eoslog.Consumer, producer: eoslog.Producer, records: list[eoslog.ConsumerRecord]
    ) -> None:
        rows = [
            (self.random.randrange(PARTITIONS[INVOICES]), f"{self.new_value()}|{record.value.decode()}")
            for record in records
        ]
        sends = [send_of(INVOICES, partition, value) for partition, value in rows]
        operation = TransactionOperation(self.history, [poll_of(records), *sends], keys=sorted(self._moved))
        self._moved.clear()
        try:
            producer.begin_transaction()
            for partition, value in rows:
                until_answered(producer.send, INVOICES, value.encode(), partition=partition)
                if self.random.random() < 0.02:
                    until_answered(producer.flush)
            positions = {eoslog.TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
            until_answered(producer.send_offsets_to_transaction, positions, consumer.group_metadata())
            if self.random.random() < 0.03:
                raise TransactionAborted("by choice")
        except EosLogError as error:
            operation.fail(producer, error)
            consumer.seek_to_committed()
            return
        if not operation.commit(producer):
            consumer.seek_to_committed()


if __name__ == "__main__":
    main(Transformer)
