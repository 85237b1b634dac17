"""What a part of the comparison measured, and what follows from it: medians, ranges and ratios.

A measurement has one value for each round. In a round each system does the same work once, and the order of the systems
changes from round to round. So a ratio is taken within a round, and its range shows how far rounds differ.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

OURS = "eoslog"
"""The names of eoslog's variants begin so."""

EVEN = 1.05
"""A factor up to this one is no difference."""


@dataclass(frozen=True)
class Metric:
    """How the values of a metric are read."""

    more_is_better: bool = False
    compared: bool = True
    """False for a value that only explains another one, such as a phase of a micro-batch."""


TIME = "time (s)"
TRIGGER = "trigger (ms)"
PHASES = ("planning (ms)", "offsets (ms)", "work (ms)", "checkpoint (ms)")
METRICS: Mapping[str, Metric] = {
    TIME: Metric(),
    "p50 (ms)": Metric(),
    "p99 (ms)": Metric(),
    "open and plan (ms)": Metric(),
    "commits/s": Metric(more_is_better=True),
    "records/s": Metric(more_is_better=True),
    "failed commits": Metric(compared=False),
    "requests": Metric(),
    "requests a commit": Metric(),
    "MB on disk": Metric(),
    "peak memory (MiB)": Metric(),
    TRIGGER: Metric(),
    **{phase: Metric(compared=False) for phase in PHASES},
}


@dataclass(frozen=True)
class Spread:
    """The median of some values, and their range."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class Measurement:
    """The values of one metric that a system reached in one case, one for each round."""

    case: str
    system: str
    metric: str
    values: list[float]

    @property
    def spread(self) -> Spread:
        return Spread.of(self.values)

    @property
    def is_ours(self) -> bool:
        return self.system.startswith(OURS)


@dataclass(frozen=True)
class Failure:
    """A system, or a whole part, that could not do its work."""

    case: str
    system: str
    reason: str


@dataclass
class Results:
    """All that one part measured. It is kept as JSON, so that the page can be written again."""

    part: str
    size: str
    settings: dict[str, str] = field(default_factory=dict)
    """What the page says of the work: the number of rows and the like."""
    measurements: list[Measurement] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._path: Path | None = None

    def keep(self, path: Path) -> None:
        """Write the results to a file, now and after each case."""
        self._path = path
        self.save()

    def save(self) -> None:
        """Write the results to their file. A reader sees the old file or the new one, never half of one."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = self._path.with_suffix(".new")
        whole.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        whole.replace(self._path)

    def fail(self, case: str, system: str, error: BaseException | str) -> None:
        """Note that a system, or the whole part, could not do its work."""
        reason = error if isinstance(error, str) else _said(error)
        self.failures.append(Failure(case, system, reason))

    @classmethod
    def load(cls, path: Path) -> Results:
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            found["part"],
            found["size"],
            found["settings"],
            [Measurement(**each) for each in found["measurements"]],
            [Failure(**each) for each in found["failures"]],
        )

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(each.system for each in self.measurements))

    @property
    def metrics(self) -> list[str]:
        return list(dict.fromkeys(each.metric for each in self.measurements))

    def cases(self, metric: str) -> list[str]:
        return list(dict.fromkeys(each.case for each in self.measurements if each.metric == metric))

    def find(self, case: str, system: str, metric: str) -> Measurement | None:
        for each in self.measurements:
            if (each.case, each.system, each.metric) == (case, system, metric):
                return each
        return None

    def add(self, case: str, system: str, values: Mapping[str, float]) -> None:
        """Add what a system reached in one round, by metric.

        Raises:
            KeyError: There is no such metric.
        """
        for metric, value in values.items():
            METRICS[metric]
            found = self.find(case, system, metric)
            if found is None:
                self.measurements.append(Measurement(case, system, metric, [value]))
            else:
                found.values.append(value)

    def rounds(
        self, case: str, works: Mapping[str, Callable[[], Mapping[str, float] | None]], rounds: int, warm: int = 0
    ) -> None:
        """Let each system do its work once a round. The first ``warm`` rounds do not count.

        A work returns its values by metric, or None if its time is the value. A system that fails is left out of the
        rounds that follow.
        """
        left = dict(works)
        for number in range(warm + rounds):
            order = list(left)
            turn = number % len(order) if order else 0
            for system in order[turn:] + order[:turn]:
                gc.collect()
                began = time.perf_counter()
                try:
                    found = left[system]()
                except Exception as error:  # Whatever a peer raises, the others go on.
                    self.fail(case, system, error)
                    del left[system]
                    continue
                if number >= warm:
                    self.add(case, system, found if found is not None else {TIME: time.perf_counter() - began})
        # The order of the last round must not become that of the tables.
        places = {system: place for place, system in enumerate(works)}
        mine = sorted((each for each in self.measurements if each.case == case), key=lambda each: places[each.system])
        self.measurements = [each for each in self.measurements if each.case != case] + mine
        self.save()


def _said(error: BaseException) -> str:
    """The first line of an error, without paths of this machine."""
    lines = str(error).strip().splitlines()
    words = [word for word in (lines[0] if lines else "").split() if "/" not in word]
    return f"{type(error).__name__}: {' '.join(words)}"[:200].strip(": ")


@dataclass(frozen=True)
class Comparison:
    """One variant of eoslog beside one peer, in one case and metric."""

    case: str
    metric: str
    ours: str
    peer: str
    factor: Spread
    """The factor between eoslog and the peer: above 1 eoslog is ahead, below 1 it is behind."""

    @property
    def ahead(self) -> bool:
        """True if eoslog was ahead in each round, by more than what is too little to count."""
        return self.factor.least > EVEN

    @property
    def behind(self) -> bool:
        """True if eoslog was behind in each round, by more than what is too little to count."""
        return self.factor.most < 1 / EVEN


def compare(results: Results) -> list[Comparison]:
    """Compare each variant of eoslog with each peer that did the same work."""
    found = []
    for ours in results.measurements:
        if not ours.is_ours or not METRICS[ours.metric].compared:
            continue
        for peer in results.measurements:
            if peer.is_ours or (peer.case, peer.metric) != (ours.case, ours.metric):
                continue
            factors = _factors(ours, peer)
            if factors:
                found.append(Comparison(ours.case, ours.metric, ours.system, peer.system, Spread.of(factors)))
    return found


def _factors(ours: Measurement, peer: Measurement) -> list[float]:
    """Return the factor between eoslog and the peer by round."""
    more = METRICS[ours.metric].more_is_better
    pairs = [(one, other) if more else (other, one) for one, other in zip(ours.values, peer.values, strict=False)]
    return [good / bad for good, bad in pairs if good > 0 and bad > 0]
