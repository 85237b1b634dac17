"""Findings of a verification: their kinds, what each kind means, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from eoslog.state.invariants import Broken
from eoslog.state.names import PartitionId
from eoslog.state.store_state import StoreState


class Severity(StrEnum):
    """How serious a finding is."""

    ERROR = "error"
    """An object differs from what the log says, or the log is damaged."""
    WARNING = "warning"
    """Nothing is damaged, but an operator should look at it."""
    INFO = "info"
    """A healthy store may have it."""


class Kind(NamedTuple):
    """A kind of finding."""

    severity: Severity
    follows: str
    """The consequence for users of the store."""
    remedy: str
    """What an operator can do about it."""
    repairable: bool = False
    """True if ``repair`` can fix it: the repair loses nothing and uses the ordinary protocol."""
    log_in_doubt: bool = False
    """True if the log, or the state that it leads to, may differ from what was written. Then ``repair`` does nothing:
    a repair would make the wrong state permanent, and could delete the only evidence of the right one."""


_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_FROM_BACKUP = "bring the object back from a backup or an earlier version of the bucket"
_REPORT = "stop writers, keep a copy of the store, and report it: no correct writer makes this"

KINDS: dict[str, Kind] = {
    "description-missing": Kind(
        _ERROR, "nobody can open the store", f"{_FROM_BACKUP}; slot 0 has the store's id", log_in_doubt=True
    ),
    "description-damaged": Kind(_ERROR, "nobody can open the store", _FROM_BACKUP, log_in_doubt=True),
    "description-differs": Kind(
        _ERROR,
        "the description belongs to another store",
        f"{_FROM_BACKUP}; slot 0 has the store's id",
        log_in_doubt=True,
    ),
    "log-missing": Kind(
        _ERROR,
        "there are no topics: the creation of the store was interrupted, or all slots are lost",
        "if the store was never used, create a topic; otherwise bring the slots back from a backup",
        log_in_doubt=True,
    ),
    "slot-missing": Kind(
        _ERROR,
        "no process can read across the gap, and one before it may take it for the end of the log: stop writers",
        _FROM_BACKUP,
        log_in_doubt=True,
    ),
    "slot-lost": Kind(
        _WARNING, "the history of commits ends there; nothing else needs slots below the checkpoints", _FROM_BACKUP
    ),
    "slot-damaged": Kind(
        _ERROR, "no process can read the log past this slot: stop writers", _FROM_BACKUP, log_in_doubt=True
    ),
    "slot-chain-broken": Kind(
        _ERROR,
        "the record does not continue the record before it: no process can read the log past this slot",
        _FROM_BACKUP,
        log_in_doubt=True,
    ),
    "slot-token-repeated": Kind(
        _ERROR, "a record was appended twice: its changes may have been made twice", _REPORT, log_in_doubt=True
    ),
    "slot-tail-differs": Kind(
        _ERROR,
        "a process that opens the log here reads another record than processes that followed the log",
        _FROM_BACKUP,
        log_in_doubt=True,
    ),
    "slot-stray": Kind(
        _INFO,
        "none: a paused writer put a record below the start of the log, and nothing reads it",
        "none; the record is deleted together with old slots",
    ),
    "record-invalid": Kind(_ERROR, "the record changes nothing, and writers stop", _REPORT, log_in_doubt=True),
    "reference-outside": Kind(
        _ERROR,
        "the record names an object outside of the store; the record changes nothing, and writers stop",
        _REPORT,
        log_in_doubt=True,
    ),
    "checkpoint-missing": Kind(
        _ERROR, "processes open the other checkpoint or the whole log; slots are no longer deleted", "repair", True
    ),
    "checkpoint-damaged": Kind(
        _ERROR, "processes open the other checkpoint or the whole log; slots are no longer deleted", "repair", True
    ),
    "checkpoint-differs": Kind(
        _ERROR,
        "the state depends on the checkpoint that a process opens",
        "bring the slots or the checkpoint back from a backup, and report it",
        log_in_doubt=True,
    ),
    "log-unreadable": Kind(_ERROR, "nobody can open the log", _FROM_BACKUP, log_in_doubt=True),
    "topics-inconsistent": Kind(_ERROR, "the state contradicts itself", _REPORT, log_in_doubt=True),
    "transactions-inconsistent": Kind(
        _ERROR,
        "the state contradicts itself; rows of the partition may stay hidden from read_committed",
        _REPORT,
        log_in_doubt=True,
    ),
    "groups-inconsistent": Kind(_ERROR, "the state contradicts itself", _REPORT, log_in_doubt=True),
    "offsets-inconsistent": Kind(_ERROR, "rows are lost or given twice to readers", _REPORT, log_in_doubt=True),
    "verdicts-inconsistent": Kind(_ERROR, "readers may see rows that were not committed", _REPORT, log_in_doubt=True),
    "aborted-inconsistent": Kind(
        _ERROR, "Kafka's tools and readers see different aborted transactions", _REPORT, log_in_doubt=True
    ),
    "producers-inconsistent": Kind(_ERROR, "a repeated batch may not be recognized", _REPORT, log_in_doubt=True),
    "times-inconsistent": Kind(_ERROR, "time travel and history may be wrong", _REPORT, log_in_doubt=True),
    "file-misplaced": Kind(
        _ERROR, "the file may be deleted together with another topic or partition", _REPORT, log_in_doubt=True
    ),
    "file-shared": Kind(_ERROR, "readers see its rows twice", _REPORT, log_in_doubt=True),
    "index-missing": Kind(_ERROR, "rows of the segment cannot be read; vacuum refuses to run", _FROM_BACKUP),
    "index-damaged": Kind(_ERROR, "rows of the segment cannot be read; vacuum refuses to run", _FROM_BACKUP),
    "index-differs": Kind(_ERROR, "the segment differs from its entry", _REPORT, log_in_doubt=True),
    "txnindex-missing": Kind(_WARNING, "Kafka's tools lack the file; readers do not need it", "repair", True),
    "txnindex-damaged": Kind(_WARNING, "Kafka's tools lack the file; readers do not need it", "repair", True),
    "snapshot-missing": Kind(_WARNING, "Kafka's tools lack the file; readers do not need it", "repair", True),
    "snapshot-damaged": Kind(_WARNING, "Kafka's tools lack the file; readers do not need it", "repair", True),
    "snapshot-lost": Kind(
        _WARNING,
        "Kafka's tools lack the file; readers do not need it",
        f"none for eoslog; for Kafka's tools, {_FROM_BACKUP}",
    ),
    "data-missing": Kind(
        _ERROR,
        "its rows cannot be read",
        f"{_FROM_BACKUP}; if there is none, write the rows again and delete the old ones with topics delete-records",
    ),
    "data-damaged": Kind(
        _ERROR,
        "its rows cannot be read",
        f"{_FROM_BACKUP}; if there is none, write the rows again and delete the old ones with topics delete-records",
    ),
    "data-unreadable": Kind(_ERROR, "its rows cannot be read: its writer wrote an invalid file", _REPORT),
    "data-rows-differ": Kind(_ERROR, "its rows cannot be read: its writer wrote another number of rows", _REPORT),
    "data-schema-differs": Kind(_ERROR, "its rows may not be readable with the topic's columns", _REPORT),
    "data-offsets-differ": Kind(_ERROR, "rows have wrong offsets", _REPORT),
    "data-timestamps-differ": Kind(_ERROR, "lookup by timestamp and retention may be wrong", _REPORT),
    "data-statistics-false": Kind(
        _ERROR, "reads with a predicate may miss rows", "read without a predicate, and report it"
    ),
    "transaction-overdue": Kind(
        _WARNING,
        "read_committed readers do not see rows behind the transaction",
        "run a coordinator: eoslog coordinator --once",
    ),
    "transaction-prepared": Kind(
        _INFO,
        "the transaction waits for an outside decision",
        "complete_transaction, or transactions force-terminate",
    ),
    "group-offset-beyond-end": Kind(
        _WARNING, "the group's consumers start according to their auto_offset_reset", "groups reset-offsets"
    ),
    "not-an-object": Kind(_WARNING, "a store never follows or lists it", "remove it"),
    "files-unreferenced": Kind(
        _INFO, "none: no reader sees them", "none; vacuum deletes them when they are old enough"
    ),
    "files-unknown": Kind(_INFO, "none: they do not belong to the store", "none; nothing deletes them"),
    "uploads-unfinished": Kind(_INFO, "none, but they are billed", "abort them, or give the bucket a lifecycle rule"),
    "leftovers": Kind(_INFO, "none: a writer died while it wrote them", "repair", True),
}
"""The kinds by name, in the order in which a verification checks them."""


READS_BEFORE_REPORT = 3
"""Report damage only after this many reads: the answer to one read may be cut short on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem in a store, or a fact that an operator may want to know."""

    kind: str
    """A stable name; see ``KINDS``."""
    problem: str
    """What is wrong."""
    path: str | None = None
    """The path of the object."""
    slot: int | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    """The first offset, and the end (exclusive)."""

    @property
    def severity(self) -> Severity:
        return KINDS[self.kind].severity

    @property
    def follows(self) -> str:
        """The consequence for users of the store."""
        return KINDS[self.kind].follows

    @property
    def remedy(self) -> str:
        """What an operator can do about it."""
        return KINDS[self.kind].remedy

    @property
    def repairable(self) -> bool:
        """True if ``repair`` can fix it."""
        return KINDS[self.kind].repairable

    @property
    def log_in_doubt(self) -> bool:
        """True if the log or its state cannot be trusted. Then ``repair`` does nothing."""
        return KINDS[self.kind].log_in_doubt

    @property
    def place(self) -> str:
        """The place of the finding in words."""
        words = [] if self.slot is None else [f"slot {self.slot}"]
        if self.topic is not None:
            words.append(self.topic if self.partition is None else f"{self.topic}-{self.partition}")
        if self.offsets is not None:
            words.append(f"offsets {self.offsets[0]} to {self.offsets[1] - 1}")
        if self.path is not None:
            words.append(self.path)
        return ", ".join(words) or "the store"

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "severity": self.severity.value,
            "problem": self.problem,
            "path": self.path,
            "slot": self.slot,
            "topic": self.topic,
            "partition": self.partition,
            "offsets": None if self.offsets is None else list(self.offsets),
            "follows": self.follows,
            "remedy": self.remedy,
            "repairable": self.repairable,
        }


def of_broken(broken: Broken, state: StoreState, place: PartitionId | None = None, path: str | None = None) -> Finding:
    """Return a broken invariant as a finding."""
    where = broken.partition or place
    topic = None if where is None else state.topics.get(where.topic_id)
    return Finding(
        kind=broken.kind,
        problem=broken.problem,
        path=broken.path or path,
        topic=None if where is None else topic.topic if topic is not None else where.topic_id,
        partition=None if where is None else where.partition,
        offsets=broken.offsets,
    )


Progress = Callable[[str, int, int], object]
"""Called with the name of the checked things, the number of those that are done, and their total."""


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""
