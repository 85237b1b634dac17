"""Lists a local directory like an object store, and reads, writes and syncs its files.

A listing is sorted by whole path and follows no links.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from eoslog.storage.object_store import LONGEST_PATH_BYTES, TEMPORARY


def walk(root: str, prefix: str, start_after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the paths of plain files that begin with ``prefix`` and sort after ``start_after``, with their status.

    Directories that cannot hold such a file are not read.
    """
    directory = prefix[: prefix.rfind("/") + 1]
    if not _escapes(root, directory):
        yield from _walk(root, directory, prefix, start_after)


def irregular(root: str) -> Iterator[tuple[str, str]]:
    """Yield each path that ``walk`` skips because it cannot be an object, with its kind."""
    for directory, directories, files in os.walk(root, followlinks=False):
        below = os.path.relpath(directory, root) + "/" if directory != root else ""
        for name in sorted((*directories, *files)):
            if _is_too_long(below + name):
                yield below + name, f"at a path of more than {LONGEST_PATH_BYTES} bytes, which no object has"
                continue
            try:
                mode = os.lstat(os.path.join(directory, name)).st_mode
            except (FileNotFoundError, NotADirectoryError):
                continue
            if stat.S_ISLNK(mode):
                yield below + name, "a symbolic link"
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                yield below + name, "no plain file"
        directories[:] = [name for name in directories if not _is_too_long(below + name)]


def has_object(root: str, directory: str) -> bool:
    """Return True if an object exists below ``directory`` (which ends in ``/``)."""
    return next(_walk(root, directory, directory, ""), None) is not None


def _walk(root: str, directory: str, prefix: str, start_after: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(os.path.join(root, directory)) as entries:
            # Sort a directory with its slash, as its paths sort: "a.json" comes before "a/b".
            found = sorted((_listed_name(directory, entry), entry) for entry in entries if _is_listed(directory, entry))
    except (FileNotFoundError, NotADirectoryError):
        return
    for path, entry in found:
        if path.endswith("/"):
            within = path.startswith(prefix) or prefix.startswith(path)
            if within and (path > start_after or start_after.startswith(path)):
                yield from _walk(root, path, prefix, start_after)
        elif path.startswith(prefix) and path > start_after:
            try:
                yield path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def _listed_name(directory: str, entry: os.DirEntry[str]) -> str:
    return directory + entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")


def _is_listed(directory: str, entry: os.DirEntry[str]) -> bool:
    plain = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
    hidden = not directory and entry.name == TEMPORARY
    return plain and not hidden and not _is_too_long(directory + entry.name)


def _is_too_long(path: str) -> bool:
    return len(os.fsencode(path)) > LONGEST_PATH_BYTES


def _escapes(root: str, directory: str) -> bool:
    below = os.path.join(root, directory).rstrip("/")
    return os.path.realpath(below) != below


def file_identity(status: os.stat_result) -> tuple[int, int, int]:
    """Return fields that distinguish a file from a later one at the same path. An inode number alone may be reused."""
    return status.st_dev, status.st_ino, status.st_ctime_ns


def ctime_ms(status: os.stat_result) -> int:
    """Return the time of a file's last change (ms since the epoch)."""
    return status.st_ctime_ns // 1_000_000


def write_fully(descriptor: int, body: bytes) -> None:
    """Write all bytes of ``body`` to a file, however many writes that takes."""
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_fully(descriptor: int, start: int, length: int) -> bytes:
    """Read ``length`` bytes of a file from ``start``, or fewer if the file ends before."""
    parts = []
    while length > 0:
        part = os.pread(descriptor, min(length, 1 << 30), start)
        if not part:
            break
        parts.append(part)
        start += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def fsync_directory(directory: str) -> None:
    """Make the names in a directory survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
