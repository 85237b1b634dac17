"""The parts of the comparison, in the order of the page, and how one of them runs in its own process."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from benchmarks.peers import (
    aborted,
    batch_local,
    batch_spark,
    history,
    micro_batches,
    small_commits,
    throughput,
    writers,
)
from benchmarks.peers.measurements import Results
from benchmarks.peers.services import PEERS
from benchmarks.peers.sizes import SIZES

PARTS: Mapping[str, ModuleType] = {
    "batch-spark": batch_spark,
    "batch-local": batch_local,
    "small-commits": small_commits,
    "writers": writers,
    "history": history,
    "micro-batches": micro_batches,
    "aborted": aborted,
    "throughput": throughput,
}
RESULTS = PEERS / "results"


def results_path(part: str) -> Path:
    return RESULTS / f"{part}.json"


def main(part: str, size: str, directory: str, history: int) -> None:
    """Run one part. Its results are kept even if it fails in the middle.

    A ``history`` above 0 is one more length of a table's history (transactions).
    """
    sizes = SIZES[size]
    if history:
        sizes = replace(sizes, history=[*(each for each in sizes.history if each < history), history])
    results = Results(part, size)
    place = Path(tempfile.mkdtemp(prefix=f"{part}-", dir=directory))
    results.keep(results_path(part))
    try:
        PARTS[part].run(results, sizes, place)
    except Exception as error:
        results.fail("", "", error)
        raise
    finally:
        results.save()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
