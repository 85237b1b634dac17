"""Simulated daemons and readers: the coordinator's steps in any order, and reads that are compared with all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eoslog.errors import CorruptRecord, OffsetOutOfRange, RetriableError
from eoslog.maintenance.coordinator import STEPS, Coordinator
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.key_compaction import compact_keys
from eoslog.store import Store
from tests.simulation.service import PARTITIONS, ROWS_GO, TABLE, Service, open_store
from tests.simulation.world import Process, Violation

STAGED_MAX_AGE_MS = 7_200_000
DELETED_FILE_RETENTION_MS = 7_200_000


class Daemon(Service):
    """The coordinator's work, any of its steps at any time."""

    works: tuple[str, ...] = (
        "all",
        "files",
        "keys",
        "checkpoint",
        *(step.name for step in STEPS if step.name != "publish"),
    )
    longest_pause_ms = 60_000
    staged_max_age_ms = STAGED_MAX_AGE_MS

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        coordinator = Coordinator(
            store,
            transactional_id_expiration_ms=self.random.choice((60_000, 86_400_000)),
            producer_id_expiration_ms=self.random.choice((60_000, 86_400_000)),
            offsets_retention_ms=-1,
            staged_max_age_ms=self.staged_max_age_ms,
            deleted_file_retention_ms=DELETED_FILE_RETENTION_MS,
        )
        while not self.world.stopping:
            step = self.random.choice(self.works)
            if step == "files":
                compact_files(store)
            elif step == "keys":
                compact_keys(store, topic=TABLE, force=True)
            elif step == "checkpoint":
                store.log.checkpoint()
            else:
                take_steps(coordinator, None if step == "all" else [step], self.world.marks)
            self.pause(process, self.longest_pause_ms)


class Vacuum(Daemon):
    """A daemon that moves the horizon again and again, and deletes what was uploaded before it."""

    works = ("vacuum", "vacuum", "vacuum", "seal-segments")
    staged_max_age_ms = longest_pause_ms = 1_200_000


class Compactor(Daemon):
    """A daemon that replaces segments as soon as there are some: one that is paused finds them replaced."""

    works = ("seal-segments", "files", "keys", "keys")
    longest_pause_ms = 1_000


def take_steps(coordinator: Coordinator, steps: Sequence[str] | None = None, marks: Counter[str] | None = None) -> None:
    """Steps of a coordinator, all if None. Raises: Exception: an error that no fault explains."""
    for report in coordinator.run_once(steps=steps):
        if marks is not None:
            marks.update(f"daemon: {name}" for name in report.did)
        if report.error is not None and not isinstance(report.error, RetriableError):
            raise report.error


class Reader(Service):
    """Reads again and again, and compares with everything that was shown or told before."""

    def incarnation(self, process: Process) -> None:
        store = open_store(process)
        while not self.world.stopping:
            topic = self.random.choice(sorted(self.ledger.written) or tuple(PARTITIONS))
            isolation = self.random.choice(("read_committed", "read_uncommitted", "snapshot", "consistent"))
            started_ms = self.world.time_ms
            try:
                self.scan(store, topic, isolation)
            except OffsetOutOfRange:
                pass
            except CorruptRecord:
                # A reader that was paused for longer than files are kept may find its files gone.
                if self.world.time_ms - started_ms < DELETED_FILE_RETENTION_MS and not process.cut_reads:
                    raise
            before = dict(self.ledger.ends)
            for ends in store.admin.offsets(topic):
                self.ledger.observe_ends(
                    topic,
                    ends.partition,
                    ends.last_stable_offset,
                    ends.high_watermark,
                    before.get((topic, ends.partition), (0, 0)),
                )
            self.pause(process, 10_000)

    def scan(self, store: Store, topic: str, isolation: str) -> None:
        columns = ["partition", "offset", "value"]
        whole = isolation in ("snapshot", "consistent")
        if isolation == "consistent":
            scan = store.scan(topic, columns=columns, transaction_consistent=True)
        else:
            scan = store.scan(topic, isolation_level=isolation, columns=columns)
        rows = scan.to_table().to_pylist()
        for partition in range(PARTITIONS[topic]):
            mine = [(row["offset"], row["value"]) for row in rows if row["partition"] == partition]
            self.ledger.observe(
                topic,
                partition,
                iter(mine),
                committed=isolation != "read_uncommitted",
                all_decided=isolation in ("read_committed", "consistent") and topic not in ROWS_GO,
            )
        if whole and topic != TABLE:
            shown = Counter(self.ledger.work_of(row["value"]).name for row in rows)
            for name, count in shown.items():
                versions = self.ledger.works[name].versions()
                there = {sum(1 for place, _, _ in rows if place == topic) for rows in versions}
                if count not in there:
                    raise Violation(f"a {isolation} read of {topic} shows {count} of the {there} rows of {name}")
            self.world.marks[f"{isolation} read"] += 1
