"""How answers are printed: tables that people read, JSON that programs read, progress on standard error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

_WIDE = 1_000_000
"""Into a file or a pipe a table is as wide as its content."""


def print_json(value: Any) -> None:
    click.echo(json_text(value, indent=2, allow_nan=False))


def json_text(value: Any, **options: Any) -> str:
    """A value as JSON. What could act on the terminal, and lone surrogates, are escaped in it."""
    text = json.dumps(value, ensure_ascii=False, **options)
    if text.isprintable():
        return text
    # What breaks lines here stands between values: in a text it is escaped already.
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else json.dumps(character)[1:-1]


def print_line(text: str) -> None:
    click.echo(shown(text))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Rows below their columns' names; numbers stand to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for index, name in enumerate(columns):
        numeric = all(row[index] is None or isinstance(row[index], int) for row in rows)
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(value)) for value in row))
    _console().print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """One thing's properties, a line each."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        values = value if isinstance(value, (list, tuple)) and len(value) > 1 else [value]
        for index, each in enumerate(values):
            table.add_row(Text(name if index == 0 else ""), Text(shown(each)))
    _console().print(table)


def named(columns: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    """A row as a JSON object: ``ProducerId`` is ``producer_id`` there, and ``LOG-END-OFFSET`` ``log_end_offset``."""
    keys = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", column).lower() for column in columns)
    return dict(zip(keys, values, strict=True))


def shown(value: Any) -> str:
    """A value on one line. Nothing in it acts on the terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(each) for each in value) or "-"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(value))


@contextmanager
def progress(label: str, *, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Show on standard error that work goes on, if somebody sits there; the function that is given counts it."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed} " + unit if unit else ""),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(label, total=None)
        yield lambda count: bar.advance(task, count)


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Show on standard error how much of ``total`` is done, if somebody sits there, with a few words beside it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total, words="")
        yield lambda done, words: bar.update(task, completed=done, words=words)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """As ``progress_bar``, for work in several parts: each is named as it comes, with how much of it is done."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(part: str, done: int, total: int) -> None:
            if part not in tasks:
                tasks[part] = bar.add_task(part, total=total)
            bar.update(tasks[part], completed=done, total=total)

        yield tell


def _console() -> Console:
    plain = {"highlight": False, "markup": False, "emoji": False}
    return Console(**plain) if sys.stdout.isatty() else Console(width=_WIDE, **plain)  # type: ignore[arg-type]
