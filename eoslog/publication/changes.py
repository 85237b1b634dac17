"""The changes of a published table: from the files of its newest version to those of a topic at a slot.

A version adds new rows, or it removes or moves rows. It never does both. So a stream may skip versions that remove
rows, and gets the rows of each other version once. If both are needed, there are two versions. The first one removes
and moves: it shows the transactions of the version before it, without the rows that were removed since. The second one
adds the new rows. An overwrite is one version, because it must stay atomic.

Rows move if a rewrite has put the rows that the table shows already into other files. To keep such files apart from new
rows, compaction takes only segments that are published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from eoslog.publication.published_file import FileRange, PublishedFile
from eoslog.publication.published_table import Table
from eoslog.publication.topic_snapshot import TopicSnapshot
from eoslog.state.partition_state import NO_SLOT


@dataclass(frozen=True, slots=True)
class Change:
    """The next version of a table, compared with the newest one."""

    snapshot: TopicSnapshot
    slot: int
    """The version shows the topic's ``snapshot`` at this slot."""
    since: int
    """The slot that the newest version shows; ``NO_SLOT`` if there is none."""
    added: Sequence[PublishedFile]
    removed: Sequence[str]
    """The paths of the removed files, relative to the topic's directory."""
    moved: Collection[str]
    """The paths of rewritten files, old and new, with the same rows in both versions."""

    @property
    def new_files(self) -> list[PublishedFile]:
        """The added files with rows that were committed after the newest version."""
        return [file for file in self.added if file.end_slot > self.since]

    @property
    def removes_rows(self) -> bool:
        return any(path not in self.moved for path in self.removed)

    @property
    def operation(self) -> Literal["append", "delete", "replace", "describe"]:
        """The operation of the version: it adds, removes or moves rows, or changes only the table's description."""
        if self.new_files or (self.added and not self.removed):
            return "append"
        if self.removes_rows:
            return "delete"
        return "replace" if self.added else "describe"


def next_changes(
    snapshot: TopicSnapshot, files: Sequence[PublishedFile], table: Table, *, is_described: bool
) -> list[Change]:
    """Return the next versions of a table; none if it shows the snapshot already. The last version shows the snapshot.

    Args:
        files: the files of the snapshot.
        is_described: True if the table has the schema and the properties that it should have.
    """
    last = table.published(snapshot.store_id)
    since = NO_SLOT if last is None else last.slot
    named, shown = {file.path for file in files}, table.paths
    added = [file for file in files if file.path not in shown]
    removed = [path for path in shown if path not in named]
    if is_described and not table.is_foreign and not added and not removed:
        return []
    moved, has_mixed_files = _moved_paths(added, [(path, table.range_of(path)) for path in removed], since)
    first_slot = max(since, _overwrite_slot(snapshot, files, since))
    rest = [file for file in added if file.end_slot > first_slot]
    # If no version can be read, it is not known which rows are new. So one version adds all of them.
    is_restored = table.is_foreign and last is not None
    if not (removed or is_restored) or not rest or has_mixed_files or not table.is_of(snapshot.topic):
        return [Change(snapshot=snapshot, slot=snapshot.slot, since=since, added=added, removed=removed, moved=moved)]
    first = [file for file in added if file.end_slot <= first_slot]
    return [
        Change(snapshot=snapshot, slot=first_slot, since=since, added=first, removed=removed, moved=moved),
        Change(snapshot=snapshot, slot=snapshot.slot, since=first_slot, added=rest, removed=[], moved=()),
    ]


def _overwrite_slot(snapshot: TopicSnapshot, files: Iterable[PublishedFile], since: int) -> int:
    """Return the slot that removed all earlier rows and added new ones; ``NO_SLOT`` if there is none after ``since``.

    Such a topic is empty at no slot, so its table must not be empty in any version.
    """
    oldest = min((file.end_slot for file in files), default=NO_SLOT)
    is_overwrite = oldest > since and any(partition.snapshot_floor == oldest for partition in snapshot.partitions)
    return oldest if is_overwrite else NO_SLOT


@dataclass(frozen=True, slots=True)
class _ChangedFile:
    """A file that a version adds or removes."""

    range: FileRange
    path: str
    is_added: bool
    is_published: bool
    """True if the newest version shows all rows of the file."""


def _moved_paths(
    added: Iterable[PublishedFile], removed: Iterable[tuple[str, FileRange | None]], since: int
) -> tuple[set[str], bool]:
    """Return the paths of rewritten files, old and new, with the same rows in both versions.

    Args:
        since: the slot of the newest version.

    Returns:
        The paths, and True if an added file mixes rows of a removed file with new rows. Compaction writes such a file
        only while the topic is not published.
    """
    files = [_ChangedFile(file.range, file.path, True, file.end_slot <= since) for file in added]
    files += [_ChangedFile(found, path, False, True) for path, found in removed if found is not None]
    moved: set[str] = set()
    has_mixed_files = False
    for together in _overlapping(files):
        before = sum(each.range.rows for each in together if not each.is_added)
        after = sum(each.range.rows for each in together if each.is_added)
        if not all(each.is_published for each in together):
            has_mixed_files |= before > 0
        elif before == after:
            # A rewrite can remove rows, but never add or change them. So equal numbers of rows are the same rows.
            moved |= {each.path for each in together}
    return moved, has_mixed_files


def _overlapping(files: Iterable[_ChangedFile]) -> Iterator[list[_ChangedFile]]:
    """Group files of one partition whose offsets overlap, directly or through others."""
    together: list[_ChangedFile] = []
    end = 0
    for each in sorted(files, key=lambda each: (each.range.partition, each.range.base_offset, each.range.end_offset)):
        found = each.range
        if together and (found.partition != together[0].range.partition or found.base_offset >= end):
            yield together
            together, end = [], 0
        together.append(each)
        end = max(end, found.end_offset)
    if together:
        yield together
