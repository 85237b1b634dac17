"""A process that copies one topic into another until nothing is left: ``python -m tests.conformance.copying URL``."""

from __future__ import annotations

import sys

import eoslog
from eoslog.state.names import TopicPartition
from eoslog.store import Store

SOURCE, COPY = "topic1", "topic2"
GROUP = "copiers"


def copy(store: Store) -> None:
    """Copy each partition into that of the same number, a transaction a poll; every third is aborted."""
    producer = store.producer("copier")
    # What the process before left open is ended before its offsets are asked for.
    producer.init_transactions()
    consumer = store.consumer(GROUP, auto_offset_reset="earliest", max_poll_records=5)
    consumer.assign([TopicPartition(SOURCE, each.partition) for each in store.admin.offsets(SOURCE)])
    turn = 0
    while any(consumer.lag().values()):
        records = consumer.poll(0)
        turn += 1
        producer.begin_transaction()
        for number, record in enumerate(records):
            producer.send(COPY, record.value, key=record.key, partition=record.partition)
            if number == len(records) // 2:
                producer.flush()
        positions = {place: consumer.position(place) for place in consumer.assignment()}
        producer.send_offsets_to_transaction(positions, GROUP)
        if turn % 3:
            producer.commit_transaction()
            continue
        producer.flush()
        producer.abort_transaction()
        for place, committed in consumer.committed(positions).items():
            consumer.seek(place, committed.offset if committed else 0)


if __name__ == "__main__":
    copy(eoslog.connect(sys.argv[1], fsync=False))
