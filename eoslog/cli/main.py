"""The command ``eoslog``: a store from the command line."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from eoslog.cli.console import console
from eoslog.cli.context import global_options
from eoslog.cli.coordinator import coordinator
from eoslog.cli.dump_log import dump_log
from eoslog.cli.export import export
from eoslog.cli.groups import groups
from eoslog.cli.history import history
from eoslog.cli.import_files import import_files
from eoslog.cli.metrics import metrics
from eoslog.cli.offsets import offsets
from eoslog.cli.rewriting import compact, merge_files
from eoslog.cli.store_commands import checkpoint, describe, rebuild_indexes, seal, vacuum
from eoslog.cli.topics import topics
from eoslog.cli.transactions import transactions
from eoslog.cli.verify import verify
from eoslog.errors import EosLogError, one_line

_ERROR = 1
_INTERRUPTED = 130


class _Commands(click.Group):
    """An error of eoslog is one line, and an interruption none. Click itself ends quietly when its reader has gone."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EosLogError as error:
            text = "; ".join([str(error), *getattr(error, "__notes__", ())])
            click.secho(" ".join(one_line(text).split()), fg="red", err=True)
            ctx.exit(_ERROR)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)


def _print_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    try:
        click.echo(f"eoslog {version('eoslog')}")
    except PackageNotFoundError:
        click.echo("eoslog, not installed as a package")
    context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@global_options
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """Look at an eoslog store, and change it.

    Exit status: 0 done, 1 an error (one line on standard error, beginning with its code), 2 wrong usage.

    \b
    Examples:
      eoslog --store my-store topics create payments --partitions 3
      echo hello | eoslog --store my-store console produce payments
      eoslog --store my-store console consume payments --from-beginning --timeout 1
      eoslog --store s3://bucket/prefix transactions list --json
    """


for _command in (
    topics,
    transactions,
    groups,
    offsets,
    history,
    console,
    import_files,
    export,
    describe,
    metrics,
    dump_log,
    verify,
    vacuum,
    seal,
    merge_files,
    compact,
    rebuild_indexes,
    checkpoint,
    coordinator,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command."""
    cli(prog_name="eoslog")


if __name__ == "__main__":
    main()
