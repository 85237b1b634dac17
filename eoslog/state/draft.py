"""A draft: the state of a store after a record that is not yet in the log.

A record is applied to a draft entry by entry. ``merge`` then changes the state. A draft that is dropped leaves no
trace. So a record with one invalid entry changes nothing, and a lost race costs nothing. ``AppendEntry`` is the
simplest request: it appends one entry to a draft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import google_crc32c

from eoslog.errors import EosLogError, InvalidEntry
from eoslog.state.entries import Entry
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import (
    STATE_MAPS,
    STATE_VALUES,
    ApplicationVersionKey,
    ColumnPath,
    Group,
    IdempotentProducer,
    LastVersion,
    LogPosition,
    PendingDeletion,
    StoreState,
    Topic,
    Transaction,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=Entry)

AddedColumns = Callable[[str, str], tuple[ColumnPath, ...]]
"""Returns the columns that a topic's schema adds to an earlier one, or refuses the change. Both schemas are in Arrow's
encoding, which the state machine does not know. So its caller passes this function."""


class _Removed:
    pass


_REMOVED = _Removed()


class Overlay(MutableMapping[K, V], Generic[K, V]):
    """Changes to a map. The map itself stays unchanged until ``merge``."""

    __slots__ = ("_base", "_changes")

    def __init__(self, base: MutableMapping[K, V]) -> None:
        self._base = base
        self._changes: dict[K, V | _Removed] = {}

    def __getitem__(self, key: K) -> V:
        if key in self._changes:
            value = self._changes[key]
            if isinstance(value, _Removed):
                raise KeyError(key)
            return value
        return self._base[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._changes[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._changes[key] = _REMOVED

    def __contains__(self, key: object) -> bool:
        if key in self._changes:
            return self._changes[key] is not _REMOVED
        return key in self._base

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key not in self._changes:
                yield key
        for key, value in self._changes.items():
            if value is not _REMOVED:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def merge(self) -> None:
        for key, value in self._changes.items():
            if isinstance(value, _Removed):
                self._base.pop(key, None)
            else:
                self._base[key] = value
        self._changes.clear()


class Draft:
    """A state and the changes that the entries of one slot make to it."""

    store_id: str
    reader_features: tuple[str, ...]
    writer_features: tuple[str, ...]
    time_ms: int
    horizon_ms: int
    max_transaction_timeout_ms: int
    pending_deletions: tuple[PendingDeletion, ...]
    topic_ids: Overlay[str, str]
    topics: Overlay[str, Topic]
    partitions: Overlay[PartitionId, Partition]
    transactions: Overlay[str, Transaction]
    ongoing: Overlay[str, int]
    producers: Overlay[int, IdempotentProducer]
    groups: Overlay[str, Group]
    application_versions: Overlay[ApplicationVersionKey, LastVersion]
    query_versions: Overlay[str, tuple[ApplicationVersionKey, ...]]

    def __init__(
        self,
        base: StoreState | Draft,
        slot: int,
        apply: Callable[[Draft, Entry], Entry],
        added_columns: AddedColumns,
        *,
        is_folded: bool = False,
    ) -> None:
        """Make an empty draft.

        Args:
            is_folded: the entries are those of a record in the log. Its files are stored, so none is collected.
        """
        self.base = base
        self.slot = slot
        self.added_columns = added_columns
        self._apply = apply
        self._is_folded = is_folded
        self.entries: list[Entry] = []
        self.files: dict[str, bytes] = {}
        """The contents of the data files that the record holds, by path."""
        self._offered: Mapping[str, bytes] = base._offered if isinstance(base, Draft) else {}
        self.producer_ids_taken: int = base.producer_ids_taken if isinstance(base, Draft) else 0
        """How many of the slot's producer ids its entries have taken."""
        self._edited: set[PartitionId] = set()
        self._computed: dict[Callable[[StoreState], Any], Any] = {}
        self._overlays: list[Overlay[Any, Any]] = []
        for name in STATE_VALUES:
            setattr(self, name, getattr(base, name))

    # A type checker that saw this method would accept every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Overlay[Any, Any]:
            """Make the overlay of a map at its first use, because most entries use few of the maps."""
            if name not in STATE_MAPS:
                raise AttributeError(name)
            overlay: Overlay[Any, Any] = Overlay(getattr(self.base, name))
            self._overlays.append(overlay)
            setattr(self, name, overlay)
            return overlay

    @property
    def position(self) -> LogPosition:
        """The position in the log of the entry that is applied now."""
        return LogPosition(self.slot, self.time_ms)

    def before_record(self, compute: Callable[[StoreState], T]) -> T:
        """Return the answer of a function for the state before the record. It is called once for the whole record."""
        if isinstance(self.base, Draft):
            return self.base.before_record(compute)
        if compute not in self._computed:
            self._computed[compute] = compute(self.base)
        found: T = self._computed[compute]
        return found

    def edit_partition(self, partition_id: PartitionId) -> Partition:
        """Return the draft's own copy of a partition. The caller may change it in place."""
        partition = self.partitions[partition_id]
        if partition_id not in self._edited:
            partition = self.partitions[partition_id] = partition.copy()
            self._edited.add(partition_id)
        partition.changed_slot = self.slot
        return partition

    def offer_files(self, files: Mapping[str, bytes]) -> None:
        """Offer the contents of data files by path.

        The record takes a content if an entry names its file and says that the file is in the record.
        """
        self._offered = files

    def take_file(self, file: FileReference) -> None:
        """Take a data file into the record if it belongs there.

        Raises:
            InvalidEntry: the content was not offered, or differs from the entry; or the record has a file of this path.
        """
        if not file.in_record or self._is_folded:
            return
        content = self._offered.get(file.path)
        if content is None or len(content) != file.length or google_crc32c.value(content) != file.crc32c:
            raise InvalidEntry(f"file {file.path} is to be in the record, but its {file.length} bytes are not given")
        if self._has_file(file.path):
            raise InvalidEntry(f"file {file.path} is in the record already")
        self.files[file.path] = content

    def _has_file(self, path: str) -> bool:
        return path in self.files or (isinstance(self.base, Draft) and self.base._has_file(path))

    def append(self, entry: E) -> E:
        """Apply an entry and add it to the record.

        Returns:
            The entry with its results at this slot, such as offsets and the next epoch.

        Raises:
            InvalidEntry, or the error of the rule that refuses the entry.
        """
        applied = self._apply(self, entry)
        self.entries.append(applied)
        return cast(E, applied)

    def child(self) -> Draft:
        """Return a draft on top of this one.

        Several writers may share a record. The entries of each writer go into a child draft. So if the state refuses
        one, only the entries of that writer are dropped.
        """
        return Draft(self, self.slot, self._apply, self.added_columns, is_folded=self._is_folded)

    def merge(self) -> None:
        """Apply the changes to the state or draft below this one."""
        base = self.base
        for name in STATE_VALUES:
            setattr(base, name, getattr(self, name))
        for overlay in self._overlays:
            overlay.merge()
        if isinstance(base, Draft):
            base.entries.extend(self.entries)
            base.files.update(self.files)
            base.producer_ids_taken = self.producer_ids_taken


@dataclass(frozen=True)
class AppendEntry:
    """Append an entry. The answer is False if the state refuses it with one of the errors in ``unless``."""

    entry: Entry
    unless: tuple[type[EosLogError], ...] = ()

    @property
    def name(self) -> str:
        """The name of the append in traces: the type of the entry."""
        return self.entry.type

    def apply(self, draft: Draft) -> bool:
        """Append the entry. Raises the error that refuses it, unless it is one of ``unless``."""
        try:
            draft.append(self.entry)
        except self.unless:
            return False
        return True


@dataclass(frozen=True)
class AppendEntries:
    """Append entries that do not depend on each other.

    The answer has a bool for each entry: False if the state refuses the entry with one of the errors in ``unless``.
    """

    entries: Sequence[Entry]
    unless: tuple[type[EosLogError], ...] = ()

    def apply(self, draft: Draft) -> list[bool]:
        """Append the entries. Raises the first error that is not one of ``unless``."""
        return [self._append_to(draft.child(), entry) for entry in self.entries]

    def _append_to(self, child: Draft, entry: Entry) -> bool:
        # Each entry has a child draft, because a refused entry must leave nothing in the record of the other entries.
        is_appended = AppendEntry(entry, self.unless).apply(child)
        if is_appended:
            child.merge()
        return is_appended
