"""The interface of a published table at one version, for every table format."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from eoslog.publication.published_file import FileRange
from eoslog.session.metrics import Published
from eoslog.state.store_state import Topic


class Table(Protocol):
    """A published table at one version."""

    @property
    def version(self) -> int:
        """The newest version; -1 if the table has none."""
        ...

    @property
    def paths(self) -> Collection[str]:
        """The paths of the table's files, relative to the topic's directory."""
        ...

    @property
    def is_foreign(self) -> bool:
        """True if another program put the newest version. Then ``paths`` are those of eoslog's own newest version."""
        ...

    def published(self, store_id: str) -> Published | None:
        """Return the slot of a store that the version shows; None if the store has published no version."""
        ...

    @property
    def newest(self) -> Published | None:
        """The slot that the version shows, whichever store put it; None if the version names no slot."""
        ...

    def range_of(self, path: str) -> FileRange | None:
        """Return the rows of a file of the table; None if the version does not state them."""
        ...

    def is_of(self, topic: Topic) -> bool:
        """Return False if the table shows an earlier topic of this name, or has no version."""
        ...
