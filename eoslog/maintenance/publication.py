"""Publication: a topic as tables of other engines, whose logs name the topic's data files as they are.

A version of a table is the topic's ``snapshot`` at one slot: the rows of all transactions that committed at or before
it, and no other rows. The table's log keeps the slot. A publisher compares the files of the newest slot with those of
the newest version, and puts the next version if absent. So several publishers may work at once. If a publisher dies,
the table stays valid, because one put writes a whole version.

``publication/changes.py`` decides what the next versions are. ``publication/table_log.py`` is the interface of a
format's log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from eoslog.errors import EosLogError, IllegalState, InvalidTopic, RequestTimedOut, UnknownTopicOrPartition
from eoslog.maintenance.hidden_rows import rewrite_hidden_rows
from eoslog.maintenance.known_tables import KnownTables
from eoslog.maintenance.published_files import HiddenRows, PublishedFiles
from eoslog.publication.changes import Change, next_changes
from eoslog.publication.table_log import TableLog
from eoslog.publication.topic_snapshot import TopicSnapshot
from eoslog.session.session import Session
from eoslog.state.entries import TABLE_FORMATS, TableFormat
from eoslog.state.names import check_topic_name
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.calls import StepLock
from eoslog.storage.environment import Backoff

_logger = logging.getLogger(__name__)
_ATTEMPTS = 20
_PAUSE = Backoff(first_ms=20, longest_ms=1_000)


@dataclass(frozen=True, slots=True)
class Publication:
    """The newest version of a topic's table."""

    topic: str
    format: TableFormat
    version: int
    """The version; -1 if the topic has no table."""
    slot: int
    """The version shows the topic's ``snapshot`` at this slot; -1 if the topic has no table."""
    files_added: int = 0
    """The files that this call added to the table."""
    files_removed: int = 0
    """The files that this call removed from the table."""


_Put = Callable[[Change], bool]
"""Puts the version of a change (``TableLog.put_change``)."""


class _LastPublication(NamedTuple):
    """A publication: a table shows a topic at a slot, until the topic or a partition changes."""

    topic: Topic
    slot: int

    def is_current(self, state: StoreState) -> bool:
        """Return True if neither the topic nor its partitions have changed since."""
        topic = state.topics.get(self.topic.topic_id)
        # Each entry that changes a topic replaces the object. Do not compare by equality: if the publication of a topic
        # ended and began again, the topic is equal, but its table may have become empty meanwhile.
        return topic is self.topic and all(
            state.partitions[each].changed_slot <= self.slot for each in topic.partition_ids()
        )


class Publisher:
    """Publishes the topics of one store. Threads may share it.

    It caches the logs of tables and file lists. Use one for all calls.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tables = KnownTables.of(session)
        self._files: dict[str, PublishedFiles] = {}
        self._published: dict[tuple[str, TableFormat], _LastPublication] = {}
        """The last successful publication of each table."""
        self._rewriting = StepLock()
        """A rewrite holds whole files in memory, so only one thread does it."""

    @classmethod
    def of(cls, session: Session) -> Publisher:
        """Return the publisher that all callers of this process share."""
        return session.kept(cls, lambda: cls(session))

    def publish(self, topic: str) -> list[Publication]:
        """Publish the newest slot of a topic. If a table shows these rows and columns already, it does not change.

        Returns:
            The newest version of each of the topic's tables, in the order of ``TABLE_FORMATS``.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: the topic's setting ``publish`` is ``none``.
            UnsupportedSchema: a format has no such type, or allows no such column name.
            CorruptRecord: the log of a table or an index cannot be read.
            RequestTimedOut: other processes changed the table or the topic at each attempt.
            StoreUnavailable: the outcome of the put is unknown. Publish again.
        """
        formats = self._snapshot(topic, refresh=True).topic.config.formats
        if not formats:
            raise _not_published(topic)
        found: list[Publication] = []
        failed: EosLogError | None = None
        for each in formats:
            try:
                found.append(self._publish(topic, each))
            except EosLogError as error:
                # One damaged table does not stop the publication of the other one.
                failed = failed or error
        if failed is not None:
            raise failed
        return found

    def _publish(self, topic: str, table_format: TableFormat) -> Publication:
        """Publish a slot of a topic, the newest one that this process knows, or a later one, as one table."""
        snapshot: TopicSnapshot | None = None

        def bring_up_to_date(log: TableLog, files: PublishedFiles, put: _Put) -> bool:
            nonlocal snapshot
            # Read the topic before its table. If the table does not announce a withdrawal then, vacuum has not decided
            # before this slot to remove the files, so no such version can follow.
            # The caller has read the newest slot before the first attempt.
            snapshot = self._snapshot(topic, refresh=snapshot is not None)
            table = log.refresh(check=True)
            while (last := table.published(snapshot.store_id)) is not None and last.slot > snapshot.slot:
                # Another process has published a slot that this one has not read yet.
                snapshot = self._snapshot(topic, refresh=True)
                if last.slot > snapshot.slot:
                    raise IllegalState(
                        f"the {table_format.capitalize()} table of topic {topic} shows slot {last.slot}, but the log "
                        f"ends at slot {snapshot.slot}. If the store was restored from a copy, delete the directory "
                        f"{log.directory}"
                    )
                table = log.refresh(check=True)
            if table_format not in snapshot.topic.config.formats:
                raise _not_published(topic)
            planned = next_changes(snapshot, files.of(snapshot), table, is_described=log.describes(snapshot))
            return all(put(change) for change in planned)

        found, is_announced = self._put_next(topic, table_format, bring_up_to_date)
        # Otherwise `publish_all` comes back to the table, although its topic has not changed.
        if snapshot is not None and is_announced:
            self._published[topic, table_format] = _LastPublication(snapshot.topic, snapshot.slot)
        return found

    def _snapshot(self, topic: str, *, refresh: bool) -> TopicSnapshot:
        return self._session.log.read(lambda state, slot: TopicSnapshot.of(state, slot, topic), refresh=refresh)

    def publish_all(self) -> list[Publication]:
        """Publish all topics whose setting ``publish`` names a format. Return the tables whose files have changed.

        The call reads the newest slot. A topic that has not changed since its last publication by this object costs no
        further request. So a table that another program deletes is published again when its topic changes, or by
        ``publish``.

        Raises:
            EosLogError: as ``publish``, for one of the tables that failed. All others were published.
        """

        def changed_tables(state: StoreState, slot: int) -> list[tuple[str, TableFormat]]:
            tables = sorted((topic.topic, each) for topic in state.topics.values() for each in topic.config.formats)
            return [
                each for each in tables if each not in self._published or not self._published[each].is_current(state)
            ]

        def attempt(table: tuple[str, TableFormat]) -> Publication | EosLogError | None:
            try:
                return self._publish(*table)
            except (InvalidTopic, UnknownTopicOrPartition):
                return None  # Another process has unpublished or deleted the topic meanwhile.
            except EosLogError as error:
                _logger.warning("%s: topic %s was not published: %s", self._session.url, table[0], error)
                return error

        found = self._session.object_store.for_each(attempt, self._session.log.read(changed_tables))
        for each in found:
            if isinstance(each, EosLogError):
                raise each
        return [each for each in found if isinstance(each, Publication) and (each.files_added or each.files_removed)]

    def release_files(self, topic: str, table_format: TableFormat) -> None:
        """Ensure that the newest version of a table names no file that the topic has dropped.

        A table whose topic was deleted, or is no longer published, is withdrawn: its last version has no files.

        Raises:
            EosLogError: as ``publish``.
        """

        def is_published(state: StoreState, slot: int) -> bool:
            topic_id = state.topic_ids.get(topic)
            return topic_id is not None and table_format in state.topics[topic_id].config.formats

        is_withdrawn = False

        def withdraw(log: TableLog, _: PublishedFiles, __: _Put) -> bool:
            nonlocal is_withdrawn
            log.refresh(check=True)
            while log.table.paths:
                # Before each version read whether the topic is published again.
                now = self._session.log.read(
                    lambda state, slot: None if is_published(state, slot) else (state.store_id, state.time_ms)
                )
                if now is None:
                    return True
                if not log.put_withdrawal(*now):
                    return False
            is_withdrawn = True
            return True

        if not self._session.log.read(is_published):
            self._put_next(topic, table_format, withdraw)
        if not is_withdrawn:
            # The topic may be unpublished again by now.
            self._session.log.read(lambda state, slot: None)
            self._publish(topic, table_format)

    def _put_next(
        self, topic: str, table_format: TableFormat, attempt: Callable[[TableLog, PublishedFiles, _Put], bool]
    ) -> tuple[Publication, bool]:
        """Put the next versions of a table, and announce the newest one.

        Args:
            attempt: puts the next versions in order, those of changes with its last argument. It returns False if
                another process has put one of them.

        Returns:
            The newest version, and False if the catalog of the tables does not know it yet.
        """
        check_topic_name(topic)
        added = removed = 0
        files = self._files.setdefault(topic, PublishedFiles(self._session.object_store, self._session.indexes))
        lock, log = self._tables.lock_of(topic, table_format)

        def put(change: Change) -> bool:
            nonlocal added, removed
            is_put = log.put_change(change)
            if is_put:
                added += len(change.added)
                removed += len(change.removed)
            return is_put

        for number in range(1, _ATTEMPTS + 1):
            try:
                with lock:
                    if attempt(log, files, put):
                        last = log.table.newest
                        slot = NO_SLOT if last is None else last.slot
                        found = Publication(
                            topic=topic,
                            format=table_format,
                            version=log.table.version,
                            slot=slot,
                            files_added=added,
                            files_removed=removed,
                        )
                        return found, log.announce()
            except HiddenRows:
                with self._rewriting.checked("to rewrite files with hidden rows"):
                    rewrite_hidden_rows(self._session, topic)
                continue
            self._session.environment.reached("publication.version.overtaken")
            self._session.environment.sleep_ms(_PAUSE.pause_ms(number, self._session.environment.jitter()))
        raise RequestTimedOut(
            f"topic {topic} was not published: other processes were faster {_ATTEMPTS} times. Publish it again"
        )


def _not_published(topic: str) -> InvalidTopic:
    return InvalidTopic(
        f"topic {topic} is not published. Set its setting publish to {' or '.join(TABLE_FORMATS)}: "
        f"eoslog topics alter {topic} --config publish={TABLE_FORMATS[0]}"
    )
