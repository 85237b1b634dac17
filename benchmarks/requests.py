"""How many requests each operation sends to S3: exact counts, whatever the length of history.

``python -m benchmarks.requests [slots of history]``. The server is moto's, over HTTP, or a real one:
``conf/s3_server.sh with python -m benchmarks.requests``.
"""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Mapping

from moto.server import ThreadedMotoServer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import eoslog

KINDS = ("PUT", "GET", "LIST", "DELETE")
MOTO = {"key": "test", "secret": "test", "region": "us-east-1"}


Requests = Mapping[str, Counter[str]]
"""The requests of each operation, by kind."""


def main(history: int) -> None:
    if "AWS_ENDPOINT_URL" in os.environ:
        _run({}, history)
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        _run({"endpoint_url": f"http://{host}:{port}", **MOTO}, history)
    finally:
        server.stop()


def _run(access: Mapping[str, str], history: int) -> None:
    """Count at the server that ``access`` or else the environment names."""
    import boto3

    bucket = f"benchmark-{uuid.uuid4().hex}"
    boto3.client(
        "s3",
        endpoint_url=access.get("endpoint_url"),
        region_name=access.get("region"),
        aws_access_key_id=access.get("key"),
        aws_secret_access_key=access.get("secret"),
    ).create_bucket(Bucket=bucket)
    table = Table("operation", *KINDS, title=f"Requests by operation, after {history:,} transactions")
    for name, sent in count(lambda: eoslog.connect(f"s3://{bucket}/store", **access), history).items():
        table.add_row(name, *(str(sent[kind]) for kind in KINDS))
    Console().print(table)


def count(connect: Callable[[], eoslog.Store], history: int) -> Requests:
    """Count the requests of each operation on a new store, to which ``connect`` leads each time it is called."""
    found: dict[str, Counter[str]] = {}

    def measure(name: str, store: eoslog.Store, operation: Callable[[], object]) -> None:
        before = Counter(store.requests)
        operation()
        found[name] = Counter(store.requests) - before

    store = connect()
    measure("create the store and a topic", store, lambda: store.admin.create_topic("t", partitions=4))
    producer = store.producer(transactional_id="benchmark")
    measure("init_transactions", store, producer.init_transactions)

    def transaction(partitions: int) -> None:
        producer.begin_transaction()
        for partition in range(partitions):
            producer.send("t", b"value", partition=partition)
        producer.commit_transaction()

    behind = connect()
    behind.admin.offsets("t")
    for _ in track(range(history), "history"):
        transaction(1)
    measure("poll, the whole history behind", behind, lambda: behind.admin.offsets("t"))
    transaction(1)
    measure("poll, one transaction behind", behind, lambda: behind.admin.offsets("t"))
    measure("transaction, eager, 1 partition", store, lambda: transaction(1))
    measure("transaction, eager, 4 partitions", store, lambda: transaction(4))
    staged = store.producer(transactional_id="staged", staged=True)
    staged.init_transactions()

    def staged_transaction() -> None:
        staged.begin_transaction()
        for partition in range(4):
            staged.send("t", b"value", partition=partition)
        staged.commit_transaction()

    measure("transaction, staged, 4 partitions", store, staged_transaction)
    cold = connect()
    measure("cold open, offsets of a topic", cold, lambda: cold.admin.offsets("t"))
    measure("idle poll", cold, lambda: cold.admin.offsets("t"))
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
