"""Simulated streaming queries whose users move, copy, restore and lose the checkpoint."""

from __future__ import annotations

import math
import re

from eoslog.errors import CheckpointMismatch
from pyspark_eoslog.write.checkpoint_locations import planned_checkpoint
from tests.simulation.ledger import Ledger
from tests.simulation.service import IN, GaveUp, open_store
from tests.simulation.spark_engine import Checkpoint
from tests.simulation.spark_query import Query
from tests.simulation.spark_streams import SparkStream
from tests.simulation.world import Process, Violation, World


def _place_name(location: str) -> str:
    return planned_checkpoint(location).of_query(None).name


class SparkMoved(SparkStream):
    """A query whose checkpoint is moved, copied, restored from older copies, and lost.

    What is refused goes on from another copy, or as the message says; nothing is ever skipped, or there twice, unless
    the user asked for it.
    """

    changes_sink = False

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self._source = {"subscribe": IN, "startingOffsets": "earliest"}
        self._takes_fresh_starts = self.random.random() < 0.5

    def choose_checkpoint(self, process: Process) -> Checkpoint:
        chance = self.random.random()
        place = f"/{self.name}/{len(self.checkpoints)}"
        if chance < 0.2:
            self.checkpoints.append(self._copy(place))
            self.world.marks["spark: checkpoint copied"] += 1
        elif chance < 0.4:
            copy = self._copy(place)
            copy.lose_newest()
            self.checkpoints.append(copy)
            self.world.marks["spark: checkpoint lost its newest entry"] += 1
        elif chance < 0.6:
            known = open_store(process).read(
                lambda state, _: {key.application_id for key in state.application_versions}
            )
            locations = [each.location for each in self.checkpoints if _place_name(each.location) in known]
            if locations:
                self.checkpoints.append(self.new_checkpoint(self.random.choice(locations)))
                self.world.marks["spark: checkpoint deleted"] += 1
        newest = self.random.random() < 0.5
        return self.checkpoints[-1] if newest else self.random.choice(self.checkpoints)

    def _copy(self, location: str) -> Checkpoint:
        """A copy of any checkpoint of the first query: a later one's, elsewhere, would be a fresh start that no sink
        knows from another query's."""
        first = self.checkpoints[0].query_id
        return self.random.choice([each for each in self.checkpoints if each.query_id == first]).copy(location)

    def most_batches(self) -> float:
        return self.random.choice((1, 1, 2, math.inf))

    def run(self, process: Process, checkpoint: Checkpoint) -> None:
        try:
            super().run(process, checkpoint)
        except CheckpointMismatch as error:
            self.world.marks["spark: mismatch told"] += 1
            advice = re.search(r"startAnewAfter='([^']+)'", str(error))
            if advice and self._takes_fresh_starts and self.random.random() < 0.7:
                checkpoint.starts_anew_after = advice.group(1)
                checkpoint.generation = f"{self.random.getrandbits(64):016x}"
                self.repeats = True
                self.world.marks["spark: fresh start asked for"] += 1
            raise GaveUp from error

    def settle(self, process: Process) -> None:
        """Of all copies, the one that committed last goes on."""
        for checkpoint in reversed(self.checkpoints):
            try:
                Query(self, process, checkpoint).run()
                return
            except CheckpointMismatch:
                continue
        raise Violation(f"{self.name}: no copy of the checkpoint goes on")
