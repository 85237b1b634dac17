"""Findings of a verification: their kinds, what each kind means, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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


_ERROR, _WARNING, _INFO = (Severity.ERROR, False), (Severity.WARNING, False), (Severity.INFO, False)
_DOUBT = (Severity.ERROR, True)
_MISSING = "the object is missing"
_PROBLEM = "{problem}"
_FROM_BACKUP = "bring the object back from a backup or an earlier version of the bucket"
_REPORT = "stop writers, keep a copy of the store, and report it: no correct writer makes this"
_REPAIR = "repair"
_OTHER_CHECKPOINT = "processes open the other checkpoint or the whole log; slots are no longer deleted"
_SEGMENT_UNREADABLE = "rows of the segment cannot be read; vacuum keeps all files of the partition"
_FOR_KAFKAS_TOOLS = "Kafka's tools lack the file; readers do not need it"
_DROP = f"{_FROM_BACKUP}; if there is none, topics delete-records up to the end of these offsets"
_SKIP = f"{_FROM_BACKUP}; if there is none, topics skip-damaged leaves these rows out"


class Kind(StrEnum):
    """A kind of finding, in the order in which a verification checks them.

    The columns are: its stable name, its severity (``_DOUBT`` is an error with ``log_in_doubt``), and the texts of
    ``message``, ``follows`` and ``remedy``.
    """

    severity: Severity
    log_in_doubt: bool
    """True if the log, or the state that it leads to, may differ from what was written. Then ``repair`` does nothing:
    a repair would make the wrong state permanent, and could delete the only evidence of the right one."""
    message: str
    """The problem, with named fields."""
    follows: str
    """The consequence for users of the store."""
    remedy: str
    """The advice to an operator."""

    def __new__(cls, name: str, *columns: Any) -> Kind:
        kind = str.__new__(cls, name)
        kind._value_ = name
        (kind.severity, kind.log_in_doubt), kind.message, kind.follows, kind.remedy = columns
        return kind

    @property
    def repairable(self) -> bool:
        """True if ``repair`` can fix it: the repair loses nothing and uses the ordinary protocol."""
        return self.remedy == _REPAIR

    # A table: its rows stay short.
    # fmt: off
    DESCRIPTION_MISSING = ("description-missing", _DOUBT, _MISSING, "nobody can open the store",
        f"if there is a directory .copy, run the same eoslog copy again; otherwise {_FROM_BACKUP}; slot 0 has the "
        "store's id")
    DESCRIPTION_DAMAGED = ("description-damaged", _DOUBT, _PROBLEM, "nobody can open the store", _FROM_BACKUP)
    DESCRIPTION_DIFFERS = ("description-differs", _DOUBT,
        "the description is of store {described}, but the log is of store {of_log}",
        "the description belongs to another store", f"{_FROM_BACKUP}; slot 0 has the store's id")
    LOG_MISSING = ("log-missing", _DOUBT, "the store has a description, but no slot",
        "there are no topics: the creation of the store was interrupted, or all slots are lost",
        "if the store was never used, create a topic; otherwise bring the slots back from a backup")
    SLOT_MISSING = ("slot-missing", _DOUBT, "{what} is missing, though the log goes on to slot {next}",
        "no process can read across the gap, and one before it may take it for the end of the log: stop writers",
        _FROM_BACKUP)
    COPY_SLOT_MISSING = ("copy-slot-missing", _ERROR, "{what} is missing, which the copy had when it was complete",
        "none while the first slot of the copy is there: the others change nothing",
        f"run the same eoslog copy again; otherwise {_FROM_BACKUP}")
    SLOT_LOST = ("slot-lost", _WARNING,
        "slots {first} to {last} are missing, but older slots exist, and those are deleted first",
        "the history of commits ends there. If the slots had rows, these are lost: see data-missing", _FROM_BACKUP)
    OLD_SLOT_DAMAGED = ("old-slot-damaged", _WARNING, _PROBLEM,
        "the history of commits ends there. If the slot has rows, they may be lost: see data-damaged",
        f"none: the slot is deleted with the other old ones; for its history, {_FROM_BACKUP}")
    SLOT_DAMAGED = ("slot-damaged", _DOUBT, _PROBLEM, "no process can read the log past this slot: stop writers",
        _FROM_BACKUP)
    SLOT_CHAIN_BROKEN = ("slot-chain-broken", _DOUBT,
        "the record does not continue that of slot {before}: this record or {path_before} is not what was written",
        "the record does not continue the record before it: no process can read the log past this slot", _FROM_BACKUP)
    SLOT_APPEND_ID_REPEATED = ("slot-append-id-repeated", _DOUBT, "the record has the same append id as slot {first}",
        "a record was appended twice: its changes may have been made twice", _REPORT)
    SLOT_TAIL_DIFFERS = ("slot-tail-differs", _DOUBT,
        "the record repeats slot {repeated}, but with other content than that slot has",
        "a process that opens the log here reads another record than processes that followed the log", _FROM_BACKUP)
    SLOT_STRAY = ("slot-stray", _INFO, "slots {first} to {last} are below slots that were deleted or lost",
        "none: a paused writer put a record below the start of the log, and nothing reads it",
        "none; the record is deleted together with old slots")
    RECORD_INVALID = ("record-invalid", _DOUBT, _PROBLEM, "the record changes nothing, and writers stop", _REPORT)
    REFERENCE_OUTSIDE = ("reference-outside", _DOUBT, "it names {outside!r}",
        "the record names an object outside of the store; the record changes nothing, and writers stop", _REPORT)
    CHECKPOINT_MISSING = ("checkpoint-missing", _ERROR, _MISSING, _OTHER_CHECKPOINT, _REPAIR)
    CHECKPOINT_DAMAGED = ("checkpoint-damaged", _ERROR, _PROBLEM, _OTHER_CHECKPOINT, _REPAIR)
    CHECKPOINT_DIFFERS = ("checkpoint-differs", _DOUBT, _PROBLEM,
        "the state depends on the checkpoint that a process opens",
        "bring the slots or the checkpoint back from a backup, and report it")
    LOG_UNREADABLE = ("log-unreadable", _DOUBT, _PROBLEM, "nobody can open the log", _FROM_BACKUP)
    TOPICS_INCONSISTENT = ("topics-inconsistent", _DOUBT, _PROBLEM, "the state contradicts itself", _REPORT)
    TRANSACTIONS_INCONSISTENT = ("transactions-inconsistent", _DOUBT, _PROBLEM,
        "the state contradicts itself; rows of the partition may stay hidden from read_committed", _REPORT)
    GROUPS_INCONSISTENT = ("groups-inconsistent", _DOUBT, _PROBLEM, "the state contradicts itself", _REPORT)
    OFFSETS_INCONSISTENT = ("offsets-inconsistent", _DOUBT, _PROBLEM, "rows are lost or given twice to readers",
        _REPORT)
    OUTCOMES_INCONSISTENT = ("outcomes-inconsistent", _DOUBT, _PROBLEM, "readers may see rows that were not committed",
        _REPORT)
    ABORTED_INCONSISTENT = ("aborted-inconsistent", _DOUBT, _PROBLEM,
        "Kafka's tools and readers see different aborted transactions", _REPORT)
    PRODUCERS_INCONSISTENT = ("producers-inconsistent", _DOUBT, _PROBLEM, "a repeated batch may not be recognized",
        _REPORT)
    TIMES_INCONSISTENT = ("times-inconsistent", _DOUBT, _PROBLEM, "time travel and history may be wrong", _REPORT)
    FILE_MISPLACED = ("file-misplaced", _DOUBT, _PROBLEM,
        "the file may be deleted together with another topic or partition", _REPORT)
    FILE_SHARED = ("file-shared", _DOUBT, "two batches name the same rows of the file", "readers see its rows twice",
        _REPORT)
    INDEX_MISSING = ("index-missing", _ERROR, _MISSING, _SEGMENT_UNREADABLE, _DROP)
    INDEX_DAMAGED = ("index-damaged", _ERROR, _PROBLEM, _SEGMENT_UNREADABLE, _DROP)
    INDEX_DIFFERS = ("index-differs", _DOUBT, _PROBLEM, "the segment differs from its entry", _REPORT)
    TXNINDEX_MISSING = ("txnindex-missing", _WARNING, _MISSING, _FOR_KAFKAS_TOOLS, _REPAIR)
    TXNINDEX_DAMAGED = ("txnindex-damaged", _WARNING, _PROBLEM, _FOR_KAFKAS_TOOLS, _REPAIR)
    SNAPSHOT_MISSING = ("snapshot-missing", _WARNING, _MISSING, _FOR_KAFKAS_TOOLS, _REPAIR)
    SNAPSHOT_DAMAGED = ("snapshot-damaged", _WARNING, _PROBLEM, _FOR_KAFKAS_TOOLS, _REPAIR)
    SNAPSHOT_LOST = ("snapshot-lost", _WARNING, _PROBLEM, _FOR_KAFKAS_TOOLS,
        f"none for eoslog; for Kafka's tools, {_FROM_BACKUP}")
    DATA_MISSING = ("data-missing", _ERROR, _MISSING, "its rows cannot be read", _SKIP)
    DATA_DAMAGED = ("data-damaged", _ERROR, _PROBLEM, "its rows cannot be read", _SKIP)
    PREPARED_DATA_LOST = ("prepared-data-lost", _ERROR, _PROBLEM,
        "if the transaction commits, these rows cannot be read",
        f"{_FROM_BACKUP}; if there is none, transactions force-terminate")
    DATA_UNREADABLE = ("data-unreadable", _ERROR, _PROBLEM, "its rows cannot be read: its writer wrote an invalid file",
        _REPORT)
    DATA_ROWS_DIFFER = ("data-rows-differ", _ERROR, "it has {rows} rows, but its entries say {said}",
        "its rows cannot be read: its writer wrote another number of rows", _REPORT)
    DATA_SCHEMA_DIFFERS = ("data-schema-differs", _ERROR, _PROBLEM,
        "its rows may not be readable with the topic's columns", _REPORT)
    DATA_OFFSETS_DIFFER = ("data-offsets-differ", _ERROR, _PROBLEM, "rows have wrong offsets", _REPORT)
    DATA_TIMESTAMPS_DIFFER = ("data-timestamps-differ", _ERROR,
        "its timestamps are {least} to {greatest} ms, but its entry says {said[0]} to {said[1]}",
        "lookup by timestamp and retention may be wrong", _REPORT)
    DATA_STATISTICS_FALSE = ("data-statistics-false", _ERROR, "column {column!r} has values outside of its statistics",
        "reads with a predicate may miss rows", "read without a predicate, and report it")
    ROWS_SKIPPED = ("rows-skipped", _INFO,
        "{rows} rows are skipped since slot {since}, because their file was missing or damaged",
        "readers meet a gap in the offsets", "none; if another system has the rows, write them again")
    TRANSACTION_OVERDUE = ("transaction-overdue", _WARNING,
        "the transaction of {name!r} is open past its timeout, since slot {start}",
        "read_committed readers do not see rows behind the transaction", "run a coordinator: eoslog coordinator --once")
    TRANSACTION_PREPARED = ("transaction-prepared", _INFO,
        "the transaction of {name!r} is prepared, since slot {start}", "the transaction waits for an outside decision",
        "complete_transaction, or transactions force-terminate")
    GROUP_OFFSET_BEYOND_END = ("group-offset-beyond-end", _WARNING,
        "the committed offset of group {group!r} is {offset}, but the partition ends at {end}",
        "the group's consumers start according to their auto_offset_reset", "groups reset-offsets")
    NOT_AN_OBJECT = ("not-an-object", _WARNING, "it is {what}", "a store never follows or lists it", "remove it")
    FILES_UNREFERENCED = ("files-unreferenced", _INFO,
        "files that no entry names: {files}, {bytes} bytes; older than 7 days: {old}", "none: no reader sees them",
        "none; vacuum deletes them when they are old enough")
    FILES_UNKNOWN = ("files-unknown", _INFO, "objects that do not belong to the store: {count}. They are {shown}",
        "none: they do not belong to the store", "none; nothing deletes them")
    UPLOADS_UNFINISHED = ("uploads-unfinished", _INFO,
        "multipart uploads that are not finished: {count}. The first is {path}", "none, but they are billed",
        "abort them, or give the bucket a lifecycle rule")
    LEFTOVERS = ("leftovers", _INFO, "{problem}, older than a day", "none: a writer died while it wrote them", _REPAIR)
    # fmt: on


READS_BEFORE_REPORT = 3
"""Report damage only after this many reads: the answer to one read may be cut short on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem in a store, or a fact that an operator may want to know."""

    kind: Kind
    problem: str
    """The damage, in words."""
    path: str | None = None
    """The path of the object."""
    slot: int | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    """The first offset, and the end (exclusive)."""
    is_blocked: bool = False
    """True if other damage prevents the repair: the object that would be its source cannot be read or trusted."""

    @property
    def severity(self) -> Severity:
        return self.kind.severity

    @property
    def follows(self) -> str:
        """The consequence for users of the store."""
        return self.kind.follows

    @property
    def remedy(self) -> str:
        """The advice to an operator."""
        return _FROM_BACKUP if self.is_blocked and self.kind.repairable else self.kind.remedy

    @property
    def repairable(self) -> bool:
        """True if ``repair`` can fix it."""
        return self.kind.repairable and not self.is_blocked

    @property
    def log_in_doubt(self) -> bool:
        """True if the log or its state cannot be trusted. Then ``repair`` does nothing."""
        return self.kind.log_in_doubt

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
        places = ("path", "slot", "topic", "partition", "offsets")
        names = ("kind", "severity", "problem", *places, "follows", "remedy", "repairable")
        return {name: getattr(self, name) for name in names}


def finding(
    kind: Kind,
    path: str | None = None,
    *,
    slot: int | None = None,
    topic: str | None = None,
    partition: int | None = None,
    offsets: tuple[int, int] | None = None,
    **message: Any,
) -> Finding:
    """Return a finding of a kind at a place. ``message`` has the fields of the kind's message."""
    # The finding names the path already.
    problem = kind.message.format(path=path, **message).removeprefix(f"{path}: ")
    return Finding(kind=kind, problem=problem, path=path, slot=slot, topic=topic, partition=partition, offsets=offsets)


def of_broken(broken: Broken, state: StoreState, place: PartitionId | None = None, path: str | None = None) -> Finding:
    """Return a broken invariant as a finding."""
    where = broken.partition or place
    topic = None if where is None else state.topics.get(where.topic_id)
    return finding(
        Kind(broken.kind),
        broken.path or path,
        topic=None if where is None else topic.topic if topic is not None else where.topic_id,
        partition=None if where is None else where.partition,
        offsets=broken.offsets,
        problem=broken.problem,
    )


Progress = Callable[[str, int, int], object]
"""Called with the name of the checked things, the number of those that are done, and their total."""


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""
