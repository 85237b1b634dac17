"""What a simulated process runs: a service, which is started anew when it dies or gives up."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from eoslog.client.store import Store
from eoslog.errors import AbortableError, ApplicationRecoverableError, RetriableError
from eoslog.log.view import LogConfig
from tests.simulation.ledger import Ledger
from tests.simulation.store import SimulatedEnvironment, SimulatedStore
from tests.simulation.world import Process, World

T = TypeVar("T")
GRACE_MS = 3_600_000
IN, OUT, OTHER, JOB, TABLE = "in", "out", "other", "job", "table"
PARTITIONS = {IN: 2, OUT: 2, OTHER: 1, JOB: 2, TABLE: 1}
"""The topics, and how many partitions each has."""


def open_store(process: Process) -> Store:
    """The store, as a process that was just started holds it."""
    environment = SimulatedEnvironment(process)
    config = LogConfig(grace_ms=GRACE_MS, checkpoint_slots=8, commit_timeout_ms=20_000)
    tail_bytes = process.world.tail_bytes
    return Store(SimulatedStore(process, environment, tail_bytes=tail_bytes), environment, config)


class GaveUp(Exception):
    """The service ends this incarnation in order; another one goes on."""


class Service:
    """Something that runs for ever: killed or given up, it is started anew."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        self.world = world
        self.ledger = ledger
        self.name = name

    @property
    def random(self) -> random.Random:
        return self.world.random

    def start(self) -> None:
        self.world.spawn(self.name, self._live)

    def _live(self, process: Process) -> None:
        try:
            self.incarnation(process)
        except (GaveUp, RetriableError, AbortableError, ApplicationRecoverableError) as error:
            self.world.note(self.name, "gave up", type(error).__name__)
        finally:
            if not self.world.stopping:
                self.world.restart_later(self)

    def incarnation(self, process: Process) -> None:
        raise NotImplementedError

    def pause(self, process: Process, most_ms: int = 3_000) -> None:
        process.sleep(self.random.randrange(1, most_ms))


def until_done(call: Callable[[], T], attempts: int = 6) -> T:
    """Repeat a call that may be repeated."""
    for attempt in range(attempts):
        try:
            return call()
        except RetriableError:
            if attempt == attempts - 1:
                raise
    raise AssertionError
