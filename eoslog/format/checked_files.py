"""Fetching data files and index files, and comparing them with the checksums that the log has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import google_crc32c

from eoslog.errors import CorruptRecord
from eoslog.format.limited_groups import Limit, limited_groups
from eoslog.log.slots import file_in, files_line, slot_path
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import NO_SLOT
from eoslog.storage.object_store import ObjectNotFound, ObjectStore

END_BYTES = 64 << 10
"""The number of bytes at the end of a file that are fetched for its footer. Parquet's reader fetches the same."""
_FILES_AT_ONCE = 64
_BYTES_AT_ONCE = 32 << 20


def read_file(store: ObjectStore, file: FileReference, slot: int = NO_SLOT) -> bytes:
    """Return the content of a file after checking its length and checksum.

    Args:
        slot: for a data file, the slot that gave its rows their offsets. A file in a record is read from this slot.

    Raises:
        CorruptRecord: the file is missing or differs from its entry.
    """
    (body,) = read_files(store, [file], [slot])
    return body


def read_files(store: ObjectStore, files: Sequence[FileReference], slots: Sequence[int] = ()) -> Iterator[bytes]:
    """Yield the contents of files in their order, after checking them. Small files are fetched together.

    Args:
        slots: for each file, the slot as in ``read_file``; may be empty if no file is in a record.

    Raises:
        CorruptRecord: a file is missing or differs from its entry.
    """
    limits = Limit(lambda index: 1, _FILES_AT_ONCE), Limit(lambda index: files[index].length, _BYTES_AT_ONCE)
    for group in limited_groups(range(len(files)), *limits):
        here = slice(group[0], group[-1] + 1)
        for index, body in zip(group, _fetched(store, files[here], slots[here]), strict=True):
            file = files[index]
            if file.in_record and (body is None or len(body) != file.length or crc32c(body) != file.crc32c):
                # An earlier read may have brought wrong bytes into memory, so read the record again.
                store.recent.drop(slot_path(slots[index]))
                (body,) = _fetched(store, [file], [slots[index]])
            if body is None:
                if file.in_record:
                    raise CorruptRecord(
                        f"{slot_path(slots[index])} at {store.url} is missing or damaged: it had the rows of "
                        f"{file.path}. Bring the slot back from a backup"
                    )
                raise _missing(store, file.object_path or file.path)
            check_file(body, file.length, file.crc32c, file.path)
            yield body


def _fetched(store: ObjectStore, files: Sequence[FileReference], slots: Sequence[int]) -> Iterator[bytes | None]:
    """Yield the contents of files without a check; None for a missing one."""
    # A dict keeps the order of the slots: a simulated history must send the same requests in each process.
    records = dict.fromkeys(slot_path(slot) for file, slot in zip(files, slots, strict=False) if file.in_record)
    lines = {path: line for path in records if (line := store.recent.find(path)) is not None}
    shared = [file for file in files if file.shared is not None]
    ranges = dict(zip((file.path for file in shared), store.for_each(partial(_range_of, store), shared), strict=True))
    wanted = [path for path in records if path not in lines] + [file.path for file in files if file.is_object]
    found = dict(zip(wanted, store.get_many(wanted), strict=True)) if wanted else {}
    for index, file in enumerate(files):
        if file.shared is not None:
            yield ranges[file.path]
            continue
        path = slot_path(slots[index]) if file.in_record else file.path
        stored = found.get(path)
        if not file.in_record:
            yield None if stored is None else stored.body
            continue
        if path not in lines and stored is not None:
            lines[path] = files_line(stored.body)
            if file.path.encode() in lines[path]:
                store.recent.keep(path, lines[path])
        yield file_in(lines[path], file.path) if path in lines else None


def _range_of(store: ObjectStore, file: FileReference) -> bytes | None:
    """Return the content of a file in a shared object; None if the object is missing."""
    assert file.shared is not None
    try:
        return store.get_range(file.shared.path, file.shared.position, file.length)
    except ObjectNotFound:
        return None


def stored_file(store: ObjectStore, file: FileReference, slot: int = NO_SLOT) -> bytes | None:
    """Return the content of a file as it is stored, without a check; None if it is missing.

    Args:
        slot: as in ``read_file``.
    """
    if file.in_record:
        # Not from memory: the caller wants to know what is stored.
        (stored,) = store.get_many([slot_path(slot)])
        return None if stored is None else file_in(files_line(stored.body), file.path)
    if file.shared is not None:
        return _range_of(store, file)
    (stored,) = store.get_many([file.path])
    return None if stored is None else stored.body


def read_end(store: ObjectStore, file: FileReference, slot: int = NO_SLOT) -> bytes:
    """Return the last bytes of a data file, with its footer, after ``check_footer``.

    Args:
        slot: as in ``read_file``.

    Raises:
        CorruptRecord: the file is missing, or its footer differs from its entry.
    """
    if file.in_record:
        return read_file(store, file, slot)
    start = max(0, file.length - END_BYTES)
    (end,) = read_ranges(store, file, [(start, file.length - start)])
    if len(end) < file.length - start:
        raise CorruptRecord(f"{file.path}: has {start + len(end)} bytes or fewer, but its entry says {file.length}")
    size = _footer_bytes(end)
    if len(end) < size <= file.length:
        first = file.length - size
        (before,) = read_ranges(store, file, [(first, start - first)])
        end = before + end
    check_footer(end, file)
    return end


def read_ranges(store: ObjectStore, file: FileReference, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
    """Return ranges of a file that is not in a record, each a position and a length, without a check.

    Raises:
        CorruptRecord: the file is missing.
    """
    path, offset = (file.path, 0) if file.shared is None else (file.shared.path, file.shared.position)
    # A footer is not trusted: a range must not reach the next file of a shared object.
    within = [(offset + start, max(0, min(length, file.length - start))) for start, length in ranges]
    try:
        return store.get_ranges(path, within)
    except ObjectNotFound:
        raise _missing(store, path) from None


def _missing(store: ObjectStore, path: str) -> CorruptRecord:
    return CorruptRecord(f"file {path} is missing from {store.url}, but the log names it. Bring it back from a backup")


def check_file(body: bytes, length: int, checksum: int, name: str) -> None:
    """Check a file against the entry that names it.

    Args:
        body: the content of the file.
        length: the length in the entry (bytes).
        checksum: the CRC-32C in the entry.
        name: the path of the file, for error messages.

    Raises:
        CorruptRecord: the length or the checksum differs.
    """
    if len(body) != length:
        raise CorruptRecord(f"{name}: has {len(body)} bytes, but its entry says {length}")
    actual = crc32c(body)
    if actual != checksum:
        raise CorruptRecord(f"{name}: checksum is {actual:#010x}, but its entry says {checksum:#010x}")


def check_footer(end: bytes, file: FileReference) -> None:
    """Check the footer of a data file, if the entry that names the file has the footer's checksum.

    Args:
        end: the last bytes of the file, with the footer.

    Raises:
        CorruptRecord: the checksum differs.
    """
    actual = footer_crc32c(end)
    if file.footer_crc32c is not None and file.footer_crc32c != actual:
        raise CorruptRecord(
            f"{file.path}: checksum of the footer is {actual:#010x}, but its entry says {file.footer_crc32c:#010x}"
        )


def footer_crc32c(end: bytes) -> int:
    """Return the CRC-32C of a data file's footer, up to the end of the file.

    Args:
        end: the last bytes of the file, with the footer.
    """
    return crc32c(end[-_footer_bytes(end) :])


def crc32c(body: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes, as Kafka computes it."""
    return int(google_crc32c.value(bytes(body)))


def _footer_bytes(end: bytes) -> int:
    """Return the size of the footer with its own length and the magic number, the last eight bytes of the file."""
    return int.from_bytes(end[-8:-4], "little") + 8
