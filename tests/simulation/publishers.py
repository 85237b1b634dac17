"""Simulated publishers: topics are Delta tables, and each version is a snapshot, whoever published it and died."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from eoslog.errors import OffsetOutOfRange, RetriableError
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.key_compaction import compact_keys
from eoslog.maintenance.publication import Publication
from eoslog.store import Store
from tests.delta_logs import check_versions, rows_by_stream, tables, versions
from tests.simulation.service import IN, ROWS_GO, TABLE, Service, open_store, until_done
from tests.simulation.world import Process, Violation

PUBLISHED = (IN, TABLE)


class Publisher(Service):
    """Publishes topics while others write, compact and publish them."""

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        for topic in PUBLISHED:
            until_done(lambda topic=topic: store.admin.alter_topic(topic, publish="delta"))  # type: ignore[misc]
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
            store.admin.alter_topic(topic, publish="delta")
            (newest,) = store.admin.publish(topic)
            self._note(newest)
            found = list(tables(store.object_store, topic))
            for table in found:
                if self.ledger.published.get((topic, table.version), table.slot) != table.slot:
                    raise Violation(f"version {table.version} of {topic} shows slot {table.slot}, but another was told")
            try:
                check_versions(store.object_store, topic)
            except AssertionError as error:
                raise Violation(str(error)) from error
            if (found[-1].version, found[-1].slot) != (newest.version, newest.slot):
                raise Violation(f"the newest version of {topic} is {found[-1].version}, but {newest.version} was told")
            for before, table in zip([None, *found], found, strict=False):
                # A version with the slot of the one before lacks rows that were removed since.
                if table.has_all_files and (before is None or before.slot < table.slot):
                    self._compare(store, topic, table.version, table.slot, table.rows())
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
            self.world.marks["versions compared"] += len(found)

    def _note(self, told: Publication) -> None:
        before = self.ledger.published.setdefault((told.topic, told.version), told.slot)
        if before != told.slot:
            raise Violation(f"version {told.version} of {told.topic} was told with slots {before} and {told.slot}")
        self.world.marks["versions told"] += 1

    def _compare(self, store: Store, topic: str, version: int, slot: int, rows: list[tuple[int, int, bytes]]) -> None:
        try:
            scan = store.scan(topic, isolation_level="snapshot", slot=slot, columns=["partition", "offset", "value"])
        except OffsetOutOfRange:
            return  # Rows of the snapshot were removed since.
        expected = sorted(tuple(row.values()) for row in scan.to_table().to_pylist())
        if expected != rows:
            raise Violation(
                f"version {version} of {topic} has {len(rows)} rows, the snapshot at slot {slot} {len(expected)}"
            )
