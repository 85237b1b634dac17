"""What a record costs a client: CPU and wall time of send, flush, send_table and poll, on local disk with fsync.

``python -m benchmarks.send [rounds]``. Each round runs every case once, so that a busy machine slows all of them; the
table shows medians of the rounds. CPU time counts all threads of the process. A record has a value of 100 bytes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

import eoslog
from eoslog.producer.producer import Producer
from eoslog.session.positions import RecordMetadata

ROUNDS = 3
RECORDS = 20_000
POLLS, POLL_RECORDS = 8, 10_000
VALUE = b"v" * 100


class Costs:
    """CPU and wall time a record (µs), by case, of each round."""

    def __init__(self) -> None:
        self._cpu: dict[str, list[float]] = defaultdict(list)
        self._wall: dict[str, list[float]] = defaultdict(list)

    def measure(self, case: str, work: Callable[[], object], records: int = RECORDS) -> None:
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        work()
        self._cpu[case].append((time.process_time_ns() - cpu) / records / 1000)
        self._wall[case].append((time.perf_counter_ns() - wall) / records / 1000)

    def cpu(self, case: str) -> float:
        """The median of a case (µs)."""
        return statistics.median(self._cpu[case])

    def table(self) -> Table:
        table = Table("case", "CPU a record (µs)", "wall a record (µs)", "records a CPU second")
        for case, times in self._cpu.items():
            cpu, wall = statistics.median(times), statistics.median(self._wall[case])
            table.add_row(case, f"{cpu:.2f}", f"{wall:.2f}", f"{1e6 / cpu:,.0f}")
        return table


def measure(rounds: int) -> Costs:
    """Run every case once a round."""
    costs = Costs()
    with tempfile.TemporaryDirectory() as directory:
        store = eoslog.connect(str(Path(directory) / "store"))
        store.admin.create_topic("t")
        store.admin.create_topic("keyed", partitions=8)
        plain = store.producer()
        transactional = store.producer(transactional_id="benchmark")
        transactional.init_transactions()
        for number in track(range(rounds + 1), "rounds, the first to warm up"):
            counted = costs if number else Costs()
            _plain(counted, plain)
            _transactional(counted, transactional)
            _table(counted, plain)
            _poll(counted, store)
    return costs


def main(rounds: int) -> None:
    Console().print(measure(rounds).table())


def _send(producer: Producer) -> None:
    for _ in range(RECORDS):
        producer.send("t", VALUE)


def _send_and_keep(producer: Producer) -> list[Future[RecordMetadata]]:
    return [producer.send("t", VALUE) for _ in range(RECORDS)]


def _plain(costs: Costs, producer: Producer) -> None:
    costs.measure("send", lambda: _send(producer))
    costs.measure("· its flush", producer.flush)

    def send_by_key() -> None:
        for number in range(RECORDS):
            producer.send("keyed", VALUE, key=b"key-%d" % (number % 1000))

    costs.measure("send by key, 8 partitions", send_by_key)
    costs.measure("· flush of these", producer.flush)

    futures: list[Future[RecordMetadata]] = []
    costs.measure("send, futures kept", lambda: futures.extend(_send_and_keep(producer)))
    costs.measure("· flush with futures kept", producer.flush)
    costs.measure("· result() of each", lambda: [future.result() for future in futures])

    told: list[Future[RecordMetadata]] = []

    def send_with_callback() -> None:
        for _ in range(RECORDS):
            producer.send("t", VALUE).add_done_callback(told.append)

    costs.measure("send, a callback each", send_with_callback)
    costs.measure("· flush that calls back", producer.flush)


def _transactional(costs: Costs, producer: Producer) -> None:
    producer.begin_transaction()
    costs.measure("send in a transaction", lambda: _send(producer))
    costs.measure("· its commit", producer.commit_transaction)

    futures: list[Future[RecordMetadata]] = []
    producer.begin_transaction()
    costs.measure("send in a transaction, futures kept", lambda: futures.extend(_send_and_keep(producer)))
    costs.measure("· commit with futures kept", producer.commit_transaction)
    costs.measure("· result() of each of these", lambda: [future.result() for future in futures])


def _table(costs: Costs, producer: Producer) -> None:
    rows = pa.table({"value": pa.array([VALUE] * RECORDS, pa.binary())})
    costs.measure("send_table", lambda: producer.send_table("t", rows))
    costs.measure("· flush of the table", producer.flush)


def _poll(costs: Costs, store: eoslog.Store) -> None:
    with store.consumer(max_poll_records=POLL_RECORDS) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek_to_beginning()
        # The first poll plans. A round writes more than all polls read.
        consumer.poll()
        costs.measure(
            f"poll, {POLL_RECORDS:,} records each",
            lambda: [len(consumer.poll()) for _ in range(POLLS)],
            POLLS * POLL_RECORDS,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
