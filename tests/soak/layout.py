"""What the processes of a soak share: the run's folder, the store, its topics and its short time limits."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import eoslog

ORDERS, INVOICES, BANK, COPIES, RECOPIES, NEWEST, RECENT = (
    "orders",
    "invoices",
    "bank",
    "copies",
    "recopies",
    "newest",
    "recent",
)
PARTITIONS = {ORDERS: 4, INVOICES: 4, BANK: 2, COPIES: 2, RECOPIES: 2, NEWEST: 2, RECENT: 2}
KEPT = (ORDERS, INVOICES, BANK, COPIES, RECOPIES)
"""Topics of which no row ever goes. Of ``NEWEST`` the newest row of each key stays, ``RECENT`` drops old ones."""

PUBLISHED = (ORDERS, NEWEST, RECENT)
"""Topics that are Delta and Iceberg tables: one keeps its rows, one is compacted by key, and one drops old rows."""

INVOICING = "invoicing"
"""The group that turns orders into invoices."""

LOG_GRACE_MS = 20_000
DELETED_FILE_RETENTION_MS = 60_000
STAGED_MAX_AGE_MS = 90_000
RETENTION_MS = 20_000

SETTINGS = {
    "EOSLOG_LOG__SLOT_RETENTION_MS": LOG_GRACE_MS,
    "EOSLOG_LOG__CHECKPOINT_SLOTS": 32,
    "EOSLOG_VACUUM__STAGED_MAX_AGE_MS": STAGED_MAX_AGE_MS,
    "EOSLOG_VACUUM__DELETED_FILE_RETENTION_MS": DELETED_FILE_RETENTION_MS,
    "EOSLOG_S3__READ_TIMEOUT_MS": 10_000,
}
"""Of every process, so that a run of minutes goes through what takes days elsewhere."""

STEP_INTERVALS_S = {
    "abort-timed-out-transactions": 2,
    "evict-silent-members": 3,
    "expire-offsets": 10,
    "expire-producer-ids": 10,
    "expire-transactional-ids": 10,
    "seal-segments": 5,
    "apply-retention": 5,
    "publish": 3,
    "compact-keys": 5,
    "compact-files": 5,
    "write-checkpoint": 5,
    "vacuum": 15,
    "delete-old-slots": 5,
}
"""How often the coordinator takes each of its steps."""


@dataclass(frozen=True, slots=True)
class Run:
    """One soak. ``folder`` holds what is to outlive it; the store lies at ``url``."""

    folder: Path
    url: str
    seed: int
    endpoint_url: str | None = None
    """Of a server, as the processes reach it."""
    transaction_timeout_ms: int = 6_000
    session_timeout_ms: int = 6_000
    """Of the members of groups."""
    pace: float = 1.0
    """By how much the processes pause longer than they would."""

    @property
    def histories(self) -> Path:
        return self.folder / "histories"

    @property
    def judged(self) -> Path:
        """The histories as one, with what the checker has to know beside them."""
        return self.folder / "judged.jsonl"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def database(self) -> Path:
        """The other system of the two-phase commits."""
        return self.folder / "bank.sqlite"

    @property
    def checkpoints(self) -> Path:
        """Where the streaming queries remember how far they are."""
        return self.folder / "checkpoints"

    @property
    def is_draining(self) -> bool:
        """Whether what was begun is to be ended, and nothing more begun."""
        return (self.folder / "drain").exists()

    def begin_to_drain(self) -> None:
        (self.folder / "drain").touch()

    def save(self) -> None:
        for each in (self.histories, self.logs, self.checkpoints):
            each.mkdir(parents=True, exist_ok=True)
        values = asdict(self) | {"folder": str(self.folder)}
        (self.folder / "run.json").write_text(json.dumps(values, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Run:
        values = json.loads((folder / "run.json").read_text())
        return cls(**values | {"folder": folder})

    def environment(self) -> dict[str, str]:
        """The variables with which a process finds the store."""
        found = {name: str(value) for name, value in SETTINGS.items()}
        if self.endpoint_url is not None:
            variables = {
                "s3": "EOSLOG_S3__ENDPOINT_URL",
                # Requests to this server, which here is the network's proxy, are anonymous.
                "gs": "STORAGE_EMULATOR_HOST",
                "az": "EOSLOG_AZURE__ENDPOINT_URL",
            }
            found[variables[self.url.partition("://")[0]]] = self.endpoint_url
        return os.environ | found

    def connect(self, *, endpoint_url: str | None = None) -> eoslog.Store:
        """The store; by default as the environment says, else straight at a server."""
        options = {} if endpoint_url is None else {"endpoint_url": endpoint_url}
        if endpoint_url is not None and self.url.startswith("gs:"):
            options["anon"] = "true"
        return eoslog.connect(self.url, **options)  # type: ignore[arg-type]


def make_topics(store: eoslog.Store) -> None:
    """Small segments, so that they are sealed, compacted and dropped all the time."""
    for topic, partitions in PARTITIONS.items():
        settings: dict[str, object] = {"segment_batches": 40}
        if topic == NEWEST:
            settings |= {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.1, "segment_ms": 10_000}
        if topic == RECENT:
            settings |= {"retention_ms": RETENTION_MS, "segment_ms": 5_000}
        if topic in PUBLISHED:
            settings |= {"publish": "delta,iceberg"}
        config = eoslog.TopicConfig.model_validate(settings)
        store.admin.create_topic(topic, partitions=partitions, config=config)
