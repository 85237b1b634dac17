"""A worker of the pipeline: it turns orders into invoices. Any number of them share the group, and any may be killed.

The input's offsets and the output's rows are in one transaction, so either both are there or neither.
"""

from __future__ import annotations

import sys
import time

import eoslog

ORDERS, INVOICES, GROUP = "orders", "invoices", "invoicing"
RECORDS_A_TRANSACTION = 8
WORK_S = 0.005


def invoice(order: bytes) -> bytes:
    time.sleep(WORK_S)
    return b"invoice for " + order


def run(url: str, name: str) -> None:
    """Work until every order has its invoice. Who starts a worker of the same name fences the one before."""
    store = eoslog.connect(url)
    with (
        store.consumer(
            GROUP,
            auto_offset_reset="earliest",
            max_poll_records=RECORDS_A_TRANSACTION,
            session_timeout_ms=6_000,
        ) as consumer,
        store.producer(transactional_id=f"invoicing-{name}") as producer,
    ):
        producer.init_transactions()
        consumer.subscribe(ORDERS)
        while True:
            records = consumer.poll(timeout=0.5)
            if records:
                transform(consumer, producer, records)
            elif is_done(store):
                return


def transform(consumer: eoslog.Consumer, producer: eoslog.Producer, records: list[eoslog.ConsumerRecord]) -> None:
    """One transaction: the invoices of these orders, and how far the group has come."""
    producer.begin_transaction()
    try:
        for record in records:
            producer.send(INVOICES, key=record.key, value=invoice(record.value or b""))
        positions = {partition: consumer.position(partition) for partition in consumer.assignment()}
        # With the group's generation: if the group has given these partitions to another worker, the commit is refused.
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        commit(producer)
    except eoslog.AbortableError as error:
        print(f"aborted, and read again: {error}", flush=True)
        producer.abort_transaction()
        back_to_committed(consumer)


def commit(producer: eoslog.Producer) -> None:
    """A commit that was not answered in time is the only call that may be repeated, and it is done once."""
    while True:
        try:
            producer.commit_transaction()
            return
        except eoslog.RetriableError as error:
            print(f"once more: {error}", flush=True)


def back_to_committed(consumer: eoslog.Consumer) -> None:
    """What was polled since the last commit is not in the output: read it again."""
    for partition, committed in consumer.committed(consumer.assignment()).items():
        if committed is None:
            consumer.seek_to_beginning([partition])
        else:
            consumer.seek(partition, committed.offset)


def is_done(store: eoslog.Store) -> bool:
    """Whether the group has come to the end of every partition."""
    ends = {eoslog.TopicPartition(ORDERS, each.partition): each.high_watermark for each in store.admin.offsets(ORDERS)}
    committed = store.consumer(GROUP).committed(ends)
    return all(each is not None and each.offset == ends[partition] for partition, each in committed.items())


if __name__ == "__main__":
    run(*sys.argv[1:])
