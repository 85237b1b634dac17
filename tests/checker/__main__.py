"""``python -m tests.checker DIR``: read the histories in a directory, one file a process, and print the verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tests.checker import InvalidHistory, check, read_history


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--unfinished", is_flag=True, help="The history does not end with polls of everything.")
def main(paths: tuple[Path, ...], unfinished: bool) -> None:
    """Check the histories in PATHS: files of JSON Lines, or directories of such. Ends with 1 if one is illegal."""
    try:
        history = read_history(paths)
    except InvalidHistory as error:
        raise click.ClickException(str(error)) from error
    if not history:
        raise click.ClickException(f"no operation in {', '.join(map(str, paths))}; histories are files *.jsonl")
    verdict = check(history, all_was_polled=not unfinished)
    click.echo(str(verdict))
    for key, lag in sorted(verdict.worst_lag.items()):
        click.echo(f"  the longest wait of a value of {key}: {lag}")
    sys.exit(not verdict.is_valid)


if __name__ == "__main__":
    main()
