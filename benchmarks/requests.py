"""How many requests each operation sends to S3: exact counts, whatever the length of history.

``python -m benchmarks.requests [slots of history]``. The server is moto's, over HTTP.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable

from moto.server import ThreadedMotoServer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import eoslog

BUCKET = "benchmark"
CREDENTIALS = {"key": "test", "secret": "test"}


class Counted:
    """A table of requests by operation."""

    def __init__(self, title: str) -> None:
        self._table = Table("operation", "PUT", "GET", "LIST", "DELETE", title=title)

    def measure(self, name: str, store: eoslog.Store, operation: Callable[[], object]) -> None:
        before = Counter(store.requests)
        operation()
        sent = Counter(store.requests) - before
        self._table.add_row(name, *(str(sent[kind]) for kind in ("PUT", "GET", "LIST", "DELETE")))

    def show(self) -> None:
        Console().print(self._table)


def main(history: int) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        _run(f"http://{host}:{port}", history)
    finally:
        server.stop()


def _run(endpoint: str, history: int) -> None:
    import boto3

    boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=CREDENTIALS["key"],
        aws_secret_access_key=CREDENTIALS["secret"],
    ).create_bucket(Bucket=BUCKET)

    def connect() -> eoslog.Store:
        return eoslog.connect(f"s3://{BUCKET}/store", endpoint_url=endpoint, region="us-east-1", **CREDENTIALS)

    store = connect()
    counted = Counted(f"Requests by operation, after {history:,} transactions")
    counted.measure("create the store and a topic", store, lambda: store.admin.create_topic("t", partitions=4))
    producer = store.producer(transactional_id="benchmark")
    counted.measure("init_transactions", store, producer.init_transactions)

    def transaction(partitions: int) -> None:
        producer.begin_transaction()
        for partition in range(partitions):
            producer.send("t", b"value", partition=partition)
        producer.commit_transaction()

    for _ in track(range(history), "history"):
        transaction(1)
    counted.measure("transaction, eager, 1 partition", store, lambda: transaction(1))
    counted.measure("transaction, eager, 4 partitions", store, lambda: transaction(4))
    staged = store.producer(transactional_id="staged", staged=True)
    staged.init_transactions()

    def staged_transaction() -> None:
        staged.begin_transaction()
        for partition in range(4):
            staged.send("t", b"value", partition=partition)
        staged.commit_transaction()

    counted.measure("transaction, staged, 4 partitions", store, staged_transaction)
    cold = connect()
    counted.measure("cold open, offsets of a topic", cold, lambda: cold.admin.offsets("t"))
    counted.measure("idle poll", cold, lambda: cold.admin.offsets("t"))
    counted.show()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
