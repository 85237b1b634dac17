"""The interface of a published table's log, which a publisher uses for every table format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from eoslog.publication.changes import Change
from eoslog.publication.published_table import Table
from eoslog.publication.topic_snapshot import TopicSnapshot
from eoslog.storage.object_store import ObjectInfo


class TableLog(ABC):
    """The log of one published table as one process sees it. Only one thread at a time may use it."""

    directory: str
    """The directory of the log. If it is deleted, the next publication writes it again."""
    table: Table
    """The table at the newest known version."""

    @abstractmethod
    def refresh(self, *, check: bool = False) -> Table:
        """Read the versions after the newest known one, and return the table.

        Args:
            check: also find out whether the log was deleted or restored. Then the whole log is read again.

        Raises:
            CorruptRecord: a part of the log cannot be read.
        """

    @abstractmethod
    def describes(self, snapshot: TopicSnapshot) -> bool:
        """Return True if the table has the schema and the properties that it should have for a topic."""

    @abstractmethod
    def unneeded_objects(self, objects: Sequence[ObjectInfo], now_ms: int) -> list[str]:
        """Return the objects of the log that are old and that readers of its newer versions do not need.

        Args:
            objects: all objects of the log.
            now_ms: the time by the store's clock (ms).

        Raises:
            CorruptRecord: the log cannot be read, so it is not known which objects readers need.
        """

    @abstractmethod
    def put_change(self, change: Change) -> bool:
        """Put the next version of the table.

        Returns:
            True if this call put the version. After False, ``refresh`` and decide again.

        Raises:
            StoreUnavailable: the put may have landed, or may land later. This is safe: it can create only the version
                after the one it was computed from. The next ``refresh`` shows whether it is there.
        """

    def announce(self) -> bool:
        """Tell a catalog, if there is one, of the newest version.

        Returns:
            False if the catalog does not know the version. The table is published in any case, so this is only logged.
            The next publication announces it again.
        """
        return True

    @abstractmethod
    def put_withdrawal(self, store_id: str, time_ms: int) -> bool:
        """Put the next version of a table whose topic is not published.

        The first version only sets a property, and the next one removes the files. The topic may be published again
        meanwhile, with the files that the table shows. The property makes its publisher put a version even then. So
        either the removal fails, because its version exists, or the publisher sees the removal and adds the files
        again.

        Args:
            store_id: the id of the store that withdraws the table.
            time_ms: the log's time (ms).

        Returns:
            As `put_change`.
        """
