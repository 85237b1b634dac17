"""What every command shares: the store, and how its answer is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

import eoslog
from eoslog.client.settings import Settings, load_settings

T = TypeVar("T")


class Session:
    """The options that stand before the command."""

    def __init__(self, url: str | None, config: str | None, as_json: bool) -> None:
        self._url = url
        self._config = config
        self.as_json = as_json

    @property
    def settings(self) -> Settings:
        return load_settings(self._config)

    def store(self) -> eoslog.Store:
        """The store that the user named.

        Raises:
            click.UsageError: none was named.
        """
        settings = self.settings
        url = self._url or settings.store
        if not url:
            raise click.UsageError("name a store: eoslog --store URL …, or set EOSLOG_STORE")
        return eoslog.connect(url, log_config=settings.log_config(), **settings.store_options(url))

    def print_rows(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "none") -> None:
        """Print rows as a table for people, or as a JSON list of objects."""
        listed = [list(row) for row in rows]
        if self.as_json:
            self.print_json([dict(zip(columns, row, strict=True)) for row in listed])
            return
        if not listed:
            click.echo(empty)
            return
        table = Table(*columns)
        for row in listed:
            table.add_row(*(_text(value) for value in row))
        _console().print(table)

    def print_facts(self, facts: Mapping[str, Any]) -> None:
        """Print one thing's properties, a line each, or as a JSON object."""
        if self.as_json:
            self.print_json(facts)
            return
        table = Table.grid(padding=(0, 2))
        for name, value in facts.items():
            table.add_row(name, _text(value))
        _console().print(table)

    def print_json(self, value: Any) -> None:
        click.echo(json.dumps(value, indent=2))

    def say(self, message: str) -> None:
        """A word on what was done, for people only."""
        if not self.as_json:
            click.echo(message)


def pass_session(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command the session as its first argument."""
    return click.make_pass_decorator(Session)(command)


def _console() -> Console:
    # Into a file or a pipe a table is as wide as its content.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(each) for each in value)
    return (
        f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000 else str(value)
    )
