"""Situations that no crash point marks: the world counts how often a history reaches them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eoslog.errors import InvalidProducerEpoch, ProducerFenced, StagedFilesExpired
from eoslog.log.append_queue import Proposal
from eoslog.log.contention import AppendGroup, Contention
from eoslog.log.machine import shared_entries
from eoslog.log.next_record import NextRecord
from eoslog.log.record_put import PutResult, RecordPut
from eoslog.log.replica import Replica
from eoslog.log.shared_commits import SharedCommits
from eoslog.log.slots import slot_path
from eoslog.state import prepared, transaction_ends, transactions
from eoslog.state import state_machine as machine
from eoslog.state.draft import Draft
from eoslog.state.entries import Entry
from eoslog.state.names import PartitionId
from eoslog.state.transaction_entries import BatchAppended
from tests.simulation.world import World

EXPIRED_UPLOAD = "an upload older than the horizon was refused"
OVERTAKEN_REPLACEMENT = "segment.replacement.overtaken"
DELETED_BEHIND_A_REPLICA = "the slot after a stale replica was deleted"
FENCED_BY_ITS_ID_ALONE = "a batch was fenced that its partition would take"
APPENDED_BY_ANOTHER = "log.shared.appended_by_another"
APPENDED_BY_SERVICE = "append service: it has appended a request"
OVERTAKEN_PUBLISHER = "publication.version.overtaken"
GROUP_COMMIT = "a record had several proposals"
LOST_GROUP_COMMIT = "a record of several proposals lost its race"
SHARED_GROUP_COMMIT = "a message had several requests"
GAVE_WAY = "a process gave way to another host"

SITUATIONS = {
    "uploads": EXPIRED_UPLOAD,
    "replacements": OVERTAKEN_REPLACEMENT,
    "replicas": DELETED_BEHIND_A_REPLICA,
    "races": GAVE_WAY,
    "threads": LOST_GROUP_COMMIT,
    "racing-clients": GAVE_WAY,
    "queue": APPENDED_BY_ANOTHER,
    "queue-clients": APPENDED_BY_ANOTHER,
    "append-services": APPENDED_BY_SERVICE,
    "append-service-clients": APPENDED_BY_SERVICE,
    "publications": OVERTAKEN_PUBLISHER,
    "fences": FENCED_BY_ITS_ID_ALONE,
}
"""What each focus must reach."""


@contextmanager
def counted(world: World) -> Iterator[None]:
    """Within it, the marks of the world count these situations."""
    with pytest.MonkeyPatch.context() as patch:
        _count_expired_uploads(world, patch)
        _count_stale_replicas(world, patch)
        _count_fences(world, patch)
        _count_group_commits(world, patch)
        _count_yielding(world, patch)
        _count_served(world, patch)
        yield


def _count_expired_uploads(world: World, patch: pytest.MonkeyPatch) -> None:
    # Entries of producers only: maintenance meets its own old files in every history.
    for module in (prepared, transaction_ends, transactions):
        original = module.check_upload

        def check_upload(state: Any, upload_ms: int, original: Callable[[Any, int], None] = original) -> None:
            try:
                original(state, upload_ms)
            except StagedFilesExpired:
                world.marks[EXPIRED_UPLOAD] += 1
                raise

        patch.setattr(module, "check_upload", check_upload)


def _count_stale_replicas(world: World, patch: pytest.MonkeyPatch) -> None:
    original = Replica.refresh

    def refresh(self: Replica[Any]) -> None:
        following = self.slot + 1
        was_deleted = following in world.every_slot and slot_path(following) not in world.objects
        if self.is_open and was_deleted and self.is_expired():
            world.marks[DELETED_BEHIND_A_REPLICA] += 1
        original(self)

    patch.setattr(Replica, "refresh", refresh)


def _count_fences(world: World, patch: pytest.MonkeyPatch) -> None:
    original = machine._APPLY["batch"]

    def apply_batch(draft: Draft, entry: BatchAppended) -> Entry | None:
        try:
            return original(draft, entry)
        except (InvalidProducerEpoch, ProducerFenced):
            partition = draft.partitions.get(PartitionId(entry.topic_id, entry.partition))
            known = partition.producers.get(entry.producer_id) if partition is not None else None
            # A marker of the fence raises the partition's epoch; without one, only the transactional id tells.
            if known is None or known.producer_epoch <= entry.producer_epoch:
                world.marks[FENCED_BY_ITS_ID_ALONE] += 1
            raise

    patch.setitem(machine._APPLY, "batch", apply_batch)


def _count_group_commits(world: World, patch: pytest.MonkeyPatch) -> None:
    original, original_message = RecordPut.put, SharedCommits.message

    def put(self: RecordPut[Any], record: NextRecord) -> PutResult:
        result = original(self, record)
        if len(record.taken) > 1:
            world.marks[GROUP_COMMIT if result is PutResult.LANDED else LOST_GROUP_COMMIT] += 1
        return result

    def message(self: SharedCommits, replica: Replica[Any], proposals: Iterable[Proposal], most_bytes: int) -> bytes:
        listed = list(proposals)
        unsent = [each for each in listed if shared_entries(each.content) and each.sent is None]
        if len(unsent) > 1:
            world.marks[SHARED_GROUP_COMMIT] += 1
        return original_message(self, replica, listed, most_bytes)

    patch.setattr(RecordPut, "put", put)
    patch.setattr(SharedCommits, "message", message)


def _count_yielding(world: World, patch: pytest.MonkeyPatch) -> None:
    original = Contention._gives_way

    def gives_way(self: Contention) -> bool:
        found = original(self)
        world.marks[GAVE_WAY] += found
        return found

    patch.setattr(Contention, "_gives_way", gives_way)


def _count_served(world: World, patch: pytest.MonkeyPatch) -> None:
    original = Contention.append_through_service

    def append_through_service(self: Contention, group: AppendGroup) -> None:
        before = self._counts.by_others
        original(self, group)
        world.marks[APPENDED_BY_SERVICE] += self._counts.by_others > before

    patch.setattr(Contention, "append_through_service", append_through_service)
