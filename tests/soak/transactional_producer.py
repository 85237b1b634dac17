"""A producer of transactions over several partitions and two topics, eager or staged; some it aborts itself."""

from __future__ import annotations

import eoslog
from eoslog.errors import EosLogError, TransactionAborted
from tests.soak.history import send_of
from tests.soak.layout import ORDERS, PARTITIONS, RECENT
from tests.soak.process import MAX_BLOCK_MS, SoakProcess, main, until_answered
from tests.soak.transactions import TransactionOperation

_PAUSE_S = 0.15


class TransactionalProducer(SoakProcess):
    def work(self) -> None:
        staged = self.name.startswith("staged")
        producer = self.store.producer(
            self.name, transaction_timeout_ms=self.run.transaction_timeout_ms, max_block_ms=MAX_BLOCK_MS, staged=staged
        )
        until_answered(producer.init_transactions)
        while True:
            self._transaction(producer, staged)
            if self.is_done:
                break
            self.pause(_PAUSE_S)
        producer.close()

    def _transaction(self, producer: eoslog.Producer, staged: bool) -> None:
        rows = [self._new_row() for _ in range(self.random.randint(1, 20))]
        operation = TransactionOperation(self.history, [send_of(*row) for row in rows], staged=staged)
        try:
            producer.begin_transaction()
            for topic, partition, value in rows:
                until_answered(producer.send, topic, value.encode(), partition=partition)
                if self.random.random() < 0.1:
                    until_answered(producer.flush)
            if self.random.random() < 0.1:
                raise TransactionAborted("by choice")
        except EosLogError as error:
            operation.fail(producer, error)
        else:
            operation.commit(producer)

    def _new_row(self) -> tuple[str, int, str]:
        topic = ORDERS if self.random.random() < 0.9 else RECENT
        return topic, self.random.randrange(PARTITIONS[topic]), self.new_value()


if __name__ == "__main__":
    main(TransactionalProducer)
