"""What a soak did and found, as JSON and as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.checker import Kind, Outcome
from tests.delta_logs import versions
from tests.iceberg_tables import metadata_of
from tests.soak.checking import Evidence
from tests.soak.layout import PUBLISHED, Run
from tests.soak.supervisor import Event
from tests.soak.untried import not_come_about, without_rows

_MOST_LINES = 10
DRAINS = "everything drains"
TRIED = "every promise was tried"
"""Alone they are no wrong row: somebody had not done its work, on a machine that is too slow perhaps."""


def verdict_of(contradictions: Mapping[str, Sequence[str]]) -> str:
    """``EXACT``, ``BROKEN``, or ``UNFINISHED`` if all that is missing is work that nobody did."""
    broken = {promise for promise, found in contradictions.items() if found}
    if not broken:
        return "EXACT"
    return "UNFINISHED" if broken <= {DRAINS, TRIED} else "BROKEN"


class Summary:
    def __init__(self, run: Run, minutes: float, *, can_fill_disk: bool) -> None:
        self._run = run
        self._minutes = minutes
        self._can_fill_disk = can_fill_disk
        self._facts: dict[str, Any] = {}
        self._contradictions: Mapping[str, Sequence[str]] = {}

    def write(
        self,
        evidence: Evidence,
        events: Sequence[Event],
        contradictions: Mapping[str, Sequence[str]],
        network_faults: Mapping[str, int],
    ) -> None:
        """Put it into the run's folder, as ``summary.json`` and ``summary.txt``."""
        not_tried = [*without_rows(evidence), *not_come_about(evidence, events)]
        self._contradictions = contradictions
        by_kind = Counter((event.kind, event.target) for event in events)
        transactions = Counter(each.outcome.value for each in evidence.writes() if each.kind is Kind.TXN)
        flushes = Counter(each.outcome.value for each in evidence.writes() if each.kind is Kind.SEND)
        polled = sum(1 for each in evidence.operations for _ in each.reads())
        acknowledged = sum(1 for each in evidence.writes() if each.outcome is Outcome.OK for _ in each.sends())
        self._facts = {
            "verdict": verdict_of(contradictions),
            "not tried": not_tried,
            "store": self._run.url.partition("://")[0] if "://" in self._run.url else "local disk",
            "seed": self._run.seed,
            "minutes": self._minutes,
            "slots": evidence.observer.slot + 1,
            "entries": evidence.observer.entries,
            "versions of Delta tables": {
                topic: len(list(versions(evidence.store.object_store, topic))) for topic in PUBLISHED
            },
            "versions of Iceberg tables": {
                topic: len(metadata_of(evidence.store.object_store, topic)) for topic in PUBLISHED
            },
            "rows": {topic: len(rows) for topic, rows in evidence.rows.items()},
            "rows acknowledged to Python producers": acknowledged,
            "rows shown to consumers": polled,
            "transactions of Python producers": dict(transactions),
            "flushes without transaction": dict(flushes),
            "kills": {target: count for (kind, target), count in sorted(by_kind.items()) if kind == "kill"},
            "stops": {target: count for (kind, target), count in sorted(by_kind.items()) if kind == "stop"},
            "replaced while stopped": {t: count for (kind, t), count in sorted(by_kind.items()) if kind == "replace"},
            "ended by themselves": {
                t: count for (kind, t), count in sorted(by_kind.items()) if kind == "ended by itself"
            },
            "zombies that found out": sum(event.kind == "zombie ended" for event in events),
            "zombies that had to be killed": sum(event.kind == "zombie killed" for event in events),
            "full disk": sum(event.kind == "full disk" for event in events) if self._can_fill_disk else None,
            "network faults": dict(network_faults),
            "promises": {promise: list(found) for promise, found in contradictions.items()},
        }
        (self._run.folder / "summary.json").write_text(json.dumps(self._facts, indent=2) + "\n")
        (self._run.folder / "summary.txt").write_text(self.text() + "\n")

    def text(self) -> str:
        not_tried = self._facts["not tried"]
        head = f"{self._facts['verdict']}: {self._minutes:g} minutes on {self._facts['store']}, seed {self._run.seed}"
        lines = [f"{head}; not tried: {', '.join(not_tried)}" if not_tried else head]
        for name, value in self._facts.items():
            if name in ("verdict", "not tried", "store", "seed", "minutes", "promises"):
                continue
            if isinstance(value, dict):
                total = f"{sum(value.values())} ({', '.join(f'{key} {count}' for key, count in value.items())})"
                lines.append(f"  {name}: {total if value else 0}")
            else:
                lines.append(f"  {name}: {self._why_none() if value is None else value}")
        lines.append("  promises:")
        for promise, found in self._contradictions.items():
            lines.append(f"    {self._answer(promise):7} {promise}")
            lines += [f"      {each}" for each in found[:_MOST_LINES]]
            if len(found) > _MOST_LINES:
                lines.append(f"      and {len(found) - _MOST_LINES} more")
        lines.append(f"  the checked history: python -m tests.checker {self._run.judged}")
        return "\n".join(lines)

    def _answer(self, promise: str) -> str:
        if self._contradictions[promise]:
            return "NOT YET" if promise in (DRAINS, TRIED) else "BROKEN"
        return "IN PART" if promise == TRIED and self._facts["not tried"] else "kept"

    def _why_none(self) -> str:
        """Why the disk was never full."""
        store = self._facts["store"]
        return "could not be made here" if store == "local disk" else f"not part of a run on {store}"
