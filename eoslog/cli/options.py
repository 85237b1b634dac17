"""The common parts of commands: their declaration, common options and types of values, and the session."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import click

import eoslog
from eoslog.cli import completion
from eoslog.cli.completion import Complete
from eoslog.errors import InvalidRequest
from eoslog.wording import one_line

if TYPE_CHECKING:
    from eoslog.cli.rendering import Columns
    from eoslog.session.settings import Settings

T = TypeVar("T")

NATURAL = click.IntRange(min=0)
COUNT = click.IntRange(min=1)
COMMANDS: dict[str, click.Command] = {}
"""The commands whose modules have been imported, by their paths such as ``topics list``."""


class Session:
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


class Param(NamedTuple):
    """The help of a command's parameter and its form on the command line, which a signature does not have."""

    help: str | None = None
    metavar: str | None = None
    type: Any = None
    name: str | None = None
    """The option, if it is not called like the parameter."""
    complete: Complete | None = None
    """Completes the value in a shell. If None, the parameter's name decides (``completion.BY_NAME``)."""


_EXAMPLE_WIDTH = 76
"""A help text has 80 columns, and its examples are indented by 4."""
_EXAMPLE_BREAK = re.compile(r" (?=--(?!store))|(?<=\|) ")

Yes = Annotated[bool, Param("Do not ask for confirmation.")]
TransactionalId = Annotated[str, Param(metavar="ID")]


def command(path: str, *examples: str) -> Callable[[Callable[..., None]], click.Command]:
    """Declare a command: a function of a session. Its docstring is the help, its signature has the parameters.

    Positional parameters are arguments, keywords are options. A bool is a flag, a tuple takes any number of values, and
    an int is not negative. ``Annotated`` adds a ``Param``. Click's own decorators add what a signature cannot say.

    Args:
        path: the words of the command, as ``topics list``. The group of the first word is declared before.
        examples: the words after these, or whole lines with ``eoslog`` in them.
    """
    lines = [each if "eoslog " in each else f"eoslog --store my-store {path} {each}".rstrip() for each in examples]
    folded = [f"  {part}" for line in lines for part in _folded(line)]
    shown = "\n".join(["\b", "Examples:" if len(lines) > 1 else "Example:", *folded])

    def declare(function: Callable[..., None]) -> click.Command:
        text = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{shown}"
        hints = get_type_hints(function, include_extras=True)
        signature = inspect.signature(function).parameters.values()
        made = click.command(path.split()[-1], help=text)(click.make_pass_decorator(Session, ensure=True)(function))
        decorated = {each.name for each in made.params}
        declared = [
            _parameter(each, hints[each.name])
            for each in signature
            if each.name not in {"session", *decorated} and each.kind is not each.VAR_KEYWORD
        ]
        own = [*declared, *made.params]
        taken = {name for each in own for name in each.opts}
        # A command's own option may have the name of a global one. Then give the global one before the command.
        made.params = [*own, *(each for each in GLOBAL_OPTIONS if not taken & set(each.opts))]
        return _declared(path, made)

    return declare


def _folded(line: str) -> Iterator[str]:
    """Yield the lines of an example, as a shell takes them. A line ends before an option or a piped command."""
    shown = ""
    for part in _EXAMPLE_BREAK.split(line):
        if shown and len(f"{shown} {part} \\") > _EXAMPLE_WIDTH:
            yield f"{shown} \\"
            shown = f"  {part}"
        else:
            shown = f"{shown} {part}" if shown else part
    yield shown


def _parameter(declared: inspect.Parameter, hint: Any) -> click.Parameter:
    param = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Param)), Param())
    kind = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    many = get_origin(kind) is tuple
    value_type = param.type or (NATURAL if int in (kind, *get_args(kind)) else None)
    complete = param.complete or completion.BY_NAME.get(declared.name)
    default = None if declared.default is declared.empty else declared.default
    if declared.kind is not declared.KEYWORD_ONLY:
        required = declared.default is declared.empty
        nargs = -1 if many else 1
        return click.Argument(
            [declared.name],
            type=value_type,
            metavar=param.metavar,
            nargs=nargs,
            required=required,
            shell_complete=complete,
        )
    more: dict[str, Any] = {"default": default, "show_default": True} if default else {}
    if kind is bool:
        # Not for others: is_flag=False means to click that the option's value may be left out.
        more["is_flag"] = True
    return click.Option(
        [param.name or f"--{declared.name.replace('_', '-')}", declared.name],
        type=value_type,
        metavar=param.metavar,
        help=param.help,
        multiple=many,
        shell_complete=complete,
        **more,
    )


def command_group(name: str, summary: str) -> click.Group:
    """Declare a group of commands."""
    group = click.Group(name, help=summary)
    _declared(name, group)
    return group


def _declared(path: str, made: click.Command) -> click.Command:
    COMMANDS[path] = made
    group = COMMANDS.get(path.rpartition(" ")[0])
    if isinstance(group, click.Group):
        group.add_command(made)
    return made


def _kept(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Put the value of a global option into the session. The option may stand before or after the command's name."""
    session = context.ensure_object(Session)
    if value:
        setattr(session, str(parameter.name), value)


def _logged(context: click.Context, parameter: click.Parameter, value: int) -> None:
    """Log to standard error until the command ends."""
    session = context.ensure_object(Session)
    session.verbosity += value
    if not value or context.resilient_parsing:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name in ("eoslog", "pyspark_eoslog"):
        logger = logging.getLogger(name)
        before = logger.level
        logger.setLevel(logging.INFO if session.verbosity == 1 else logging.DEBUG)
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
    return click.Option(names, callback=_kept, expose_value=False, **options)


_URL_HELP = "The store: a local path or s3://bucket/prefix.  [env: EOSLOG_STORE]"
_CONFIG_HELP = "A settings file, as conf/eoslog.toml.  [env: EOSLOG_CONFIG]"
GLOBAL_OPTIONS: list[click.Parameter] = [
    _global("--store", "url", metavar="URL", help=_URL_HELP),
    _global("--config", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help=_CONFIG_HELP),
    _global("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
    click.Option(
        ["-v", "--verbose", "verbosity"],
        count=True,
        callback=_logged,
        expose_value=False,
        help="Log to standard error; twice: also each request.",
    ),
    _global("--wide", is_flag=True, help="Show all columns of tables, at any length."),
]


def parsed(parse: Callable[[str], T], expected: str | None = None) -> Callable[[str], T]:
    """Return a type of option values: a function that reads them from text. Its ValueError means wrong usage."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error) if expected is None else f"{text!r} is not {expected}") from None

    return convert


def confirm(question: str, *, yes: bool) -> None:
    """Ask on standard error, unless the user said yes already. Anything but a yes ends the command.

    Raises:
        click.Abort: the user said no.
        InvalidRequest: nobody answered, as in a job without a terminal.
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
