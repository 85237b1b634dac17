"""Measure the working tree, or compare two commits of the project in one run, by ``benchmarks.short``.

``python -m benchmarks.compare [OLD [NEW]] [--all]``. NEW is the working tree unless it is named. Without OLD the
working tree alone is measured. Each round runs each benchmark on the old commit and then on the new one, so that a
busy machine slows both. Both are measured by the benchmarks of NEW, with the same interpreter. Three rounds of both
commits take about four minutes on two idle cores.

The exit code is 1 if an exact count, such as the requests of an operation, is larger in NEW. Times never decide it:
other work on the machine can change "commits/s" by a factor of three.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.short import EXACT, LONG, MEASURES

REPOSITORY = Path(__file__).parents[1]
ROUNDS = 3


class Numbers:
    """The numbers of all runs of one commit."""

    def __init__(self) -> None:
        self._found: dict[str, list[float]] = defaultdict(list)
        self.missing: dict[str, str] = {}
        """By benchmark: why it gave no numbers."""

    def take(self, benchmark: str, answer: str, complaint: str = "") -> None:
        """Add the output of a run: its numbers on the last line of ``answer``, or the reason why there are none."""
        try:
            found = json.loads(answer.strip().rpartition("\n")[2])
            if "missing" in found:
                self.missing[benchmark] = f"missing: {found['missing']}"
                return
            numbers = {name: float(value) for name, value in found.items()}
        except (ValueError, TypeError, AttributeError):
            self.missing[benchmark] = f"failed: {complaint.strip().rpartition(chr(10))[2] or 'it printed no numbers'}"
            return
        for name, value in numbers.items():
            self._found[name].append(value)

    @property
    def names(self) -> list[str]:
        return list(self._found)

    def values(self, name: str) -> list[float]:
        """The values of all runs, in their order."""
        return self._found.get(name, [])


def rows(old: Numbers, new: Numbers) -> Iterator[tuple[str, str, str, str]]:
    """A line for each number: its name, the spread on both commits, and that of the ratio of new to old."""
    for name in dict.fromkeys([*new.names, *old.names]):
        before, after = old.values(name), new.values(name)
        # Runs of one round belong together; if a run failed, the rounds no longer match.
        pairs = list(zip(before, after, strict=True)) if len(before) == len(after) else []
        ratios = [each / base for base, each in pairs if base]
        yield name, _shown(before), _shown(after), _shown(ratios) if ratios else "-"


def risen(old: Numbers, new: Numbers) -> list[str]:
    """The exact counts that are larger on the new commit."""
    return [
        name
        for name in new.names
        if name.startswith(EXACT) and old.values(name) and min(new.values(name)) > max(old.values(name))
    ]


def _shown(values: Sequence[float]) -> str:
    """The median, and the range if values differ."""
    if not values:
        return "missing"
    median, least, most = map(_number, (statistics.median(values), min(values), max(values)))
    return median if least == most else f"{median} ({least}-{most})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.3g}"


@contextmanager
def checked_out(commit: str, directory: Path) -> Iterator[Path]:
    """A worktree of a commit, which is removed at the end."""
    try:
        _git("worktree", "add", "--quiet", "--detach", str(directory), commit)
        yield directory
    finally:
        subprocess.run(
            ["git", "-C", str(REPOSITORY), "worktree", "remove", "--force", str(directory)],
            check=False,
            capture_output=True,
        )


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(REPOSITORY), *arguments], check=True)


def s3_server() -> dict[str, str]:
    """Return the variable that names the S3 server of this repository. A worktree of a commit has no ``.cache``."""
    found = subprocess.run([REPOSITORY / "conf/s3_server.sh", "find"], capture_output=True, text=True, check=False)
    return {"EOSLOG_S3_SERVER": found.stdout.strip()} if found.returncode == 0 else {}


def run(benchmark: str, tree: Path, code: Path, stores: Path, numbers: Numbers) -> None:
    """Run a benchmark once: the library of ``tree``, the benchmarks of ``code``, and new stores in ``stores``."""
    path = os.pathsep.join(map(str, (code, tree, tree / "spark_ext")))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.short", benchmark],
        cwd=code,
        env=os.environ | s3_server() | {"PYTHONPATH": path, "TMPDIR": str(stores)},
        capture_output=True,
        text=True,
        check=False,
    )
    numbers.take(benchmark, done.stdout if done.returncode == 0 else "", done.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", default="", help="a commit; else the working tree is measured alone")
    parser.add_argument("new", nargs="?", default="", help="a commit; else the working tree")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--all", action="store_true", help=f"also: {', '.join(LONG)}")
    parser.add_argument(
        "--only", default="", help=f"benchmarks whose name has this in it: {', '.join(MEASURES | LONG)}"
    )
    options = parser.parse_args(arguments)
    chosen = [name for name in (MEASURES | LONG if options.all or options.only else MEASURES) if options.only in name]
    old, new = Numbers(), Numbers()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        old_tree = stack.enter_context(checked_out(options.old, place / "old")) if options.old else None
        new_tree = stack.enter_context(checked_out(options.new, place / "new")) if options.new else REPOSITORY
        # A directory with the benchmarks alone. In their own tree, Python would import the library of that tree.
        code = place / "code"
        code.mkdir()
        stores = place / "stores"
        stores.mkdir()
        has_short = (new_tree / "benchmarks" / "short.py").exists()
        (code / "benchmarks").symlink_to((new_tree if has_short else REPOSITORY) / "benchmarks")
        for _ in track(range(options.rounds), "rounds"):
            for name in chosen:
                if old_tree is not None:
                    run(name, old_tree, code, stores, old)
                run(name, new_tree, code, stores, new)
    console = Console(width=140)
    names = (options.old, options.new or "working tree")
    table = Table("", *names, "new / old") if options.old else Table("", names[1])
    table.title = f"Medians of {options.rounds} runs, and their range"
    for name, before, after, ratio in rows(old, new):
        table.add_row(name, *((before, after, ratio) if options.old else (after,)))
    console.print(table)
    for commit, numbers in zip(names, (old, new), strict=True):
        for name, why in numbers.missing.items():
            console.print(f"{commit}: {name} {why}", markup=False)
    found = risen(old, new)
    for name in found:
        console.print(f"{name}: it rose", style="red")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
