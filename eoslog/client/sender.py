"""What a producer is handed, on its way into the log (Kafka's ``Sender``): collected, uploaded, appended.

A step that fails may be taken again, as a whole: it goes on where it was, and nothing is lost or written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from eoslog.client.awaited_offsets import RecordFuture
from eoslog.client.commit_numbers import CommitNumbers
from eoslog.client.coordinator_requests import CoordinatorRequests
from eoslog.client.idempotent_append import IdempotentAppend
from eoslog.client.in_flight import InFlightBatches
from eoslog.client.record_accumulator import RecordAccumulator
from eoslog.client.rows import deal_out, partition_of_key, record_row, with_timestamps
from eoslog.client.topics import check_partition, find_topic
from eoslog.errors import EosLogError, SchemaMismatch, UnknownProducerId
from eoslog.rules.state import Topic
from eoslog.rules.transaction_entries import StagedBatch
from eoslog.rules.transaction_requests import AppendBatches, AppendedRows
from eoslog.store.process import HomeProcess

if TYPE_CHECKING:
    from eoslog.client.store import Store


class Sender:
    """The rows of one producer that have no offsets yet, or none that count before their transaction ends."""

    def __init__(
        self,
        store: Store,
        append: IdempotentAppend,
        requests: CoordinatorRequests,
        transactional_id: str | None,
        *,
        staged: bool,
        buffer_bytes: int,
        home: HomeProcess,
    ) -> None:
        self._store = store
        self._append = append
        self._requests = requests
        self._transactional_id = transactional_id
        self._staged = staged
        self._accumulator = RecordAccumulator(store, buffer_bytes, home)
        self._in_flight = InFlightBatches(transactional_id, home)
        self.forget()

    def forget(self) -> None:
        """Drop everything, and begin the sequences anew, as the next epoch does. A topic may be another by then."""
        self.topics: dict[str, Topic] = {}
        """Those found so far by name: the same ones throughout a transaction."""
        self.has_appended = False
        """Whether batches of the transaction are known to be in the log."""
        self.numbers = CommitNumbers()
        """What these batches hold."""
        self._accumulator.discard()
        self._in_flight.reset()

    def give_up(self, error: EosLogError) -> None:
        """Drop what is not acknowledged, without a transaction. What may have landed, or land yet, has used up its
        sequences: the producer id is dropped with it, and another one asked for."""
        waiting = (self._accumulator.awaited.take_all(), self._in_flight.awaited.take_all())
        if self._in_flight:
            self._requests.identity = None
            self._in_flight.reset()
        self._accumulator.discard()
        self.topics.clear()
        # Last: who is told may hand the rows over again.
        for each in waiting:
            each.fail(error)

    def fail(self, error: EosLogError) -> None:
        """End every wait for offsets with ``error``."""
        self._accumulator.awaited.fail(error)
        self._in_flight.fail(error)

    @property
    def may_have_appended(self) -> bool:
        """Whether batches are in the log, or may land in it yet."""
        return self.has_appended or bool(self._in_flight)

    @property
    def waiting_rows(self) -> int:
        """The number of rows that were handed over and are not known to be in the log."""
        return self._accumulator.row_count + sum(batch.record_count for batch in self._in_flight.batches)

    def staged_batches(self) -> list[StagedBatch]:
        """The batches that the end of the transaction is to append."""
        return [file.staged() for file in self._accumulator.files]

    @property
    def upload_ms(self) -> int | None:
        """A lower bound of the time at which the first upload of the staged batches began (ms by the store's clock)."""
        return self._accumulator.upload_ms

    def find_topic(self, name: str) -> Topic:
        """The topic of this name, from now on in ``topics``.

        Raises:
            UnknownTopicOrPartition, RetriableError
        """
        found = self.topics[name] = find_topic(self._store, name)
        return found

    def add_record(
        self,
        topic: Topic,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
        timestamp: int | None,
    ) -> RecordFuture:
        """Take a record in; see ``Producer.send``."""
        row = record_row(topic, key, value, headers, self._store.now_ms() if timestamp is None else timestamp)
        if partition is None:
            place = partition_of_key(topic, key, self._accumulator.sticky_partition(topic))
        else:
            place = check_partition(topic, partition)
        return self._accumulator.add_record(topic, place, row)

    def deal_out(self, topic: Topic, table: pa.Table | pa.RecordBatch) -> list[tuple[int, pa.Table]]:
        """The rows by partition, in the topic's schema; nothing is taken in yet.

        Raises:
            SchemaMismatch: also to the topic as it is now, which may have more columns than when it was found.
            RetriableError
        """
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise SchemaMismatch(
                f"topic {topic.topic}: send_table() takes a pyarrow.Table or RecordBatch, not {type(table).__name__}; "
                "see pyarrow.Table.from_pylist, from_pydict and from_pandas"
            )
        table = with_timestamps(topic, table, self._store.now_ms())
        sticky = self._accumulator.sticky_partition(topic)
        try:
            return list(deal_out(topic, table, sticky))
        except SchemaMismatch:
            newest = self._store.read(lambda state, slot: state.topics.get(topic.topic_id))
            if newest is None or newest.topic_schema == topic.topic_schema:
                raise
        self.topics[topic.topic] = newest
        return list(deal_out(newest, table, sticky))

    def add_tables(self, topic: Topic, tables: list[tuple[int, pa.Table]]) -> None:
        """Take in what was dealt out.

        Raises:
            UnknownTopicOrPartition: the topic was deleted meanwhile; nothing was taken in.
        """
        self._accumulator.add_tables(topic, tables)

    @property
    def needs_room(self) -> bool:
        """Whether ``make_room`` has something to do before more is taken in."""
        return self._accumulator.needs_room

    def make_room(self) -> None:
        """Encode what is many, and write what fills the buffer.

        Raises:
            What ``flush`` raises.
        """
        self._accumulator.encode_many()
        if not self._accumulator.is_full:
            return
        if self._staged:
            self._accumulator.upload_for_room()
        else:
            self.flush()

    def flush(self) -> None:
        """Upload everything. Eager rows get their offsets in the log; staged ones have none before the end.

        Raises:
            RetriableError, and what the log refuses a batch with.
        """
        self._settle_in_flight()
        self._accumulator.upload()
        if self._staged:
            self._accumulator.awaited.deliver()
        elif self._accumulator.files:
            if self._requests.identity is None:
                self._requests.initialise()
            self._send_files()
            self._settle_in_flight()

    def _send_files(self) -> None:
        accumulator, identity = self._accumulator, self._requests.identity
        assert identity is not None
        assert accumulator.upload_ms is not None
        now_ms = self._store.now_ms()
        self._in_flight.send(
            accumulator.take_files(),
            accumulator.awaited.take_all(),
            identity,
            upload_ms=accumulator.upload_ms,
            time_ms=now_ms,
        )

    def _settle_in_flight(self) -> None:
        """Append the batches in flight, for the first time or again."""
        if not self._in_flight:
            return
        appended = self._append_in_flight()
        self.has_appended = True
        self.numbers.add(self._in_flight.batches)
        if self._transactional_id is None:
            self.topics.clear()
        # Last: who is told may end the transaction.
        self._in_flight.acknowledge(appended)

    def _append_in_flight(self) -> list[AppendedRows]:
        may_have_landed = self._in_flight.was_sent
        self._in_flight.was_sent = True
        try:
            return self._append(AppendBatches(self._in_flight.batches))
        except UnknownProducerId:
            if self._transactional_id is not None or may_have_landed:
                raise
            # Unused for a day, the id was forgotten, and none of these batches is in the log.
            self._in_flight.was_sent = False
        self._requests.initialise()
        assert self._requests.identity is not None
        self._in_flight.send_as(self._requests.identity)
        self._in_flight.was_sent = True
        return self._append(AppendBatches(self._in_flight.batches))
