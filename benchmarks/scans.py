"""A scan beside ``pyarrow.dataset`` on the same files: all columns, one column, and a filter.

``python -m benchmarks.scans [rows]``. The store is a local directory, whose files are in the page cache. The
measurements of the two readers alternate. The table shows the median time of each, their ratio, and the ratio of their
CPU times, which depends less on what else runs on the machine.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from rich.console import Console
from rich.table import Table

import eoslog

FILES = 16
RUNS = 9
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("miles", pa.int32()),
        ("delay", pa.float64()),
        ("note", pa.string()),
    ]
)


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = eoslog.connect(str(Path(directory) / "store"))
        store.admin.create_topic("flights", schema=SCHEMA)
        with store.producer() as producer:
            for number in range(FILES):
                producer.send_table("flights", _rows(number, rows // FILES))
                producer.flush()
        paths = sorted(map(str, (Path(directory) / "store").rglob("*.parquet")))
        bare = ds.dataset(paths, format="parquet", schema=SCHEMA)
        table = Table(
            "read", "eoslog (ms)", "pyarrow.dataset (ms)", "ratio", "CPU", title=f"{rows:,} rows in {FILES} files"
        )
        some = rows // 2
        cases: tuple[tuple[str, Callable[[], pa.Table], Callable[[], pa.Table]], ...] = (
            ("all columns", lambda: store.scan("flights").to_table(), bare.to_table),
            (
                "one column",
                lambda: store.scan("flights", columns=["miles"]).to_table(),
                lambda: bare.to_table(columns=["miles"]),
            ),
            (
                "0.1 % of the rows, by a range of ids",
                lambda: store.scan("flights", predicate=f"id >= {some} AND id < {some + rows // 1000}").to_table(),
                lambda: bare.to_table(filter=(pc.field("id") >= some) & (pc.field("id") < some + rows // 1000)),
            ),
            (
                "one carrier of 1,000, two columns",
                lambda: store.scan("flights", columns=["id", "delay"], predicate="carrier = 'C7'").to_table(),
                lambda: bare.to_table(columns=["id", "delay"], filter=pc.field("carrier") == "C7"),
            ),
        )
        for name, ours, theirs in cases:
            times, cpu = _alternating(ours, theirs)
            ratios = (f"{one / other:.2f}" for one, other in (times, cpu))
            table.add_row(name, *(f"{each * 1000:.1f}" for each in times), *ratios)
        Console(width=120).print(table)


def _alternating(
    ours: Callable[[], pa.Table], theirs: Callable[[], pa.Table]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the median times of both readers (s), and their median CPU times (s)."""
    if ours().num_rows != theirs().num_rows:
        raise AssertionError("the readers disagree on the number of rows")
    found: tuple[list[float], list[float]] = [], []
    cpu: tuple[list[float], list[float]] = [], []
    for _ in range(RUNS):
        for number, read in enumerate((ours, theirs)):
            began, cpu_began = time.perf_counter(), time.process_time()
            read()
            found[number].append(time.perf_counter() - began)
            cpu[number].append(time.process_time() - cpu_began)
    return (
        (statistics.median(found[0]), statistics.median(found[1])),
        (statistics.median(cpu[0]), statistics.median(cpu[1])),
    )


def _rows(number: int, count: int) -> pa.Table:
    random = np.random.default_rng(number)
    ids = np.arange(number * count, (number + 1) * count)
    carriers = np.array([f"C{each}" for each in range(1000)])
    columns = {
        "id": ids,
        "carrier": carriers[random.integers(0, 1000, count)],
        "miles": random.integers(0, 2600, count, dtype=np.int32),
        "delay": random.normal(10, 30, count),
        "note": np.char.add("flight ", ids.astype(str)),
    }
    return pa.table({name: pa.array(values) for name, values in columns.items()}, schema=SCHEMA)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8_000_000)
