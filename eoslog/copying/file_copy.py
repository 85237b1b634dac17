"""Copying of the files that a state names. The bytes of each file are checked before they are put.

Files go in groups, each with many files at once. Memory holds the files of two groups: one of segment indexes, and one
of the files that the indexes name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

from eoslog.errors import CorruptRecord, InvalidEntry
from eoslog.format.checked_files import check_file, read_file
from eoslog.format.limited_groups import Limit, limited_groups
from eoslog.format.segment_index import batches_of_index
from eoslog.maintenance.vacuum import referenced_files
from eoslog.session.session import Session
from eoslog.state.entry_fields import FileReference, SharedPosition
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, Batch
from eoslog.state.partitions import check_file_place
from eoslog.state.store_state import StoreState
from eoslog.storage.object_store import ObjectNotFound, ObjectStore
from eoslog.verification.findings import READS_BEFORE_REPORT, Progress
from eoslog.wording import without_code

MOST_BYTES = 128 << 20
"""The largest total size of a group's files (bytes). A larger file is a group of its own."""
MOST_FILES = 256
_PART_BYTES = 8 << 20
"""A file larger than this is read in parts of this size, several at once (bytes)."""


class FileDropped(Exception):
    """A file of the planned slot is no longer there, and a newer slot does not need it."""


class _Item(NamedTuple):
    file: FileReference
    partition_id: PartitionId
    slot: int = NO_SLOT
    """The slot that gave the file's rows their offsets. At the source, its record may have the content of the file."""
    is_required: bool = True
    """False for a file that only Kafka's tools read. A copy may lack it, as the source may."""
    is_index: bool = False
    """True for the index of a segment. It names other files, so its content is needed."""


@dataclass(slots=True)
class CopiedFiles:
    """Counts the files that were copied."""

    files: int = 0
    """Files that are at the target."""
    bytes: int = 0
    reused: int = 0
    """The number of files that an earlier run had copied."""


class _AtTarget(NamedTuple):
    length: int
    is_reused: bool
    """True if an earlier run had copied it."""
    body: bytes = b""
    """The content; empty if the file was not read."""


class FileCopy:
    """Copies the files that one state names.

    Args:
        source: the store that has the files.
        target: the place of the copy. Its process has the failpoints.
        state: the state of the copy.
        shared: where the source had data files in shared objects, by path.
        may_have_files: False if no run has copied files to the target. Then nothing is listed there.
        trusts_files: True to take a file of the right length at the target for a sound one. Then only the indexes of
            segments are read again, otherwise all files.
        progress: called with the number of files.
    """

    def __init__(
        self,
        source: Session,
        target: Session,
        state: StoreState,
        *,
        shared: Mapping[str, SharedPosition],
        may_have_files: bool,
        trusts_files: bool,
        progress: Progress,
    ) -> None:
        self._log = source.log
        self._source = source.object_store
        self._target = target.object_store
        self._environment = target.environment
        self._state = state
        self._shared = shared
        self._may_have_files = may_have_files
        self._trusts_files = trusts_files
        self._progress = progress
        self._total = 0
        self._listed: tuple[PartitionId | None, dict[str, int]] = None, {}
        """The last partition that was listed, and the lengths of its files at the target by path."""
        self.copied = CopiedFiles()

    def run(self) -> CopiedFiles:
        """Copy the files that the target lacks.

        Raises:
            FileDropped: the source no longer has a file, and no longer needs it.
            CorruptRecord: a file of the source is missing or damaged, or lies outside of its partition.
        """
        self._total = _number_of_files(self._state)
        with ThreadPoolExecutor(max(self._source.reads_at_once, self._target.reads_at_once)) as threads:
            for group in _groups(self._files(threads)):
                self._copy_group(threads, group)
        return self.copied

    def _files(self, threads: ThreadPoolExecutor) -> Iterator[_Item]:
        """Yield all files but the indexes of segments, which it copies itself, because they name files."""
        for group in _groups(self._indexes()):
            for index, body in zip(group, self._copy_group(threads, group), strict=True):
                files = (batch.file for batch in batches_of_index(body, index.file))
                for file in dict.fromkeys(file for file in files if file is not None):
                    yield _Item(file, index.partition_id)
        for partition_id, partition in self._state.partitions.items():
            for segment in partition.sealed:
                for file in segment.files:
                    if file != segment.index:
                        yield _Item(file, partition_id, is_required=False)
            for file, slot in {batch.file: batch.slot for batch in partition.active if batch.file is not None}.items():
                yield _Item(file, partition_id, slot)
        for file, partition_id in _prepared(self._state):
            yield _Item(file, partition_id)

    def _indexes(self) -> Iterator[_Item]:
        for partition_id, partition in self._state.partitions.items():
            for segment in partition.sealed:
                yield _Item(segment.index, partition_id, is_index=True)

    def _copy_group(self, threads: ThreadPoolExecutor, group: list[_Item]) -> list[bytes]:
        """Copy files, and return their contents. The content of an optional file that is missing is empty."""
        plans = [(item, self._at_target(item.partition_id).get(item.file.path)) for item in group]
        found = list(threads.map(self._copy_one, plans))
        there = [each for each in found if each is not None]
        self.copied.files += len(there)
        self.copied.bytes += sum(each.length for each in there)
        self.copied.reused += sum(each.is_reused for each in there)
        self._progress("files", self.copied.files, self._total)
        return [b"" if each is None else each.body for each in found]

    def _at_target(self, partition_id: PartitionId) -> dict[str, int]:
        """Return the files of a partition at the target. Items come partition by partition, so one dict is kept."""
        if not self._may_have_files:
            return {}
        if self._listed[0] != partition_id:
            prefix = f"{self._state.topics[partition_id.topic_id].prefix}{partition_id.partition}/"
            self._listed = partition_id, {info.path: info.size for info in self._target.list(prefix)}
        return self._listed[1]

    def _copy_one(self, plan: tuple[_Item, int | None]) -> _AtTarget | None:
        """Copy a file, unless the target has it. Return None if neither the target nor the source has it.

        Args:
            plan: the file, and the length of the object at the target; None if there is none.
        """
        item, length = plan
        exists = length is not None
        if length == item.file.length and self._trusts_files and not item.is_index:
            return _AtTarget(length, is_reused=True)
        if exists:
            with contextlib.suppress(ObjectNotFound):
                body = _read(self._target, item.file)
                if body is not None:
                    return _AtTarget(len(body), True, body)
        body = self._read_source(item)
        if body is None:
            return None
        # An earlier run puts only checked bytes. If a file of this name has others, it was damaged since.
        put = self._target.put_many if exists else self._target.put_new
        put([(item.file.path, body)])
        self._environment.reached("store.copy.file_put")
        return _AtTarget(len(body), False, body)

    def _read_source(self, item: _Item) -> bytes | None:
        problem = "its length or checksum differs from the log"
        body = self._read_embedded(item) if item.file.path in self._shared else None
        if body is None:
            try:
                body = _read(self._source, item.file)
            except ObjectNotFound:
                body, problem = None, "it is missing"
        if body is None:
            body = self._read_embedded(item)
        if body is not None:
            return body
        if not self._is_named(item):
            raise FileDropped(f"{item.file.path} was dropped and deleted")
        if not item.is_required:
            return None
        raise CorruptRecord(
            f"{self._source.url}: file {item.file.path} cannot be copied: {problem}. Run eoslog verify on the source"
        )

    def _read_embedded(self, item: _Item) -> bytes | None:
        """Return the content of a file in a record or a shared object; None if it is not there, or damaged."""
        shared = self._shared.get(item.file.path)
        if shared is None and item.slot == NO_SLOT:
            return None
        place = {"in_record": True} if shared is None else {"shared": shared}
        try:
            return read_file(self._source, item.file.model_copy(update=place), item.slot)
        except CorruptRecord:
            return None

    def _is_named(self, item: _Item) -> bool:
        """Return True if the newest state of the source still names a file, so that it should be there."""
        newest = self._log.read(lambda state, slot: state.frozen_copy())
        if item.partition_id not in newest.partitions:
            return False
        only = replace(newest, partitions={item.partition_id: newest.partitions[item.partition_id]})
        return item.file.path in referenced_files(self._source, only)


def _read(store: ObjectStore, file: FileReference) -> bytes | None:
    """Return the content of a file; None if it differs from its entry, also when it is read again.

    Raises:
        ObjectNotFound
    """
    for _ in range(READS_BEFORE_REPORT):
        # A hostile entry may name a length with more parts than memory holds.
        if file.length > MOST_BYTES and len(store.get_ranges(file.path, [(file.length - 1, 2)])[0]) != 1:
            continue
        if file.length <= _PART_BYTES:
            body = store.get(file.path).body
        else:
            # One byte more than the entry says shows that the file is longer.
            starts = range(0, file.length + 1, _PART_BYTES)
            body = b"".join(
                store.get_ranges(file.path, [(start, min(_PART_BYTES, file.length + 1 - start)) for start in starts])
            )
        try:
            check_file(body, file.length, file.crc32c, file.path)
        except CorruptRecord:
            continue
        return body
    return None


def files_as_objects(state: StoreState) -> StoreState:
    """Return the state of the copy. It names all data files as objects."""
    partitions = {
        partition_id: replace(partition, active=[_as_object(batch) for batch in partition.active])
        for partition_id, partition in state.partitions.items()
    }
    transactions = dict(state.transactions)
    for name in state.ongoing:
        prepared = transactions[name].prepared
        if prepared is not None:
            staged = tuple(each.model_copy(update={"file": each.file.as_object()}) for each in prepared.batches)
            prepared = prepared.model_copy(update={"batches": staged})
            transactions[name] = replace(transactions[name], prepared=prepared)
    return replace(state, partitions=partitions, transactions=transactions)


def _as_object(batch: Batch) -> Batch:
    return batch if batch.file is None else batch._replace(file=batch.file.as_object())


def _groups(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    return limited_groups(items, Limit(lambda item: 1, MOST_FILES), Limit(lambda item: item.file.length, MOST_BYTES))


def _prepared(state: StoreState) -> Iterator[tuple[FileReference, PartitionId]]:
    """Yield the files that prepared transactions staged, partition by partition.

    Raises:
        CorruptRecord: a file lies elsewhere. The decoding of a checkpoint checks all other files in the same way.
    """
    found = [
        (PartitionId(batch.topic_id, batch.partition), batch.file)
        for name in state.ongoing
        if (prepared := state.transactions[name].prepared) is not None
        for batch in prepared.batches
        if batch.topic_id in state.topics
    ]
    for partition_id, file in sorted(found, key=lambda each: each[0]):
        try:
            check_file_place(state.topics[partition_id.topic_id], partition_id, file)
        except InvalidEntry as error:
            raise CorruptRecord(without_code(error)) from None
        yield file, partition_id


def _number_of_files(state: StoreState) -> int:
    return sum(1 for _ in _prepared(state)) + sum(
        sum(len(segment.files) + segment.file_count for segment in partition.sealed)
        + len({batch.file.path for batch in partition.active if batch.file is not None})
        for partition in state.partitions.values()
    )
