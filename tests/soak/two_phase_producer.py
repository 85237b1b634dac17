"""A producer under a two-phase commit: rows are in the topic if, and only if, a database outside has them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import eoslog
from eoslog.errors import AbortableError, EosLogError, ProducerFenced
from tests.checker import Outcome
from tests.soak.history import place_name, send_of
from tests.soak.layout import BANK, PARTITIONS, Run
from tests.soak.process import MAX_BLOCK_MS, SoakProcess, main, until_answered
from tests.soak.transactions import TransactionOperation

_PAUSE_S = 0.3


class TwoPhaseProducer(SoakProcess):
    def work(self) -> None:
        with closing(open_database(self.run)) as database:
            producer = self.store.producer(
                self.name,
                transaction_timeout_ms=self.run.transaction_timeout_ms,
                max_block_ms=MAX_BLOCK_MS,
                staged=self.name.startswith("staged"),
            )
            _claim(database, self.name, self.incarnation)
            until_answered(producer.init_transactions, keep_prepared=True)
            if producer.prepared_transaction is not None:
                until_answered(producer.complete_transaction, _last_decided(database, self.name))
            while True:
                self._transaction(producer, database)
                if self.is_done:
                    break
                self.pause(_PAUSE_S)
            producer.close()

    def _transaction(self, producer: eoslog.Producer, database: sqlite3.Connection) -> None:
        rows = [(self.random.randrange(PARTITIONS[BANK]), self.new_value()) for _ in range(self.random.randint(1, 8))]
        sends = [send_of(BANK, partition, value) for partition, value in rows]
        operation = TransactionOperation(self.history, sends, staged=self.name.startswith("staged"))
        try:
            producer.begin_transaction()
            for partition, value in rows:
                until_answered(producer.send, BANK, value.encode(), partition=partition)
            prepared = until_answered(producer.prepare_transaction)
        except AbortableError as error:
            operation.fail(producer, error)
            return
        except EosLogError:
            # Whatever was prepared, the database never hears of it.
            operation.complete(Outcome.FAIL)
            raise
        if self.random.random() < 0.2:
            operation.complete(Outcome.FAIL)
            until_answered(producer.complete_transaction, "")
            return
        self.pause(0.05)
        _decide(database, self.name, self.incarnation, prepared, [(place_name(BANK, at), value) for at, value in rows])
        self.pause(0.05)
        until_answered(producer.complete_transaction, prepared)
        operation.complete(Outcome.OK)


def open_database(run: Run) -> sqlite3.Connection:
    """The database: the rows it has, and by producer its owner and the transaction that it decided last to commit."""
    database = sqlite3.connect(run.database, timeout=120)
    with database:
        database.execute("CREATE TABLE IF NOT EXISTS rows (place TEXT, value TEXT)")
        database.execute("CREATE TABLE IF NOT EXISTS decided (producer TEXT PRIMARY KEY, owner INTEGER, prepared TEXT)")
    return database


def _claim(database: sqlite3.Connection, name: str, incarnation: int) -> None:
    """From here on an earlier incarnation decides nothing: the database has to fence it too, before the store does."""
    with database:
        database.execute("INSERT OR IGNORE INTO decided VALUES (?, 0, '')", (name,))
        database.execute("UPDATE decided SET owner = ? WHERE producer = ?", (incarnation, name))


def _decide(
    database: sqlite3.Connection, name: str, incarnation: int, prepared: str, rows: list[tuple[str, str]]
) -> None:
    """Commit in the database. Raises: ProducerFenced: another incarnation has claimed it."""
    with database:
        claimed = (prepared, name, incarnation)
        if not database.execute("UPDATE decided SET prepared = ? WHERE producer = ? AND owner = ?", claimed).rowcount:
            raise ProducerFenced("the database belongs to a later incarnation")
        database.executemany("INSERT INTO rows VALUES (?, ?)", rows)


def _last_decided(database: sqlite3.Connection, name: str) -> str:
    found = database.execute("SELECT prepared FROM decided WHERE producer = ?", (name,)).fetchone()
    return str(found[0])


if __name__ == "__main__":
    main(TwoPhaseProducer)
