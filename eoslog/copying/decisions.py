"""The decisions of a copy: numbered objects at the target, each put if absent.

A process that copies may die, or be paused, at any point, and several may copy to one target. So they agree on each
step by put-if-absent of the next number: that the copy begins, which slot it has, and that all files are there. A
process with an older plan cannot decide that the copy is complete, because another decision has that number.

After a complete copy, an update may plan a newer slot and complete it, and so on. The last completed plan counts.

The decisions are never deleted. A freed number would let a paused process decide again.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from eoslog.errors import CorruptRecord, UnsupportedFormat
from eoslog.log.slots import CheckpointReference
from eoslog.session.description import COPY_DIRECTORY
from eoslog.session.session import Session
from eoslog.state.entry_fields import Hex, Milliseconds, SharedPosition
from eoslog.storage.conditional_put import put_once
from eoslog.storage.object_store import ObjectNotFound
from eoslog.wording import first_problem

FORMAT_VERSION = 1


class _Decision(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Annotated[int, Field(strict=True, ge=1)] = FORMAT_VERSION


class CopyBegun(_Decision):
    """A copy of one store begins here. It is decision 0."""

    type: Literal["begun"] = "begun"
    source_store_id: Hex
    store_id: Hex
    """The id of the copy: the same as that of the source, or a new one."""
    time_ms: Milliseconds
    """The time of the probe of put-if-absent, by the target's clock (ms)."""


class CopyPlanned(_Decision):
    """The copy is the source at a slot. A later plan replaces it, if files of the slot are gone."""

    type: Literal["planned"] = "planned"
    slot: Annotated[int, Field(strict=True, ge=0, lt=2**43)]
    """The slot of the source."""
    first_slot: Annotated[int, Field(strict=True, ge=1, lt=2**43)]
    """The first slot of the copy's own log: ``slot`` + 1, or the first one after the log of the copy before."""
    time_ms: Milliseconds
    """The time of the plan, by the target's clock (ms)."""
    checkpoint: CheckpointReference
    """The checkpoint at the target that holds the state."""
    records: Annotated[tuple[str, ...], Field(min_length=1)]
    """The contents of the first slots of the copy, from ``first_slot`` on."""
    shared: dict[str, SharedPosition] = {}
    """The places of data files in shared objects of the source, by path. In the copy they are objects."""


class CopyCompleted(_Decision):
    """All files of the last plan are at the target. Only an update replaces the plan."""

    type: Literal["completed"] = "completed"


Decision = CopyBegun | CopyPlanned | CopyCompleted
_DECISION: TypeAdapter[Decision] = TypeAdapter(Annotated[Decision, Field(discriminator="type")])


class Decisions:
    """The decisions at one target, as far as this process has read them."""

    def __init__(self, target: Session) -> None:
        self._target = target.object_store
        self._environment = target.environment
        self.begun: CopyBegun | None = None
        self.plans: list[CopyPlanned] = []
        self.completed: list[CopyPlanned] = []
        """The plans that were completed. Each of them was, or will be, the log of the copy."""
        self.is_complete = False
        """True if the last plan is complete."""
        self._next = 0

    @property
    def plan(self) -> CopyPlanned | None:
        """The last plan."""
        return self.plans[-1] if self.plans else None

    def refresh(self) -> None:
        """Read the decisions after the last known one.

        Raises:
            CorruptRecord, UnsupportedFormat
        """
        while True:
            path = _path(self._next)
            try:
                body = self._target.get(path).body
            except ObjectNotFound:
                return
            self._apply(decode_decision(body, f"{self._target.url}/{path}"))

    def decide(self, decision: Decision) -> None:
        """Put the next decision, unless another process has put one. Then read what was decided.

        Raises:
            StoreUnavailable: the outcome is unknown. The next run reads it.
            CorruptRecord, UnsupportedFormat
        """
        path, body = _path(self._next), decision.model_dump_json(exclude_none=True).encode()
        found = put_once(self._target, self._environment, path, body)
        self._apply(decode_decision(found, f"{self._target.url}/{path}"))
        self.refresh()

    def _apply(self, decision: Decision) -> None:
        if isinstance(decision, CopyBegun) is not (self._next == 0):
            raise CorruptRecord(f"{self._target.url}/{_path(self._next)}: {decision.type!r} cannot be this decision")
        if isinstance(decision, CopyBegun):
            self.begun = decision
        elif isinstance(decision, CopyPlanned):
            self.plans.append(decision)
            self.is_complete = False
        elif self.plan is None or self.is_complete:
            raise CorruptRecord(f"{self._target.url}/{_path(self._next)}: a copy without a plan cannot be complete")
        else:
            self.completed.append(self.plan)
            self.is_complete = True
        self._next += 1


def _path(number: int) -> str:
    return f"{COPY_DIRECTORY}{number:04d}.json"


def decode_decision(body: bytes, name: str) -> Decision:
    """Return the decision that these bytes encode.

    Args:
        name: the object, for error messages.

    Raises:
        CorruptRecord, UnsupportedFormat
    """
    try:
        version = _Decision.model_validate_json(body).format
        if version > FORMAT_VERSION:
            raise UnsupportedFormat(f"{name} has format version {version}. Upgrade eoslog, or copy to another place")
        return _DECISION.validate_json(body)
    except ValidationError as error:
        raise CorruptRecord(f"{name} is malformed: {first_problem(error)}") from None
