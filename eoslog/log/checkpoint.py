"""Checkpoints: the state after a slot, as a small root and the parts it names.

Small parts are stored in the root itself, so that a process that opens the log needs one request. Two checkpoints share
each part that did not change between them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, TypeVar

import google_crc32c
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eoslog.errors import CorruptRecord, UnsupportedFormat
from eoslog.log.machine import Machine
from eoslog.log.slots import FORMAT_VERSION, CheckpointReference, checkpoint_path
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectNotFound, ObjectStore
from eoslog.wording import first_problem

S = TypeVar("S")
INLINE_PART_BYTES = 64 << 10
"""A larger part is an object of its own (bytes). Every checkpoint writes its root again, but not unchanged objects."""
INLINE_TOTAL_BYTES = 256 << 10
"""The largest total size of the parts in a root (bytes)."""


class CheckpointPart(BaseModel):
    """One part of a state: its bytes in base64, or the object that holds them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    changed_slot: int
    """The last slot that changed the part. If it is the same as in the checkpoint before, the two share the part."""
    length: Annotated[int, Field(strict=True, ge=0)]
    """The length of the part in bytes, before base64."""
    crc32c: Annotated[int, Field(strict=True, ge=0, lt=2**32)]
    """CRC-32C of these bytes."""
    path: Annotated[str, Field(pattern=r"^__transaction_state/checkpoint/[0-9a-zA-Z._-]+$")] | None = None
    """The object that holds the part; None if ``body`` holds it."""
    body: str | None = None
    """Its bytes in base64; None if an object holds them."""


class CheckpointRoot(BaseModel):
    """The root object of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Annotated[int, Field(strict=True, ge=1)] = FORMAT_VERSION
    slot: Annotated[int, Field(strict=True, ge=0)]
    """The slot after which this is the state."""
    append_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """The append id of that slot's record."""
    parts: tuple[CheckpointPart, ...]


def write_checkpoint(
    store: ObjectStore,
    environment: Environment,
    machine: Machine[S],
    *,
    state: S,
    slot: int,
    append_id: str,
    shared: CheckpointRoot | None,
) -> tuple[CheckpointReference, CheckpointRoot]:
    """Write the parts of a checkpoint, then its root.

    Args:
        append_id: the append id of the record in the slot.
        shared: an earlier checkpoint, whose unchanged parts are not written again; None if there is none.
    """
    known = {part.name: part for part in shared.parts} if shared is not None else {}
    name = environment.new_id()
    parts: list[CheckpointPart] = []
    objects: list[tuple[str, bytes]] = []
    inlined = 0
    for number, part in enumerate(machine.parts(state, slot)):
        old = known.get(part.name)
        if old is not None and old.changed_slot == part.changed_slot:
            inlined += old.length if old.path is None else 0
            if inlined <= INLINE_TOTAL_BYTES:
                parts.append(old)
                continue
            inlined -= old.length
        body = part.encode()
        path = text = None
        if len(body) <= INLINE_PART_BYTES and inlined + len(body) <= INLINE_TOTAL_BYTES:
            inlined += len(body)
            text = base64.b64encode(body).decode()
        else:
            path = checkpoint_path(slot, f"{name}.part{number}")
            objects.append((path, body))
        parts.append(
            CheckpointPart(
                name=part.name,
                changed_slot=part.changed_slot,
                length=len(body),
                crc32c=google_crc32c.value(body),
                path=path,
                body=text,
            )
        )
    store.put_new(objects)
    environment.reached("log.checkpoint.parts_written")
    root = CheckpointRoot(slot=slot, append_id=append_id, parts=tuple(parts))
    body = root.model_dump_json(exclude_none=True).encode()
    path = checkpoint_path(slot, f"{name}.json")
    store.put_new([(path, body)])
    environment.reached("log.checkpoint.root_written")
    reference = CheckpointReference(slot=slot, path=path, length=len(body), crc32c=google_crc32c.value(body))
    return reference, root


def read_root(store: ObjectStore, reference: CheckpointReference) -> CheckpointRoot:
    """Read the root of a checkpoint.

    Raises:
        CorruptRecord: the root is missing, or differs from the reference.
        UnsupportedFormat: a newer version wrote it.
    """
    body = _checked(reference.path, _get(store, [reference.path])[0], reference.length, reference.crc32c)
    root = decode_root(body, reference.path)
    if root.slot != reference.slot:
        raise CorruptRecord(f"checkpoint {reference.path} holds the state of slot {root.slot}, not {reference.slot}")
    return root


def decode_root(body: bytes, name: str) -> CheckpointRoot:
    """Return the root that these bytes encode.

    Raises:
        CorruptRecord, UnsupportedFormat
    """
    try:
        root = CheckpointRoot.model_validate_json(body)
    except ValidationError as error:
        raise CorruptRecord(f"checkpoint {name} is malformed: {first_problem(error)}") from None
    if root.format > FORMAT_VERSION:
        raise UnsupportedFormat(f"checkpoint {name} has format version {root.format}. Upgrade eoslog")
    return root


def inline_body(part: CheckpointPart) -> bytes:
    """Return the bytes of a part that is stored in its root.

    Raises:
        CorruptRecord: the bytes are damaged.
    """
    return _checked(f"part {part.name!r}", _decoded(part), part.length, part.crc32c)


def _decoded(part: CheckpointPart) -> bytes | None:
    try:
        return base64.b64decode(part.body or "", validate=True)
    except ValueError:
        return None


def read_checkpoint(
    store: ObjectStore, machine: Machine[S], reference: CheckpointReference
) -> tuple[S, CheckpointRoot]:
    """Read a checkpoint. Return its state and its root.

    Raises:
        CorruptRecord: the root or a part is missing or damaged.
    """
    root = read_root(store, reference)
    bodies: dict[str, bytes] = {}
    stored = [part for part in root.parts if part.path is not None]
    fetched = iter(_get(store, [part.path for part in stored if part.path is not None]))
    for part in root.parts:
        body = next(fetched) if part.path is not None else _decoded(part)
        bodies[part.name] = _checked(f"{reference.path} ({part.name})", body, part.length, part.crc32c)
    return machine.restore(bodies), root


def _get(store: ObjectStore, paths: Sequence[str]) -> list[bytes | None]:
    if len(paths) == 1:
        try:
            return [store.get(paths[0]).body]
        except ObjectNotFound:
            return [None]
    return [None if found is None else found.body for found in store.get_many(paths)] if paths else []


def _checked(name: str, body: bytes | None, length: int, crc32c: int) -> bytes:
    if body is None:
        raise CorruptRecord(f"checkpoint object {name} is missing")
    if len(body) != length or google_crc32c.value(body) != crc32c:
        raise CorruptRecord(f"checkpoint object {name} is damaged: its length or checksum is not what its entry says")
    return body
