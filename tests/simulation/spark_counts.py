"""Simulated streaming queries in complete mode: what a micro-batch writes takes the place of what was there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from eoslog.store import Store
from tests.simulation.service import IN, TOTALS
from tests.simulation.spark_columns import RECORDS
from tests.simulation.spark_engine import ROOT, Checkpoint, Rows
from tests.simulation.spark_query import Query
from tests.simulation.spark_streams import SparkStream
from tests.simulation.world import Violation


class SparkCount(SparkStream):
    """A query in complete mode: each micro-batch replaces the number of rows so far by a newer one."""

    changes_sink = False
    overwrite = True

    def sink(self, checkpoint: Checkpoint) -> tuple[dict[str, str], StructType]:
        return {"path": ROOT, "checkpointLocation": checkpoint.location, "topic": TOTALS}, RECORDS

    def task_count(self, parts: Sequence[Any]) -> int:
        return 1

    def rows_of(self, query: Query, batch_id: int, parts: Sequence[Any], end: str, routes: bool) -> Rows:
        work = self.work(query.checkpoint, batch_id)

        def rows(task: int) -> Iterator[pa.RecordBatch]:
            before = query.checkpoint.state.get(batch_id - 1, 0)
            total = before + sum(1 for _ in query.read(parts))
            known = query.checkpoint.state.setdefault(batch_id, total)
            if known != total:
                raise Violation(f"{self.name}: micro-batch {batch_id} counts {total} where it counted {known}")
            value = b"%s#0|%d" % (work.name.encode(), total)
            work.rows = [(TOTALS, 0, value)]
            yield pa.record_batch([pa.array([None], pa.binary()), pa.array([value], pa.binary())], ["key", "value"])

        return rows

    def check(self, store: Store) -> None:
        total = store.scan(IN, columns=["value"]).to_table().num_rows
        found = [int(row["value"].partition(b"|")[2]) for row in self._rows(store, TOTALS)]
        others = store.scan(TOTALS, columns=["value"]).to_table().num_rows
        if found not in ([total], []) or not (found or others):
            raise Violation(f"{self.name}: counted {found} of {total} rows")
