"""Simulated streaming queries that begin at the latest offsets: what was there before is none of theirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from eoslog.store import Store
from tests.checker.oracle import shown_at
from tests.simulation.ledger import Ledger
from tests.simulation.log_checks import read_log
from tests.simulation.service import IN
from tests.simulation.spark_streams import SparkStream
from tests.simulation.world import Process, Violation, World


class SparkLatest(SparkStream):
    """From where it began on each row is copied once, also if it dies in its first micro-batch.

    Where that is, the offsets say that its first micro-batch was planned from; they lie between what could be read when
    that run began and when the plan was written down.
    """

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self._source = self._source | {"startingOffsets": "latest"}

    def incarnation(self, process: Process) -> None:
        if self.checkpoints[0].began is None:
            process.sleep(self.random.choice((1, 1_000, 5_000)))
        super().incarnation(process)

    def to_be_copied(self, store: Store) -> Sequence[bytes]:
        began = self.checkpoints[0].began
        if began is None:
            return []
        rows = store.scan(IN, columns=["partition", "offset", "value"]).to_table().to_pylist()
        first = json.loads(began.offsets)
        before = self._before(store, first, rows)
        log, _ = read_log(self.world, store)
        topic_id = first["topics"][IN]["topic_id"]
        early, late = shown_at(log, began.earliest_slot), shown_at(log, began.latest_slot)
        for row in rows:
            place, offset = (topic_id, row["partition"]), row["offset"]
            if (row["partition"], offset) not in before:
                if offset in early.read_committed(place) and "transactionConsistent" not in self._source:
                    raise Violation(f"{self.name}: began at {began}, before {row}, which was there")
            elif offset not in late.committed.get(place, ()):
                raise Violation(f"{self.name}: began at {began}, behind {row}, which was not committed yet")
        return [row["value"] for row in rows if (row["partition"], row["offset"]) not in before]

    def _before(self, store: Store, first: dict[str, Any], rows: Sequence[dict[str, Any]]) -> set[tuple[int, int]]:
        """Partition and offset of the rows that lie before where it began."""
        if "slot" in first:
            scan = store.scan(IN, isolation_level="snapshot", slot=first["slot"], columns=["partition", "offset"])
            return {(row["partition"], row["offset"]) for row in scan.to_table().to_pylist()}
        starts = first["topics"][IN]
        found = {(row["partition"], row["offset"]) for row in rows}
        return {(partition, offset) for partition, offset in found if offset < starts[str(partition)]}
