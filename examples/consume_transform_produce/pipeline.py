"""A worker of the pipeline: it turns orders into invoices. Any number of them share the group, and any may be killed.

The input's offsets and the output's rows are in one transaction, so either both are there or neither.
"""

from __future__ import annotations

import sys
import threading
import time

import eoslog

ORDERS, INVOICES, GROUP = "orders", "invoices", "invoicing"
RECORDS_A_TRANSACTION = 8
WORK_S = 0.005
_CHECK_S = 0.5


def invoice(order: bytes) -> bytes:
    time.sleep(WORK_S)
    return b"invoice for " + order


def make_invoices(records: list[eoslog.ConsumerRecord], output: eoslog.ProcessorOutput) -> None:
    for record in records:
        output.send(INVOICES, key=record.key, value=invoice(record.value or b""))


def run(url: str, name: str) -> None:
    """Work until every order has its invoice. A worker of the same name fences the one before."""
    store = eoslog.connect(url)
    processor = store.processor(
        ORDERS,
        make_invoices,
        group_id=GROUP,
        transactional_id=f"invoicing-{name}",
        max_records=RECORDS_A_TRANSACTION,
        consumer_options={"session_timeout_ms": 6_000},
    )
    threading.Thread(target=stop_when_done, args=(url, processor), daemon=True).start()
    processor.run()


def stop_when_done(url: str, processor: eoslog.Processor) -> None:
    store = eoslog.connect(url)
    while not is_done(store):
        time.sleep(_CHECK_S)
    processor.stop()


def is_done(store: eoslog.Store) -> bool:
    """Return True if the group has come to the end of every partition."""
    ends = {eoslog.TopicPartition(ORDERS, each.partition): each.high_watermark for each in store.admin.offsets(ORDERS)}
    committed = store.consumer(GROUP).committed(ends)
    return all(each is not None and each.offset == ends[partition] for partition, each in committed.items())


if __name__ == "__main__":
    run(*sys.argv[1:])
