"""What every command shares: the global options, the store that they name, and the form of the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

import eoslog

if TYPE_CHECKING:
    from eoslog.client.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


class Session:
    """One run of the command. Its functions import what they need: the help answers without."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.config: str | None = None
        self.as_json = False

    @cached_property
    def settings(self) -> Settings:
        """What the user chose in the settings file and in the environment."""
        from eoslog.client.settings import load_settings

        return load_settings(self.config)

    def store(self) -> eoslog.Store:
        """The store that the user named.

        Raises:
            click.UsageError: none was named.
        """
        url = self.url or self.settings.store
        if not url:
            raise click.UsageError(
                "no store is named: give --store URL, set EOSLOG_STORE, or write `store` into the settings file"
            )
        return eoslog.connect(url, settings=self.settings)

    def print_rows(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "none") -> None:
        """Print rows as a table for people, or as a JSON list of objects."""
        from eoslog.cli import output

        listed = list(rows)
        if self.as_json:
            output.print_json([output.named(columns, row) for row in listed])
        elif listed:
            output.print_table(columns, listed)
        else:
            output.print_line(empty)

    def print_facts(self, facts: Mapping[str, Any]) -> None:
        """Print one thing's properties, a line each, or as a JSON object."""
        from eoslog.cli import output

        if self.as_json:
            output.print_json(output.named(facts.keys(), facts.values()))
        else:
            output.print_facts(facts)

    def print_result(self, message: str, facts: Mapping[str, Any]) -> None:
        """Say what was done: a sentence for people, or a JSON object."""
        from eoslog.cli import output

        if self.as_json:
            output.print_json(facts)
        else:
            output.print_line(message)


pass_session = click.make_pass_decorator(Session, ensure=True)


def global_options(command: F) -> F:
    """The options that may stand before and after the command's name."""
    for option in (
        click.option("--json", "as_json", is_flag=True, **_kept("as_json"), help="Print JSON instead of text."),
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            **_kept("config"),
            help="A settings file, as conf/eoslog.toml.  [env: EOSLOG_CONFIG]",
        ),
        click.option(
            "--store",
            metavar="URL",
            **_kept("url"),
            help="The store: a local path or s3://bucket/prefix.  [env: EOSLOG_STORE]",
        ),
    ):
        command = option(command)
    return command


def _kept(attribute: str) -> dict[str, Any]:
    """A global option's value goes into the session, not to the command."""

    def keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
        session = context.ensure_object(Session)
        if value:
            setattr(session, attribute, value)

    return {"callback": keep, "expose_value": False}
