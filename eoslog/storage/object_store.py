"""The one interface to storage: a flat namespace of immutable objects with an honest put-if-absent.

Paths are relative to the store's root, with ``/`` between their parts. Methods raise ``ObjectNotFound``,
``StoreUnavailable`` (no answer, or one that says nothing: a put may have landed or land later) or ``StoreAccessDenied``
(a clear refusal: nothing was written).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from eoslog.storage.clock import StoreClock
from eoslog.storage.process import cannot_be_pickled


class ObjectNotFound(Exception):
    """No object has this path."""


class PutOutcome(Enum):
    """What a put-if-absent said of this attempt. ``EXISTS`` may be the writer's own earlier one: read the object."""

    CREATED = "created"
    EXISTS = "exists"
    CONFLICT = "conflict"
    """Nothing landed; the same put may be made again (S3's 409)."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    path: str
    size: int
    last_modified_ms: int
    """When the object came into being, by the store's clock (on local disk: ctime)."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    body: bytes
    last_modified_ms: int


class ObjectStore(ABC):
    """An object store below one root."""

    url: str
    """The root as the user named it, without credentials."""

    tail_bytes: int = 0
    """How much of the log's tail a slot record repeats for cold readers (bytes); 0 where reads are cheap."""

    least_poll_pause_ms: int = 1_000
    """The pause between two polls of a reader that waits for the next slot, at least: a request may cost money."""

    lists_in_order: bool = False
    """Whether a LIST returns paths in lexical order (S3 does, S3 Express does not)."""

    def __init__(self, url: str, clock: StoreClock) -> None:
        self.url = url
        self.clock = clock
        # Every key is there from the start: for a missing one, Counter runs Python code between the read and the write,
        # and the count of another thread could be lost.
        self.requests: Counter[str] = Counter({"PUT": 0, "GET": 0, "LIST": 0, "DELETE": 0})
        """Requests sent so far by kind: PUT, GET, LIST, DELETE. Every attempt and every page counts."""

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "the store's URL and options, and call eoslog.connect() there")

    @abstractmethod
    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        """Create ``path`` unless it exists, durably and atomically, in one attempt."""

    @abstractmethod
    def put(self, path: str, body: bytes) -> None:
        """Create or replace ``path``, durably and atomically; transient failures are retried."""

    @abstractmethod
    def get(self, path: str) -> StoredObject:
        """The whole object; transient failures are retried."""

    @abstractmethod
    def get_range(self, path: str, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``, fewer at the end of the object; transient failures are retried."""

    @abstractmethod
    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Objects whose path begins with ``prefix`` and, where order allows, sorts after ``start_after``.

        ``limit`` bounds the size of the first page and of the answer: at most so many, from the first page only.
        """

    @abstractmethod
    def list_directories(self, prefix: str) -> Sequence[str]:
        """The distinct next path parts below ``prefix`` (which ends in ``/``), without what lies below them."""

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete the objects, in the given order; those that do not exist are passed over."""

    def get_many(self, paths: Sequence[str]) -> Sequence[StoredObject | None]:
        """The objects, read in parallel where that pays; None for one that does not exist."""
        return [self._get_or_none(path) for path in paths]

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Several ``put``, in parallel where that pays."""
        for path, body in objects:
            self.put(path, body)

    def put_new(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Several objects under names that were drawn for them alone, in parallel where that pays.

        A store whose owner forbids to replace objects takes them, too; transient failures are retried.
        """
        self.put_many(objects)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete the objects in no particular order, in batches where that pays."""
        self.delete(paths)

    def leftovers(self) -> Iterator[ObjectInfo]:
        """What writers that died left aside; no LIST shows it. Their paths are for people."""
        return iter(())

    def remove_leftovers(self, older_than_ms: int) -> int:
        """Remove what writers left aside that long ago. Returns how many there were."""
        return 0

    def irregular(self) -> Iterator[tuple[str, str]]:
        """What lies in the place and can be no object, with what it is: a link, a special file, a path too long."""
        return iter(())

    def unfinished_uploads(self) -> Iterator[str]:
        """The paths of objects whose upload in parts was begun and not finished. A store never begins one."""
        return iter(())

    def watch(self, path: str, is_same: Callable[[bytes], bool]) -> None:  # noqa: B027 - optional: only local stores do this
        """Watch an object that never changes, if the check costs no request (local disk).

        Later requests raise ``StoreVanished`` if it is gone, or if ``is_same`` returns False for its bytes. Without
        this check a put would bring a removed directory back.
        """

    def is_missing(self, path: str) -> bool:
        """Whether an object does not exist. False where that would cost a request, too."""
        return False

    queues_writers: bool = False
    """Whether ``turn`` makes the writers of this machine wait for each other."""

    def turn(self) -> AbstractContextManager[bool]:
        """Queue behind the other writers of this machine. A hint only: it excludes nobody and never waits long.

        The context's value tells whether it had to wait: then others have written meanwhile.
        """
        return nullcontext(False)

    def _get_or_none(self, path: str) -> StoredObject | None:
        try:
            return self.get(path)
        except ObjectNotFound:
            return None
