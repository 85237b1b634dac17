"""An object store in a local directory. An object is a temporary file that is made durable and then linked to its path.

If an object is durable, all objects that were put before it must be durable, also in other directories. This needs a
file system that commits metadata in order, as ext4, XFS and APFS do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from eoslog.errors import PutIfAbsentUnsupported, StorageFull, StoreAccessDenied, StoreUnavailable, StoreVanished
from eoslog.storage.clock import StoreClock
from eoslog.storage.environment import Environment, host_time_ms
from eoslog.storage.host_queue import HostQueue, name_of_directory
from eoslog.storage.local_files import (
    ctime_ms,
    file_identity,
    fsync_directory,
    has_object,
    irregular,
    read_fully,
    walk,
    write_fully,
)
from eoslog.storage.object_store import (
    TEMPORARY,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PutOutcome,
    StoredObject,
    check_directory,
    check_path,
    check_prefix,
    check_range,
)
from eoslog.storage.request_log import logged


class LocalClockFile:
    """A file that is touched to learn the file system's time. Each user has a file of its own: no user may touch the
    file of another."""

    def __init__(self, root: str, temporary: str, environment: Environment) -> None:
        self._root = root
        self._environment = environment
        self._file = os.path.join(temporary, f"clock-{os.geteuid()}")

    def date_ms(self) -> int:
        """Return the current time of the file system (ms since the epoch).

        A process that may not write cannot ask for this time. It gets the host's time instead. This is safe, because
        such a process cannot expire or delete anything.
        """
        try:
            return self._touch()
        except FileNotFoundError:
            pass
        except OSError:
            return host_time_ms()
        try:
            return self._create()
        except OSError:
            return host_time_ms()

    def _touch(self) -> int:
        os.utime(self._file, follow_symlinks=False)
        return os.lstat(self._file).st_ctime_ns // 1_000_000

    def _create(self) -> int:
        """Create the file and return its time.

        If no store was written here yet, the file is removed again: this may be another program's directory.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        kept = os.path.isdir(os.path.dirname(self._file))
        name = self._file if kept else os.path.join(self._root, f".clock-{self._environment.new_id()}")
        descriptor = os.open(name, flags, 0o600)
        try:
            return os.fstat(descriptor).st_ctime_ns // 1_000_000
        finally:
            os.close(descriptor)
            if not kept:
                with contextlib.suppress(OSError):
                    os.unlink(name)


_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSALS = frozenset(
    {
        errno.EACCES,
        errno.EROFS,
        errno.EPERM,
        errno.EFBIG,
        errno.EXDEV,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)
"""Errors after which nothing has landed, and which a retry does not overcome. The same holds for ``_NO_SPACE``."""

_NOTHING_TO_SYNC = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
_LARGEST_WATCHED_BYTES = 1 << 20
_MOST_PLAIN_DIRECTORIES = 10_000
_TURN_PATIENCE_MS = 1_000
_TEMPORARY_AGE_MS = 24 * 3600 * 1000


class LocalStore(ObjectStore):
    """Objects as files below ``root``. The first put creates the directory.

    It holds no descriptor and no thread, so a forked child may use it too. ``fsync=False`` gives up durability, for
    tests. Puts are still atomic, and put-if-absent still has one winner.
    """

    least_poll_pause_ms = 20
    is_remote = False
    lists_in_order = True

    def __init__(self, root: str | os.PathLike[str], environment: Environment, fsync: bool = True) -> None:
        super().__init__(str(root), StoreClock(environment))
        self._root = os.path.realpath(root)
        self._temporary = os.path.join(self._root, TEMPORARY)
        self._environment = environment
        self._fsync = fsync
        if HostQueue.is_supported:
            self.host_queue = HostQueue(
                partial(name_of_directory, self._root),
                environment,
                patience_ms=_TURN_PATIENCE_MS,
                check=self._check_watched,
            )
        self._clock_file = LocalClockFile(self._root, self._temporary, environment)
        self._known_directories: set[str] = set()
        """Directories that exist durably."""
        self._plain_directories: dict[str, tuple[int, int]] = {}
        """Directories that no symbolic link leads to, with their devices and inodes."""
        self._watched: _Watched | None = None
        self._not_durable: set[str] = set()
        """Objects that this process has linked, but whose directory it could not make durable."""

    @property
    def root(self) -> str:
        return self._root

    @property
    def location(self) -> str:
        # The URL may be relative, or may lead through symbolic links. A copy on another host may have the same path.
        try:
            return f"{self._root} {os.stat(self._root).st_ino}"
        except OSError:
            # The first put creates the directory.
            return self._root

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"

    @logged("PUT")
    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        target = self._target(path)
        if os.path.lexists(target):
            # An optimization: the loser of a race need not write and fsync a file. The link below decides in any case.
            self.requests["PUT"] += 1
            self.clock.observe(self._clock_file.date_ms())
            if target in self._not_durable:
                # This process has linked the object, and its caller repeats the put to learn that it is durable.
                self._make_durable(path, target)
            return PutOutcome.EXISTS
        with self._temporary_file(path, body) as temporary:
            # Check again: writing the temporary file takes long, and the store may have been replaced meanwhile.
            self._check_watched()
            outcome = self._link(path, temporary, target)
            self.clock.observe(ctime_ms(os.fstat(temporary.descriptor)))
            if outcome is PutOutcome.CREATED:
                self._make_durable(path, target)
        return outcome

    @logged("PUT")
    def put(self, path: str, body: bytes) -> None:
        target = self._target(path)
        with self._temporary_file(path, body) as temporary:
            self._make_directory(path, target)
            try:
                try:
                    os.replace(temporary.name, target)
                except FileNotFoundError:
                    self._make_directory(path, target, anew=True)
                    os.replace(temporary.name, target)
            except OSError as error:
                raise self._refused_or_unavailable(path, error) from error
            temporary.is_named = False
            self.clock.observe(ctime_ms(os.fstat(temporary.descriptor)))
            self._make_durable(path, target)

    @logged("GET")
    def get(self, path: str) -> StoredObject:
        with self._opened(path) as (descriptor, status):
            body = read_fully(descriptor, 0, status.st_size)
        return StoredObject(body, ctime_ms(status))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self.get_ranges(path, [(start, length)])[0]

    @logged("GET")
    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        for start, length in ranges:
            check_range(start, length)
        with self._opened(path) as (descriptor, status):
            return [
                read_fully(descriptor, start, min(length, max(0, status.st_size - start))) for start, length in ranges
            ]

    @logged("LIST")
    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        self._check_watched()
        self.requests["LIST"] += 1
        self.clock.observe(self._clock_file.date_ms())
        found = 0
        try:
            for path, status in walk(self._root, prefix, start_after):
                if limit is not None and found >= limit:
                    return
                found += 1
                yield ObjectInfo(path, status.st_size, ctime_ms(status))
        except OSError as error:
            raise self._refused_or_unavailable(prefix, error) from error

    @logged("LIST")
    def list_directories(self, prefix: str) -> Sequence[str]:
        check_directory(prefix)
        self._check_watched()
        self.requests["LIST"] += 1
        self.clock.observe(self._clock_file.date_ms())
        try:
            with os.scandir(os.path.join(self._root, prefix)) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            return [name for name in names if prefix + name != TEMPORARY and has_object(self._root, f"{prefix}{name}/")]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._refused_or_unavailable(prefix, error) from error

    @logged("DELETE")
    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            target = self._target(path)
            self.requests["DELETE"] += 1
            try:
                os.unlink(target)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except OSError as error:
                raise self._refused_or_unavailable(path, error) from error
            self._remove_empty_directories(os.path.dirname(target))
        if paths:
            self.clock.observe(self._clock_file.date_ms())

    def make_durable(self, path: str) -> None:
        if not self._fsync:
            return
        try:
            fsync_directory(os.path.dirname(self._target(path)))
        except OSError as error:
            # Otherwise the object was deleted, or this process may not sync: then it may not write either.
            if error.errno not in _NOTHING_TO_SYNC:
                raise self._refused_or_unavailable(path, error) from error

    def watch(self, path: str, is_same: Callable[[bytes], bool]) -> None:
        # Start without an identity, so that the first request compares the bytes: the file may have been replaced since
        # the caller read it.
        self._watched = _Watched(os.path.join(self._root, check_path(path)), is_same, identity=None)

    def holds(self, other: ObjectStore) -> bool:
        return isinstance(other, LocalStore) and os.path.commonpath([self._root, other._root]) == self._root

    def is_missing(self, path: str) -> bool:
        return not os.path.lexists(os.path.join(self._root, check_path(path)))

    def _check_watched(self) -> None:
        """Raises: StoreVanished"""
        watched = self._watched
        if watched is None:
            return
        try:
            status = os.lstat(watched.target)
            identity = file_identity(status)
            if identity == watched.identity:
                return
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError
            # The file was touched, copied back, or belongs to another store. Only its bytes can tell.
            descriptor = os.open(watched.target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                found = read_fully(descriptor, 0, _LARGEST_WATCHED_BYTES)
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreVanished(
                f"{self.url}: the store that was opened here has been removed: {os.path.basename(watched.target)} is "
                "missing. Nothing more is written. Call eoslog.connect() again"
            ) from None
        except OSError:
            # Any other error of the file system: the request itself meets it and reports it.
            return
        if not watched.is_same(found):
            raise StoreVanished(
                f"{self.url}: the store that was opened here has been replaced by another. Nothing more is "
                "written. Call eoslog.connect() again to use the new one"
            )
        self._watched = watched._replace(identity=identity)

    @contextlib.contextmanager
    def _temporary_file(self, path: str, body: bytes) -> Iterator[_TemporaryFile]:
        """Write the body to a durable temporary file. Its name is removed at the end of the context."""
        self.requests["PUT"] += 1
        temporary = _TemporaryFile(os.path.join(self._temporary, self._environment.new_id()))
        try:
            try:
                temporary.descriptor = self._create(temporary.name)
                write_fully(temporary.descriptor, body)
                if self._fsync:
                    os.fsync(temporary.descriptor)
            except OSError as error:
                raise self._refused_or_unavailable(path, error) from error
            yield temporary
        finally:
            if temporary.descriptor >= 0:
                os.close(temporary.descriptor)
                if temporary.is_named:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary.name)

    def _create(self, temporary: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        if self._temporary not in self._known_directories:
            os.makedirs(self._temporary, exist_ok=True)
            self._remove_old_temporary_files()
            self._known_directories.add(self._temporary)
        try:
            return os.open(temporary, flags, 0o644)
        except FileNotFoundError:
            self._check_watched()
            os.makedirs(self._temporary, exist_ok=True)
            return os.open(temporary, flags, 0o644)

    def leftovers(self) -> Iterator[ObjectInfo]:
        """Yield temporary files of writers that died. No LIST shows them; their paths are only for messages."""
        self._check_watched()
        self.clock.observe(self._clock_file.date_ms())
        for entry in self._temporary_files():
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                yield ObjectInfo(f"{TEMPORARY}/{entry.name}", status.st_size, ctime_ms(status))

    def remove_leftovers(self, older_than_ms: int) -> int:
        """Remove temporary files that are older than this (ms). Return their number."""
        self._check_watched()
        removed = 0
        before_ms = self._clock_file.date_ms() - older_than_ms
        for entry in self._temporary_files():
            try:
                if ctime_ms(entry.stat(follow_symlinks=False)) < before_ms:
                    os.unlink(entry.path)
                    removed += 1
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._refused_or_unavailable(f"{TEMPORARY}/{entry.name}", error) from error
        return removed

    def irregular(self) -> Iterator[tuple[str, str]]:
        """Yield each path that cannot be an object, and the reason: a link, a special file, or too long a path."""
        try:
            yield from irregular(self._root)
        except OSError as error:
            where = str(error.filename or "").removeprefix(f"{self._root}/")
            raise self._refused_or_unavailable(where, error) from error

    def _temporary_files(self) -> Iterator[os.DirEntry[str]]:
        """Yield the temporary files: of writes in progress, and of writers that died."""
        try:
            with os.scandir(self._temporary) as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._refused_or_unavailable(TEMPORARY, error) from error
        yield from (each for each in found if len(each.name) == 32 and each.is_file(follow_symlinks=False))

    def _remove_old_temporary_files(self) -> None:
        """Remove old temporary files. If their writer was only paused, its put raises ``StoreUnavailable``."""
        with contextlib.suppress(StoreAccessDenied, StoreUnavailable):
            self.remove_leftovers(_TEMPORARY_AGE_MS)

    def _make_directory(self, path: str, target: str, *, anew: bool = False) -> None:
        """Create the target's directory durably, with all directories up to the root.

        Args:
            anew: create it even if this process has created it before, because it has vanished.
        """
        directory = os.path.dirname(target)
        if directory in self._known_directories and not anew:
            return
        self._check_watched()
        try:
            os.makedirs(directory, exist_ok=True)
            self._refuse_symlinked_directory(path, directory)
            if self._fsync:
                # Sync all of them, not only the new ones: another process may have created one and died before its
                # fsync.
                ancestor = directory
                while ancestor != self._root:
                    ancestor = os.path.dirname(ancestor)
                    fsync_directory(ancestor)
                with contextlib.suppress(PermissionError):
                    fsync_directory(os.path.dirname(self._root))
        except OSError as error:
            raise self._refused_or_unavailable(path, error) from error
        self._known_directories.add(directory)

    def _link(self, path: str, temporary: _TemporaryFile, target: str) -> PutOutcome:
        self._make_directory(path, target)
        try:
            try:
                os.link(temporary.name, target, follow_symlinks=False)
            except FileNotFoundError:
                self._make_directory(path, target, anew=True)
                os.link(temporary.name, target, follow_symlinks=False)
        except OSError as error:
            # On NFS the answer of a link that succeeded may be lost. The link count is reliable.
            if os.fstat(temporary.descriptor).st_nlink == 2:
                return PutOutcome.CREATED
            if isinstance(error, FileExistsError):
                return PutOutcome.EXISTS
            if error.errno in _NO_LINKS:
                raise PutIfAbsentUnsupported(
                    f"{self.url}: the file system makes no hard link for {path!r} ({error.strerror}), so it cannot hold"
                    " a store. Use one that does, such as ext4, XFS or APFS."
                ) from error
            raise self._refused_or_unavailable(path, error) from error
        return PutOutcome.CREATED

    def _make_durable(self, path: str, target: str) -> None:
        if not self._fsync:
            return
        try:
            fsync_directory(os.path.dirname(target))
            self._not_durable.discard(target)
        except OSError as error:
            self._not_durable.add(target)
            raise StoreUnavailable(
                f"{self.url}: {path!r} was written, but may not be durable ({error.strerror}). Put it again."
            ) from error

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """Open an object and observe its date. Yield its descriptor and status. Only plain files are opened."""
        target = self._target(path)
        self.requests["GET"] += 1
        self.clock.observe(self._clock_file.date_ms())
        try:
            # Without O_NONBLOCK, opening a named pipe at this path would block forever.
            descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectNotFound(path) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._is_symlink(path) from error
            raise self._refused_or_unavailable(path, error) from error
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise ObjectNotFound(path)
            if not stat.S_ISREG(status.st_mode):
                raise StoreAccessDenied(f"{self.url}: {path!r} is not a plain file. Remove it.")
            yield descriptor, status
        except OSError as error:
            raise self._refused_or_unavailable(path, error) from error
        finally:
            os.close(descriptor)

    def _target(self, path: str) -> str:
        self._check_watched()
        target = os.path.join(self._root, check_path(path))
        self._refuse_symlinked_directory(path, os.path.dirname(target))
        return target

    def _refuse_symlinked_directory(self, path: str, directory: str) -> None:
        identity: tuple[int, int] | None = None
        with contextlib.suppress(OSError):  # The request itself meets the error and reports it.
            status = os.stat(directory)
            identity = status.st_dev, status.st_ino
        # One stat instead of one for each part of the path: the same device and inode mean the same directory.
        if identity is not None and self._plain_directories.get(directory) == identity:
            return
        if os.path.realpath(directory) != directory:
            raise self._is_symlink(path)
        if identity is not None:
            if len(self._plain_directories) >= _MOST_PLAIN_DIRECTORIES:
                self._plain_directories.clear()
            self._plain_directories[directory] = identity

    def _is_symlink(self, path: str) -> StoreAccessDenied:
        return StoreAccessDenied(
            f"{self.url}: {path!r} is a symbolic link or lies behind one. A store follows no links. Remove it."
        )

    def _remove_empty_directories(self, directory: str) -> None:
        """Remove empty parent directories, as an object store has none. A concurrent writer creates its own again."""
        with contextlib.suppress(OSError):
            while directory != self._root:
                os.rmdir(directory)
                self._known_directories.discard(directory)
                directory = os.path.dirname(directory)

    def _refused_or_unavailable(self, path: str, error: OSError) -> StoreAccessDenied | StoreUnavailable:
        reason = error.strerror or type(error).__name__
        if isinstance(error, NotADirectoryError):
            return StoreAccessDenied(
                f"{self.url}: there is a file in place of a directory of the store ({reason}). Choose another path."
            )
        if error.errno in _NO_SPACE:
            return StorageFull(
                f"{self.url}: there is no space for {path!r} ({reason}). Free space, or make the disk or the quota "
                "larger; then repeat the call. See 'A full disk' in docs/operations.md"
            )
        if error.errno in _REFUSALS:
            return StoreAccessDenied(
                f"{self.url}: the file system refused {path!r} ({reason}). Check the path and permissions."
            )
        return StoreUnavailable(f"{self.url}: the file system failed on {path!r} ({reason}). Try again.")


@dataclass(slots=True)
class _TemporaryFile:
    """A temporary file of a put."""

    name: str
    descriptor: int = -1
    """-1 until it is created."""
    is_named: bool = True
    """False after a rename: then the name no longer exists."""


class _Watched(NamedTuple):
    """The object that identifies the store, to detect that its directory was removed or replaced."""

    target: str
    """Its path in the file system."""
    is_same: Callable[[bytes], bool]
    """Returns True if the bytes are those of this store."""
    identity: tuple[int, int, int] | None
    """The identity of the last file that was compared; None before the first."""
