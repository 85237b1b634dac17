"""The only interface to storage: a flat namespace of immutable objects with a reliable put-if-absent.

Paths are relative to the store's root, with ``/`` between their parts, and cannot leave the root (see
``check_path``). The methods raise these errors:

- ``ObjectNotFound``: no object has this path.
- ``StoreUnavailable``: there was no answer, or the answer does not show the outcome. A put may have landed, or may land
  later.
- ``StoreAccessDenied``: the request was refused. Nothing was written.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NoReturn, TypeVar

from eoslog.errors import InvalidRequest
from eoslog.storage.clock import StoreClock
from eoslog.storage.host_queue import HostQueue
from eoslog.storage.process import cannot_be_pickled, forks

T = TypeVar("T")
R = TypeVar("R")


_MOST_KEPT_BYTES = 16 << 20
BOUNDS_NS = tuple(int(ms * 1_000_000) for ms in (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000))
"""The upper bounds of the buckets (ns, inclusive). One more bucket has the slower requests."""


class ObjectNotFound(Exception):
    """No object has this path."""


class PutOutcome(Enum):
    """The outcome of one put-if-absent. After ``EXISTS``, read the object: an earlier attempt may have put it."""

    CREATED = "created"
    EXISTS = "exists"
    CONFLICT = "conflict"
    """Nothing landed. The same put may be repeated (S3's 409)."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    path: str
    size: int
    last_modified_ms: int
    """The time of the object's creation by the store's clock (ms since the epoch). On local disk it is the ctime."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    body: bytes
    last_modified_ms: int


class Histogram(NamedTuple):
    """The durations of the requests of one verb."""

    counts: tuple[int, ...]
    """The number of requests in each bucket. A request counts in one bucket."""
    total_ns: int


class RequestTimes:
    """The durations of requests by verb. Threads may share it."""

    def __init__(self, verbs: Iterable[str]) -> None:
        self._counts = {verb: [0] * (len(BOUNDS_NS) + 1) for verb in verbs}
        self._totals_ns = dict.fromkeys(self._counts, 0)

    def add(self, verb: str, duration_ns: int) -> None:
        """Count a request."""
        bucket = bisect_left(BOUNDS_NS, duration_ns)
        counts = self._counts[verb]
        # Between the read and the write of an addition no Python code runs, so no count of another thread is lost.
        # A lock could be held forever: by this thread below a signal handler, or in a forked child.
        counts[bucket] += 1
        self._totals_ns[verb] += duration_ns

    def by_verb(self) -> Mapping[str, Histogram]:
        """Return the histograms so far."""
        return {verb: Histogram(tuple(counts), self._totals_ns[verb]) for verb, counts in self._counts.items()}


class _Kept:
    """The objects that one process keeps."""

    def __init__(self) -> None:
        self.process = forks()
        self.lock = threading.Lock()
        self.bytes = 0
        self.contents: OrderedDict[str, bytes] = OrderedDict()


class RecentObjects:
    """A cache of bytes by the path of their object. The object never changes. Safe to share between threads."""

    def __init__(self, most_bytes: int = _MOST_KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._of_process = _Kept()

    def keep(self, path: str, content: bytes) -> None:
        """Keep these bytes, and drop the bytes that were kept longest ago. Bytes above the limit are not kept."""
        kept = self._own()
        with kept.lock:
            if path in kept.contents or len(content) > self._most_bytes:
                return
            kept.contents[path] = content
            kept.bytes += len(path) + len(content)
            while kept.bytes > self._most_bytes:
                oldest, dropped = kept.contents.popitem(last=False)
                kept.bytes -= len(oldest) + len(dropped)

    def drop(self, path: str) -> None:
        """Drop the bytes of an object."""
        kept = self._own()
        with kept.lock:
            dropped = kept.contents.pop(path, None)
            if dropped is not None:
                kept.bytes -= len(path) + len(dropped)

    def find(self, path: str) -> bytes | None:
        """Return the bytes of an object; None if they are not kept."""
        kept = self._own()
        with kept.lock:
            return kept.contents.get(path)

    def _own(self) -> _Kept:
        """Return what this process keeps. A forked child begins anew: a thread of its parent may have held the lock."""
        kept = self._of_process
        if kept.process != forks():
            # Two threads may both do this. Then one of the new caches is lost, which costs a request.
            kept = self._of_process = _Kept()
        return kept


class Capabilities:
    """The abilities and properties in which object stores differ, with defaults.

    A caller need not know the kind of its store. The defaults send no request.
    """

    url: str
    """The root as the user named it, without credentials."""

    tail_bytes: int = 0
    """How much of the log's tail a slot record repeats for readers that open the log (bytes); 0 where reads are
    cheap."""

    least_poll_pause_ms: int = 1_000
    """The shortest pause between two polls of a reader that waits for the next slot (ms). A request may cost money."""

    is_remote: bool = True
    """False if a request costs neither money nor a round trip. Then each poll of a consumer sends one, and the winner
    of a race for a slot need not give way."""

    reads_at_once: int = max(2, os.cpu_count() or 1)
    """How many reads of large objects to send at once."""

    lists_in_order: bool = False
    """True if a LIST returns paths in lexical order (S3 does, S3 Express does not)."""

    host_queue: HostQueue | None = None
    """The queue of this host's processes that append to the store; None if the store has none."""

    @property
    def root(self) -> str:
        """The root as other programs name it: a URL, or the absolute path of a directory."""
        return self.url.rstrip("/")

    @property
    def location(self) -> str:
        """A name of this root. Processes, also on other hosts, have it in common only if they use the same root."""
        return self.url

    def holds(self, other: ObjectStore) -> bool:
        """Return True if the root of another object store is this root or lies below it."""
        return False

    def share_turns(self, store_id: str) -> None:
        """Share turns with the processes of this host that have opened the same store. A local store always does.

        Args:
            store_id: the id of the store at this root. Two servers may have stores of one URL.
        """

    def make_durable(self, path: str) -> None:
        """Wait until an object that was read is durable, and all objects of its directory that were read before it.

        In a store that is not local, each object that can be read is durable.

        Raises:
            StoreUnavailable, StoreAccessDenied
        """

    def watch(self, path: str, is_same: Callable[[bytes], bool]) -> None:
        """Watch an object that never changes, if the check costs no request (local disk).

        Later requests raise ``StoreVanished`` if it is missing, or if ``is_same`` returns False for its bytes. Without
        this check a put would create a removed directory again.
        """

    def is_missing(self, path: str) -> bool:
        """Return True if an object does not exist. Return False if the check would cost a request."""
        return False

    def unfinished_uploads(self) -> Iterator[str]:
        """Yield the paths of unfinished multipart uploads. eoslog itself starts none."""
        return iter(())


class ObjectStore(Capabilities, ABC):
    """An object store below one root: single requests, and several at once that a store may send in parallel."""

    def __init__(self, url: str, clock: StoreClock) -> None:
        self.url = url
        self.clock = clock
        # Set every key at the start. For a missing key, Counter runs Python code between its read and its write, and
        # the count of another thread could be lost.
        self.requests: Counter[str] = Counter({"PUT": 0, "GET": 0, "LIST": 0, "DELETE": 0})
        """Requests sent so far, by kind: PUT, GET, LIST, DELETE. Every attempt and every page counts."""
        self.request_times = RequestTimes(self.requests)
        """The time until these requests were answered, by kind."""
        self.recent = RecentObjects()
        """The lines of files in records that this process has read or written recently, by the path of the slot."""
        self.recently_put = RecentObjects(1 << 20)
        """When this process has put an embedded file as an object, too (ms by the store's clock), by its path."""

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "the store's URL and options, and call eoslog.connect() there")

    @abstractmethod
    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        """Create ``path`` durably and atomically unless it exists. This makes only one attempt."""

    @abstractmethod
    def put(self, path: str, body: bytes) -> None:
        """Create or replace ``path`` durably and atomically. Transient failures are retried."""

    @abstractmethod
    def get(self, path: str) -> StoredObject:
        """Return the whole object. Transient failures are retried."""

    @abstractmethod
    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes from ``start``, or fewer at the end of the object. Transient failures are retried."""

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """Return ranges of one object as ``get_range``, each a start and a length. They may be read in parallel."""
        return [self.get_range(path, start, length) for start, length in ranges]

    @abstractmethod
    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects whose path begins with ``prefix`` and sorts after ``start_after``.

        Args:
            limit: yield at most this many objects, all from one page; None: all objects.
        """

    @abstractmethod
    def list_directories(self, prefix: str) -> Sequence[str]:
        """Return the names of the directories directly below ``prefix`` (which ends in ``/``), sorted."""

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete the objects in the given order. Missing objects are skipped."""

    def get_many(self, paths: Sequence[str]) -> Sequence[StoredObject | None]:
        """Return the objects; None for a missing one. They may be read in parallel."""
        return [self._get_or_none(path) for path in paths]

    def for_each(self, function: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        """Call a function that sends requests for each item, and return the results in order.

        Threads may call it in parallel. The first error is raised, but only after all running calls have ended.
        """
        return [function(item) for item in items]

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Put several objects. They may be written in parallel."""
        for path, body in objects:
            self.put(path, body)

    def put_new(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Put several objects under new, unique names. They may be written in parallel.

        This works also if a policy forbids replacing objects. Transient failures are retried.
        """
        self.put_many(objects)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete the objects in any order. They may be deleted in batches."""
        self.delete(paths)

    def _get_or_none(self, path: str) -> StoredObject | None:
        try:
            return self.get(path)
        except ObjectNotFound:
            return None


TEMPORARY = ".tmp"
"""The root's directory for temporary files. It holds no objects, and no LIST shows it."""

LONGEST_PATH_BYTES = 900

_LONGEST_PART_BYTES = 255


def check_path(path: str) -> str:
    """Return the path if it is valid for an object; otherwise raise ``InvalidRequest``."""
    parts = path.split("/")
    if "" in parts:
        raise InvalidRequest(f"Object path {path!r} is absolute or has an empty part. Give 'part/part/name'.")
    _check_parts(path, parts)
    return path


def check_prefix(prefix: str) -> str:
    """Return the prefix if it is valid: empty, or a path whose last part may be incomplete."""
    *parts, _ = prefix.split("/")
    if "" in parts:
        raise InvalidRequest(f"Prefix {prefix!r} is absolute or has an empty part. Give 'part/part/beginning'.")
    _check_parts(prefix, prefix.split("/"))
    return prefix


def check_directory(prefix: str) -> str:
    """Return the prefix if it names a directory: empty for the root, or ending in ``/``."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequest(f"Prefix {prefix!r} does not name a directory. End it in '/'.")
    return check_prefix(prefix)


def check_range(start: int, length: int) -> None:
    """Raise ``InvalidRequest`` if a byte range has negative numbers."""
    if start < 0 or length < 0:
        raise InvalidRequest(f"Range of {length} bytes from {start} is not possible; both must be at least 0.")


def _check_parts(path: str, parts: list[str]) -> None:
    if "." in parts or ".." in parts or parts[0] == TEMPORARY:
        raise InvalidRequest(f"Path {path!r} has a part '.' or '..', or begins with '{TEMPORARY}'. Leave it out.")
    if "\\" in path or not path.isprintable():
        raise InvalidRequest(f"Path {path!r} has a control character or a backslash. Leave it out.")
    encoded = path.encode()
    if len(encoded) > LONGEST_PATH_BYTES or max(map(len, encoded.split(b"/"))) > _LONGEST_PART_BYTES:
        raise InvalidRequest(
            f"Path {path[:80]!r}… is too long; a part has at most {_LONGEST_PART_BYTES} bytes and the whole at most"
            f" {LONGEST_PATH_BYTES}."
        )
