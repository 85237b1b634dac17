"""How answers are printed: columns that are declared once, tables for people, JSON for programs, progress on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from eoslog.errors import one_line
from eoslog.state.names import TopicPartition

_WIDE = 1_000_000
"""The width of a table in a file or a pipe: no line is broken there."""
_MOST_ITEMS = 8
_LONGEST_TEXT = 200


class Columns:
    """The columns of one kind of object: each has a title, a name in JSON that follows from it, and a source.

    A string declares columns by ``Title`` or ``Title=attribute``. The attribute of a plain title is its name in JSON:
    ``ProducerId`` is read from ``producer_id``. A pair declares a column whose source is a function.
    """

    def __init__(self, *columns: str | tuple[str, Callable[[Any], Any]]) -> None:
        self._sources: dict[str, Callable[[Any], Any]] = {}
        for column in columns:
            if isinstance(column, tuple):
                self._sources[column[0]] = column[1]
                continue
            for each in column.split():
                title, _, attribute = each.partition("=")
                self._sources[title] = attrgetter(attribute or json_name(title))

    def of(self, thing: Any) -> dict[str, Any]:
        """Return the values of an object by their titles."""
        return {title: _plain(source(thing)) for title, source in self._sources.items()}


def json_name(title: str) -> str:
    """Return the name in JSON: ``producer_id`` for ``ProducerId``, ``log_end_offset`` for ``LOG-END-OFFSET``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", title).lower()


def title_of(name: str) -> str:
    """Return the title of a field: ``RetentionMs`` for ``retention_ms``."""
    return "".join(part.capitalize() for part in name.split("_"))


def _plain(value: Any) -> Any:
    match value:
        case TopicPartition():
            return f"{value.topic}-{value.partition}"
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


def as_object(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by their names in JSON instead of their titles."""
    return {json_name(title): value for title, value in values.items()}


def print_json(value: Any) -> None:
    click.echo(json_text(value, indent=2, allow_nan=False))


def json_text(value: Any, **options: Any) -> str:
    """Return a value as JSON. Lone surrogates and all characters that could act on the terminal are escaped."""
    text = json.dumps(value, ensure_ascii=False, **options)
    if text.isprintable():
        return text
    # A line break in the text stands between values: within a string it is escaped already.
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else json.dumps(character)[1:-1]


def print_line(text: str) -> None:
    click.echo(shown(text))


def print_error(text: str) -> None:
    """Print an error as one red line on standard error."""
    click.secho(" ".join(one_line(text).split()), fg="red", err=True)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows below their titles, which all rows share. Numbers stand to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in rows[0]:
        numeric = all(row[title] is None or isinstance(row[title], int) for row in rows)
        table.add_column(Text(title), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(value)) for value in row.values()))
    _console().print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print the properties of one object, a line each."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for title, value in facts.items():
        listed = [f"{name} {each}" for name, each in value.items()] if isinstance(value, Mapping) else value
        values = listed if isinstance(listed, (list, tuple)) and len(listed) > 1 else [listed]
        for index, each in enumerate(values):
            table.add_row(Text(title if index == 0 else ""), Text(shown(each)))
    _console().print(table)


def _console() -> Console:
    plain = {"highlight": False, "markup": False, "emoji": False}
    return Console(**plain) if sys.stdout.isatty() else Console(width=_WIDE, **plain)  # type: ignore[arg-type]


def shown(value: Any) -> str:
    """Return a value on one line. No character in it acts on the terminal."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(shown(each) for each in value) or "-"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(value))


class Line(NamedTuple):
    """One line with the names of its values: ``name: value name: value`` for people, as Kafka's dump tool, or JSON."""

    fields: Mapping[str, Any]
    """What people read: names in snake case. None is left out."""
    value: Mapping[str, Any] | None = None
    """What programs read, if it is more than ``fields``."""

    def text(self) -> str:
        return _pairs(self.fields, " ")

    def json(self, **more: Any) -> str:
        value = more | dict(self.fields if self.value is None else self.value)
        return json_text(value, default=_bytes_or_text, separators=(",", ":"))


class OptionalLong(NamedTuple):
    """An offset that may be missing. Kafka prints it as Java does."""

    value: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


def _pairs(fields: Mapping[str, Any], separator: str) -> str:
    return separator.join(f"{_camel(str(name))}: {_short(each)}" for name, each in fields.items() if each is not None)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _short(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case OptionalLong():
            return str(value)
        case Mapping():
            return f"{{{_pairs(value, ', ')}}}"
        case list() | tuple():
            rest = [f"{len(value) - _MOST_ITEMS} more"] if len(value) > _MOST_ITEMS else []
            return f"[{', '.join([*map(_short, value[:_MOST_ITEMS]), *rest])}]"
        case None:
            return "null"
    text = shown(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"


def _bytes_or_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


@contextmanager
def progress(label: str | None = None) -> Iterator[Callable[..., None]]:
    """Show the progress of some work on standard error, if that is a terminal.

    The function that is given takes the label of a part of the work, how much of it is done, how much there is in
    all (None if that is not known), and words to stand beside the bar. Each part has a bar of its own.
    """
    console = Console(stderr=True)
    words = TextColumn("{task.fields[words]}")
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), words, *times)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as display:
        tasks: dict[str, TaskID] = {}

        def show(part: str, done: int = 0, total: int | None = None, words: str = "") -> None:
            if part not in tasks:
                tasks[part] = display.add_task(part, total=total, words=words)
            display.update(tasks[part], completed=done, total=total, words=words)

        if label is not None:
            show(label)
        yield show
