"""The common parts of commands: their class with the global options, one run of the command, and types of values."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

import eoslog
from eoslog.cli import completion
from eoslog.errors import InvalidRequest
from eoslog.wording import one_line

if TYPE_CHECKING:
    from eoslog.cli.rendering import Columns
    from eoslog.session.settings import Settings

T = TypeVar("T")

NATURAL = click.IntRange(min=0)
COUNT = click.IntRange(min=1)


class Invocation:
    """One run of the command. Its functions import what they need, so that the help answers at once."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.config: str | None = None
        self.as_json = False
        self.wide = False
        self.verbosity = 0

    @cached_property
    def settings(self) -> Settings:
        """The settings of the file and of the environment."""
        from eoslog.session.settings import load_settings

        return load_settings(self.config)

    def store(self, **options: Any) -> eoslog.Store:
        """Return the store that the user named.

        Args:
            options: options of ``eoslog.connect``, beside those of the settings.

        Raises:
            click.UsageError: none was named.
        """
        if not self.store_url:
            raise click.UsageError(
                "No store is named. Give --store URL, set EOSLOG_STORE, or write `store` into the settings file."
            )
        return eoslog.connect(self.store_url, settings=self.settings, **options)

    def store_at(self, url: str, config: str | None) -> eoslog.Store:
        """Return another store than the one that the user named.

        Args:
            config: its settings file; None: the settings of this run apply.
        """
        from eoslog.session.settings import load_settings

        return eoslog.connect(url, settings=self.settings if config is None else load_settings(config))

    @property
    def store_url(self) -> str | None:
        """The URL that the user named, in an option or a setting."""
        return self.url or self.settings.store

    def print_rows(self, columns: Columns, things: Iterable[Any], *, empty: str = "none") -> None:
        """Print objects as a table for people, or as a JSON list of objects."""
        from eoslog.cli import rendering, tables

        rows = [columns.of(thing) for thing in things]
        if self.as_json:
            rendering.print_json([rendering.as_object(row) for row in rows])
        elif rows:
            tables.print_table(rows, wide=self.wide)
        else:
            rendering.print_line(empty)

    def print_facts(self, facts: Mapping[str, Any], **parts: list[dict[str, Any]]) -> None:
        """Print the properties of one object, and tables that belong to it. In JSON a table is a list of its name."""
        from eoslog.cli import rendering, tables

        if self.as_json:
            lists = {name: [rendering.as_object(row) for row in rows] for name, rows in parts.items()}
            rendering.print_json(rendering.as_object(facts) | lists)
            return
        tables.print_facts(facts, wide=self.wide)
        for rows in filter(None, parts.values()):
            rendering.print_line("")
            tables.print_table(rows, wide=self.wide)

    def print_result(self, message: str, facts: Mapping[str, Any]) -> None:
        """Print what was done: a sentence for people, or a JSON object."""
        from eoslog.cli import rendering

        if self.as_json:
            rendering.print_json(facts)
        else:
            rendering.print_line(message)


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Put the value of a global option into the invocation. The option may stand before or after the command's name."""
    invocation = context.ensure_object(Invocation)
    if value:
        setattr(invocation, str(parameter.name), value)


def _log_to_stderr(context: click.Context, parameter: click.Parameter, value: int) -> None:
    """Log to standard error until the command ends, because of ``--verbose``."""
    invocation = context.ensure_object(Invocation)
    invocation.verbosity += value
    if not value or context.resilient_parsing:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name in ("eoslog", "pyspark_eoslog", "azure.identity"):
        logger = logging.getLogger(name)
        before = logger.level
        # Of Azure's library the warnings are enough.
        if name != "azure.identity":
            logger.setLevel(logging.INFO if invocation.verbosity == 1 else logging.DEBUG)
        if not any(isinstance(each.formatter, _SafeFormatter) for each in logger.handlers):
            logger.addHandler(handler)
            context.find_root().call_on_close(partial(_end_logging, logger, handler, before))


def _end_logging(logger: logging.Logger, handler: logging.Handler, level: int) -> None:
    logger.removeHandler(handler)
    logger.setLevel(level)


class _SafeFormatter(logging.Formatter):
    """Writes a message on one line, without characters that control the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        record.message = one_line(record.message)
        return super().formatMessage(record)


def _global(*names: str, **options: Any) -> click.Option:
    return click.Option(names, callback=_keep, expose_value=False, **options)


_URL_HELP = "The store: a local path, or an s3://, gs://, abfss:// or az:// URL.  [env: EOSLOG_STORE]"
_CONFIG_HELP = "A settings file, such as conf/eoslog.toml.  [env: EOSLOG_CONFIG]"
GLOBAL_OPTIONS: list[click.Parameter] = [
    _global("--store", "url", metavar="URL", help=_URL_HELP),
    _global("--config", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help=_CONFIG_HELP),
    _global("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
    click.Option(
        ["-v", "--verbose", "verbosity"],
        count=True,
        callback=_log_to_stderr,
        expose_value=False,
        help="Log to standard error. Give it twice to log each request, too.",
    ),
    _global("--wide", is_flag=True, help="Show all columns of tables, at any length."),
]


_EXAMPLE_WIDTH = 76
"""A help text has 80 columns, and its examples are indented by 4."""
_EXAMPLE_BREAK = re.compile(r" (?=--(?!store))|(?<=\|) ")
"""The places at which a long example is broken: before an option and before a piped command."""


class Command(click.Command):
    """A command that takes the global options beside its own, and whose help has examples."""

    def __init__(self, *args: Any, examples: Sequence[str], **more: Any) -> None:
        """Declare a command.

        Args:
            examples: the words after the command's name, or whole lines with ``eoslog`` in them.
        """
        super().__init__(*args, **more)
        self.examples = examples
        # A command's own option may have the name of a global one. Then give the global one before the command.
        taken = {name for each in self.params for name in each.opts}
        self.params += [each for each in GLOBAL_OPTIONS if taken.isdisjoint(each.opts)]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        beginning = ctx.command_path.replace("eoslog", "eoslog --store my-store", 1)
        lines = [each if "eoslog " in each else f"{beginning} {each}".rstrip() for each in self.examples]
        # A shell takes a broken line as one.
        shown = [_EXAMPLE_BREAK.sub(r" \\\n  ", line) if len(line) > _EXAMPLE_WIDTH else line for line in lines]
        with formatter.section("Examples" if len(lines) > 1 else "Example"):
            formatter.write_text("\n".join(["\b", *shown]))


class Group(click.Group):
    """A group of commands."""

    command_class = Command


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
topic_option = partial(click.option, "--topic", metavar="TOPIC", shell_complete=completion.topics)
group_option = partial(click.option, "--group", metavar="GROUP", shell_complete=completion.groups)
transactional_id_option = partial(
    click.option, "--transactional-id", metavar="ID", shell_complete=completion.transactional_ids
)


def parsed(parse: Callable[[str], T], expected: str | None = None) -> Callable[[str], T]:
    """Return a type of option values: a function that reads them from text. Its ValueError means wrong usage."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error) if expected is None else f"{text!r} is not {expected}") from None

    return convert


def _regular_expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


REGEX = parsed(_regular_expression)
TIME = parsed(datetime.fromisoformat, "a time, such as 2026-11-21T08:30:00 (UTC) or 2026-11-21T08:30:00+01:00")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on standard error, unless the user said yes already. Anything but a yes ends the command.

    Raises:
        click.Abort: the user said no.
        InvalidRequest: there was no answer: no terminal, the end of the input, or Ctrl-C.
    """
    if yes:
        return
    try:
        confirmed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # ends the line of the question
        raise InvalidRequest("nobody answered, so nothing was changed. Give --yes to confirm") from None
    if not confirmed:
        raise click.Abort
