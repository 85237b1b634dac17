"""The interface between the log and the state machine whose entries it holds. The log uses nothing else of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeGuard, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Draft(Protocol):
    """The state after the next record. It can be dropped until that record is in the log."""

    slot: int

    @property
    def entries(self) -> Sequence[Any]:
        """The entries of the next record."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The contents of the files in the next record, by path."""

    def child(self) -> Any:
        """A draft on top of this one."""

    def merge(self) -> None:
        """Apply the changes to the state or draft below this one."""


class Request(Protocol[T_co]):
    """A change of the state that a caller asks for, as a value."""

    def apply(self, draft: Any) -> T_co:
        """Validate the request on a draft, add the entries that follow from it, and return the answer.

        It is called again on a newer state if the record lost its race, so it changes nothing but the draft. If it adds
        no entry, its answer holds at the newest slot.

        Raises:
            The error with which the draft's state refuses the request.
        """


class ShareableRequest(Request[T_co], Protocol[T_co]):
    """A request that any process may append on behalf of its own process. Several processes may try.

    Once the request has landed, every later state must refuse it. Once the newest state refuses it, every later state
    must refuse it, too.
    """

    @property
    def shared_entries(self) -> Sequence[Any]:
        """The entries, without their results (offsets, the next epoch). Empty if only its own process may append it."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The contents of the files that are to be in the record, by path."""

    def shared_answer(self, entries: Sequence[Mapping[str, Any]], slot: int) -> T_co:
        """Return the answer, made from the request's entries in the log and their slot.

        Raises:
            ValueError, LookupError: the entries belong to another request.
        """


def is_shareable(request: object) -> TypeGuard[ShareableRequest[Any]]:
    """Return True if other processes may append the request."""
    # Each isinstance() with a protocol looks up all its attributes. Each commit asks, so look up one.
    return hasattr(request, "shared_answer")


def shared_entries(request: object) -> Sequence[Any]:
    """Return the entries that other processes may append for this request; empty if they may append none."""
    return request.shared_entries if is_shareable(request) else ()


def shared_files(request: object) -> Mapping[str, bytes]:
    """Return the contents of the files in the record of a request that other processes may append, by path."""
    return request.files if is_shareable(request) else {}


class Part(Protocol):
    """A piece of a state. The next checkpoint shares it if its ``changed_slot`` is the same as before."""

    @property
    def name(self) -> str: ...
    @property
    def changed_slot(self) -> int: ...
    @property
    def encode(self) -> Callable[[], bytes]: ...


S = TypeVar("S")


class Machine(Protocol[S]):
    """A deterministic fold of entries."""

    def initial(self) -> S: ...

    def frozen_copy(self, state: S) -> S:
        """Return a copy of the state. Records that are folded later do not change the copy."""

    def new_draft(self, state: S, slot: int) -> Any: ...

    def add_overdue(self, draft: Any, now_ms: int) -> None:
        """Add entries that are due at ``now_ms`` (the store's clock), such as aborts. Called for every record."""

    def append_for_another(self, draft: Any, entries: Sequence[object], files: Mapping[str, bytes]) -> None:
        """Append the entries of a request of another process, with the results that they get in this draft.

        Args:
            files: the contents of the files that are to be in the record, by path.

        Raises:
            Any error: the request has landed before, is not allowed, or is malformed.
        """

    def encode_entry(self, entry: Any) -> dict[str, Any]: ...

    def fold(self, state: S, slot: int, entries: Sequence[object]) -> str | None:
        """Apply all entries of a record, or none. Return the reason if none was applied, otherwise None."""

    def oldest_needed_slot(self, state: S) -> int | None:
        """Return the oldest slot whose record has files that a reader may need; None if no record has any."""

    def check_upload(self, state: S, upload_ms: int) -> None:
        """Raise an error if objects written at ``upload_ms`` may have been deleted by vacuum."""

    def parts(self, state: S, slot: int) -> Iterable[Part]: ...

    def restore(self, parts: Mapping[str, bytes]) -> S: ...
