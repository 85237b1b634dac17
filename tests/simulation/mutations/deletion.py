"""Mutations of what is deleted, and of the checkpoints that slots are deleted for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from eoslog.format import checkpoint_codec as checkpoint
from eoslog.format.partition_rows import PARTITIONS_PREFIX, partition_row
from eoslog.log import slot_deletion as deletion
from eoslog.log.log import Log
from eoslog.maintenance import vacuum as vacuum_module
from eoslog.session.session import Session
from eoslog.state.partitions import check_upload
from eoslog.state.store_state import StoreState
from tests.simulation.focus import FOCUSES
from tests.simulation.mutations.mutation import Focus, instead_of, method, mutation

DELETERS = Focus(("notary0", "idempotent0", "daemon0"), {"pause": 0.05, "late_put": 0.1}, steps=600)
CHECKPOINTS = Focus(("writer0", "idempotent0", "job0", "job0"), steps=300)
VACUUM = Focus(("writer0", "job0", "daemon0", "daemon1"), {"pause": 0.05}, steps=600)


@mutation(
    Focus(
        ("log-writer0", "log-writer1", "log-upkeep0", "log-upkeep1", "log-upkeep2"),
        {"pause": 0.05, "late_put": 0.2, "death": 0.0},
        steps=400,
    )
)
def slots_deleted_before_their_retention() -> Iterator[None]:
    """Slots are deleted at any age: a late put lands in the name of a deleted slot, and its writer believes it."""
    with method(deletion, "_old_enough", lambda listed, floor, newest_deletable_ms: list(listed)):
        yield


@mutation(DELETERS)
def slots_deleted_above_the_older_checkpoint() -> Iterator[None]:
    """Slots are deleted up to the newest checkpoint: a reader that has only the older checkpoint meets a gap."""
    original = deletion._named

    def named(log: Log[Any]) -> Any:
        found = original(log)
        return found and found._replace(previous=found.current)

    with method(deletion, "_named", named):
        yield


def _partition_row_with(**emptied: Any) -> Any:
    return lambda partition: {**partition_row(partition), **emptied}


@mutation(CHECKPOINTS)
def checkpoint_without_open_transactions() -> Iterator[None]:
    """A checkpoint lacks the open transactions: undecided rows fall below the last stable offset."""
    with instead_of(partition_row, _partition_row_with(open_transactions=[])):
        yield


@mutation(Focus(("writer0", "writer1"), steps=500))
def checkpoint_without_aborted_transactions() -> Iterator[None]:
    """A checkpoint lacks the aborted transactions of active segments: their index is sealed without them."""
    with instead_of(partition_row, _partition_row_with(aborted=[])):
        yield


@mutation(CHECKPOINTS)
def checkpoint_without_producers() -> Iterator[None]:
    """A checkpoint lacks the producer states of partitions: a repeated batch is appended twice."""
    with instead_of(partition_row, _partition_row_with(producers=[])):
        yield


@mutation(CHECKPOINTS)
def checkpoint_without_application_versions() -> Iterator[None]:
    """A checkpoint lacks the application versions: a micro-batch is committed again."""
    original = checkpoint.parts

    def parts(state: StoreState, slot: int) -> Iterator[checkpoint.Part]:
        yield from original(replace(state, application_versions={}), slot)

    with method(checkpoint, "parts", parts):
        yield


@mutation(CHECKPOINTS)
def checkpoint_leads_the_log_back() -> Iterator[None]:
    """A part counts as unchanged since the checkpoint before: later changes of its topic are forgotten."""
    original = checkpoint.parts

    def parts(state: StoreState, slot: int) -> Iterator[checkpoint.Part]:
        for part in original(state, slot):
            yield part._replace(changed_slot=0) if part.name.startswith(PARTITIONS_PREFIX) else part

    with method(checkpoint, "parts", parts):
        yield


@mutation(FOCUSES["uploads"])
def vacuum_without_horizon() -> Iterator[None]:
    """Vacuum reads the log before it appends its horizon: files that an entry names in between are deleted."""
    original = vacuum_module.vacuum

    class ReadBefore:
        """The log, whose state was read before the horizon moved."""

        def __init__(self, log: Log[StoreState]) -> None:
            self._log = log
            self._before = log.read(lambda state, slot: state.frozen_copy())

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

        def read(self, function: Any, *, refresh: bool = True) -> Any:
            found = self._log.read(function, refresh=refresh)
            return self._before if isinstance(found, StoreState) else found

    class WithReadBefore:
        """The session, with that log."""

        def __init__(self, session: Session) -> None:
            self._session = session
            self.log = ReadBefore(session.log)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

    def vacuum(session: Session, **options: Any) -> Any:
        return original(WithReadBefore(session), **options)  # type: ignore[arg-type]

    with instead_of(original, vacuum):
        yield


@mutation(VACUUM)
def files_named_however_old() -> Iterator[None]:
    """No entry is refused for files older than the horizon: it names deleted files, or unnamed files stay."""
    with instead_of(check_upload, lambda draft, upload_ms: None):
        yield


@mutation(
    Focus(
        ("table0", "writer0", "focus-compactor0", "daemon0", "daemon1", "reader0", "reader1", "reader2"),
        {"pause": 0.05},
        steps=600,
        embeds_files=False,
    )
)
def dropped_files_deleted_at_once() -> Iterator[None]:
    """Files that compaction dropped are deleted at once: a reader with an older plan does not find its rows."""
    with method(vacuum_module, "_past_retention", lambda store, pending_deletions, newest_ms: pending_deletions):
        yield
