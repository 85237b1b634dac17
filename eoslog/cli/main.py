"""The command ``eoslog``: a store from the command line."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, cast

import click

from eoslog.cli.context import global_options
from eoslog.errors import EosLogError, one_line

_ERROR = 1
_INTERRUPTED = 130


class _Listed(NamedTuple):
    """A command as the help lists it. Its module is imported when the command is chosen."""

    place: str
    """Its module, and its name there."""
    summary: str
    """The first sentence of its own help."""


_LISTED = {
    "checkpoint": _Listed(
        "store_commands.checkpoint", "Write the state down now, so that the log is read from here on."
    ),
    "compact": _Listed(
        "rewriting.compact",
        "Keep the newest row of each key in the sealed segments of TOPIC, now; without TOPIC, wherever it is due.",
    ),
    "console": _Listed("console.console", "Produce from standard input, consume to standard output."),
    "coordinator": _Listed(
        "coordinator.coordinator",
        "Look after the store: end timed-out transactions, expire ids, seal, write checkpoints, vacuum.",
    ),
    "describe": _Listed("store_commands.describe", "Describe the store: its id, format, log and size."),
    "dump-log": _Listed(
        "dump_log.dump_log",
        "Print what is stored: slots, checkpoints, or a partition's batches and index files; by default all slots.",
    ),
    "export": _Listed(
        "export.export",
        "Write the rows of TOPIC into FILE: Parquet (.parquet), CSV (.csv) or JSON lines (.json, .jsonl, .ndjson).",
    ),
    "groups": _Listed("groups.groups", "List and describe consumer groups, set and delete their offsets."),
    "history": _Listed(
        "history.history", "Show what was done to TOPIC, or to all topics: commits and changes, the newest first."
    ),
    "import": _Listed(
        "import_files.import_files",
        "Write the rows of FILEs into TOPIC, all of them or none: Parquet, CSV or JSON lines, as `export` writes them.",
    ),
    "merge-files": _Listed(
        "rewriting.merge_files",
        "Make large data files of the small ones in sealed segments of TOPIC, or of all topics.",
    ),
    "metrics": _Listed(
        "metrics.metrics",
        "Show what to watch: late and open transactions, what they hold back, producers, the length of the log.",
    ),
    "offsets": _Listed(
        "offsets.offsets",
        "Show earliest offset, last stable offset and high watermark of each partition of TOPIC.",
    ),
    "rebuild-indexes": _Listed(
        "store_commands.rebuild_indexes",
        "Put back the .txnindex and .snapshot files of TOPIC that are missing or damaged, as they were.",
    ),
    "seal": _Listed(
        "store_commands.seal",
        "Close the segments that are large or old enough, so that the state of the log stays small.",
    ),
    "topics": _Listed("topics.topics", "Create, list, describe, alter and delete topics."),
    "transactions": _Listed("transactions.transactions", "List, describe and abort transactions."),
    "vacuum": _Listed(
        "store_commands.vacuum",
        "Delete files that no transaction names and none can name any more, and old slots and checkpoints of the log.",
    ),
    "verify": _Listed("verify.verify", "Look at all that lies in a store, and tell what is not as its log says."),
}


class _Commands(click.Group):
    """Import only the command that is chosen: the help answers at once.

    An error of eoslog is one line, and an interruption none. Click itself ends quietly when its reader has gone.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_LISTED)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        listed = _LISTED.get(cmd_name)
        if listed is None:
            return None
        module, _, name = listed.place.partition(".")
        return cast(click.Command, getattr(import_module(f"eoslog.cli.{module}"), name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, _LISTED))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, click.Command(name, help=_LISTED[name].summary).get_short_help_str(limit))
                    for name in sorted(_LISTED)
                ]
            )

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


def main() -> None:
    """Run the command."""
    cli(prog_name="eoslog")


if __name__ == "__main__":
    main()
