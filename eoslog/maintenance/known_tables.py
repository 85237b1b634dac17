"""The published tables of a store's topics that one process has read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from eoslog.maintenance.table_formats import rest_catalog, table_log
from eoslog.publication.published_table import Table
from eoslog.publication.table_log import TableLog
from eoslog.session.metrics import Published
from eoslog.session.session import Session
from eoslog.state.entries import TableFormat
from eoslog.state.store_state import Topic
from eoslog.storage.calls import StepLock


class KnownTables:
    """The logs of tables that this process has read. Further reads fetch only later versions. Threads may share it."""

    def __init__(self, session: Session) -> None:
        self._store = session.object_store
        self._environment = session.environment
        self._catalog = rest_catalog(session)
        self._logs: dict[tuple[str, TableFormat], tuple[StepLock, TableLog]] = {}
        """The log of a table and its lock, by topic and format."""

    @classmethod
    def of(cls, session: Session) -> KnownTables:
        """Return the tables that all callers of this process share."""
        return session.kept(cls, lambda: cls(session))

    def lock_of(self, topic: str, table_format: TableFormat) -> tuple[AbstractContextManager[object], TableLog]:
        """Return the lock of a table's log, which a ``with`` statement must enter, and the log.

        Raises:
            ConcurrentAccess: a signal handler makes this call while its thread holds the lock.
        """
        found = self._logs.get((topic, table_format))
        if found is None:
            created = StepLock(), table_log(table_format, self._store, self._environment, topic, self._catalog)
            found = self._logs.setdefault((topic, table_format), created)
        lock, log = found
        return lock.checked(f"to read or publish the {table_format.capitalize()} table of topic {topic}"), log

    def known(self, topic: Topic, store_id: str) -> Published | None:
        """Return the slot that the newest known versions of a topic's tables show; None if one is not known.

        If the topic has several tables, this is the oldest of their slots. The call sends no request.
        """
        logs = [self._logs.get((topic.topic, each)) for each in topic.config.formats]
        return _oldest([None if found is None else found[1].table.published(store_id) for found in logs])

    def newest(self, topic: Topic, store_id: str) -> Published | None:
        """Return the slot that the newest versions of a topic's tables show; None if a table has no version.

        If the topic has several tables, this is the oldest of their slots.

        Raises:
            CorruptRecord: the log of a table cannot be read.
        """
        return _oldest([self._newest(topic.topic, each).published(store_id) for each in topic.config.formats])

    def refresh(self, topics: Sequence[Topic]) -> None:
        """Read the new versions of several topics' tables.

        Raises:
            CorruptRecord: the log of a table cannot be read.
        """
        tables = [(topic.topic, each) for topic in topics for each in topic.config.formats]
        self._store.for_each(lambda table: self._newest(*table), tables)

    def _newest(self, topic: str, table_format: TableFormat) -> Table:
        lock, log = self.lock_of(topic, table_format)
        with lock:
            return log.refresh()


def _oldest(published: Sequence[Published | None]) -> Published | None:
    found = [each for each in published if each is not None]
    return min(found) if found and len(found) == len(published) else None
