"""How long a table with a long history takes to open and to plan."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import eoslog
from benchmarks.peers.measurements import Results
from benchmarks.peers.services import S3, s3_server
from benchmarks.peers.sizes import HISTORY_DELAYS_MS, Sizes
from benchmarks.peers.writers import Place, place_on

TITLE = "Open a table with a history"
INTRO = """\
The table has that many transactions of one row each, on S3, and nobody compacted it. A process that knows nothing of
the table opens it and lists the files of the newest version. Both clients write checkpoints of their logs, as often
as they do by default. Requests are counted at the server."""

SYSTEMS = ("deltalake", "eoslog")


def run(results: Results, sizes: Sizes, directory: Path) -> None:
    with s3_server() as s3:
        places = {system: place_on(s3, system, directory, 0.0) for system in SYSTEMS}
        for place in places.values():
            place.create()
        reached = 0
        for transactions in sizes.history:
            s3.delay.set(0)
            _grow(places, transactions - reached)
            reached = transactions
            for delay_ms in HISTORY_DELAYS_MS:
                s3.delay.set(delay_ms)
                works = {system: partial(_measure, s3, place) for system, place in places.items()}
                results.rounds(f"{transactions:,} transactions, {delay_ms} ms", works, sizes.rounds, warm=1)


def _grow(places: Mapping[str, Place], count: int) -> None:
    """Add transactions to all tables, to each by a thread of its own."""
    threads = [threading.Thread(target=_commit, args=(place, count)) for place in places.values()]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _commit(place: Place, count: int) -> None:
    commit = place.open()("writer")
    for _ in range(count):
        commit()


def _measure(s3: S3, place: Place) -> Mapping[str, float]:
    before = s3.delay.total()
    began = time.perf_counter()
    _opener(place)()
    took = time.perf_counter() - began
    return {"open and plan (ms)": took * 1000, "requests": float(s3.delay.total() - before)}


def _opener(place: Place) -> Callable[[], object]:
    if place.system == "deltalake":
        import deltalake

        return lambda: deltalake.DeltaTable(place.url, storage_options=dict(place.options)).file_uris()
    return lambda: eoslog.connect(place.url, **place.options).scan("t").plans  # type: ignore[arg-type]
