"""Commits with rows in records and shared objects, and with an object for each batch: requests, time, data files.

``python -m benchmarks.small_commits [--commits 1000] [--put-ms 100] [--other-ms 30]``. Both stores are on a real S3
server of this machine, over HTTP. The requests are counted at a proxy. The proxy delays them only where the table shows
a time in units of a PUT. The last row compares commits on a local disk with fsync.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

import eoslog
from benchmarks.arguments import not_negative, positive
from benchmarks.delay import Delay, delayed
from eoslog import Store, TopicPartition
from eoslog.log.replica import LogConfig
from eoslog.maintenance.file_compaction import join_small_segments
from eoslog.maintenance.sealing import seal_now
from eoslog.state.names import PartitionId
from tests.s3.servers import S3Server, ServerMissing, real_s3_server

PARTITIONS = 100
CONFIGS = {
    "an object for each batch": LogConfig(inline_limit_bytes=0, shared_limit_bytes=0),
    "records and shared objects": LogConfig(),
}
"""What is compared. The second is the default."""
ROUNDS = 20


class Bench:
    """The measurements of stores with one configuration."""

    def __init__(self, server: S3Server, proxy: Delay, config: LogConfig, options: argparse.Namespace) -> None:
        self._server = server
        self._proxy = proxy
        self._config = config
        self._options = options
        self._url = f"s3://{server.new_bucket()}/store"

    def connect(self) -> Store:
        """Open the store through the proxy, as a new process would."""
        options = self._server.options() | {"endpoint_url": self._proxy.url}
        return eoslog.connect(self._url, log_config=self._config, **options)  # type: ignore[arg-type]

    def requests(self, call: Callable[[], object]) -> dict[str, int]:
        """Return the requests of a call by kind, as the proxy counts them."""
        before = self._proxy.counts()
        call()
        return {kind: count - before[kind] for kind, count in self._proxy.counts().items() if count > before[kind]}

    def run(self) -> list[str]:
        """Return a cell for each row of the table."""
        store = self.connect()
        store.admin.create_topic("t")
        store.admin.create_topic("wide", partitions=PARTITIONS)
        producer = store.producer("small", staged=True)
        producer.init_transactions()

        def commit() -> None:
            producer.begin_transaction()
            producer.send("t", b"value")
            producer.commit_transaction()

        def flush(size: int) -> Callable[[], None]:
            def wide() -> None:
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    producer.send("wide", os.urandom(size), partition=partition)
                producer.commit_transaction()

            return wide

        commit()
        cells = [_words(self.requests(commit))]
        self._proxy.set(self._options.other_ms, put_ms=self._options.put_ms)
        times = [_seconds(commit) for _ in range(ROUNDS)]
        self._proxy.set(0)
        cells.append(f"{statistics.median(times) * 1000 / self._options.put_ms:.2f}" if self._options.put_ms else "-")
        cells += [_words(self.requests(flush(100))), _words(self.requests(flush(100 << 10)))]
        cells.append(self._followed(commit))
        return cells + self._scanned(store, commit)

    def _followed(self, commit: Callable[[], None]) -> str:
        """Return the GETs a commit of a consumer that polls after each one."""
        store = self.connect()
        commits = self._options.commits // 10
        gets = 0
        with store.consumer(None, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            while consumer.poll(0):
                pass
            for _ in range(commits):
                commit()
                # Without the answer that there is no newer slot, which a waiting consumer gets once in a second.
                found = self.requests(lambda: consumer.poll(0)).get("GET", 0)
                gets += found - 1
        return f"{gets / commits:.2f}"

    def _scanned(self, store: Store, commit: Callable[[], None]) -> list[str]:
        for _ in range(self._options.commits):
            commit()
        new, again = self._scan_s("t"), _seconds(lambda: store.scan("t").to_table())
        store.admin.create_topic("one_flush")
        producer = store.producer("large", staged=True)
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(store.scan("t").record_count):
            producer.send("one_flush", b"value")
        producer.commit_transaction()
        # As a writer does before a checkpoint.
        sealed_now = seal_now(store, ["t", "one_flush"])
        join_small_segments(store, {PartitionId(each.topic_id, each.partition) for each in sealed_now})
        sealed = self._files_and_ratio(store)
        store.admin.compact_files("t", now=True)
        return [f"{new:.2f} s, {again:.2f} s", sealed, self._files_and_ratio(store)]

    def _files_and_ratio(self, store: Store) -> str:
        """Return the number of data files, and how long a scan takes beside one of the same rows in one file."""
        (described,) = store.admin.describe_partitions("t")
        self._proxy.set(self._options.other_ms, put_ms=self._options.put_ms)
        ratio = statistics.median(self._scan_s("t") / self._scan_s("one_flush") for _ in range(15))
        self._proxy.set(0)
        return f"{described.files}; {ratio:.2f}"

    def _scan_s(self, topic: str) -> float:
        """Return how long a new process takes to open the store and scan a topic (s)."""
        return _seconds(lambda: self.connect().scan(topic).to_table())


def local_commit(config: LogConfig) -> float:
    """Return the median time of a commit of one row on a local disk with fsync (ms)."""
    with tempfile.TemporaryDirectory() as directory:
        store = eoslog.connect(f"{directory}/store", log_config=config)
        store.admin.create_topic("t")
        producer = store.producer("small", staged=True)
        producer.init_transactions()
        times = []
        for _ in range(300):
            producer.begin_transaction()
            producer.send("t", b"value")
            times.append(_seconds(producer.commit_transaction))
    return statistics.median(times) * 1000


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _words(requests: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in requests.items())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=positive, default=1000, help="the small commits before the scan (1000)")
    parser.add_argument("--put-ms", type=not_negative, default=100.0, help="the delay of a PUT (ms, 100)")
    parser.add_argument("--other-ms", type=not_negative, default=30.0, help="the delay of other requests (ms, 30)")
    options = parser.parse_args(arguments)
    rows = [
        "requests of the smallest commit",
        f"its time at {options.put_ms:g} ms a PUT (PUTs)",
        f"requests of a commit over {PARTITIONS} partitions, 100 bytes each",
        "the same, 100 KiB each",
        "GETs a commit of a consumer that follows",
        f"scan of {options.commits:,} more commits, by a new process and by the writer",
        f"sealed: data files; scan by a new process, {options.other_ms:g} ms a request (scans of one flush)",
        "compacted: the same",
    ]
    try:
        with real_s3_server() as server, delayed(server.endpoint_url) as proxy:
            columns = [Bench(server, proxy, config, options).run() for config in CONFIGS.values()]
    except ServerMissing as error:
        sys.exit(str(error))
    local = [[f"{local_commit(config):.2f}" for config in CONFIGS.values()] for _ in range(3)]
    table = Table("", *CONFIGS)
    for name, *cells in zip(rows, *columns, strict=True):
        table.add_row(name, *cells)
    for cells in local:
        table.add_row("commit on a local disk, p50 (ms)", *cells)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
