"""The Delta tables of a store's topics that one process has read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from eoslog.delta.actions import SetTransaction
from eoslog.delta.delta_log import DeltaLog
from eoslog.session.session import Session
from eoslog.storage.calls import StepLock
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore


class KnownTables:
    """The Delta logs that this process has read. Further reads fetch only later versions. Threads may share it."""

    def __init__(self, store: ObjectStore, environment: Environment) -> None:
        self._store = store
        self._environment = environment
        self._logs: dict[str, tuple[StepLock, DeltaLog]] = {}
        """A Delta log and its lock, by topic."""

    @classmethod
    def of(cls, session: Session) -> KnownTables:
        """Return the tables that all callers of this process share."""
        return session.kept(cls, lambda: cls(session.object_store, session.environment))

    def lock_of(self, topic: str) -> tuple[AbstractContextManager[object], DeltaLog]:
        """Return the lock of a topic's Delta log, which a ``with`` statement must enter, and the log.

        Raises:
            ConcurrentAccess: a signal handler makes this call while its thread holds the lock.
        """
        found = self._logs.get(topic)
        if found is None:
            delta_log = DeltaLog(self._store, self._environment, f"{topic}/")
            found = self._logs.setdefault(topic, (StepLock(), delta_log))
        lock, delta_log = found
        return lock.checked(f"to read or publish the Delta table of topic {topic}"), delta_log

    def known(self, topic: str, store_id: str) -> SetTransaction | None:
        """Return the slot, as ``version``, that the newest known version of a table shows; None if none is known.

        The call sends no request.
        """
        found = self._logs.get(topic)
        return None if found is None else found[1].table.transactions.get(store_id)

    def newest(self, topic: str, store_id: str) -> SetTransaction | None:
        """Return the slot, as ``version``, that the newest version of a table shows; None if there is no version.

        Raises:
            CorruptRecord: the log of the table cannot be read.
        """
        lock, delta_log = self.lock_of(topic)
        with lock:
            return delta_log.refresh().transactions.get(store_id)

    def refresh(self, topics: Sequence[str]) -> None:
        """Read the new versions of several tables.

        Raises:
            CorruptRecord: the log of a table cannot be read.
        """

        def refresh(topic: str) -> None:
            lock, delta_log = self.lock_of(topic)
            with lock:
                delta_log.refresh()

        self._store.for_each(refresh, topics)
