"""Embedded files, for programs that read the data files of a store by themselves and know only objects.

A file is embedded while its content is in a record or in a shared object. A seal ends this.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from eoslog.errors import StoreAccessDenied
from eoslog.format.checked_files import read_files
from eoslog.read.file_rows import FileRows
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import NO_SLOT
from eoslog.storage.object_store import ObjectStore

_FILES_AT_ONCE = 64
_LONGEST_TRUST_MS = 3_600_000


class EmbeddedFile(NamedTuple):
    """A data file in a record or a shared object."""

    file: FileReference
    slot: int
    """The slot that gave its rows their offsets. Its record may have the content."""


def put_embedded_files(store: ObjectStore, files: Iterable[EmbeddedFile]) -> None:
    """Put embedded files as objects at their paths, too.

    An object has the same bytes as the embedded file, so several processes may put it. Readers of the log do not use
    it.

    Raises:
        CorruptRecord: a record or a shared object lacks its file.
        StoreUnavailable, StoreAccessDenied
    """
    now_ms = store.clock.now_ms()
    wanted = [each for each in dict.fromkeys(files) if not _is_put(store, each.file.path, now_ms)]
    bodies = read_files(store, [each.file for each in wanted], [each.slot for each in wanted])
    for first in range(0, len(wanted), _FILES_AT_ONCE):
        group = wanted[first : first + _FILES_AT_ONCE]
        found = islice(bodies, len(group))
        try:
            store.put_new([(each.file.path, body) for each, body in zip(group, found, strict=True)])
        except StoreAccessDenied as error:
            error.add_note(
                "Some rows are in records or shared objects. A program that reads data files by itself needs them as "
                "files, and this process may not put them. Read the rows through eoslog, or let a coordinator seal the "
                "topic"
            )
            raise
        for each in group:
            store.recently_put.drop(each.file.path)
            store.recently_put.keep(each.file.path, b"%d" % now_ms)


def _is_put(store: ObjectStore, path: str, now_ms: int) -> bool:
    """Return True if this process has put the object so recently that vacuum cannot have deleted it."""
    put_ms = store.recently_put.find(path)
    return put_ms is not None and now_ms - int(put_ms) < _LONGEST_TRUST_MS


def embedded_file_of(rows: FileRows) -> EmbeddedFile | None:
    """Return the file of these rows; None if it is an object of its own."""
    if rows.file is None or (rows.record_slot is None and rows.file.shared is None):
        return None
    return EmbeddedFile(rows.file, NO_SLOT if rows.record_slot is None else rows.record_slot)
