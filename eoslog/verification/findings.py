"""How far a verification has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from eoslog.state.invariants import Broken
from eoslog.state.names import PartitionId
from eoslog.state.store_state import StoreState


class Severity(StrEnum):
    ERROR = "error"
    """Something is not what the log says, or the log is damaged."""
    WARNING = "warning"
    """Nothing is damaged, but somebody should look."""
    INFO = "info"
    """As it may be in a healthy store."""


class Kind(NamedTuple):
    severity: Severity
    follows: str
    """What it means for those who use the store."""
    remedy: str
    """What somebody may do about it."""
    repairable: bool = False
    """Whether a repair may do it: it can lose nothing, and goes through the ordinary protocol."""
    log_in_doubt: bool = False
    """Whether the log, or the state that it leads to, may not be what was written. While it is so nothing is repaired:
    that would make the wrong state last, and drop what may be all that tells the right one."""


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
        "the description is that of another store",
        f"{_FROM_BACKUP}; slot 0 has the store's id",
        log_in_doubt=True,
    ),
    "log-missing": Kind(
        _ERROR,
        "there are no topics; the making of the store was interrupted, or all slots are lost",
        "if it was never used, create a topic; else bring the slots back from a backup",
        log_in_doubt=True,
    ),
    "slot-missing": Kind(
        _ERROR,
        "the log cannot be opened from before it, and a follower may take what lies before for the end: stop writers",
        _FROM_BACKUP,
        log_in_doubt=True,
    ),
    "slot-lost": Kind(
        _WARNING, "the history of commits is cut there; nobody else needs slots below the checkpoints", _FROM_BACKUP
    ),
    "slot-damaged": Kind(_ERROR, "the log cannot be folded across it: stop writers", _FROM_BACKUP, log_in_doubt=True),
    "slot-chain-broken": Kind(
        _ERROR,
        "the record is not that which followed the one before: the log cannot be folded across it",
        _FROM_BACKUP,
        log_in_doubt=True,
    ),
    "slot-token-repeated": Kind(
        _ERROR, "a record was put twice: its work may have been done twice", _REPORT, log_in_doubt=True
    ),
    "slot-tail-differs": Kind(
        _ERROR, "who opens the log here folds another record than its followers did", _FROM_BACKUP, log_in_doubt=True
    ),
    "slot-stray": Kind(
        _INFO, "none: a writer slept, and its record is of no log", "none; it goes when old slots are deleted"
    ),
    "record-invalid": Kind(_ERROR, "the record changes nothing, and writers stop", _REPORT, log_in_doubt=True),
    "reference-outside": Kind(
        _ERROR,
        "the record names an object outside of the store; it changes nothing, and writers stop",
        _REPORT,
        log_in_doubt=True,
    ),
    "checkpoint-missing": Kind(
        _ERROR, "opening takes the other checkpoint, or the whole log; slots are no longer deleted", "repair", True
    ),
    "checkpoint-damaged": Kind(
        _ERROR, "opening takes the other checkpoint, or the whole log; slots are no longer deleted", "repair", True
    ),
    "checkpoint-differs": Kind(
        _ERROR,
        "the state depends on where the log is opened",
        "bring slots or checkpoint back from a backup; report it",
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
    "verdicts-inconsistent": Kind(
        _ERROR, "readers may be shown rows that were not committed", _REPORT, log_in_doubt=True
    ),
    "aborted-inconsistent": Kind(
        _ERROR, "Kafka's tools are told other aborted transactions than readers", _REPORT, log_in_doubt=True
    ),
    "producers-inconsistent": Kind(_ERROR, "a repeated batch may not be recognised", _REPORT, log_in_doubt=True),
    "times-inconsistent": Kind(_ERROR, "time travel and history may be wrong", _REPORT, log_in_doubt=True),
    "file-misplaced": Kind(_ERROR, "the file may go when another topic or partition does", _REPORT, log_in_doubt=True),
    "file-shared": Kind(_ERROR, "readers are given its rows twice", _REPORT, log_in_doubt=True),
    "index-missing": Kind(_ERROR, "rows of the segment cannot be read; vacuum refuses to run", _FROM_BACKUP),
    "index-damaged": Kind(_ERROR, "rows of the segment cannot be read; vacuum refuses to run", _FROM_BACKUP),
    "index-differs": Kind(_ERROR, "the segment is not what its entry says", _REPORT, log_in_doubt=True),
    "txnindex-missing": Kind(_WARNING, "Kafka's tools lack the file; readers do without", "repair", True),
    "txnindex-damaged": Kind(_WARNING, "Kafka's tools lack the file; readers do without", "repair", True),
    "snapshot-missing": Kind(_WARNING, "Kafka's tools lack the file; readers do without", "repair", True),
    "snapshot-damaged": Kind(_WARNING, "Kafka's tools lack the file; readers do without", "repair", True),
    "snapshot-lost": Kind(
        _WARNING,
        "Kafka's tools lack the file; readers do without",
        f"nothing here needs it; for Kafka's tools, {_FROM_BACKUP}",
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
    "data-unreadable": Kind(_ERROR, "its rows cannot be read: it was written like this", _REPORT),
    "data-rows-differ": Kind(_ERROR, "its rows cannot be read: it was written like this", _REPORT),
    "data-schema-differs": Kind(_ERROR, "its rows may not be readable as the topic's columns", _REPORT),
    "data-offsets-differ": Kind(_ERROR, "rows have offsets that are not theirs", _REPORT),
    "data-timestamps-differ": Kind(_ERROR, "lookup by timestamp and retention may be wrong", _REPORT),
    "data-statistics-false": Kind(
        _ERROR, "reads with a predicate may miss rows", "read without a predicate, and report it"
    ),
    "transaction-overdue": Kind(
        _WARNING, "read_committed is held back", "run a coordinator: eoslog coordinator --once"
    ),
    "transaction-prepared": Kind(
        _INFO, "it waits for its verdict from outside", "complete_transaction, or transactions force-terminate"
    ),
    "group-offset-beyond-end": Kind(
        _WARNING, "the group's consumers begin as their auto_offset_reset says", "groups reset-offsets"
    ),
    "not-an-object": Kind(_WARNING, "a store never follows or lists it", "remove it"),
    "files-unreferenced": Kind(
        _INFO, "none: no reader sees them", "none; vacuum deletes them when they are old enough"
    ),
    "files-unknown": Kind(_INFO, "none: they are not the store's", "none; nothing deletes them"),
    "uploads-unfinished": Kind(_INFO, "none, but they are billed", "abort them, or give the bucket a lifecycle rule"),
    "leftovers": Kind(_INFO, "none: a writer died while it wrote them", "repair", True),
}
"""By name, in the order in which a verification looks."""


READS_BEFORE_REPORT = 3
"""An object is damaged if so many reads of it say so: an answer may be cut short on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something in a store that is not as it should be, or that somebody may want to know."""

    kind: str
    """A stable name; see ``verification.kinds.KINDS``."""
    problem: str
    """What is wrong."""
    path: str | None = None
    """The object."""
    slot: int | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    """First and end (exclusive)."""

    @property
    def severity(self) -> Severity:
        return KINDS[self.kind].severity

    @property
    def follows(self) -> str:
        """What it means for those who use the store."""
        return KINDS[self.kind].follows

    @property
    def remedy(self) -> str:
        """What somebody may do about it."""
        return KINDS[self.kind].remedy

    @property
    def repairable(self) -> bool:
        """Whether ``repair`` may put it right."""
        return KINDS[self.kind].repairable

    @property
    def log_in_doubt(self) -> bool:
        """Whether it says that the log or its state cannot be trusted; then ``repair`` does nothing."""
        return KINDS[self.kind].log_in_doubt

    @property
    def place(self) -> str:
        """Where, in words."""
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
    """A broken invariant as a finding."""
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
"""Called with what is looked at, how many of it were, and of how many."""


def no_progress(what: str, done: int, total: int) -> None:
    """Tell nobody."""
