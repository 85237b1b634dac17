"""Rules of published topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from eoslog.delta import delta_versions
from eoslog.delta.delta_log import DeltaLog
from eoslog.delta.delta_statistics import encode_statistics
from eoslog.iceberg import iceberg_log, next_manifests
from eoslog.iceberg.iceberg_log import IcebergLog
from eoslog.iceberg.iceberg_table import IcebergTable, Manifest
from eoslog.iceberg.manifests import DataFile, Entry
from eoslog.iceberg.table_metadata import Snapshot
from eoslog.maintenance import publication, published_files, sealing, segment_rewriting, vacuum
from eoslog.publication import changes
from eoslog.publication.file_statistics import FileStatistics
from eoslog.session.session import Session
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.conditional_put import Won
from eoslog.storage.object_store import ObjectStore, StoredObject
from tests.simulation.focus import FOCUSES
from tests.simulation.mutations.mutation import method, mutation

PUBLICATIONS = FOCUSES["publications"]
TESTS = "unit/maintenance/publication/test_publication.py::"
VERSIONS = "unit/maintenance/publication/test_publication_versions.py::"
STATISTICS = "unit/maintenance/test_delta_statistics.py::"
ICEBERG_FAILURES = "unit/maintenance/publication/test_iceberg_failures.py::"
REQUESTS = "unit/maintenance/test_publication_requests.py::"


@mutation(PUBLICATIONS)
def unpublished_segments_compacted() -> Iterator[None]:
    """Compaction does not wait for the publication of rows: a version moves rows and adds others in one file."""
    with method(segment_rewriting, "_published_part", lambda partition, slot: partition):
        yield


@mutation(PUBLICATIONS)
def moved_rows_told_as_new() -> Iterator[None]:
    """A version declares rewritten files as changed data: a Delta stream stops, or gets their rows twice."""
    with method(changes, "_moved_paths", lambda added, removed, since: (set(), False)):
        yield


@mutation(PUBLICATIONS)
def new_rows_told_as_moved() -> Iterator[None]:
    """A version declares all files as moved rows: a Delta stream never gets them."""
    with method(changes, "_moved_paths", lambda added, removed, since: ({file.path for file in added}, False)):
        yield


@mutation(unit_test=VERSIONS + "test_removed_rows_and_new_rows_have_a_version_each")
def new_rows_beside_removed_rows() -> Iterator[None]:
    """A version removes rows and adds new ones: a Delta stream that skips such versions never gets the new rows."""
    with method(changes, "_overwrite_slot", lambda snapshot, files, since: snapshot.slot):
        yield


@mutation(unit_test=VERSIONS + "test_an_overwrite_is_one_version_and_later_rows_have_their_own")
def overwrites_in_two_versions() -> Iterator[None]:
    """An overwrite is published in two versions: after the first one other engines see an empty table."""
    with method(changes, "_overwrite_slot", lambda snapshot, files, since: -1):
        yield


@mutation(unit_test=STATISTICS + "test_a_file_without_a_bound_of_a_listed_column_has_only_its_number_of_rows")
def bounds_in_part() -> Iterator[None]:
    """A file has its own bounds, without those of other listed columns: delta-rs skips rows."""

    def in_part(found: FileStatistics, stored: pa.Schema, listed: object) -> str:
        return encode_statistics(found, stored, ())

    with method(delta_versions, "encode_statistics", in_part):
        yield


@mutation(PUBLICATIONS)
def versions_put_over_others() -> Iterator[None]:
    """A version is put even if it exists: the second of two publishers overwrites the version of the first."""

    def put(self: DeltaLog, actions: object, body: bytes) -> bool:
        store: ObjectStore = self._store
        version = self.table.version + 1
        store.put(self._path(version), body)
        self._apply(version, body)
        return True

    with method(DeltaLog, "put", put):
        yield


@mutation(unit_test=TESTS + "test_a_file_truncated_in_part_is_rewritten")
def hidden_rows_published() -> Iterator[None]:
    """A version names a file whose first rows lie below the log start: other engines show deleted rows."""
    with method(published_files.PublishedFiles, "_first_offset", lambda self, source, stored, start: start):
        yield


@mutation(
    unit_test="unit/maintenance/publication/test_both_formats.py::test_vacuum_keeps_the_files_of_a_table_that_cannot_be_changed"
)
def files_deleted_from_under_a_table() -> Iterator[None]:
    """Vacuum deletes files that the newest version names: no engine can read the table."""
    with method(vacuum, "_unreleased_topics", lambda session, topics: set()):
        yield


@mutation(unit_test=REQUESTS + "test_each_change_of_a_topic_is_published")
def changed_topics_skipped() -> Iterator[None]:
    """A publisher skips a topic whose settings and columns are as before: new rows are never published."""
    with method(
        publication._LastPublication, "is_current", lambda self, state: state.topics[self.topic.topic_id] is self.topic
    ):
        yield


@mutation(unit_test=REQUESTS + "test_a_table_that_became_empty_while_its_topic_was_not_published_gets_its_rows_again")
def equal_topics_skipped() -> Iterator[None]:
    """A publisher skips a topic that equals the one it published: a table that became empty meanwhile stays empty."""

    def is_current(self: publication._LastPublication, state: StoreState) -> bool:
        topic = state.topics.get(self.topic.topic_id)
        return topic == self.topic and all(
            state.partitions[each].changed_slot <= self.slot for each in self.topic.partition_ids()
        )

    with method(publication._LastPublication, "is_current", is_current):
        yield


@mutation(unit_test=REQUESTS + "test_a_delta_log_that_was_deleted_is_written_anew")
def deleted_delta_log_continued() -> Iterator[None]:
    """A publisher does not check the version before its own: it continues a log that was deleted, and leaves a gap."""
    with method(DeltaLog, "_is_checked", lambda self, found: True):
        yield


@mutation(PUBLICATIONS)
def iceberg_versions_put_over_others() -> Iterator[None]:
    """An Iceberg version is put even if it exists: the second of two publishers overwrites the first one's."""

    def put_next(store: ObjectStore, environment: object, path: str, body: bytes) -> Won:
        store.put(path, body)
        return Won(was_found=False)

    with method(iceberg_log, "put_next", put_next):
        yield


@mutation(PUBLICATIONS)
def hint_believed() -> Iterator[None]:
    """A publisher takes the version at the hint for the newest one: if the hint is too old, no next version is put."""

    def refresh(self: IcebergLog, *, check: bool = False) -> IcebergTable:
        self._open(check=check)
        return self.table

    def follow(self: IcebergLog, version: int, found: StoredObject, *, with_files: bool) -> None:
        self.table = self._loaded(version, found.body, with_files=with_files)
        self._refreshed_ms = self._environment.monotonic_ms()

    with method(IcebergLog, "refresh", refresh), method(IcebergLog, "_follow", follow):
        yield


@mutation(PUBLICATIONS)
def replaced_files_kept() -> Iterator[None]:
    """The next manifests keep the entries of removed files: after compaction other engines get rows twice."""

    def keeping(manifests: Iterable[Manifest], added: Sequence[DataFile], removed: object, **others: Any) -> object:
        return next_manifests.next_manifests(manifests, added, (), **others)

    with method(iceberg_log, "next_manifests", keeping):
        yield


@mutation(PUBLICATIONS)
def replacements_told_as_appends() -> Iterator[None]:
    """The operation of a version that only moves rows is an append: an Iceberg stream gets their rows twice."""
    with method(iceberg_log, "_operation", lambda change, is_foreign: "append"):
        yield


@mutation(PUBLICATIONS)
def merged_manifest_lost() -> Iterator[None]:
    """Only the last of the manifests that merge others is kept: other engines lose the files of the first ones."""
    parts = next_manifests._parts

    def last(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
        return list(parts(entries))[-1:]

    with method(next_manifests, "_parts", last):
        yield


@mutation(PUBLICATIONS)
def shared_manifests_deleted() -> Iterator[None]:
    """Vacuum keeps only the manifests that a snapshot wrote itself: a later one shares manifests with expired ones."""
    manifest_files = iceberg_log._manifest_files

    def needed(self: IcebergLog, snapshots: Sequence[Snapshot]) -> Iterator[str]:
        for snapshot in snapshots:
            listed = self._object_path(snapshot.manifest_list, iceberg_log._MANIFEST_LIST)
            assert listed is not None
            yield listed
            for each in manifest_files(snapshot, self._store.get(listed).body):
                path = self._object_path(each.manifest_path, iceberg_log._MANIFEST)
                if path is not None and each.added_snapshot_id == snapshot.snapshot_id:
                    yield path

    with method(IcebergLog, "_needed", needed):
        yield


@mutation(PUBLICATIONS)
def cut_reads_taken_for_damage() -> Iterator[None]:
    """One read shows that an object of an Iceberg table is damaged: a read that was cut short begins the table anew."""
    with method(IcebergLog, "_decoded", lambda self, path, body, decode: decode(body)):
        yield


@mutation(unit_test=VERSIONS + "test_a_seal_puts_published_rows_of_records_and_new_ones_into_files_of_their_own")
def moved_rows_beside_new_ones() -> Iterator[None]:
    """A seal of a published topic puts several batches into a file: a version moves rows and adds others in it."""
    original = sealing._MovedRows.__init__

    def init(self: sealing._MovedRows, session: Session, topic: Topic, directory: str) -> None:
        original(self, session, replace(topic, config=topic.config.model_copy(update={"publish": "none"})), directory)

    with method(sealing._MovedRows, "__init__", init):
        yield


@mutation(unit_test=ICEBERG_FAILURES + "test_a_version_of_another_program_is_taken_back_without_new_rows")
def foreign_snapshots_continued() -> Iterator[None]:
    """A publisher does not compare the current snapshot with its own: the snapshot of another program stays."""
    loaded = IcebergLog._loaded

    def as_own(self: IcebergLog, version: int, body: bytes, *, with_files: bool) -> IcebergTable:
        return replace(loaded(self, version, body, with_files=with_files), is_foreign=False)

    with method(IcebergLog, "_loaded", as_own):
        yield
