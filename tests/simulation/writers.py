"""Simulated producers: transactional, idempotent, of a compacted topic, and under a two-phase commit."""

from __future__ import annotations

import math

from eoslog.errors import (
    AbortableError,
    ApplicationRecoverableError,
    EosLogError,
    FatalError,
    OutcomeLost,
    RetriableError,
)
from eoslog.producer.producer import Producer
from eoslog.store import Store
from tests.simulation.ledger import Ledger, Outcome, Work
from tests.simulation.service import IN, OTHER, PARTITIONS, TABLE, GaveUp, Service, open_store, until_done
from tests.simulation.world import Process, World

KEYS = 5
"""Of the compacted topic."""


class TransactionalWriter(Service):
    """Transactions of a few rows in several partitions; some are aborted."""

    most_rows = 5
    staged_share = 0.4
    """How many of its producers are staged."""

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        producer = store.producer(
            self.name,
            transaction_timeout_ms=self.random.choice((2_000, 20_000, 120_000)),
            staged=self.random.random() < self.staged_share,
        )
        until_done(producer.init_transactions)
        transactions = self.most_transactions()
        while not self.world.stopping and transactions > 0:
            self._transaction(process, producer)
            self.pause(process)
            transactions -= 1

    def most_transactions(self) -> float:
        """After how many transactions another producer takes over."""
        return math.inf

    def _transaction(self, process: Process, producer: Producer) -> None:
        work = self.ledger.begin(self.name)
        try:
            producer.begin_transaction()
            for _ in range(self.random.randrange(0, self.most_rows + 1)):
                topic = self.random.choice((IN, OTHER))
                partition = self.random.randrange(PARTITIONS[topic])
                producer.send(topic, work.row(topic, partition), partition=partition)
                if self.random.random() < 0.3:
                    until_done(producer.flush)
                if self.random.random() < 0.1:
                    self.pause(process, 30_000)
        except EosLogError:
            work.outcome = Outcome.ABORTED
            self._abort(producer)
            return
        if self.random.random() < 0.2:
            work.outcome = Outcome.ABORTED
            self._abort(producer)
        else:
            commit(producer, work)

    def _abort(self, producer: Producer) -> None:
        try:
            until_done(producer.abort_transaction)
        except FatalError as error:
            raise GaveUp from error


class ShortLivedWriter(TransactionalWriter):
    """A writer that another producer soon takes over from: one that is paused within a transaction is fenced."""

    def most_transactions(self) -> float:
        return self.random.choice((1, 2, 3))


def commit(producer: Producer, work: Work) -> None:
    """Commit, and write down what the producer was told."""
    asked = 0
    while True:
        asked += 1
        try:
            producer.commit_transaction()
            work.outcome = Outcome.COMMITTED
            return
        except RetriableError:
            if asked == 6:
                raise
        except AbortableError:
            work.outcome = Outcome.ABORTED
            until_done(producer.abort_transaction)
            return
        except OutcomeLost as error:
            raise GaveUp from error
        except (ApplicationRecoverableError, FatalError) as error:
            work.outcome = Outcome.ABORTED
            raise GaveUp from error


class TableWriter(Service):
    """Transactions in a compacted topic: of each key, the newest committed row stays."""

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        producer = store.producer(self.name, transaction_timeout_ms=20_000)
        until_done(producer.init_transactions)
        while not self.world.stopping:
            work = self.ledger.begin(self.name)
            try:
                producer.begin_transaction()
                for _ in range(self.random.randrange(1, 4)):
                    key = b"k%d" % self.random.randrange(KEYS)
                    producer.send(TABLE, work.row(TABLE, 0, key), key=key, partition=0)
                    until_done(producer.flush)
            except EosLogError:
                work.outcome = Outcome.ABORTED
                raise
            if self.random.random() < 0.3:
                work.outcome = Outcome.ABORTED
                until_done(producer.abort_transaction)
            else:
                commit(producer, work)
            self.pause(process)


class TwoPhaseService(Service):
    """Transactions that a database outside decides: what it wrote down before a crash is what happens after it."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self.decided: dict[str, Work] = {}
        """The database: prepared transactions that it has decided to commit."""

    def recover(self, store: Store) -> Producer:
        """A producer that has ended what its predecessor prepared as the database says."""
        producer = store.producer(self.name, transaction_timeout_ms=20_000, staged=self.random.random() < 0.5)
        until_done(lambda: producer.init_transactions(keep_prepared=True))
        prepared = producer.prepared_transaction
        if prepared:
            self.world.marks["prepared transaction found after a restart"] += 1
            until_done(lambda: producer.complete_transaction(prepared if prepared in self.decided else ""))
        return producer

    def commit_in_two_phases(self, process: Process, producer: Producer, work: Work) -> None:
        """Prepare, let the database decide, and complete what it decided."""
        work.outcome = Outcome.ABORTED
        try:
            prepared = until_done(producer.prepare_transaction)
        except AbortableError:
            until_done(producer.abort_transaction)
            return
        except (FatalError, ApplicationRecoverableError) as error:
            raise GaveUp from error
        if self.random.random() < 0.3:
            until_done(lambda: producer.complete_transaction(""))
            return
        work.outcome = Outcome.COMMITTED
        self.decided[prepared] = work
        process.sleep(self.random.choice((1, 1_000, 60_000)))
        until_done(lambda: producer.complete_transaction(prepared))


class TwoPhaseWriter(TwoPhaseService):
    """Rows in several partitions under a two-phase commit."""

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        producer = self.recover(store)
        while not self.world.stopping:
            work = self.ledger.begin(self.name)
            work.outcome = Outcome.ABORTED
            producer.begin_transaction()
            for _ in range(self.random.randrange(1, 5)):
                topic = self.random.choice((IN, OTHER))
                partition = self.random.randrange(PARTITIONS[topic])
                producer.send(topic, work.row(topic, partition), partition=partition)
                if self.random.random() < 0.3:
                    until_done(producer.flush)
            self.commit_in_two_phases(process, producer, work)
            self.pause(process)


class IdempotentWriter(Service):
    """Rows without a transaction: each flush is acknowledged, or repeated."""

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        producer = store.producer()
        while not self.world.stopping:
            work = self.ledger.begin(self.name)
            topic = self.random.choice((IN, OTHER))
            partition = self.random.randrange(PARTITIONS[topic])
            for _ in range(self.random.randrange(1, 4)):
                producer.send(topic, work.row(topic, partition), partition=partition)
            until_done(producer.flush)
            work.outcome = Outcome.COMMITTED
            self.pause(process)


class _Fast(Service):
    """Writes almost without a pause, so that it competes for slots and shares commits with others."""

    def pause(self, process: Process, most_ms: int = 3_000) -> None:
        process.sleep(self.random.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, most_ms)))


class FastTransactionalWriter(_Fast, TransactionalWriter):
    """Small transactions one right after the other."""

    most_rows = 2
    staged_share = 0.8


class FastIdempotentWriter(_Fast, IdempotentWriter):
    """Flushes one right after the other."""


class FastTwoPhaseWriter(_Fast, TwoPhaseWriter):
    """Two-phase commits one right after the other."""
