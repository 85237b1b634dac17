"""A plain consumer under read_committed: with partitions assigned by hand, or subscribed, in a group of several."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import eoslog
from eoslog.errors import AbortableError
from tests.checker import Kind, Outcome
from tests.soak.history import place_name, poll_of
from tests.soak.layout import KEPT, PARTITIONS
from tests.soak.process import SoakProcess, main, until_answered

_COMMIT_EVERY = 5


class Reader(SoakProcess):
    """Its group is its own name up to the last hyphen. An incarnation goes on where the group has committed."""

    def work(self) -> None:
        self._moved: set[str] = set()
        group = self.name.rpartition("-")[0]
        with self.store.consumer(
            group, auto_offset_reset="earliest", session_timeout_ms=self.run.session_timeout_ms, max_poll_records=200
        ) as consumer:
            if group.startswith("assigned"):
                places = [eoslog.TopicPartition(topic, each) for topic in KEPT for each in range(PARTITIONS[topic])]
                keys = [place_name(*each) for each in places]
                self.history.end(self.history.begin(Kind.ASSIGN, keys=keys), Outcome.OK)
                consumer.assign(places)
            else:
                self.history.end(self.history.begin(Kind.SUBSCRIBE), Outcome.OK)
                consumer.subscribe(KEPT, on_assigned=self._move, on_revoked=self._move, on_lost=self._move)
            polls = 0
            while not self.stopping:
                self._poll(consumer)
                polls += 1
                if polls % _COMMIT_EVERY == 0:
                    self._commit(consumer)

    def _move(self, places: Iterable[eoslog.TopicPartition]) -> None:
        self._moved |= {place_name(*each) for each in places}

    def _poll(self, consumer: eoslog.Consumer) -> None:
        operation = self.history.begin(Kind.POLL)
        records = until_answered(consumer.poll, timeout=1.0)
        self.history.end(operation, Outcome.OK, [poll_of(records)], keys=sorted(self._moved))
        self._moved.clear()

    def _commit(self, consumer: eoslog.Consumer) -> None:
        operation = self.history.begin(Kind.COMMIT_OFFSETS)
        try:
            until_answered(consumer.commit)
            self.history.end(operation, Outcome.OK)
        except AbortableError as error:
            logging.info("the group has moved on: %s", error)
            self.history.end(operation, Outcome.INFO)


if __name__ == "__main__":
    main(Reader)
