"""Hunt mutations anew, and write ``docs/evidence/mutations.md``: ``python -m tests.simulation.mutations [NAME ...]``.

``--apply NAME`` runs pytest under one of them instead: ``... --apply one_batch_remembered tests/unit/state``.
"""

from __future__ import annotations

import logging
import sys

import click
import pytest
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.simulation.mutations.catalog import BY_HISTORIES, MUTATIONS
from tests.simulation.mutations.hunt import Catch, hunt, run_history
from tests.simulation.mutations.page import record, recorded


class _Under:
    """Applies a mutation. Of a failure that was made on purpose, nobody wants the smallest example."""

    def __init__(self, name: str) -> None:
        self._applied = MUTATIONS[name].applied()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # pytest wants to import it first

        settings.register_profile("unshrunk", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("unshrunk")
        # Not earlier: the mutation may import a package that imports hypothesis.
        self._applied.__enter__()


@click.command()
@click.argument("names", nargs=-1)
@click.option("--histories", default=1_000, help="After so many a mutation counts as not caught.")
@click.option("--from", "first", default=0, help="The first seed.")
@click.option("--apply", "applied", help="Run pytest under this mutation, with NAMES as its arguments.")
def main(names: tuple[str, ...], histories: int, first: int, applied: str | None) -> None:
    """Hunt mutations, all or these, and write down which history catches each."""
    logging.disable(logging.CRITICAL)  # Under faults the log warns all the time.
    if applied is not None:
        sys.exit(pytest.main(["-q", "-x", *names], plugins=[_Under(applied)]))
    unknown = set(names) - BY_HISTORIES.keys()
    if unknown:
        raise click.UsageError(f"no mutation that histories catch is named {', '.join(sorted(unknown))}")
    caught: dict[str, Catch | None] = {}
    for name in track(names or tuple(BY_HISTORIES), description="mutations"):
        caught[name] = catch = hunt(BY_HISTORIES[name], first_seed=first, most_histories=histories)
        record(name, catch)
    found = recorded()
    escaped = [name for name, catch in caught.items() if catch is None]
    table = Table("mutation", "rule left out", "how it shows", "seed", "histories", "steps")
    for name in caught.keys() - set(escaped):
        each = found[name]
        table.add_row(name, BY_HISTORIES[name].rule, each.error, str(each.seed), str(each.histories), f"{each.steps:,}")
    console = Console()
    console.print(table)
    broken = {name: run_history(catch.seed, BY_HISTORIES[name].focus) for name, catch in caught.items() if catch}
    for name, error in broken.items():
        if error is not None:
            console.print(f"the history that catches {name} fails without it, too: {error}")
    console.print(f"{len(caught) - len(escaped)} caught, not caught: {', '.join(escaped) or 'none'}")
    sys.exit(bool(escaped) or any(broken.values()))


if __name__ == "__main__":
    main()
