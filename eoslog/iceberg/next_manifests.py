"""The manifests of a table's next snapshot.

A snapshot shares manifests with the one before. Added files have a new manifest. A manifest with removed files is
written again. Small manifests are merged when there are many, so their number stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from eoslog.iceberg.iceberg_table import Manifest
from eoslog.iceberg.manifests import ADDED, DELETED, EXISTING, DataFile, Entry

MOST_MANIFESTS = 100
"""A snapshot with this many small manifests gets them merged. It is Iceberg's default."""
FULL_MANIFEST = 10_000
"""A manifest with this many files is not small. It is written again only if one of its files is removed."""


def next_manifests(
    manifests: Iterable[Manifest],
    added: Sequence[DataFile],
    removed: Collection[str],
    *,
    snapshot_id: int,
    write: Callable[[Sequence[Entry]], Manifest],
) -> list[Manifest]:
    """Return the manifests of the next snapshot.

    Args:
        manifests: the manifests of the snapshot before.
        removed: the paths of the removed files, as the entries have them.
        snapshot_id: the id of the next snapshot.
        write: writes a new manifest of the next snapshot.
    """
    kept: list[Manifest] = []
    changed: list[Manifest] = []
    for manifest in manifests:
        if any(each.data_file.file_path in removed for each in manifest.entries):
            changed.append(write([_carried(each, removed, snapshot_id) for each in manifest.entries]))
        elif manifest.entries:
            # A manifest without files of the table only names removed files, so the next snapshot does not need it.
            kept.append(manifest)
    small = [each for each in kept if len(each.entries) < FULL_MANIFEST]
    if len(small) >= MOST_MANIFESTS:
        entries = [_carried(entry, (), snapshot_id) for each in small for entry in each.entries]
        full = [each for each in kept if len(each.entries) >= FULL_MANIFEST]
        kept = [*full, *map(write, _parts(entries))]
    new = [
        Entry(status=ADDED, snapshot_id=snapshot_id, sequence_number=None, file_sequence_number=None, data_file=each)
        for each in added
    ]
    return [*kept, *changed, *map(write, _parts(new))]


def _carried(entry: Entry, removed: Collection[str], snapshot_id: int) -> Entry:
    """Return the entry of a file that an earlier snapshot added."""
    if entry.data_file.file_path in removed:
        return entry.model_copy(update={"status": DELETED, "snapshot_id": snapshot_id})
    return entry.model_copy(update={"status": EXISTING})


def _parts(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    for first in range(0, len(entries), FULL_MANIFEST):
        yield entries[first : first + FULL_MANIFEST]
