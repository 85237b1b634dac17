"""What the checker found: every anomaly, and those among them that are illegal here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_WITNESSES = 5


class Anomaly(NamedTuple):
    """Something that a client was shown or told."""

    rule: str
    """By Jepsen's name, as ``lost-write``."""
    witness: str
    """Where, in a line."""
    is_legal: bool = False
    """Kafka does so, and so may eoslog."""


@dataclass(frozen=True)
class Verdict:
    """All that was found in a history."""

    anomalies: Sequence[Anomaly]
    operations: int = 0
    values_acknowledged: int = 0
    values_polled: int = 0
    worst_lag: Mapping[str, int] = field(default_factory=dict)
    """Of each key, how long at most a value was acknowledged and not polled by anybody (in the history's clock)."""

    @property
    def illegal(self) -> Sequence[Anomaly]:
        return [each for each in self.anomalies if not each.is_legal]

    @property
    def is_valid(self) -> bool:
        return not self.illegal

    def counts(self) -> Counter[str]:
        """How many there are of each rule, legal ones too."""
        return Counter(each.rule for each in self.anomalies)

    def __str__(self) -> str:
        head = (
            f"{'valid' if self.is_valid else 'INVALID'}: {self.operations} operations, "
            f"{self.values_acknowledged} values acknowledged, {self.values_polled} polled"
        )
        lines = [head]
        for rule, count in sorted(self.counts().items()):
            of_rule = [each for each in self.anomalies if each.rule == rule]
            bad = [each for each in of_rule if not each.is_legal]
            lines.append(f"  {rule}: {count}, illegal {len(bad)}")
            lines += [f"    {each.witness}" for each in bad[:_WITNESSES]]
        return "\n".join(lines)
