"""The pictures of the page: bars by case and system, and lines over the number of writers or transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.peers.measurements import PHASES, TRIGGER, Results

_COLOURS = {
    "Parquet": "#8c8c8c",
    "pyarrow": "#8c8c8c",
    "Delta": "#c44e52",
    "deltalake": "#c44e52",
    "Iceberg": "#55a868",
    "pyiceberg": "#55a868",
    "Kafka": "#dd8452",
}
_SHADES = ("#a9c4ee", "#5b8dd6", "#1f4e96", "#dd8452")
_OURS = ("#1f4e96", "#5b8dd6", "#3fa7a3", "#a9c4ee")


def colours(systems: Sequence[str]) -> Mapping[str, str]:
    """The color of each system: eoslog's variants are blue."""
    ours = iter(_OURS)
    return {system: _COLOURS.get(system) or next(ours, _OURS[-1]) for system in systems}


def draw(results: Results, directory: Path) -> str:
    """Draw the picture of a part, and return the name of its file."""
    painters: Mapping[str, Callable[[Results], Figure]] = {
        "writers": lambda found: _lines(found, "commits/s", "writers", _writer_point),
        "history": lambda found: _lines(found, "open and plan (ms)", "transactions", _history_point),
        "micro-batches": _phases,
    }
    painter = painters.get(results.part)
    figure = painter(results) if painter else _bars(results, results.metrics[0])
    name = f"performance-{results.part}.svg"
    # Neither a date nor random names, so that a picture changes only with its numbers.
    matplotlib.rcParams.update({"svg.hashsalt": results.part, "svg.fonttype": "none"})
    figure.savefig(directory / name, metadata={"Date": None, "Creator": None})
    return name


def _bars(results: Results, metric: str) -> Figure:
    """A bar for each system in each case: the median, with the range of the rounds."""
    cases = results.cases(metric)
    systems = [each for each in results.systems if any(results.find(case, each, metric) for case in cases)]
    chosen = colours(systems)
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(systems)
    for number, system in enumerate(systems):
        for place, case in enumerate(cases):
            found = results.find(case, system, metric)
            if found is None:
                continue
            spread = found.spread
            error = [[spread.median - spread.least], [spread.most - spread.median]]
            left = place + (number - (len(systems) - 1) / 2) * width
            axes.bar(left, spread.median, width * 0.92, color=chosen[system], yerr=error, ecolor="#444444")
    axes.set_xticks(range(len(cases)), cases)
    axes.set_yscale("log")
    axes.set_ylabel(metric)
    _finish(figure, axes, systems)
    return figure


def _lines(results: Results, metric: str, over: str, point: Callable[[str], tuple[str, float] | None]) -> Figure:
    """A line for each system over a number, in a panel for each kind of case."""
    panels: dict[str, list[tuple[float, str]]] = {}
    for case in results.cases(metric):
        found = point(case)
        if found is not None:
            panels.setdefault(found[0], []).append((found[1], case))
    systems = results.systems
    chosen = colours(systems)
    figure = Figure(figsize=(10, 4), layout="constrained")
    several = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, points) in zip(several, panels.items(), strict=True):
        for system in systems:
            known = [(x, each.spread) for x, case in sorted(points) if (each := results.find(case, system, metric))]
            xs, medians = [x for x, _ in known], [spread.median for _, spread in known]
            error = [[each.median - each.least for _, each in known], [each.most - each.median for _, each in known]]
            axes.errorbar(xs, medians, yerr=error, color=chosen[system], marker="o", capsize=3)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([x for x, _ in points], [f"{x:,.0f}" for x, _ in points])
        axes.minorticks_off()
        axes.set_xlabel(over)
        axes.set_title(title, fontsize=10)
        axes.grid(visible=True, alpha=0.3)
    several[0].set_ylabel(metric)
    _finish(figure, several[0], systems)
    return figure


def _writer_point(case: str) -> tuple[str, float] | None:
    """The panel and the place of ``100 ms, 8 threads``; processes stand in the table alone."""
    delay, _, writers = case.partition(", ")
    count, _, kind = writers.partition(" ")
    return (f"{delay} a request, threads", float(count)) if kind.startswith("thread") else None


def _history_point(case: str) -> tuple[str, float]:
    """The panel and the place of ``1,000 transactions, 10 ms``."""
    transactions, _, delay = case.rpartition(", ")
    return f"{delay} a request", float(transactions.partition(" ")[0].replace(",", ""))


def _phases(results: Results) -> Figure:
    """A stack of phases for each system, in a panel for sinks and one for sources."""
    cases = results.cases(TRIGGER)
    figure = Figure(figsize=(10, 4), layout="constrained")
    several = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for axes, case in zip(several, cases, strict=True):
        systems = [each for each in results.systems if results.find(case, each, TRIGGER)]
        bottoms = [0.0] * len(systems)
        for phase, shade in zip(PHASES, _SHADES, strict=True):
            heights = []
            for system in systems:
                found = results.find(case, system, phase)
                heights.append(found.spread.median if found else 0.0)
            axes.bar(systems, heights, bottom=bottoms, color=shade, label=phase.removesuffix(" (ms)"))
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
        axes.set_title(case, fontsize=10)
        axes.grid(visible=True, axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    several[0].set_ylabel("ms a micro-batch")
    several[0].legend(fontsize=9, frameon=False)
    return figure


def _finish(figure: Figure, axes: Axes, systems: Sequence[str]) -> None:
    chosen = colours(systems)
    handles = [Patch(color=chosen[system], label=system) for system in systems]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(systems), fontsize=9, frameon=False)
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
