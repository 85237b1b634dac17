"""The output of commands: columns that are declared once, values for people, JSON for programs, progress on stderr."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple

import click

from eoslog.state.names import TopicPartition
from eoslog.wording import one_line

_MOST_ITEMS = 8
_LONGEST_TEXT = 200


_MS = re.compile(r"Ms$")


class Title(str):
    """The title of a column or property, with the form of its values for people."""

    __slots__ = ("form", "wide")

    form: str
    """The form of the values for people.

    ``time`` (ms since the epoch), ``size`` (bytes) and ``duration`` (ms) are converted. ``ms`` and ``bytes`` are for
    settings: the number is shown, too. If empty, values are shown unchanged.
    """
    wide: bool
    """True for a column that a table shows only with ``--wide``."""

    def __new__(cls, declared: str) -> Title:
        """Return the title that ``Title``, ``Title:form``, ``Title?`` or ``Title:form?`` declares."""
        if isinstance(declared, Title):
            return declared
        title, _, form = declared.removesuffix("?").partition(":")
        made = super().__new__(cls, title)
        made.form, made.wide = form, declared.endswith("?")
        return made

    def for_people(self) -> str:
        """Return the title, without the unit ms if the values are shown with another unit."""
        plain = _MS.sub("", self) if self.form in ("time", "duration") else str(self)
        return f"{plain} UTC" if self.form == "time" else plain


class Columns:
    """The columns of one kind of object: each has a title, a name in JSON that follows from it, and a source.

    A string declares columns by ``Title`` or ``Title=attribute``. The attribute of a plain title is its name in JSON:
    ``ProducerId`` is read from ``producer_id``. A pair declares a column whose source is a function. A form may follow
    a title, as in ``Bytes:size``. A question mark at the end makes the column one for ``--wide`` (see ``Title``).
    """

    def __init__(self, *columns: str | tuple[str, Callable[[Any], Any]]) -> None:
        self._sources: dict[Title, Callable[[Any], Any]] = {}
        for column in columns:
            if isinstance(column, tuple):
                self._sources[Title(column[0])] = column[1]
                continue
            for each in column.split():
                title, attribute, more = _DECLARED.fullmatch(each).groups("")  # type: ignore[union-attr]
                self._sources[Title(title + more)] = attrgetter(attribute or json_name(title))

    def of(self, thing: Any) -> dict[str, Any]:
        """Return the values of an object by their titles."""
        return {title: _plain(source(thing)) for title, source in self._sources.items()}


_DECLARED = re.compile(r"([^=:?]+)(?:=([^:?]+))?(.*)")


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


def shown(value: Any) -> str:
    """Return a value on one line. No character in it acts on the terminal."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(shown(each) for each in value) or "-"
    text = str(value)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shown_as(title: str, value: Any) -> str:
    """Return a value on one line, in the form of its title."""
    form = Title(title).form
    if not form or not isinstance(value, int):
        return shown(value)
    if form in _SETTINGS:
        # Show the number too, because a user types the setting as a number.
        return f"{value} ({_SETTINGS[form](value)})" if value >= 1000 else str(value)
    # As in Kafka, a negative number means that there is none. The time 0 means the same: no store is so old.
    return _FORMS[form](value) if value >= (form == "time") else "-"


def time_shown(ms: int) -> str:
    """Return a time in ms since the epoch as ``2026-11-24 22:57:01``, in UTC."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def size_shown(size: int) -> str:
    """Return a number of bytes as ``512 B`` or ``1.2 MiB``."""
    if size < 1024:
        return f"{size} B"
    number, units = float(size), iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = "B"
    while number >= 1023.95 and (larger := next(units, None)) is not None:
        number, unit = number / 1024, larger
    return f"{number:.1f} {unit}"


def duration_shown(ms: int) -> str:
    """Return a duration in ms as ``850 ms``, ``3.2 s``, ``3 m 12 s``, ``2 h 5 m`` or ``7 d``."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f}".removesuffix(".0") + " s"
    left, parts = round(ms / 1000), []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        number, left = divmod(left, seconds)
        parts.append((number, unit))
    first = next(index for index, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


_FORMS: dict[str, Callable[[int], str]] = {"time": time_shown, "size": size_shown, "duration": duration_shown}
_SETTINGS: dict[str, Callable[[int], str]] = {"bytes": size_shown, "ms": duration_shown}


class Line(NamedTuple):
    """One line with the names of its values: ``name: value name: value`` for people, as Kafka's dump tool, or JSON."""

    fields: Mapping[str, Any]
    """The values for people, by names in snake case. A value of None is left out."""
    value: Mapping[str, Any] | None = None
    """The values for programs, if they are more than ``fields``."""

    def text(self) -> str:
        """Return the line for people."""
        return " ".join(_pairs(self.fields))

    def json(self, **more: Any) -> str:
        value = more | dict(self.fields if self.value is None else self.value)
        return json_text(value, default=_bytes_or_text, separators=(",", ":"))


class OptionalLong(NamedTuple):
    """An offset that may be missing. Kafka prints it as Java does."""

    value: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


def _pairs(fields: Mapping[str, Any]) -> list[str]:
    return [f"{_camel(str(name))}: {_short(each)}" for name, each in fields.items() if each is not None]


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
            return f"{{{', '.join(_pairs(value))}}}"
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

    The arguments of the given function are the label of a part of the work, the amount that is done, the total amount
    (None if it is unknown), and words to show beside the bar. Each part has a bar of its own.
    """
    # Only long commands show their progress, and the others answer sooner without this import.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    words = TextColumn("{task.fields[words]}")
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), words, *times)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as display:
        tasks: dict[str, Any] = {}

        def show(part: str, done: int = 0, total: int | None = None, words: str = "") -> None:
            if part not in tasks:
                tasks[part] = display.add_task(part, total=total, words=words)
            display.update(tasks[part], completed=done, total=total, words=words)

        if label is not None:
            show(label)
        yield show
