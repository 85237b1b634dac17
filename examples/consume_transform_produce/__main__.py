"""Consume, transform, produce, exactly once: workers share a group, and are killed at random moments until all is done.

``python -m examples.consume_transform_produce`` ends with 1 if an invoice is missing, doubled or foreign.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter

import eoslog
from examples.consume_transform_produce.pipeline import GROUP, INVOICES, ORDERS, invoice, is_done

PARTITIONS = 4
PATIENCE_S = 300


def write_orders(store: eoslog.Store, count: int) -> list[bytes]:
    orders = [b"order %d" % number for number in range(count)]
    store.admin.create_topic(ORDERS, partitions=PARTITIONS)
    store.admin.create_topic(INVOICES, partitions=PARTITIONS)
    with store.producer() as producer:
        for order in orders:
            producer.send(ORDERS, key=order, value=order)
    return orders


def start(url: str, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "examples.consume_transform_produce.pipeline", url, name])


def run_workers(url: str, store: eoslog.Store, workers: int, kill_at: list[int]) -> int:
    """Keep workers running until all is done. Whenever so many invoices are committed, one of them is killed.

    Returns:
        How many were killed.
    """
    running = {f"{number}": start(url, f"{number}") for number in range(workers)}
    killed = 0
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not is_done(store):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the workers were not done within {PATIENCE_S} s")
            invoices = store.scan(INVOICES).record_count
            if killed < len(kill_at) and invoices >= kill_at[killed]:
                name = random.choice(list(running))
                running[name].kill()  # SIGKILL: nothing is flushed, closed or aborted
                killed += 1
                print(f"{invoices:5} invoices: worker {name} is killed and started again")
            for name, process in running.items():
                if process.poll() is not None:
                    running[name] = start(url, name)
            time.sleep(0.02 * random.random())
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return killed


def main(url: str, orders: int, workers: int, kills: int) -> int:
    store = eoslog.connect(url)
    written = write_orders(store, orders)
    kill_at = sorted(random.sample(range(1, orders * 3 // 4), kills))
    killed = run_workers(url, store, workers, kill_at)

    expected = Counter(invoice(order) for order in written)
    found = Counter(store.scan(INVOICES).to_table()["value"].to_pylist())
    aborted = store.scan(INVOICES, isolation_level="read_uncommitted").record_count - found.total()
    print(f"{orders} orders, {workers} workers, {killed} killed; group {GROUP!r} has come to the end of its partitions")
    print(f"invoices: {found.total()}; missing {(expected - found).total()}, surplus {(found - expected).total()}")
    print(f"rows that transactions left behind and read_committed does not show: {aborted}")
    return 0 if found == expected and killed == kills else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.consume_transform_produce")
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kills", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        sys.exit(main(place, arguments.orders, arguments.workers, arguments.kills))
