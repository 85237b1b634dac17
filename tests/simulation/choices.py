"""What a seed decides while a history runs: streams of chance, and events that can be taken out one by one.

Who draws, and for what, has a stream of its own, so that a history from which something was taken out goes on as much
like the whole one as it can. That is how a failing seed shrinks.
"""

from __future__ import annotations

import random
from collections import Counter


class Choices:
    """Chance, by the name of who draws."""

    def __init__(self, seed: int, kept: frozenset[str] | None = None) -> None:
        """
        Args:
            kept: only these events happen; None: all that chance chooses.
        """
        self._seed = seed
        self._kept = kept
        self._streams: dict[str, random.Random] = {}
        self._draws: Counter[str] = Counter()
        self.events: list[str] = []
        """Those that happened, in their order: who, what, and at which of its draws."""

    def stream(self, name: str) -> random.Random:
        """The stream of one name, which no other's draws move."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(f"{self._seed} {name}")
        return found

    def happens(self, who: str, what: str, probability: float) -> str:
        """Whether an event happens now: its name, empty if it does not."""
        if probability <= 0:
            return ""
        name = f"{who} {what}"
        self._draws[name] += 1
        if self.stream(name).random() >= probability:
            return ""
        event = f"{name} {self._draws[name]}"
        if self._kept is not None and event not in self._kept:
            return ""
        self.events.append(event)
        return event
