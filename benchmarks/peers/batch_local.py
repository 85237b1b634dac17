"""Batch writes and scans without Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import eoslog
from benchmarks.peers.data import arrow_rows, megabytes
from benchmarks.peers.measurements import Results
from benchmarks.peers.services import new_name
from benchmarks.peers.sizes import Sizes

TITLE = "Batches without Spark"
INTRO = """\
An Arrow table of {rows} rows is written into a new table and read back as an Arrow table. `deltalake` is delta-rs,
`pyiceberg` has a catalog in SQLite. The filter selects one row in a thousand. eoslog makes files durable with fsync
before it names them; the others, and `eoslog, fsync=False`, leave that to the operating system."""

DURABLE, BUFFERED = "eoslog", "eoslog, fsync=False"
Read = Callable[[], object]


def run(results: Results, sizes: Sizes, directory: Path) -> None:
    results.settings |= {"rows": f"{sizes.rows:,}"}
    rows = arrow_rows(sizes.rows)
    catalog = sqlite_catalog(directory)
    names: dict[str, str] = {}

    def write(system: str) -> None:
        names[system] = new_name("t")
        _write(system, rows, directory / names[system], catalog)

    writers = ("pyarrow", "deltalake", "pyiceberg", DURABLE, BUFFERED)
    results.rounds("write", {system: partial(write, system) for system in writers}, sizes.rounds, warm=1)
    for system in [each for each in writers if each in names and each != BUFFERED]:
        results.add("write", system, {"MB on disk": megabytes(_place(system, directory, names[system]))})
    some = sizes.rows // 1000
    readers = {
        system: _reads(system, directory / name, catalog, some) for system, name in names.items() if system != BUFFERED
    }
    for case in ("scan, all columns", "scan, one column", "count", "filter"):
        results.rounds(case, {system: partial(_run, reads[case]) for system, reads in readers.items()}, sizes.rounds, 1)


def sqlite_catalog(directory: Path, warehouse: str = "", **options: str) -> Any:
    """A catalog of PyIceberg in SQLite, with the namespace ``n``; its tables are files below the directory."""
    from pyiceberg.catalog.sql import SqlCatalog

    directory.mkdir(parents=True, exist_ok=True)
    place = warehouse or f"file://{directory}/pyiceberg"
    catalog = SqlCatalog("peers", uri=f"sqlite:///{directory}/catalog.db", warehouse=place, **options)
    catalog.create_namespace_if_not_exists("n")
    return catalog


def _write(system: str, rows: pa.Table, path: Path, catalog: Any) -> None:
    match system:
        case "pyarrow":
            ds.write_dataset(rows, path, format="parquet")
        case "deltalake":
            import deltalake

            deltalake.write_deltalake(str(path), rows)
        case "pyiceberg":
            catalog.create_table(f"n.{path.name}", schema=rows.schema).append(rows)
        case _:
            store = eoslog.connect(path, fsync=system == DURABLE)
            store.admin.create_topic("t", schema=rows.schema)
            with store.producer("writer", staged=True) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send_table("t", rows)
                producer.commit_transaction()


def _reads(system: str, path: Path, catalog: Any, some: int) -> dict[str, Read]:
    """The reads of a system by case. Each opens the table anew."""
    column, condition = "miles", f"id < {some}"
    match system:
        case "pyarrow":
            return _dataset_reads(lambda: ds.dataset(path, format="parquet"), some) | {
                "count": lambda: ds.dataset(path, format="parquet").count_rows()
            }
        case "deltalake":
            import deltalake

            return _dataset_reads(lambda: deltalake.DeltaTable(path).to_pyarrow_dataset(), some) | {
                "count": lambda: deltalake.DeltaTable(path).count()
            }
        case "pyiceberg":
            table = partial(catalog.load_table, f"n.{path.name}")
            return {
                "scan, all columns": lambda: table().scan().to_arrow(),
                "scan, one column": lambda: table().scan(selected_fields=(column,)).to_arrow(),
                "count": lambda: table().scan().count(),
                "filter": lambda: table().scan(row_filter=condition).to_arrow(),
            }
    store = partial(eoslog.connect, path)
    return {
        "scan, all columns": lambda: store().scan("t").to_table(),
        "scan, one column": lambda: store().scan("t", columns=[column]).to_table(),
        "count": lambda: store().scan("t").record_count,
        "filter": lambda: store().scan("t", predicate=condition).to_table(),
    }


def _dataset_reads(dataset: Callable[[], Any], some: int) -> dict[str, Read]:
    return {
        "scan, all columns": lambda: dataset().to_table(),
        "scan, one column": lambda: dataset().to_table(columns=["miles"]),
        "filter": lambda: dataset().to_table(filter=pc.field("id") < some),
    }


def _run(read: Read) -> None:
    read()


def _place(system: str, directory: Path, name: str) -> Path:
    return directory / "pyiceberg" / "n" / name if system == "pyiceberg" else directory / name
