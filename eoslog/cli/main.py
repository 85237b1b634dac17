"""The command ``eoslog``: a store from the command line."""

from __future__ import annotations

from importlib import import_module  # noqa: TID251 - only the modules of commands, which never import this one
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from eoslog.cli.options import GLOBAL_OPTIONS
from eoslog.errors import EosLogError

_ERROR = 1
_INTERRUPTED = 130
_LISTED = {
    "checkpoint": ("store_commands.checkpoint", "Write a checkpoint now."),
    "compact-files": ("store_commands.compact_files", "Rewrite small data files in sealed segments into large ones."),
    "compact-keys": ("store_commands.compact_keys", "Keep the newest row of each key in sealed segments."),
    "console": ("console.console", "Produce from standard input, consume to standard output."),
    "coordinator": ("store_commands.coordinator", "Run the background maintenance of a store."),
    "copy": ("store_commands.copy", "Copy the store at its newest slot to TARGET, an empty location."),
    "describe": ("store_commands.describe", "Describe the store: its id, format, log and size."),
    "dump-log": ("dump.dump_log", "Print slots, checkpoints, batches and index files as they are stored."),
    "export": ("table_files.export", "Write the rows of TOPIC into FILE."),
    "groups": (
        "group_commands.groups",
        "List and describe consumer groups, set and delete their offsets, remove members.",
    ),
    "history": ("store_commands.history", "Show the commits and changes of TOPIC, or of all topics, the newest first."),
    "import": ("table_files.import_files", "Write all rows of FILEs into TOPIC, or none."),
    "metrics": ("store_commands.metrics", "Show metrics of transactions, producers and the log."),
    "offsets": ("topic_commands.offsets", "Show the offsets at which the partitions of TOPIC begin and end."),
    "publish": ("store_commands.publish", "Publish TOPIC as a Delta table that other engines read."),
    "restore-indexes": (
        "store_commands.restore_indexes",
        "Restore missing or damaged .txnindex and .snapshot files of TOPIC.",
    ),
    "seal": ("store_commands.seal", "Seal the segments that are large or old enough."),
    "topics": ("topic_commands.topics", "Create, list, describe, alter and delete topics."),
    "transactions": ("transaction_commands.transactions", "List, describe and abort transactions, fence producers."),
    "ui": ("eoslog.ui.command.ui", "Serve a web console of the store on this machine."),
    "vacuum": ("store_commands.vacuum", "Delete unused files, and old slots and checkpoints of the log."),
    "verify": ("store_commands.verify", "Compare every object of a store with the log."),
}
"""Each command with its place, whose module is imported when the command is chosen, and the first sentence of its help.

A place has its name in this package, or its full name if it is in a package above this one.
"""


_OF_KAFKAS_TOOLS = {
    "--bootstrap-server": "--store",
    "--max-messages": "--max-records",
    "--timeout-ms": "--timeout",
}
"""Options of Kafka's tools, with the options of this command that are in their place."""


class _Commands(click.Group):
    """A group that imports only the command that is chosen, and prints an error of eoslog as one line."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            place = _LISTED[name][0]
            module, _, attribute = (place if place.startswith("eoslog.") else f"eoslog.cli.{place}").rpartition(".")
            command = getattr(import_module(module), attribute)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            own = _OF_KAFKAS_TOOLS.get(error.option_name)
            if own is not None and error.ctx is not None and any(own in each.opts for each in error.ctx.command.params):
                raise click.UsageError(f"{error.format_message()} Did you mean {own}?", error.ctx) from None
            raise
        except EosLogError as error:
            from eoslog.cli.rendering import print_error

            print_error("; ".join([str(error), *getattr(error, "__notes__", ())]))
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


@click.group("eoslog", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Look at an eoslog store, and change it.

    Exit status: 0 done, 1 an error (one line on standard error, beginning with its code), 2 wrong usage.

    \b
    Examples:
      eoslog --store my-store topics create payments --partitions 3
      echo hello | eoslog --store my-store console produce payments
      eoslog --store my-store console consume payments --from-beginning
      eoslog --store s3://bucket/prefix transactions list --json
    """


_VERSION = click.Option(
    ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
cli.params += [*GLOBAL_OPTIONS, _VERSION]
for _name, (_, _summary) in _LISTED.items():
    # The help and the completion need only these. The chosen command itself is imported when it is resolved.
    cli.add_command(click.Command(_name, help=_summary))


def main() -> None:
    """Run the command."""
    cli(prog_name="eoslog")


if __name__ == "__main__":
    main()
