"""The command ``eoslog``: a store from the command line."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

import click

from eoslog.cli.options import GLOBAL_OPTIONS
from eoslog.errors import CorruptRecord, EosLogError

_ERROR = 1
_INTERRUPTED = 130
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


@dataclass(frozen=True)
class _Listed:
    """A command. Its module is imported when it is chosen, so that the help and the completion answer at once."""

    module: str
    """The name of its module (``_imported``)."""
    summary: str
    """The first sentence of its help."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """The commands of a group by name, each with the first sentence of its help."""


_LISTED = {
    "alter": _Listed("store_commands", "Change settings of the store."),
    "checkpoint": _Listed("store_commands", "Write a checkpoint now."),
    "compact-files": _Listed("store_commands", "Rewrite small data files in sealed segments into large ones."),
    "compact-keys": _Listed("store_commands", "Keep the newest row of each key in sealed segments."),
    "console": _Listed(
        "console",
        "Produce from standard input, consume to standard output.",
        {
            "produce": "Write each line of standard input into TOPIC.",
            "consume": "Print the records of TOPIC, a line each, until interrupted.",
        },
    ),
    "coordinator": _Listed("store_commands", "Run the background maintenance of a store."),
    "copy": _Listed("store_commands", "Copy the store at one slot to TARGET, an empty location or an earlier copy."),
    "describe": _Listed("store_commands", "Describe the store: its id, format, log and size."),
    "dump-log": _Listed("dump", "Print slots, checkpoints, batches and index files as they are stored."),
    "export": _Listed("table_files", "Write the rows of TOPIC into FILE."),
    "gateway": _Listed("gateway", "Serve Kafka's clients in front of the store."),
    "groups": _Listed(
        "group_commands",
        "List and describe consumer groups, set and delete their offsets, remove members.",
        {
            "list": "List consumer groups and their states.",
            "describe": "Describe the consumer group GROUP, or all groups with --all-groups.",
            "reset-offsets": "Set the offsets of the consumer group GROUP in topics, or in some partitions of a topic.",
            "delete-offsets": "Delete the committed offsets of GROUP in topics.",
            "delete": "Delete the consumer group GROUP and its offsets.",
            "remove-member": "Remove members from the consumer group GROUP.",
        },
    ),
    "history": _Listed("store_commands", "Show the commits and changes of TOPIC, or of all topics, the newest first."),
    "import": _Listed("table_files", "Write all rows of FILEs into TOPIC, or none."),
    "metrics": _Listed("store_commands", "Show metrics of transactions, producers and the log."),
    "offsets": _Listed(
        "topic_commands", "Show the offsets at which the partitions of TOPIC begin and end, or those of all topics."
    ),
    "publish": _Listed(
        "store_commands", "Publish TOPIC as the tables that its setting publish names, for other engines."
    ),
    "restore-indexes": _Listed("store_commands", "Restore missing or damaged .txnindex and .snapshot files of TOPIC."),
    "seal": _Listed("store_commands", "Seal the segments that are large or old enough."),
    "topics": _Listed(
        "topic_commands",
        "Create, list, describe, alter and delete topics.",
        {
            "create": "Create the topic NAME, and the store if there is none.",
            "list": "List the topics.",
            "describe": "Describe the topic NAME: its columns, settings and partitions.",
            "alter": "Change settings of the topic NAME, raise its number of partitions, or add columns.",
            "schemas": "List the schemas of the topic NAME, the first one first.",
            "delete": "Delete the topic NAME with all its rows.",
            "delete-records": "Delete the oldest records of the topic NAME, at most up to the last stable offset.",
            "skip-damaged": (
                "Leave out the rows of missing and damaged data files of the topic NAME, so that its other rows can be "
                "read."
            ),
        },
    ),
    "transactions": _Listed(
        "transaction_commands",
        "List, describe and abort transactions, fence producers.",
        {
            "list": "List transactional ids, including those of tasks of jobs.",
            "describe": "Describe the transactional id ID.",
            "last-committed": "Show the last commit of the transactional id ID, and the versions of its applications.",
            "describe-producers": "List the producers that PARTITION of TOPIC knows.",
            "find-hanging": "Find transactions that have been open for too long and hold readers back.",
            "abort": "Abort the open transaction of the transactional id ID, or the one at an offset.",
            "fence": "Fence the producer of the transactional id ID, and abort its open transaction if there is one.",
            "force-terminate": "Abort the open transaction of ID even if it is prepared, and fence its producer.",
        },
    ),
    "ui": _Listed("ui", "Serve a web console of the store on this machine."),
    "vacuum": _Listed("store_commands", "Delete unused files, and old slots and checkpoints of the log."),
    "verify": _Listed("store_commands", "Compare every object of a store with the log."),
}
"""The commands by name."""


_OF_KAFKAS_TOOLS = {
    "--bootstrap-server": "--store",
    "--max-messages": "--max-records",
    "--timeout-ms": "--timeout",
}
"""Options of Kafka's tools, each with the option of ``eoslog`` for the same purpose."""


class _Lazy(click.Group):
    """A group that lists its commands, and imports only the command that is chosen."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if name is None or command is None else self.imported(command), rest

    def imported(self, command: click.Command) -> click.Command:
        """Return the command of the imported module for its entry in the list."""
        raise NotImplementedError


class _LazyGroup(_Lazy):
    """A group of commands such as ``eoslog topics``."""

    def __init__(self, name: str, listed: _Listed) -> None:
        super().__init__(name, help=listed.summary)
        self._module = listed.module
        for each, summary in listed.commands.items():
            self.add_command(click.Command(each, help=summary))

    def imported(self, command: click.Command) -> click.Command:
        group = _command_of(_imported(self._module), self.name)
        assert isinstance(group, click.Group)
        return group.commands[str(command.name)]


class _Commands(_Lazy):
    """The command ``eoslog``. It prints an error of eoslog as one line."""

    def imported(self, command: click.Command) -> click.Command:
        if isinstance(command, _LazyGroup):
            return command
        return _command_of(_imported(_LISTED[str(command.name)].module), command.name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            own = _OF_KAFKAS_TOOLS.get(error.option_name)
            if own is not None and error.ctx is not None and any(own in each.opts for each in error.ctx.command.params):
                raise click.UsageError(f"{error.message} Did you mean {own}?", error.ctx) from None
            raise
        except EosLogError as error:
            from eoslog.cli.rendering import print_error

            text = "; ".join([str(error), *getattr(error, "__notes__", ())])
            # A dump shows the damage itself, also that of files which belong to no store.
            if isinstance(error, CorruptRecord) and ctx.invoked_subcommand != "dump-log" and "verify" not in text:
                text += ". Run eoslog verify: it names the damaged object and the remedy"
            print_error(text)
            ctx.exit(_ERROR)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)


def _command_of(module: ModuleType, name: str | None) -> click.Command:
    return next(each for each in vars(module).values() if isinstance(each, click.Command) and each.name == name)


def _imported(module: str) -> ModuleType:
    found: ModuleType
    match module:
        case "console":
            from eoslog.cli import console as found
        case "dump":
            from eoslog.cli import dump as found
        case "gateway":
            from eoslog.cli import gateway as found
        case "group_commands":
            from eoslog.cli import group_commands as found
        case "store_commands":
            from eoslog.cli import store_commands as found
        case "table_files":
            from eoslog.cli import table_files as found
        case "topic_commands":
            from eoslog.cli import topic_commands as found
        case "transaction_commands":
            from eoslog.cli import transaction_commands as found
        case _:
            from eoslog.ui import command as found
    return found


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
for _name, _listed in _LISTED.items():
    cli.add_command(_LazyGroup(_name, _listed) if _listed.commands else click.Command(_name, help=_listed.summary))


def main() -> None:
    """Run the command."""
    # This library logs all that it tried. Without a handler, Python would print that before the one line of the error.
    logging.getLogger("azure.identity").addHandler(logging.NullHandler())
    # NumPy's algebra, which no command uses, would start threads. They spin before they sleep.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imported modules are no garbage. By default the collector looks through them dozens of times and at the exit.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    try:
        cli(prog_name="eoslog")
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
