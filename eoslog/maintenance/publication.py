"""Publication: a topic as a Delta table, whose log names the topic's data files as they are.

A version of the table is the topic's ``snapshot`` at one slot: the rows of all transactions that committed at or before
it, and no other rows. The Delta log keeps the slot. A publisher compares the files of the newest slot with those of the
newest version, and puts the next version if absent. So several publishers may work at once. If a publisher dies, the
table stays valid, because one put writes a whole version.

A version removes rows or adds new rows, never both, so that a Delta stream may skip versions that remove rows. If there
are both, the first of two versions removes rows: it shows the transactions of the slot of the version before, less the
rows removed since. The second one adds the new rows. An overwrite is one version, because it must stay atomic.

A Delta stream skips files without ``dataChange``. The publisher sets it to False only for files of a rewrite, whose
rows the table already shows. To keep such files apart from new rows, compaction takes only segments that are published.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from eoslog.delta.actions import (
    BASE_OFFSET_COLUMN,
    END_OFFSET_TAG,
    PARTITION_COLUMN,
    Action,
    AddFile,
    DeltaTable,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    encode_version,
)
from eoslog.delta.delta_log import DeltaLog
from eoslog.delta.delta_schema import delta_schema, has_local_timestamps
from eoslog.delta.delta_statistics import columns_with_bounds
from eoslog.delta.known_tables import KnownTables
from eoslog.errors import EosLogError, IllegalState, InvalidTopic, RequestTimedOut, UnknownTopicOrPartition
from eoslog.format.topic_schemas import stored_schema
from eoslog.maintenance.hidden_rows import rewrite_hidden_rows
from eoslog.maintenance.published_files import (
    HiddenRows,
    PublishedFile,
    PublishedFiles,
    TopicSnapshot,
    writer_of,
)
from eoslog.session.session import Session
from eoslog.state.names import check_topic_name
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.calls import StepLock
from eoslog.storage.environment import Backoff

_logger = logging.getLogger(__name__)
_FEATURES = ["appendOnly", "invariants", "eoslog"]
"""The table's writer features. ``appendOnly`` is for the table property, ``invariants`` for columns without nulls. Only
eoslog supports ``eoslog``, so other writers refuse the table. All readers may read it.
"""

_APPEND_ONLY = "delta.appendOnly"
_PUBLISH = "eoslog.publish"
"""The table property that is ``none`` if the topic is not published any more, and vacuum needs to delete files."""

_COLUMNS_WITH_BOUNDS = "delta.dataSkippingStatsColumns"
"""The table property that lists the columns with bounds. Some readers skip a file without a bound of a listed column.
If a table lacks the property, they expect bounds of the first 32 columns.
"""

_NEVER = "interval 36500 days"
"""Delta's VACUUM deletes old files that the Delta log does not name. Such files may belong to open transactions."""

_ATTEMPTS = 20
_PAUSE = Backoff(first_ms=20, longest_ms=1_000)
_MOST_COMMITS = 100


@dataclass(frozen=True, slots=True)
class Publication:
    """The newest version of a topic's Delta table."""

    topic: str
    version: int
    """The version; -1 if the topic has no table."""
    slot: int
    """The version shows the topic's ``snapshot`` at this slot; -1 if the topic has no table."""
    files_added: int = 0
    """The files that this call added to the table."""
    files_removed: int = 0
    """The files that this call removed from the table."""


@dataclass(frozen=True, slots=True)
class _Version:
    """The next version of a table."""

    actions: Sequence[Action]
    commit_info: Mapping[str, Any]

    def body(self, txn_id: str) -> bytes:
        """Return the content of the version.

        Args:
            txn_id: a random name of the version, by which its publisher recognizes it. Two publishers may put equal
                actions.
        """
        return encode_version(self.actions, {**self.commit_info, "txnId": txn_id})

    def count(self, kind: type[Action]) -> int:
        return sum(isinstance(action, kind) for action in self.actions)


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

    It caches Delta logs and file lists. Use one for all calls.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tables = KnownTables.of(session)
        self._files: dict[str, PublishedFiles] = {}
        self._published: dict[str, _LastPublication] = {}
        """The last successful publication of each topic."""
        self._rewriting = StepLock()
        """A rewrite holds whole files in memory, so only one thread does it."""

    @classmethod
    def of(cls, session: Session) -> Publisher:
        """Return the publisher that all callers of this process share."""
        return session.kept(cls, lambda: cls(session))

    def publish(self, topic: str) -> Publication:
        """Publish the newest slot of a topic. If the table shows these rows and columns already, nothing changes.

        Raises:
            UnknownTopicOrPartition
            InvalidTopic: the topic's setting ``publish`` is not ``delta``.
            UnsupportedSchema: Delta has no such type, or allows no such column name.
            CorruptRecord: the Delta log or an index cannot be read.
            RequestTimedOut: other processes changed the table or the topic at each attempt.
            StoreUnavailable: the outcome of the put is unknown. Publish again.
        """
        return self._publish(topic, refresh=True)

    def _publish(self, topic: str, *, refresh: bool) -> Publication:
        snapshot: TopicSnapshot

        def next_versions(newest_table: Callable[[], DeltaTable], files: PublishedFiles) -> list[_Version]:
            nonlocal snapshot
            # Read the topic before its table. If the table does not announce a withdrawal then, vacuum has not decided
            # before this slot to remove the files, so no such version can follow.
            snapshot = self._snapshot(topic, refresh=refresh)
            table = newest_table()
            while (since := _published_slot(table, snapshot.store_id)) > snapshot.slot:
                # Another process has published a slot that this one has not read yet.
                snapshot = self._snapshot(topic, refresh=True)
                if since > snapshot.slot:
                    raise IllegalState(
                        f"the Delta table of topic {topic} shows slot {since}, but the log ends at slot "
                        f"{snapshot.slot}. If the store was restored from a copy, delete the directory _delta_log"
                    )
                table = newest_table()
            if not snapshot.topic.config.is_published:
                raise InvalidTopic(
                    f"topic {topic} is not published. Set its setting publish to delta: eoslog topics alter {topic} "
                    "--add-config publish=delta"
                )
            return _versions_of(snapshot, files.of(snapshot), table)

        found = self._put_next(topic, next_versions)
        self._published[topic] = _LastPublication(snapshot.topic, snapshot.slot)
        return found

    def _snapshot(self, topic: str, *, refresh: bool) -> TopicSnapshot:
        return self._session.log.read(lambda state, slot: TopicSnapshot.of(state, slot, topic), refresh=refresh)

    def publish_all(self) -> list[Publication]:
        """Publish all topics whose setting ``publish`` is ``delta``. Return the tables whose files have changed.

        The call reads the newest slot. A topic that has not changed since its last publication by this object costs no
        further request. So a table that another program deletes is published again when its topic changes, or by
        ``publish``.

        Raises:
            EosLogError: as ``publish``, for one of the topics that failed. All others were published.
        """

        def changed_topics(state: StoreState, slot: int) -> list[str]:
            names = sorted(each.topic for each in state.topics.values() if each.config.is_published)
            return [
                each for each in names if each not in self._published or not self._published[each].is_current(state)
            ]

        def attempt(topic: str) -> Publication | EosLogError | None:
            try:
                return self._publish(topic, refresh=False)
            except (InvalidTopic, UnknownTopicOrPartition):
                return None  # Another process has unpublished or deleted the topic meanwhile.
            except EosLogError as error:
                _logger.warning("%s: topic %s was not published: %s", self._session.url, topic, error)
                return error

        found = self._session.object_store.for_each(attempt, self._session.log.read(changed_topics))
        for each in found:
            if isinstance(each, EosLogError):
                raise each
        return [each for each in found if isinstance(each, Publication) and (each.files_added or each.files_removed)]

    def release_files(self, topic: str) -> None:
        """Ensure that the newest version of a table names no file that the topic has dropped.

        A table whose topic was deleted, or is no longer published, is withdrawn: its last version has no files.

        Raises:
            EosLogError: as ``publish``.
        """

        def is_published(state: StoreState, slot: int) -> bool:
            topic_id = state.topic_ids.get(topic)
            return topic_id is not None and state.topics[topic_id].config.is_published

        is_withdrawn = False

        def withdrawal(newest_table: Callable[[], DeltaTable], _: PublishedFiles) -> Iterator[_Version]:
            nonlocal is_withdrawn
            table = newest_table()
            while table.files:
                # Before each version read whether the topic is published again.
                version = self._session.log.read(
                    lambda state, slot: None if is_published(state, slot) else _withdrawn(state, table)
                )
                if version is None:
                    return
                yield version
            is_withdrawn = True

        if not self._session.log.read(is_published):
            self._put_next(topic, withdrawal)
        if not is_withdrawn:
            self.publish(topic)

    def _put_next(
        self, topic: str, decide: Callable[[Callable[[], DeltaTable], PublishedFiles], Iterable[_Version]]
    ) -> Publication:
        """Put the next versions of a table.

        Args:
            decide: yields the next versions in order; none if the newest version is up to date. Its first argument
                reads the newest version of the table. Each version that was put changes this table.
        """
        check_topic_name(topic)
        put: list[_Version] = []
        files = self._files.setdefault(topic, PublishedFiles(self._session.object_store, self._session.indexes))
        lock, delta_log = self._tables.lock_of(topic)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with lock:
                    for version in decide(lambda: delta_log.refresh(check=True), files):
                        self._session.environment.reached("delta.version.planned")
                        if not delta_log.put(version.actions, version.body(self._session.environment.new_id())):
                            break
                        self._session.environment.reached("delta.version.put")
                        put.append(version)
                        if delta_log.checkpoint_is_due:
                            self._write_checkpoint(topic, delta_log)
                    else:
                        return _publication(topic, delta_log.table, put)
            except HiddenRows:
                with self._rewriting.checked("to rewrite files with hidden rows"):
                    rewrite_hidden_rows(self._session, topic)
                continue
            self._session.environment.reached("delta.version.overtaken")
            self._session.environment.sleep_ms(_PAUSE.pause_ms(attempt, self._session.environment.jitter()))
        raise RequestTimedOut(
            f"topic {topic} was not published: other processes were faster {_ATTEMPTS} times. Publish it again"
        )

    def _write_checkpoint(self, topic: str, delta_log: DeltaLog) -> None:
        """Write a checkpoint of a table. The version is published in any case, so a failure is only logged."""
        try:
            delta_log.write_checkpoint()
        except EosLogError as error:
            _logger.warning("%s: no checkpoint of topic %s was written: %s", self._session.url, topic, error)
        else:
            self._session.environment.reached("delta.checkpoint.written")


def _publication(topic: str, table: DeltaTable, put: Sequence[_Version]) -> Publication:
    slot = max((each.version for each in table.transactions.values()), default=NO_SLOT)
    added, removed = (sum(each.count(kind) for each in put) for kind in (AddFile, RemoveFile))
    return Publication(topic, table.version, slot, added, removed)


def _published_slot(table: DeltaTable, store_id: str) -> int:
    last = table.transactions.get(store_id)
    return NO_SLOT if last is None else last.version


def _versions_of(snapshot: TopicSnapshot, files: Sequence[PublishedFile], table: DeltaTable) -> list[_Version]:
    """Return the next versions of a table; none if it shows the snapshot already. The last version shows the snapshot.

    A Delta stream with ``skipChangeCommits`` skips each version that removes rows. So new rows get a version of their
    own, after the one that removes rows.
    """
    since = _published_slot(table, snapshot.store_id)
    named = {file.path for file in files}
    added = [file for file in files if file.path not in table.files]
    removed = [file for path, file in table.files.items() if path not in named]
    columns = _columns_with_bounds(snapshot, table)
    protocol, metadata = _protocol(snapshot), _metadata(snapshot, columns)
    heads: list[Action] = [protocol] if protocol != table.protocol else []
    if table.metadata is None or metadata != table.metadata:
        heads.append(metadata)
    if not heads and not added and not removed:
        return []
    moved, has_mixed_files = _moved_paths(added, removed, since)

    def version(slot: int, heads: list[Action], removed: Sequence[AddFile], added: Sequence[PublishedFile]) -> _Version:
        actions = [
            *heads,
            *(_removed(file, snapshot.time_ms, data_change=file.path not in moved) for file in removed),
            *(file.added(columns, data_change=file.path not in moved) for file in added),
            SetTransaction(app_id=snapshot.store_id, version=slot, last_updated=snapshot.time_ms),
        ]
        new = [file for file in added if file.end_slot > since]
        removes_rows = any(file.path not in moved for file in removed)
        if new or (added and not removed):
            operation = "WRITE"
        else:
            operation = "DELETE" if removes_rows else "OPTIMIZE" if added else "SET TBLPROPERTIES"
        return _Version(actions, _commit_info(snapshot.time_ms, slot, operation, _commits(snapshot, new)))

    first_slot = max(since, _overwrite_slot(snapshot, files, since))
    rest = [file for file in added if file.end_slot > first_slot]
    removes_rows = any(file.path not in moved for file in removed)
    if not removes_rows or not rest or has_mixed_files or not _is_table_of(snapshot.topic, table):
        return [version(snapshot.slot, heads, removed, added)]
    first = [file for file in added if file.end_slot <= first_slot]
    return [version(first_slot, heads, removed, first), version(snapshot.slot, [], [], rest)]


def _overwrite_slot(snapshot: TopicSnapshot, files: Iterable[PublishedFile], since: int) -> int:
    """Return the slot that removed all earlier rows and added new ones; ``NO_SLOT`` if there is none after ``since``.

    Such a topic is empty at no slot, so its table must not be empty in any version.
    """
    oldest = min((file.end_slot for file in files), default=NO_SLOT)
    is_overwrite = oldest > since and any(partition.snapshot_floor == oldest for partition in snapshot.partitions)
    return oldest if is_overwrite else NO_SLOT


def _columns_with_bounds(snapshot: TopicSnapshot, table: DeltaTable) -> list[str]:
    """Return the columns for which all files of a table can have bounds.

    Existing files have no bounds of columns that were added later. So a column may be removed from the list at any
    time, but it is added only if the table has no files.
    """
    topic = snapshot.topic
    found = columns_with_bounds(
        stored_schema(topic), topic.config.statistics_columns, has_records=topic.topic_schema.kind == "records"
    )
    if not table.files or table.metadata is None or not _is_table_of(topic, table):
        return found
    listed = table.metadata.configuration.get(_COLUMNS_WITH_BOUNDS, "").split(",")
    return [name for name in found if _quoted(name) in listed]


def _quoted(name: str) -> str:
    """Return the name of a column as Delta parses it in a list. Names of a table have no comma."""
    return f"`{name.replace('`', '``')}`"


def _withdrawn(state: StoreState, table: DeltaTable) -> _Version:
    """Return the next version of a table whose topic is not published.

    The first version only sets a property, and the next one removes the files. The topic may be published again
    meanwhile, with the files that the table shows. The property makes its publisher put a version even then. So either
    the removal fails, because its version exists, or the publisher sees the removal and adds the files again.
    """
    metadata = table.metadata
    if metadata is not None and metadata.configuration.get(_PUBLISH) != "none":
        properties = metadata.configuration | {_APPEND_ONLY: "false", _PUBLISH: "none"}
        operation = "SET TBLPROPERTIES"
        changes: list[Action] = [metadata.model_copy(update={"configuration": properties})]
    else:
        operation = "DELETE"
        changes = [_removed(file, state.time_ms, data_change=True) for file in table.files.values()]
    # The table shows the slot of the version before, less the removed rows.
    slot = _published_slot(table, state.store_id)
    return _Version([*changes, *table.transactions.values()], _commit_info(state.time_ms, slot, operation, []))


def _protocol(snapshot: TopicSnapshot) -> Protocol:
    if has_local_timestamps(stored_schema(snapshot.topic)):
        return Protocol(
            min_reader_version=3,
            min_writer_version=7,
            reader_features=["timestampNtz"],
            writer_features=[*_FEATURES, "timestampNtz"],
        )
    return Protocol(min_reader_version=1, min_writer_version=7, writer_features=_FEATURES)


def _metadata(snapshot: TopicSnapshot, columns: Iterable[str]) -> Metadata:
    topic = snapshot.topic
    return Metadata(
        # A topic that is deleted and created again is another table: a Delta stream of the old one must not continue.
        id=_uuid(topic.topic_id),
        name=topic.topic,
        schema_string=delta_schema(topic.topic, stored_schema(topic)),
        configuration={
            _APPEND_ONLY: "true" if snapshot.only_grows else "false",
            _COLUMNS_WITH_BOUNDS: ",".join(map(_quoted, columns)),
            "delta.deletedFileRetentionDuration": _NEVER,
        },
        created_time=topic.schema_versions[0].time_ms,
    )


def _is_table_of(topic: Topic, table: DeltaTable) -> bool:
    """Return False if a table shows an earlier topic of this name, or has no version."""
    return table.metadata is not None and table.metadata.id == _uuid(topic.topic_id)


def _uuid(topic_id: str) -> str:
    """Return a topic id, 32 hexadecimal digits, in the form of a UUID."""
    return "-".join(topic_id[begin:end] for begin, end in pairwise((0, 8, 12, 16, 20, 32)))


def _removed(file: AddFile, time_ms: int, *, data_change: bool) -> RemoveFile:
    return RemoveFile(
        path=file.path,
        deletion_timestamp=time_ms,
        data_change=data_change,
        partition_values=file.partition_values,
        size=file.size,
    )


def _commit_info(time_ms: int, slot: int, operation: str, commits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "timestamp": time_ms,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": "eoslog",
        "slot": slot,
        "commits": list(commits),
    }


def _commits(snapshot: TopicSnapshot, files: Iterable[PublishedFile]) -> list[dict[str, Any]]:
    """Return the commits that wrote these files, at most the newest 100."""
    found = sorted({(file.end_slot, writer_of(file.transactional_id)) for file in files})[-_MOST_COMMITS:]
    described = []
    for slot, writer in found:
        commit: dict[str, Any] = {"slot": slot}
        if writer:
            commit["transactionalId"] = writer
        last = snapshot.last_commits.get(writer)
        if last is not None and last.slot == slot and last.application_version is not None:
            commit["applicationId"] = last.application_version.application_id
            commit["applicationVersion"] = last.application_version.version
        described.append(commit)
    return described


@dataclass(frozen=True, slots=True)
class _Range:
    """The offsets of a file that a version adds or removes."""

    partition: int
    base_offset: int
    end_offset: int
    path: str
    rows: int
    is_added: bool
    is_published: bool
    """True if the newest version shows all rows of the file."""


def _moved_paths(added: Iterable[PublishedFile], removed: Iterable[AddFile], since: int) -> tuple[set[str], bool]:
    """Return the paths of rewritten files, old and new, with the same rows in both versions.

    Args:
        since: the slot of the newest version.

    Returns:
        The paths, and True if an added file mixes rows of a removed file with new rows. Compaction writes such a file
        only while the topic is not published.
    """
    ranges = [
        _Range(file.partition, file.base_offset, file.end_offset, file.path, file.rows, True, file.end_slot <= since)
        for file in added
    ]
    ranges += [each for each in map(_removed_range, removed) if each is not None]
    moved: set[str] = set()
    has_mixed_files = False
    for together in _overlapping(sorted(ranges, key=lambda each: (each.partition, each.base_offset, each.end_offset))):
        before = sum(each.rows for each in together if not each.is_added)
        after = sum(each.rows for each in together if each.is_added)
        if not all(each.is_published for each in together):
            has_mixed_files |= before > 0
        elif before == after:
            # A rewrite can remove rows, but never add or change them. So equal numbers of rows are the same rows.
            moved |= {each.path for each in together}
    return moved, has_mixed_files


def _removed_range(file: AddFile) -> _Range | None:
    """Return the offsets of a file that a version removes; None if its entry does not state them."""
    try:
        partition = int(file.partition_values[PARTITION_COLUMN] or "")
        begin = int(file.partition_values[BASE_OFFSET_COLUMN] or "")
        end = int((file.tags or {})[END_OFFSET_TAG])
        rows = int(json.loads(file.stats or "{}")["numRecords"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return _Range(partition, begin, end, file.path, rows, is_added=False, is_published=True)


def _overlapping(ranges: Iterable[_Range]) -> Iterator[list[_Range]]:
    """Group ranges of one partition that overlap, directly or through others.

    Args:
        ranges: the ranges in the order of partitions and base offsets.
    """
    together: list[_Range] = []
    end = 0
    for each in ranges:
        if together and (each.partition != together[0].partition or each.base_offset >= end):
            yield together
            together, end = [], 0
        together.append(each)
        end = max(end, each.end_offset)
    if together:
        yield together
