"""A process of a soak: how it begins, when it ends, and what it does with calls that were not answered in time."""

from __future__ import annotations

import logging
import random
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import ParamSpec, TypeVar

from eoslog.errors import RetriableError
from tests.soak.history import ProcessHistory
from tests.soak.layout import Run

P = ParamSpec("P")
T = TypeVar("T")
MAX_BLOCK_MS = 4_000
"""Short, so that calls that are not answered are met often, and made again."""


class SoakProcess(ABC):
    """One incarnation of a process. It works until it is told to end by SIGTERM, or is killed."""

    def __init__(self, run: Run, name: str, incarnation: int) -> None:
        self.run = run
        self.name = name
        self.incarnation = incarnation
        self.random = random.Random(f"{run.seed}/{name}/{incarnation}")
        self.history = ProcessHistory(run.histories, name, incarnation)
        self.store = run.connect()
        self.stopping = False
        self._values = 0
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    @property
    def is_done(self) -> bool:
        """Whether a process that begins work of its own has to end."""
        return self.stopping or self.run.is_draining

    @abstractmethod
    def work(self) -> None:
        """Work until the end."""

    def new_value(self) -> str:
        """A value that no other row of the run has. Later ones of a process are greater, also over its incarnations."""
        self._values += 1
        return f"{self.name}/{self.incarnation}/{self._values}"

    def pause(self, mean_s: float) -> None:
        time.sleep(self.random.expovariate(1 / mean_s) * self.run.pace)


def until_answered(call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Make a call again until it has an answer: the one thing to do about a ``RetriableError``."""
    while True:
        try:
            return call(*arguments, **options)
        except RetriableError as error:
            logging.info("once more: %s", error)


def main(kind: Callable[[Run, str, int], SoakProcess]) -> None:
    """Run a process as ``python -m tests.soak.<kind> FOLDER NAME INCARNATION``."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.INFO)
    folder, name, incarnation = sys.argv[1:]
    kind(Run.load(Path(folder)), name, int(incarnation)).work()
