"""The picture of a soak: what was committed, what held readers back, and how long each process took to recover."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from tests.checker import Outcome
from tests.soak.checking import Evidence
from tests.soak.history import name_of
from tests.soak.layout import BANK, COPIES, INVOICES, KEPT, ORDERS, RECOPIES, Run
from tests.soak.observer import Sample
from tests.soak.supervisor import COORDINATOR, STREAMS, Event

_BIN_S = 5
_COLOURS = dict(zip(KEPT, ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple"), strict=True))
_MARKS = {"kill": ("v", "black"), "stop": ("s", "tab:olive"), "replace": ("D", "tab:pink")}


def draw(run: Run, evidence: Evidence, events: Sequence[Event], samples: Sequence[Sample]) -> None:
    """Write ``soak.png`` into the run's folder."""
    began_s = samples[0].time_s if samples else 0.0
    figure, (rows, lag, recoveries) = plt.subplots(3, 1, figsize=(14, 11), sharex=True, layout="constrained")
    _draw_rows(rows, evidence, began_s)
    _draw_lag(lag, samples, began_s)
    _draw_recoveries(recoveries, evidence, events, began_s)
    for axes in (rows, lag, recoveries):
        _shade(axes, events, began_s)
        axes.grid(visible=True, alpha=0.3)
    handles, labels = rows.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    rows.legend(unique.values(), unique.keys(), loc="lower right", bbox_to_anchor=(1, 1), fontsize=9, ncols=7)
    recoveries.set_xlabel("seconds since the beginning")
    figure.suptitle(f"Soak on {run.url if run.endpoint_url else 'local disk'}, seed {run.seed}")
    figure.savefig(run.folder / "soak.png", dpi=100)
    plt.close(figure)


def _draw_rows(axes: Axes, evidence: Evidence, began_s: float) -> None:
    for topic in (ORDERS, INVOICES, BANK, COPIES, RECOPIES):
        bins = Counter(int((row.commit_ms / 1000 - began_s) // _BIN_S) for row in evidence.rows[topic])
        if bins:
            ends = range(min(0, *bins), max(bins) + 2)
            counts = [bins[each] / _BIN_S for each in ends]
            axes.step([each * _BIN_S for each in ends], counts, where="post", label=topic, color=_COLOURS[topic])
    axes.set_ylabel("rows committed per second")
    axes.set_ylim(bottom=0)
    axes.set_title("Throughput, by topic", loc="left", fontsize=10)


def _draw_lag(axes: Axes, samples: Sequence[Sample], began_s: float) -> None:
    times = [each.time_s - began_s for each in samples]
    axes.fill_between(times, [each.lag for each in samples], step="post", color="tab:blue", alpha=0.6)
    axes.set_ylabel("offsets")
    axes.set_ylim(bottom=0)
    axes.set_title("LSO lag: offsets that open transactions hold back, over all partitions", loc="left", fontsize=10)


def _draw_recoveries(axes: Axes, evidence: Evidence, events: Sequence[Event], began_s: float) -> None:
    """From each fault's end until the process, or its successor, was answered again."""
    answered = _answers(evidence)
    for kind, (mark, colour) in _MARKS.items():
        points = []
        for event in events:
            if event.kind != kind or event.target == COORDINATOR:
                continue
            over_s = event.time_s + (event.duration_s if kind == "stop" else 0)
            times = answered[event.target]
            after = bisect_right(times, over_s)
            if after < len(times):
                points.append((event.time_s - began_s, times[after] - over_s))
        if points:
            axes.scatter(*zip(*points, strict=True), marker=mark, color=colour, s=26, label=kind, alpha=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("seconds until the next answer")
    axes.set_title(
        "Recoveries: from a kill, the end of a stop, or a replacement to the next success", loc="left", fontsize=10
    )
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=9, ncols=3)


def _answers(evidence: Evidence) -> dict[str, list[float]]:
    """When each process was answered (s since the epoch), in order."""
    found: dict[str, list[float]] = defaultdict(list)
    for operation in evidence.operations:
        if operation.outcome is Outcome.OK:
            found[name_of(operation)].append(operation.completed / 1e9)
    found[STREAMS] = [row.commit_ms / 1000 for row in evidence.rows[COPIES]]
    for times in found.values():
        times.sort()
    return found


def _shade(axes: Axes, events: Sequence[Event], began_s: float) -> None:
    for event in events:
        if event.kind == "full disk":
            begins = event.time_s - began_s
            axes.axvspan(begins, begins + event.duration_s, color="tab:red", alpha=0.25, label="full disk")
        if event.kind == "drain":
            axes.axvline(event.time_s - began_s, color="black", linestyle="--", label="no more faults")
