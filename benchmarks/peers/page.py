"""Write ``docs/performance.md`` and its pictures from the results of the parts. No number stands in this module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.peers.measurements import Comparison, Results, Spread, compare
from benchmarks.peers.parts import PARTS

_HEAD = """\
# Performance beside Parquet, Delta, Iceberg and Kafka

<!-- Written by `make bench-peers`. Do not edit it. -->

This page compares the same work by eoslog and by others, in one run on one machine. `make bench-peers` repeats the run
and writes this page.

- A cell has the median over the rounds, and the range in brackets. In a round each system does the work once, one
  after the other; the order changes from round to round.
- A *factor* compares two systems within a round. Above 1, eoslog is ahead by this factor; below 1, it is behind.
  **Bold**: it is behind in each round by more than 5 %.
- All systems run with their defaults. Each part states the differences that matter.
- Times depend on the machine. Compare factors, and only those whose range does not contain 1.
"""

_DESIGN = """\
The design sets these limits, whatever the numbers of a run:

- A commit of eoslog is at least one PUT, and larger files are uploaded before. Each waits for a disk or for S3. A Kafka
  broker answers from memory.
- There is no broker that pushes records. A consumer that waits must poll the log.
- Spark prunes no columns and pushes no filters into a data source written in Python. Its rows also pass from a Python
  process to the JVM. Readers that need all of Spark's speed use `EosLogTable.toDF()`.
- All writers of a store append to one log. Kafka's partitions have no order between them, and so no such limit.
"""


def write(kept: Mapping[str, Results], machine: Mapping[str, str], output: Path) -> Path:
    """Write the page and its pictures below a directory, and return the path of the page.

    Args:
        kept: The results by the name of the part.
        machine: What they were measured on: a name and its value.
        output: The directory of the documentation.
    """
    # Matplotlib takes long to import, and most of the benchmarks and their tests draw nothing.
    from benchmarks.peers import plots

    images = output / "images"
    images.mkdir(parents=True, exist_ok=True)
    pictures = {part: plots.draw(results, images) for part, results in kept.items() if results.measurements}
    path = output / "performance.md"
    path.write_text(text(kept, machine, pictures), encoding="utf-8")
    return path


def text(kept: Mapping[str, Results], machine: Mapping[str, str], pictures: Mapping[str, str]) -> str:
    """The page: the losses first, then each part with its pictures and tables, then the machine."""
    lines = [_HEAD, f"Size of this run: {_sizes(kept)}.\n"]
    lines += ["## Where eoslog is behind\n", *_losses(kept), "", _DESIGN]
    lines += ["## Summary\n", *_summary(kept), ""]
    for part, results in kept.items():
        lines += _part(part, results, pictures.get(part))
    lines += ["## Machine and versions\n", *_table(["", ""], machine.items()), ""]
    return "\n".join(lines)


def _sizes(kept: Mapping[str, Results]) -> str:
    """The size of the run; if parts had several sizes, each with its parts."""
    by_size: dict[str, list[str]] = defaultdict(list)
    for part, results in kept.items():
        by_size[results.size].append(PARTS[part].TITLE)
    if len(by_size) == 1:
        return next(iter(by_size))
    return "; ".join(f"{size} ({', '.join(titles)})" for size, titles in by_size.items())


def _losses(kept: Mapping[str, Results]) -> Iterator[str]:
    """A line for each case and variant in which eoslog was behind some peer in each round."""
    yield "In these cases eoslog was behind in each round by more than 5 %. The factor stands with its range:\n"
    none = True
    for part, results in kept.items():
        behind: dict[tuple[str, str, str], list[Comparison]] = defaultdict(list)
        for each in compare(results):
            if each.behind:
                behind[each.case, each.metric, each.ours].append(each)
        if not behind:
            continue
        none = False
        yield f"- {PARTS[part].TITLE}"
        for (case, metric, ours), found in behind.items():
            peers = ", ".join(f"{each.peer} by {_factor(_inverse(each.factor))}" for each in found)
            yield f"    - {case}, {metric}: `{ours}` is behind {peers}"
    if none:
        yield "- none"


def _summary(kept: Mapping[str, Results]) -> Iterator[str]:
    rows = []
    for part, results in kept.items():
        found = compare(results)
        ahead, behind = sum(each.ahead for each in found), sum(each.behind for each in found)
        link = PARTS[part].TITLE
        rows.append((link, str(ahead), str(len(found) - ahead - behind), str(behind)))
    yield "Comparisons of one variant of eoslog with one peer, in one case and metric:\n"
    yield from _table(["Part", "ahead in each round", "no clear difference", "behind in each round"], rows)


def _part(part: str, results: Results, picture: str | None) -> Iterator[str]:
    module = PARTS[part]
    yield f"## {module.TITLE}\n"
    yield module.INTRO.format_map(defaultdict(lambda: "?", results.settings)) + "\n"
    for failure in results.failures:
        where = ", ".join(each for each in (failure.system, failure.case) if each)
        yield f"> **Failed**: {where or 'this part'}: `{failure.reason.replace('`', '')}`\n"
    if picture:
        yield f"![{module.TITLE}](images/{picture})\n"
    for metric in results.metrics:
        yield from _values(results, metric)
        yield ""
    yield from _factors(results)


def _values(results: Results, metric: str) -> Iterator[str]:
    """The table of a metric: a row for each case, a column for each system."""
    cases = results.cases(metric)
    systems = [each for each in results.systems if any(results.find(case, each, metric) for case in cases)]
    rows = []
    for case in cases:
        measured = [results.find(case, system, metric) for system in systems]
        rows.append([case, *(_spread(each.spread) if each else "" for each in measured)])
    yield from _table([metric, *systems], rows)


def _factors(results: Results) -> Iterator[str]:
    """The table of factors: a row for each case, metric and variant of eoslog, a column for each peer."""
    found = compare(results)
    if not found:
        return
    peers = [system for system in results.systems if any(each.peer == system for each in found)]
    by_row: dict[tuple[str, str, str], dict[str, Comparison]] = defaultdict(dict)
    for each in found:
        by_row[each.case, each.metric, each.ours][each.peer] = each
    rows = []
    for (case, metric, ours), row in by_row.items():
        rows.append([case, metric, ours, *(_shown(row.get(peer)) for peer in peers)])
    yield "Factors of eoslog beside the peers (above 1x: eoslog is better):\n"
    yield from _table(["case", "by", "variant", *(f"beside {peer}" for peer in peers)], rows)
    yield ""


def _shown(found: Comparison | None) -> str:
    if found is None:
        return ""
    shown = _factor(found.factor)
    return f"**{shown}**" if found.behind else shown


def _inverse(factor: Spread) -> Spread:
    return Spread(1 / factor.median, 1 / factor.most, 1 / factor.least)


def _factor(factor: Spread) -> str:
    return _ranged(factor, "x")


def _spread(spread: Spread) -> str:
    return _ranged(spread, "")


def _ranged(spread: Spread, unit: str) -> str:
    """The median, and the range if the rounds differ."""
    least, median, most = (number(each) for each in (spread.least, spread.median, spread.most))
    return f"{median}{unit}" if least == most else f"{median}{unit} ({least}-{most})"


def number(value: float) -> str:
    """A number with two or three significant digits, and a whole number in full."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 1:
        return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
