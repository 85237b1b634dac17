"""A small state machine for tests of the log: a list of names, each of which may be added once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from eoslog.errors import InvalidRequest, RecordFull, StagedFilesExpired, UnsupportedFormat
from eoslog.log.machine import Request
from tests.requests import Applying

T = TypeVar("T")


@dataclass
class Ledger:
    """The names in the order in which they were added, by slot."""

    slots: dict[str, int] = field(default_factory=dict)
    horizon_ms: int = -1

    @property
    def names(self) -> list[str]:
        return list(self.slots)


class AlreadyThere(InvalidRequest):
    """The name was added before."""


class LedgerDraft:
    def __init__(self, base: Ledger | LedgerDraft, slot: int) -> None:
        self.base = base
        self.slot = slot
        self.entries: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}

    @property
    def names(self) -> list[str]:
        return self.base.names + [entry["name"] for entry in self.entries if entry["type"] == "add"]

    @property
    def ids_given_out(self) -> int:
        inherited = self.base.ids_given_out if isinstance(self.base, LedgerDraft) else 0
        return inherited + sum("id" in entry for entry in self.entries)

    def child(self) -> LedgerDraft:
        return LedgerDraft(self, self.slot)

    def merge(self) -> None:
        if isinstance(self.base, LedgerDraft):
            self.base.entries += self.entries
            self.base.files |= self.files
        else:
            reason = LedgerMachine().fold(self.base, self.slot, self.entries)
            assert reason is None, reason


class Part(NamedTuple):
    name: str
    changed_slot: int
    encode: Callable[[], bytes]


class LedgerMachine:
    """Entries add a name, move the horizon, or give out the slot's one id."""

    def initial(self) -> Ledger:
        return Ledger()

    def frozen_copy(self, state: Ledger) -> Ledger:
        return Ledger(dict(state.slots), state.horizon_ms)

    def new_draft(self, state: Ledger, slot: int) -> LedgerDraft:
        return LedgerDraft(state, slot)

    def add_overdue(self, draft: LedgerDraft, now_ms: int) -> None:
        pass

    def append_for_another(self, draft: LedgerDraft, entries: Sequence[object], files: Mapping[str, bytes]) -> None:
        draft.files |= files
        for entry in entries:
            assert isinstance(entry, dict)
            add(entry["name"]).apply(draft)

    def encode_entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        return entry

    def fold(self, state: Ledger, slot: int, entries: Sequence[object]) -> str | None:
        after = self.frozen_copy(state)
        for entry in entries:
            assert isinstance(entry, dict)
            if entry.get("type") == "add" and entry["name"] not in after.slots:
                after.slots[entry["name"]] = slot
            elif entry.get("type") == "horizon":
                after.horizon_ms = entry["horizon_ms"]
            elif entry.get("type") == "future":
                raise UnsupportedFormat("an entry of a newer version")
            else:
                return f"{entry} cannot be applied"
        state.slots, state.horizon_ms = after.slots, after.horizon_ms
        return None

    def oldest_needed_slot(self, state: Ledger) -> int | None:
        return None

    def check_upload(self, state: Ledger, upload_ms: int) -> None:
        if upload_ms <= state.horizon_ms:
            raise StagedFilesExpired(f"uploaded at {upload_ms}, the horizon is {state.horizon_ms}")

    def parts(self, state: Ledger, slot: int) -> Iterator[Part]:
        yield Part("horizon", slot, lambda: json.dumps(state.horizon_ms).encode())
        for letter in sorted({name[0] for name in state.slots}):
            slots = {name: at for name, at in state.slots.items() if name[0] == letter}
            yield Part(letter, max(slots.values()), lambda slots=slots: json.dumps(slots).encode())  # type: ignore[misc]

    def restore(self, parts: Mapping[str, bytes]) -> Ledger:
        slots: dict[str, int] = {}
        for name, body in parts.items():
            if name != "horizon":
                slots |= json.loads(body)
        ordered = sorted(slots.items(), key=lambda item: item[1])
        return Ledger(dict(ordered), json.loads(parts["horizon"]))


def add(*names: str) -> Applying[int]:
    """Add names; the answer is the slot that they got. One that is there already is refused."""

    def added(draft: LedgerDraft) -> int:
        for name in names:
            if name in draft.names:
                raise AlreadyThere(f"{name} was added before")
            draft.entries.append({"type": "add", "name": name})
        return draft.slot

    return Applying(added)


@dataclass(frozen=True)
class SharedAdd(Generic[T]):
    """A request that adds names, which other processes may append."""

    names: tuple[str, ...]
    request: Request[T]
    answer: Callable[[Sequence[Mapping[str, Any]], int], T]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def apply(self, draft: Any) -> T:
        return self.request.apply(draft)

    @property
    def shared_entries(self) -> Sequence[Any]:
        return [{"type": "add", "name": name} for name in self.names]

    def shared_answer(self, entries: Sequence[Mapping[str, Any]], slot: int) -> T:
        return self.answer(entries, slot)


def shared_add(*names: str) -> SharedAdd[int]:
    """Do the work of ``add`` as a request that other processes may append."""
    return SharedAdd(names, add(*names), lambda entries, slot: slot)


def add_once(name: str) -> Applying[str]:
    """Add a name unless it is there: ``added`` or, without any entry, ``was there``."""

    def added(draft: LedgerDraft) -> str:
        if name in draft.names:
            return "was there"
        draft.entries.append({"type": "add", "name": name})
        return "added"

    return Applying(added)


def add_with_id(name: str) -> Applying[int]:
    """Add a name and take the slot's one id."""

    def added(draft: LedgerDraft) -> int:
        if draft.ids_given_out:
            raise RecordFull
        draft.entries.append({"type": "add", "name": name, "id": draft.slot})
        return draft.slot

    return Applying(added)


def move_horizon(horizon_ms: int) -> Applying[None]:
    return Applying(lambda draft: draft.entries.append({"type": "horizon", "horizon_ms": horizon_ms}))
