"""Simulated publishers: topics are Delta and Iceberg tables, and each version is a snapshot, whoever published it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from eoslog.errors import OffsetOutOfRange, RetriableError
from eoslog.iceberg import iceberg_log, next_manifests
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.key_compaction import compact_keys
from eoslog.maintenance.publication import Publication
from eoslog.storage.object_store import ObjectNotFound
from eoslog.store import Store
from tests.delta_logs import check_versions, rows_by_stream, tables, versions
from tests.iceberg_tables import check_iceberg_versions, check_snapshots, hint_of, iceberg_versions
from tests.simulation.service import IN, ROWS_GO, TABLE, Service, open_store, until_done
from tests.simulation.world import Process, Violation

PUBLISHED = (IN, TABLE)
FORMATS = "delta,iceberg"


@contextmanager
def small_tables() -> Iterator[None]:
    """Within it, a few versions suffice for Iceberg tables to merge manifests and to drop snapshots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(next_manifests, "MOST_MANIFESTS", 3)
        patch.setattr(next_manifests, "FULL_MANIFEST", 4)
        patch.setattr(iceberg_log, "MOST_SNAPSHOTS", 6)
        yield


class Publisher(Service):
    """Publishes topics while others write, compact and publish them."""

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        for topic in PUBLISHED:
            until_done(lambda topic=topic: store.admin.alter_topic(topic, publish=FORMATS))  # type: ignore[misc]
        coordinator = Coordinator(store)
        while not self.world.stopping:
            match self.random.choice(("all", "one", "one", "seal", "files", "keys")):
                case "one":
                    with suppress(RetriableError):
                        for told in store.admin.publish(self.random.choice(PUBLISHED)):
                            self._note(told)
                case "all":
                    with suppress(RetriableError):
                        for told in coordinator.publish():
                            self._note(told)
                case "seal":
                    coordinator.seal()
                case "files":
                    compact_files(store)
                case "keys":
                    compact_keys(store, topic=TABLE, force=True)
            self.pause(process, 2_000)

    def check(self, store: Store) -> None:
        for topic in PUBLISHED:
            store.admin.alter_topic(topic, publish=FORMATS)
            delta, iceberg = store.admin.publish(topic)
            self._note(delta)
            self._note(iceberg)
            self._check_delta(store, delta)
            self._check_iceberg(store, iceberg)

    def _check_delta(self, store: Store, newest: Publication) -> None:
        topic = newest.topic
        found = list(tables(store.object_store, topic))
        try:
            check_versions(store.object_store, topic)
        except AssertionError as error:
            raise Violation(str(error)) from error
        self._check_told(newest, [(table.version, table.slot) for table in found])
        for before, table in zip([None, *found], found, strict=False):
            # A version with the slot of the one before lacks rows that were removed since.
            if table.has_all_files and (before is None or before.slot < table.slot):
                self._compare(store, newest, table.version, table.slot, table.rows())
        removes = [
            actions[0]["commitInfo"]["slot"]
            for actions in versions(store.object_store, topic)
            if any(action.get("remove", {}).get("dataChange") for action in actions)
        ]
        if topic not in ROWS_GO and removes:
            raise Violation(f"versions of {topic} remove rows at slots {removes}, but none were removed")
        taken = rows_by_stream(store.object_store, topic)
        if taken is not None and max(Counter(taken).values(), default=0) > 1:
            raise Violation(f"a Delta stream of {topic} gets rows twice")
        if taken is not None and found[-1].has_all_files and taken != found[-1].places():
            raise Violation(f"a Delta stream of {topic} gets {len(taken)} rows, not {len(found[-1].places())}")

    def _check_iceberg(self, store: Store, newest: Publication) -> None:
        topic = newest.topic
        try:
            found = list(iceberg_versions(store.object_store, topic))
            check_iceberg_versions(store.object_store, topic)
            check_snapshots(found[-1])
        except (AssertionError, ObjectNotFound) as error:
            raise Violation(f"the Iceberg table of {topic}: {error}") from error
        self._check_told(newest, [(table.version, table.slot) for table in found])
        hinted = hint_of(store.object_store, topic)
        if hinted != newest.version:
            raise Violation(f"the hint of {topic} points at version {hinted}, but {newest.version} was told")
        for before, table in zip([None, *found], found, strict=False):
            # Vacuum may have deleted the version before.
            is_first = before is None and table.version == 1
            if table.has_all_files and (is_first or (before is not None and before.slot < table.slot)):
                self._compare(store, newest, table.version, table.slot, table.rows("value"))
            if topic not in ROWS_GO and table.operation not in ("append", "replace"):
                raise Violation(f"version {table.version} of {topic} is {table.operation}, but no rows were removed")

    def _check_told(self, newest: Publication, found: list[tuple[int, int]]) -> None:
        """Compare the versions and slots of a table with those that publishers were told."""
        for version, slot in found:
            if self.ledger.published.get((newest.format, newest.topic, version), slot) != slot:
                raise Violation(f"{newest.format} version {version} of {newest.topic} shows slot {slot}, not that told")
        if found[-1] != (newest.version, newest.slot):
            raise Violation(f"the newest {newest.format} version of {newest.topic} is {found[-1]}, not {newest}")
        self.world.marks[f"{newest.format} versions compared"] += len(found)

    def _note(self, told: Publication) -> None:
        before = self.ledger.published.setdefault((told.format, told.topic, told.version), told.slot)
        if before != told.slot:
            raise Violation(
                f"{told.format} version {told.version} of {told.topic} was told with slots {before} and {told.slot}"
            )
        self.world.marks["versions told"] += 1

    def _compare(
        self, store: Store, table: Publication, version: int, slot: int, rows: list[tuple[int, int, bytes]]
    ) -> None:
        topic = table.topic
        try:
            scan = store.scan(topic, isolation_level="snapshot", slot=slot, columns=["partition", "offset", "value"])
        except OffsetOutOfRange:
            return  # Rows of the snapshot were removed since.
        expected = sorted(tuple(row.values()) for row in scan.to_table().to_pylist())
        if expected != rows:
            raise Violation(
                f"{table.format} version {version} of {topic} has {len(rows)} rows, "
                f"the snapshot at slot {slot} {len(expected)}"
            )
