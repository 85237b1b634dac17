"""What happens to the processes, and when: drawn from a seed."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from tests.soak.disk import SmallDisk
from tests.soak.layout import LOG_GRACE_MS
from tests.soak.supervisor import FENCED, Supervisor

_MOST_STOPPED = 3
_EARLY = 0.15
"""How often even a process that has shown nothing yet may be hit."""
_BEYOND_GRACE_S = LOG_GRACE_MS / 1000 + 3


@dataclass
class Faults:
    """Draws a fault whenever the one before is ``mean_pause_s`` ago on average."""

    supervisor: Supervisor
    disk: SmallDisk | None
    seed: int
    mean_pause_s: float = 4.0
    full_until_s: float | None = None
    _next_s: float = field(default=0.0)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}/faults")
        self._next_s = time.time() + 5

    def tick(self) -> None:
        now_s = time.time()
        if self.full_until_s is not None and self.disk is not None:
            if now_s < self.full_until_s:
                self.disk.fill()
            else:
                self.disk.free()
                self.full_until_s = None
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._random.expovariate(1 / self.mean_pause_s)
        self._draw()

    def _draw(self) -> None:
        kinds = {"kill": 55, "stop": 25, "replace": 10, "full disk": 10 if self.disk is not None else 0}
        kind = self._random.choices(list(kinds), list(kinds.values()))[0]
        if kind == "full disk":
            self._fill_disk()
            return
        targets = self._targets(FENCED if kind == "replace" else None)
        if not targets:
            return
        target = self._random.choice(targets)
        if kind == "kill":
            self.supervisor.kill(target)
        elif len(self._stopped()) < _MOST_STOPPED:
            beyond_timeout_s = self.supervisor.run.transaction_timeout_ms / 1000 + 2
            seconds = self._random.choice([0.5, 2.0, 4.0, beyond_timeout_s, _BEYOND_GRACE_S])
            (self.supervisor.stop if kind == "stop" else self.supervisor.replace)(target, seconds)

    def _targets(self, among: tuple[str, ...] | None) -> list[str]:
        """What runs. A process that is hit before it has done anything shows little, so most are spared until then."""
        is_early = self._random.random() < _EARLY
        return [
            name
            for name, member in self.supervisor.members.items()
            if member.is_alive
            and member.continues_s is None
            and (among is None or name in among)
            and (is_early or self.supervisor.has_progressed(member))
        ]

    def _stopped(self) -> list[object]:
        members = [each for each in self.supervisor.members.values() if each.continues_s is not None]
        return [*members, *(each for each in self.supervisor.zombies if not each.is_awake)]

    def _fill_disk(self) -> None:
        if self.disk is None or self.full_until_s is not None:
            return
        seconds = self._random.uniform(1, 6)
        self.full_until_s = time.time() + seconds
        self.supervisor.note("full disk", "store", duration_s=seconds)
        self.disk.fill()

    def end(self) -> None:
        """No more of it."""
        if self.disk is not None:
            self.disk.free()
        self.full_until_s = None
