"""Starts the processes of a soak, starts again whatever ended, and does to them what the faults ask for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.soak.layout import STEP_INTERVALS_S, Run

COORDINATOR = "coordinator"
STREAMS = "streams"
KINDS = {
    "idempotent-1": "idempotent_producer",
    "idempotent-2": "idempotent_producer",
    "eager-1": "transactional_producer",
    "staged-1": "transactional_producer",
    "bank-1": "two_phase_producer",
    "staged-bank-1": "two_phase_producer",
    "transformer-1": "transformer",
    "transformer-2": "transformer",
    "transformer-3": "transformer",
    "assigned-1": "reader",
    "subscribed-1": "reader",
    "subscribed-2": "reader",
    COORDINATOR: "coordinator",
    STREAMS: "streaming_query",
}
"""Names of processes, and the module that each runs."""
PRODUCERS = tuple(name for name, kind in KINDS.items() if kind.endswith("producer"))
FENCED = (
    *(name for name in PRODUCERS if not name.startswith("idempotent")),
    *(n for n in KINDS if n.startswith("tra")),
)
"""Those that a successor of the same name fences."""
_RESTART_AFTER_S = 1.0
_ZOMBIE_PATIENCE_S = 60.0
_NICENESS = 10


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done to the run, or that happened to it."""

    time_s: float
    kind: str
    target: str
    duration_s: float = 0.0
    note: str = ""


@dataclass(slots=True)
class Member:
    """A process under its name: the incarnation that runs, if one does."""

    name: str
    incarnation: int = 0
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    continues_s: float | None = None
    """When it is to be continued, while it is stopped."""
    ended_s: float = 0.0
    micro_batches: int = 0
    """How many there were when a Spark driver started."""

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass(slots=True)
class Zombie:
    """An incarnation that was stopped and replaced: it wakes up, and has to find out."""

    name: str
    process: subprocess.Popen[bytes]
    wakes_s: float
    is_awake: bool = False


@dataclass
class Supervisor:
    run: Run
    names: Sequence[str]
    members: dict[str, Member] = field(default_factory=dict)
    zombies: list[Zombie] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.members = {name: Member(name) for name in self.names}
        self._log = (self.run.folder / "events.jsonl").open("a", buffering=1)

    def note(self, kind: str, target: str, *, duration_s: float = 0.0, note: str = "") -> None:
        event = Event(time.time(), kind, target, round(duration_s, 3), note)
        self.events.append(event)
        line = {"time_s": event.time_s, "kind": kind, "target": target, "duration_s": event.duration_s, "note": note}
        self._log.write(json.dumps(line) + "\n")

    def tend(self) -> None:
        """Start what does not run, continue what has slept long enough."""
        now_s = time.time()
        for member in self.members.values():
            if member.continues_s is not None and now_s >= member.continues_s:
                self._signal(member.process, signal.SIGCONT)
                member.continues_s = None
            if member.is_alive or self._is_finished(member):
                continue
            if member.process is not None and member.ended_s < member.started_s:
                member.ended_s = now_s
                code = member.process.returncode
                self._kill_rest(member.process)
                if code not in (0, -signal.SIGKILL):
                    self.note("ended by itself", member.name, note=f"status {code}")
            if now_s - member.ended_s >= _RESTART_AFTER_S:
                self.start(member)
        for zombie in list(self.zombies):
            self._tend_zombie(zombie, now_s)

    def _is_finished(self, member: Member) -> bool:
        """Whether it has done all it was to do: a producer while the run drains."""
        process = member.process
        is_over = process is not None and process.poll() == 0
        return is_over and member.name in PRODUCERS and self.run.is_draining

    def _tend_zombie(self, zombie: Zombie, now_s: float) -> None:
        if not zombie.is_awake and now_s >= zombie.wakes_s:
            self._signal(zombie.process, signal.SIGCONT)
            zombie.is_awake = True
        if zombie.process.poll() is not None:
            self.note("zombie ended", zombie.name, note=f"status {zombie.process.returncode}")
            self.zombies.remove(zombie)
        elif zombie.is_awake and now_s >= zombie.wakes_s + _ZOMBIE_PATIENCE_S:
            # A reader of a full group, say, may go on as long as it likes; a fenced one is gone by now.
            self.note("zombie killed", zombie.name)
            self._kill_rest(zombie.process)
            zombie.process.wait()
            self.zombies.remove(zombie)

    def has_progressed(self, member: Member) -> bool:
        """Whether its newest incarnation has done something."""
        if member.name == STREAMS:
            return self._micro_batches() > member.micro_batches
        folder, suffix = (self.run.logs, "log") if member.name == COORDINATOR else (self.run.histories, "jsonl")
        file = folder / f"{member.name}.{member.incarnation}.{suffix}"
        return file.exists() and file.stat().st_size > 0

    def _micro_batches(self) -> int:
        return sum(1 for _ in self.run.checkpoints.glob("*/commits/[0-9]*"))

    def start(self, member: Member) -> None:
        member.incarnation += 1
        member.micro_batches = self._micro_batches()
        member.started_s = time.time()
        log = (self.run.logs / f"{member.name}.{member.incarnation}.log").open("wb")
        with log:
            member.process = subprocess.Popen(
                self._command(member),
                env=self.run.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if member.name != STREAMS:
            self._give_way(member.process)

    def _command(self, member: Member) -> list[str]:
        if member.name == COORDINATOR:
            intervals = [f"--interval={step}={seconds}" for step, seconds in STEP_INTERVALS_S.items()]
            store = ["--store", self.run.url, "--json"]
            return [sys.executable, "-m", "eoslog.main", *store, "coordinator", "--verbose", *intervals]
        kind = KINDS[member.name]
        return [sys.executable, "-m", f"tests.soak.{kind}", str(self.run.folder), member.name, str(member.incarnation)]

    @staticmethod
    def _give_way(process: subprocess.Popen[bytes]) -> None:
        """Come after Spark, which gives its Python workers ten seconds to start, however few processors there are."""
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
            # Linux shares processors out among sessions first, and a niceness counts within one.
            Path(f"/proc/{process.pid}/autogroup").write_text(str(_NICENESS))

    def kill(self, name: str) -> None:
        """SIGKILL, to all of its processes at once."""
        member = self.members[name]
        self.note("kill", name)
        member.continues_s = None
        self._kill_rest(member.process)

    def stop(self, name: str, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after ``seconds``."""
        member = self.members[name]
        self.note("stop", name, duration_s=seconds)
        self._signal(member.process, signal.SIGSTOP)
        member.continues_s = time.time() + seconds

    def replace(self, name: str, seconds: float) -> None:
        """SIGSTOP; a successor takes its place at once, and the one that was replaced wakes after ``seconds``."""
        member = self.members[name]
        assert member.process is not None
        self.note("replace", name, duration_s=seconds)
        self._signal(member.process, signal.SIGSTOP)
        self.zombies.append(Zombie(name, member.process, time.time() + seconds))
        self.start(member)

    def kill_all(self) -> None:
        """SIGKILL to every process, stopped ones too."""
        for zombie in self.zombies:
            self._kill_rest(zombie.process)
            zombie.process.wait()
        self.zombies.clear()
        for member in self.members.values():
            member.continues_s = None
            self._kill_rest(member.process)
        for member in self.members.values():
            if member.process is not None:
                member.process.wait()

    def end_all(self, patience_s: float = 30) -> None:
        """SIGTERM, so that what is under way ends; then SIGKILL."""
        for member in self.members.values():
            if member.is_alive and member.process is not None:
                member.process.terminate()
        deadline = time.time() + patience_s
        while time.time() < deadline and any(each.is_alive for each in self.members.values()):
            time.sleep(0.1)
        self.kill_all()

    def _kill_rest(self, process: subprocess.Popen[bytes] | None) -> None:
        while self._signal(process, signal.SIGKILL):
            time.sleep(0.02)

    @staticmethod
    def _signal(process: subprocess.Popen[bytes] | None, number: signal.Signals) -> bool:
        """Signal every process of the session that was started for it: a Spark driver is many. True if one lives."""
        found = False
        for each in psutil.process_iter() if process is not None else ():
            try:
                if os.getsid(each.pid) == process.pid and each.status() != psutil.STATUS_ZOMBIE:  # type: ignore[union-attr]
                    each.send_signal(number)
                    found = True
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found
