"""How long a commit takes on local disk, against the durable put that it cannot do without, in one run.

``python -m benchmarks.commits [slots of history …]``. The ratio should not depend on the length of history.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

import eoslog
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore

ROUNDS = 200


def main(histories: list[int]) -> None:
    table = Table("history (slots)", "put p50 (ms)", "commit p50 (ms)", "commit p99 (ms)", "commit / put")
    with tempfile.TemporaryDirectory() as directory:
        store = eoslog.connect(str(Path(directory) / "store"))
        store.admin.create_topic("t")
        producer = store.producer(transactional_id="benchmark", staged=True)
        producer.init_transactions()
        plain = LocalStore(Path(directory) / "plain", Environment())

        def commit() -> None:
            producer.begin_transaction()
            producer.send("t", b"value")
            producer.commit_transaction()

        for history in histories:
            newest = store.read(lambda state, slot: slot)
            for _ in track(range(max(0, history - newest)), f"{history:,} slots"):
                commit()
            newest = store.read(lambda state, slot: slot)
            puts, commits = [], []
            for number in range(ROUNDS):
                # A commit of one row is one durable put: the slot, which has the row.
                path = f"{history}/{number}"
                puts.append(_time(lambda path=path: plain.put_if_absent(path, b"x" * 3000)))
                commits.append(_time(commit))
            put, p50 = statistics.median(puts), statistics.median(commits)
            p99 = statistics.quantiles(commits, n=100)[98]
            table.add_row(f"{newest:,}", f"{put:.2f}", f"{p50:.2f}", f"{p99:.2f}", f"{p50 / put:.1f}")
    Console().print(table)


def _time(operation: Callable[[], object]) -> float:
    started = time.perf_counter()
    operation()
    return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [0, 1_000, 5_000])
