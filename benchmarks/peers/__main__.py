"""Run the parts one after the other, and write the page from all results that are kept.

``python -m benchmarks.peers [--size quick] [--only PART,PART] [--page]``. Each part runs in a process group of its own,
which is ended with the part: after an error, after its time and after Ctrl-C, too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.arguments import existing_directory
from benchmarks.peers import page
from benchmarks.peers.machine import describe
from benchmarks.peers.measurements import Results
from benchmarks.peers.parts import PARTS, RESULTS, results_path
from benchmarks.peers.services import REPOSITORY
from benchmarks.peers.sizes import SIZES

_MACHINE = RESULTS / "machine.json"
_END_S = 30
COMMAND = ["-m", "benchmarks.peers.parts"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full", help="how much work: quick takes about 10 minutes")
    parser.add_argument("--only", default="", help=f"parts, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--page", action="store_true", help="run nothing, and write the page from the kept results")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "docs", help="the directory of the page")
    parser.add_argument(
        "--directory", type=existing_directory, help="where tables are put (default: that for temporary files)"
    )
    parser.add_argument("--history", type=int, help="also open a history of so many transactions (a long run)")
    options = parser.parse_args(arguments)
    chosen = [each for each in options.only.split(",") if each] or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"There is no part {', '.join(sorted(unknown))}. Choose from: {', '.join(PARTS)}.")
    console = Console(stderr=True)
    failed = [] if options.page else _run_all(chosen, options, console)
    kept = {part: Results.load(results_path(part)) for part in PARTS if results_path(part).exists()}
    if not kept:
        console.print("There are no results. Run the parts first.")
        return 1
    written = page.write(kept, json.loads(_MACHINE.read_text(encoding="utf-8")), options.output)
    console.print(f"wrote {os.path.relpath(written)}")
    for part in failed:
        console.print(f"{part} failed; the page says why", style="red")
    return 1 if failed else 0


def _run_all(chosen: Sequence[str], options: argparse.Namespace, console: Console) -> list[str]:
    """Run parts, and return those that failed."""
    failed = []
    # All tables stay until the last part is over: after many deletions, ext4 creates files slowly.
    with tempfile.TemporaryDirectory(prefix="eoslog-peers-", dir=options.directory) as directory:
        RESULTS.mkdir(parents=True, exist_ok=True)
        _MACHINE.write_text(json.dumps(describe(Path(directory)), indent=1) + "\n", encoding="utf-8")
        for part in chosen:
            began = time.monotonic()
            console.print(f"{part} …")
            if not run_part(part, options.size, options.history, Path(directory)):
                failed.append(part)
            console.print(f"{part}: {time.monotonic() - began:,.0f} s")
    return failed


def run_part(part: str, size: str, history: int | None, directory: Path) -> bool:
    """Run a part in a process group of its own, end all of the group, and return whether the part succeeded."""
    limit_s = None if history else SIZES[size].limit_s
    results_path(part).unlink(missing_ok=True)
    with (directory / f"{part}.log").open("w+b") as log:
        command = [sys.executable, *COMMAND, part, size, str(directory), str(history or 0)]
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        reason = ""
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            reason = f"it did not end within {limit_s:,.0f} s"
        finally:
            _end_group(process)
        if process.returncode == 0 and not reason:
            return True
        log.seek(0)
        sys.stderr.write("".join(log.read().decode(errors="replace").splitlines(keepends=True)[-30:]))
    path = results_path(part)
    results = Results.load(path) if path.exists() else Results(part, size)
    results.keep(path)
    if reason or not any(not each.case for each in results.failures):
        results.fail("", "", reason or f"it ended with exit code {process.returncode}")
        results.save()
    return False


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process group: politely, and after a while by force."""
    _signal(process.pid, signal.SIGTERM)
    end = time.monotonic() + _END_S
    while process.poll() is None or _signal(process.pid, 0):
        if time.monotonic() > end:
            _signal(process.pid, signal.SIGKILL)
            break
        time.sleep(0.1)
    process.wait()


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group, and return whether it still has processes."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    # A signal to end must end the parts, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
