"""The end of the demo: what went in against what read_committed shows, row by row and sum by sum."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from eoslog import PartitionOffsets
from examples.demo.flights import per_carrier


@dataclass
class Verdict:
    """Differences found so far, and what happened on the way."""

    console: Console
    events: list[tuple[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def happened(self, what: str, outcome: str) -> None:
        self.events.append((what, outcome))

    def expect(self, condition: bool, fault: str) -> None:
        """Note a fault unless the condition holds."""
        if not condition:
            self.faults.append(fault)

    def compare_rows(self, expected: pa.Table, found: pa.Table) -> None:
        """Every row must be there exactly once."""
        wanted, shown = _count(expected), _count(found.select(expected.schema.names))
        missing = sum((wanted - shown).values())
        surplus = shown - wanted
        duplicated = sum(count for row, count in surplus.items() if row in wanted)
        foreign = sum(surplus.values()) - duplicated
        table = Table("rows in", "rows read_committed", "missing", "duplicated", "foreign", title="Rows")
        table.add_row(*(f"{each:,}" for each in (expected.num_rows, found.num_rows, missing, duplicated, foreign)))
        self.console.print(table)
        self.expect(
            missing == duplicated == foreign == 0, f"{missing} rows missing, {duplicated} duplicated, {foreign} foreign"
        )

    def compare_carriers(self, expected: pa.Table, found: pa.Table) -> None:
        """Sums per carrier, from the store and straight from the CSV."""
        wanted, shown = per_carrier(expected), per_carrier(found)
        table = Table("carrier", "flights", "miles", "arrival delay (min)", "CSV", title="Sums per carrier")
        for carrier in sorted({*wanted, *shown}):
            sums = shown.get(carrier, (0, 0, 0))
            same = wanted.get(carrier) == sums
            table.add_row(carrier, *(f"{each:,}" for each in sums), "same" if same else f"[red]{wanted.get(carrier)}")
            self.expect(same, f"carrier {carrier}: {sums} in the store, {wanted.get(carrier)} in the CSV")
        self.console.print(table)

    def show_offsets(self, topic: str, offsets: list[PartitionOffsets]) -> None:
        table = Table("partition", "earliest", "last stable offset", "high watermark", title=f"Offsets of {topic}")
        for each in offsets:
            table.add_row(*(f"{value:,}" for value in each))
        self.console.print(table)

    def show_events(self) -> None:
        table = Table("what happened", "outcome", title="Fenced, aborted, killed, replayed")
        for what, outcome in self.events:
            table.add_row(what, outcome)
        self.console.print(table)


def _count(rows: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))
