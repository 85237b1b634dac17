"""Repairs that lose nothing: write checkpoints, restore derived files, remove old temporary files.

Each repair is a step of the ordinary protocol. The process may die after it, and the step may be repeated. A repair
changes no slot, row or data file. All repairs trust the state of the log, and some delete objects that could be
evidence of another state. So nothing is repaired while the log is in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eoslog.errors import CorruptRecord, EosLogError
from eoslog.log.log import Log
from eoslog.log.slots import CheckpointReference
from eoslog.maintenance.index_restore import restore_index_files
from eoslog.session.description import DESCRIPTION_PATH, StoreDescription
from eoslog.session.session import Session
from eoslog.state.store_state import StoreState
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.probe import PROBE_DIRECTORY
from eoslog.verification.findings import Finding, Kind, no_progress
from eoslog.verification.log_checks import load_checkpoint
from eoslog.verification.store_checks import fresh_session, read_stored_description, verify_state
from eoslog.verification.unknown_files import LEFTOVER_AGE_MS

_CHECKPOINTS_NAMED = 2


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair."""

    finding: Finding
    done: bool
    what: str
    """The action, or the reason why nothing was done."""


def repair_store(store: Session, findings: Iterable[Finding]) -> Iterator[Repair]:
    """Repair findings; see ``Admin.repair``."""
    description, found = read_stored_description(store)
    if description is None:
        what = f"the store cannot be opened, so nothing is repaired: {DESCRIPTION_PATH}: {found[0].problem}"
        yield from (Repair(each, False, what) for each in findings if each.repairable)
    else:
        yield from repair(fresh_session(store, description), findings, description)


def repair(session: Session, findings: Iterable[Finding], description: StoreDescription) -> Iterator[Repair]:
    """Repair the findings that can be repaired without loss.

    The function verifies the log again first. The caller may have left out findings, and new damage may have appeared.

    Args:
        session: opened for the repair, so that its log has read its checkpoints from the store.
        findings: all findings of the verification.
        description: the description of the store.

    Raises:
        UnsupportedFormat, StoreUnavailable, StoreAccessDenied: the log cannot be verified.
    """
    found = list(findings)
    wanted = [each for each in found if each.repairable]
    if not wanted:
        return
    doubt = _doubt(found) or _doubt(verify_state(session, description, no_progress)[1])
    if doubt is not None:
        what = (
            f"nothing is repaired while the log is in doubt: {doubt.kind}: {doubt.place}: {doubt.problem}. "
            f"First: {doubt.remedy}"
        )
        yield from (Repair(each, False, what) for each in wanted)
        return
    for finding in wanted:
        try:
            what = _repaired(session, finding)
        except EosLogError as error:
            yield Repair(finding, False, str(error))
        else:
            yield Repair(finding, True, what)


def _doubt(findings: Iterable[Finding]) -> Finding | None:
    return next((each for each in findings if each.log_in_doubt), None)


def _repaired(session: Session, finding: Finding) -> str:
    if finding.kind in (Kind.CHECKPOINT_MISSING, Kind.CHECKPOINT_DAMAGED):
        return _write_checkpoints(session.log)
    if finding.kind is Kind.LEFTOVERS:
        return _remove_leftovers(session.object_store, finding)
    assert finding.topic is not None
    assert finding.path is not None
    return _restore(session, finding.topic, finding.path)


def _write_checkpoints(log: Log[StoreState]) -> str:
    """Write checkpoints until the two that the log names can be read. Each new checkpoint replaces the oldest one."""
    written: list[str] = []
    for _ in range(_CHECKPOINTS_NAMED):
        if _all_good(log):
            break
        written.append(log.checkpoint().path)
        log.environment.reached("verification.repair.checkpoint_written")
    if not _all_good(log):
        raise CorruptRecord(f"{log.store.url}: a new checkpoint was written but cannot be read. Check the object store")
    return f"wrote {', '.join(written)}" if written else "another process has replaced it meanwhile"


def _all_good(log: Log[StoreState]) -> bool:
    return all(not load_checkpoint(log.store, log.machine, each).findings for each in _named(log))


def _named(log: Log[StoreState]) -> list[CheckpointReference]:
    named = log.read(lambda state, slot: (log.replica.checkpoint, log.replica.previous_checkpoint))
    return [each for each in named if each is not None]


def _restore(session: Session, topic: str, path: str) -> str:
    found = {each.path: each for each in restore_index_files(session, topic)}
    if path not in found:
        return "another process has restored it, or dropped its segment, meanwhile"
    if not found[path].restored:
        raise CorruptRecord(
            f"{path} cannot be restored, because no other object has its content. Bring it back from a backup"
        )
    return f"restored {path}"


def _remove_leftovers(store: ObjectStore, finding: Finding) -> str:
    if finding.path == PROBE_DIRECTORY:
        before_ms = store.clock.last_date_ms - LEFTOVER_AGE_MS
        paths = [info.path for info in store.list(PROBE_DIRECTORY) if info.last_modified_ms < before_ms]
        store.delete_many(paths)
        return f"removed {len(paths)} objects of a probe"
    assert isinstance(store, LocalStore)
    return f"removed {store.remove_leftovers(LEFTOVER_AGE_MS)} temporary files of dead writers"
