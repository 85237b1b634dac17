"""What a predicate saves: files, bytes and requests of a read, with and without one; exact counts.

``python -m benchmarks.pruning [files]``. The store lies in memory.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import eoslog

ROWS_A_FILE = 1000
SCHEMA = pa.schema([("day", pa.date32()), ("carrier", pa.string()), ("miles", pa.int64())])


def main(files: int) -> None:
    store = eoslog.connect("memory://pruning")
    store.admin.create_topic("flights", schema=SCHEMA)
    with store.producer() as producer:
        for number in range(files):
            producer.send_table("flights", _rows(number))
            producer.flush()
    table = Table("predicate", "files", "bytes", "GET", "rows", title=f"A topic of {files} files of {ROWS_A_FILE} rows")
    some_day = f"day = {_day(files // 2)}"
    for predicate in (
        None,
        some_day,
        f"{some_day} AND carrier = 'B6'",
        f"day >= {_day(files * 9 // 10)}",
        f"_offset < {ROWS_A_FILE}",
        "miles = 119",
        "carrier = 'XX'",
        "day IS NULL",
    ):
        reader = eoslog.connect("memory://pruning")
        reader.scan("flights", predicate="false")
        before = reader.requests["GET"]
        scan = reader.scan("flights", predicate=predicate)
        rows = scan.to_table().num_rows
        lengths = {file.path: file.length for file in scan.planned_files()}
        counts = (len(lengths), sum(lengths.values()), reader.requests["GET"] - before, rows)
        table.add_row(predicate or "none", *(f"{count:,}" for count in counts))
    Console().print(table)


def _day(number: int) -> str:
    return f"DATE '{pa.scalar(20_000 + number, pa.date32()).as_py()}'"


def _rows(number: int) -> pa.Table:
    """One day's flights: of three carriers, and of any length."""
    rows = range(ROWS_A_FILE)
    columns = {
        "day": pa.array([20_000 + number] * ROWS_A_FILE, pa.date32()),
        "carrier": [("UA", "B6", "AA")[row % 3] for row in rows],
        "miles": [row * 7919 % 2600 for row in rows],
    }
    return pa.table(columns, schema=SCHEMA)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
