"""Simulated applications of Spark that share one transactional id: each counts its own versions.

They fence each other, so each goes on only when it is run again. None may take another's versions for its own.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import StructType

from eoslog.store import Store
from pyspark_eoslog.options import Options
from pyspark_eoslog.write.sink import EosLogWriter
from tests.simulation.ledger import Ledger
from tests.simulation.service import JOB, SPARK, Service
from tests.simulation.spark_columns import RECORDS
from tests.simulation.spark_engine import ROOT, Checkpoint
from tests.simulation.spark_jobs import SparkBackfill, SparkForeachBatch
from tests.simulation.spark_streams import SparkStream
from tests.simulation.world import Violation, World

SHARED = "shared"
"""The transactional id."""


class SparkSharedStream(SparkStream):
    """A query with the shared id. Queries write to different topics: in one topic the second is refused."""

    changes_sink = False

    @property
    def _topic(self) -> str:
        return (SPARK, JOB)[int(self.name[-1]) % 2]

    def sink(self, checkpoint: Checkpoint) -> tuple[dict[str, str], StructType]:
        options, schema = super().sink(checkpoint)
        return options | {"topic": self._topic, "transactionalId": SHARED}, schema

    def output_topic(self, row: dict[str, Any], *, routes: bool) -> str:
        return self._topic

    def check(self, store: Store) -> None:
        super().check(store)
        _check_version(self, store, SHARED, self._topic, max(self.checkpoints[0].commits, default=None))


class SparkSharedForeach(SparkForeachBatch):
    """A query whose ``foreachBatch`` writes with the shared id and an application id of its own."""

    def writer(self, checkpoint: Checkpoint, batch_id: int) -> Any:
        return EosLogWriter(Options.of(_options(self.name, batch_id)), RECORDS, False)

    def check(self, store: Store) -> None:
        super().check(store)
        _check_version(self, store, self.name, SPARK, max(self.checkpoints[0].commits, default=None))


class SparkSharedBackfill(SparkBackfill):
    """Batch writes with the shared id, an application id of their own, and numbers that begin anywhere."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world, ledger, name)
        self._named = True
        self._version = self._first = self.random.choice((0, 5))

    def options(self) -> dict[str, str]:
        return _options(self.name, self._version)

    def check(self, store: Store) -> None:
        _check_version(self, store, self.name, SPARK, None if self._version == self._first else self._version)


def _options(application_id: str, version: int) -> dict[str, str]:
    return {
        "path": ROOT,
        "topic": SPARK,
        "transactionalId": SHARED,
        "txnAppId": application_id,
        "txnVersion": str(version),
    }


def _check_version(service: Service, store: Store, application_id: str, topic: str, expected: int | None) -> None:
    """The store knows the version that the application committed last, whatever others committed. Raises: Violation"""
    application_versions = store.read(
        lambda state, _: {key: last for key, last in state.application_versions.items() if key[0] == SHARED}
    )
    found = {
        last.version
        for key, last in application_versions.items()
        if key.application_id == application_id and key.sink.partition(":")[0] == topic
    }
    if found != ({expected} - {None}):
        raise Violation(f"{service.name}: committed version {expected} last, the store has {found}")
    service.world.marks["spark: versions of two applications under one id"] += len(application_versions) > 1
