"""Counts of what happens in a store: in the log that this process follows, and in the calls of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

_ENDS = (("commit", "client"), ("abort", "client"), ("abort", "timeout"), ("abort", "fence"), ("abort", "admin"))


def _add(counts: dict[Any, int], key: Any, number: int = 1) -> None:
    counts.setdefault(key, 0)
    # Between the read and the write of an addition no Python code runs, so no count of another thread is lost.
    # A lock could be held forever: by this thread below a signal handler, or in a forked child.
    counts[key] += number


class LogCounts:
    """Counts of the log's entries, of all processes, since this process opened the log.

    So the counts of two processes that follow one store must not be added. An opening that skips records, because
    this process was far behind, skips their events.
    """

    def __init__(self) -> None:
        self.transactions_ended: dict[tuple[str, str], int] = dict.fromkeys(_ENDS, 0)
        """Ended transactions by outcome and reason, as in ``TransactionEnded``."""
        self.inits = 0
        """Producer ids and epochs that were assigned."""
        self.rows_in: dict[str, int] = {}
        """Appended rows by topic id, whatever became of their transactions."""
        self.bytes_in: dict[str, int] = {}
        """The bytes of their files by topic id."""

    def add(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Count the entries of a valid record. The log calls it once for each record."""
        for entry in entries:
            match entry["type"]:
                case "batch":
                    self._add_batch(entry)
                case "end":
                    _add(self.transactions_ended, (entry["outcome"], entry.get("reason", "client")))
                    for batch in entry.get("batches", ()):
                        self._add_batch(batch)
                case "init":
                    self.inits += 1

    def _add_batch(self, batch: Mapping[str, Any]) -> None:
        _add(self.rows_in, batch["topic_id"], batch["record_count"])
        _add(self.bytes_in, batch["topic_id"], batch["file"]["length"])


class CallCounts:
    """Counts of the calls of this process since it connected to the store. Threads may share it."""

    def __init__(self) -> None:
        self.append_errors: dict[str, int] = {}
        """Appends that raised an error, and refused batches of ``append_many``, by the name of the error."""
        self.duplicate_batches = 0
        """Batches of this process that the log had already."""
        self.rows_out: dict[str, int] = {}
        """Rows that scans and consumers read, by topic."""
        self.bytes_out: dict[str, int] = {}
        """Their size in memory, by topic (bytes)."""

    def failed(self, error: BaseException) -> None:
        """Count an append that raised an error."""
        _add(self.append_errors, type(error).__name__)

    def read(self, topic: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows of a topic, and count them."""
        for batch in batches:
            _add(self.rows_out, topic, batch.num_rows)
            _add(self.bytes_out, topic, batch.nbytes)
            yield batch
