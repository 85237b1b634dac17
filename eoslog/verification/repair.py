"""Repairing what can lose nothing: checkpoints are written anew, derived files put back, old leftovers removed.

Each is a step of the ordinary protocol, safe to die after and to repeat. No slot, row or data file is touched. It all
rests on the log's state, and some drops what may be evidence of another: while the log is in doubt nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eoslog.errors import CorruptRecord, EosLogError
from eoslog.log.log import Log
from eoslog.log.slot_record import CheckpointReference
from eoslog.maintenance.index_restore import put_back_derived_files
from eoslog.state.store_state import StoreState
from eoslog.storage.probe import PROBE_DIRECTORY
from eoslog.verification.findings import Finding, no_progress
from eoslog.verification.log_checks import load_checkpoint
from eoslog.verification.store_checks import verify_state
from eoslog.verification.unknown_files import LEFTOVER_AGE_MS

_CHECKPOINTS_NAMED = 2


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done about a finding, or why it was not."""

    finding: Finding
    done: bool
    what: str


def repair(log: Log[StoreState], findings: Iterable[Finding], description_path: str, store_id: str) -> Iterator[Repair]:
    """Put right what of these findings can be put right without losing anything.

    The log is looked at once more, for what else was found may have been left out, and may have come since.

    Args:
        log: opened anew, so that what it knows of checkpoints was read back.
        description_path: where the store's description lies.
        store_id: by the description.

    Raises:
        UnsupportedFormat, StoreUnavailable, StoreAccessDenied: the log could not be looked at.
    """
    found = list(findings)
    wanted = [each for each in found if each.repairable]
    if not wanted:
        return
    doubt = _doubt(found) or _doubt(verify_state(log, description_path, store_id, no_progress)[1])
    if doubt is not None:
        what = (
            f"nothing is while the log is in doubt: {doubt.kind}: {doubt.place}: {doubt.problem}; first {doubt.remedy}"
        )
        yield from (Repair(each, False, what) for each in wanted)
        return
    for finding in wanted:
        try:
            what = _repaired(log, finding)
        except EosLogError as error:
            yield Repair(finding, False, str(error))
        else:
            yield Repair(finding, True, what)


def _doubt(findings: Iterable[Finding]) -> Finding | None:
    return next((each for each in findings if each.log_in_doubt), None)


def _repaired(log: Log[StoreState], finding: Finding) -> str:
    if finding.kind.startswith("checkpoint-"):
        return _write_checkpoints(log)
    if finding.kind == "leftovers":
        return _remove_leftovers(log, finding)
    assert finding.topic is not None
    assert finding.path is not None
    return _put_back(log, finding.topic, finding.path)


def _write_checkpoints(log: Log[StoreState]) -> str:
    """Write checkpoints until both that the log names can be read: each new one pushes the oldest out."""
    written: list[str] = []
    for _ in range(_CHECKPOINTS_NAMED):
        if _all_good(log):
            break
        written.append(log.checkpoint().path)
        log.environment.reached("verification.repair.checkpoint_written")
    if not _all_good(log):
        raise CorruptRecord(f"{log.store.url}: a checkpoint was written anew, and cannot be read")
    return f"wrote {', '.join(written)}" if written else "it has been replaced meanwhile"


def _all_good(log: Log[StoreState]) -> bool:
    return all(not load_checkpoint(log.store, log.machine, each).findings for each in _named(log))


def _named(log: Log[StoreState]) -> list[CheckpointReference]:
    named = log.read(lambda state, slot: (log.replica.checkpoint, log.replica.previous_checkpoint))
    return [each for each in named if each is not None]


def _put_back(log: Log[StoreState], topic: str, path: str) -> str:
    found = {each.path: each for each in put_back_derived_files(log, log.store, log.environment, topic)}
    if path not in found:
        return "it was put back, or its segment dropped, just before"
    if not found[path].restored:
        raise CorruptRecord(f"{path} cannot be put back: nothing else in the store has its content")
    return f"put {path} back as it was"


def _remove_leftovers(log: Log[StoreState], finding: Finding) -> str:
    store = log.store
    if finding.path == PROBE_DIRECTORY:
        before_ms = store.clock.last_date_ms - LEFTOVER_AGE_MS
        paths = [info.path for info in store.list(PROBE_DIRECTORY) if info.last_modified_ms < before_ms]
        store.delete_many(paths)
        return f"removed {len(paths)} objects of a probe"
    return f"removed {store.remove_leftovers(LEFTOVER_AGE_MS)} files that writers left aside"
