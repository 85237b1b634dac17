"""What the log needs of the state machine whose entries it holds. It knows nothing else of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar


class Draft(Protocol):
    """A state one record ahead, which can still be dropped."""

    slot: int

    @property
    def entries(self) -> Sequence[Any]:
        """What the record would hold."""

    def child(self) -> Any:
        """A draft on top of this one."""

    def merge(self) -> None:
        """Make the changes those of the base."""


class Part(Protocol):
    """A piece of a state, which need not be written again while its changed slot stays the same."""

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
        """The state as it is now, untouched by what is folded later."""

    def new_draft(self, state: S, slot: int) -> Any: ...

    def add_overdue(self, draft: Any, now_ms: int) -> None:
        """Add entries that are due at ``now_ms`` (the store's clock), such as aborts. Called for every record."""

    def append_for_another(self, draft: Any, entries: Sequence[object]) -> None:
        """Append the entries of a request of another process, with the results that they get in this draft.

        Raises:
            Any error: the request was done before, may not be done, or is malformed.
        """

    def encode_entry(self, entry: Any) -> dict[str, Any]: ...

    def fold(self, state: S, slot: int, entries: Sequence[object]) -> str | None:
        """Apply all entries of a record or none. Returns why none was applied."""

    def check_upload(self, state: S, upload_ms: int) -> None:
        """Raise an error if objects written at ``upload_ms`` may have been deleted by vacuum."""

    def parts(self, state: S, slot: int) -> Iterable[Part]: ...

    def restore(self, parts: Mapping[str, bytes]) -> S: ...
