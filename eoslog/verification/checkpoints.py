"""A checkpoint, object by object: the root, its parts, and the state that they hold."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from eoslog.errors import CorruptRecord, without_code
from eoslog.log.checkpoint import CheckpointRoot, decode_root, inline_body
from eoslog.log.machine import Machine
from eoslog.log.record import CheckpointReference
from eoslog.rules.state import StoreState
from eoslog.segment.data_file import check_file
from eoslog.store.object_store import ObjectNotFound, ObjectStore
from eoslog.verification.finding import READS_BEFORE_REPORT, Finding


@dataclass(slots=True)
class LoadedCheckpoint:
    """What came of reading a checkpoint."""

    findings: list[Finding] = field(default_factory=list)
    root: CheckpointRoot | None = None
    state: StoreState | None = None


def load_checkpoint(
    store: ObjectStore, machine: Machine[StoreState], reference: CheckpointReference
) -> LoadedCheckpoint:
    """Read a checkpoint as far as it goes.

    Raises:
        UnsupportedFormat: a newer version wrote it.
    """
    loaded = LoadedCheckpoint()

    def read(path: str, length: int, crc32c: int) -> bytes | None:
        for attempt in range(READS_BEFORE_REPORT):
            try:
                body = store.get(path).body
                check_file(body, length, crc32c, path)
                return body
            except ObjectNotFound:
                _add(loaded, reference, "checkpoint-missing", "the object is missing", path)
                return None
            except CorruptRecord as error:
                if attempt == READS_BEFORE_REPORT - 1:
                    _add(loaded, reference, "checkpoint-damaged", str(error), path)
        return None

    body = read(reference.path, reference.length, reference.crc32c)
    if body is None:
        return loaded
    try:
        loaded.root = root = decode_root(body, reference.path)
    except CorruptRecord as error:
        _add(loaded, reference, "checkpoint-damaged", str(error), reference.path)
        return loaded
    if root.slot != reference.slot:
        problem = f"the root is of slot {root.slot}, its reference of slot {reference.slot}"
        _add(loaded, reference, "checkpoint-damaged", problem, reference.path)
        return loaded
    bodies: dict[str, bytes] = {}
    for part in root.parts:
        if part.path is not None:
            found = read(part.path, part.length, part.crc32c)
        else:
            try:
                found = inline_body(part)
            except CorruptRecord as error:
                _add(loaded, reference, "checkpoint-damaged", str(error), reference.path)
                found = None
        if found is not None:
            bodies[part.name] = found
    if loaded.findings:
        return loaded
    try:
        loaded.state = machine.restore(bodies)
    except CorruptRecord as error:
        _add(loaded, reference, "checkpoint-damaged", str(error), reference.path)
    return loaded


def differences(folded: StoreState, stored: StoreState) -> list[str]:
    """The parts in which two states differ."""
    return [each.name for each in fields(folded) if getattr(folded, each.name) != getattr(stored, each.name)]


def _add(loaded: LoadedCheckpoint, reference: CheckpointReference, kind: str, problem: str, path: str) -> None:
    # The finding names the path, and is no error that has a code.
    problem = without_code(problem).removeprefix(f"{path}: ")
    loaded.findings.append(Finding(kind=kind, problem=problem, path=path, slot=reference.slot))
