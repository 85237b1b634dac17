"""Tables and lists of properties for people. They fit the width of a terminal.

Numbers and names are never cut or broken, so that a copied name is whole. In a table of Rich's, a value that is wider
than its column is cut or broken, because no cell is wider than its column. Here a column for which there is no room
moves out of the table: its values have lines of their own below their rows. If such a line is too long, too, the
terminal continues it. In a file or a pipe, and with ``--wide``, lines have any length.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
from rich.cells import cell_len

from eoslog.cli.rendering import Title, shown_as

_GAP = "  "
_INDENT = "    "


def terminal_width() -> int | None:
    """Return the width of the terminal on standard output; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(rows: Sequence[Mapping[str, Any]], *, wide: bool = False) -> None:
    """Print rows as a table. All rows have the same keys, which are its titles. Numbers are aligned to the right."""
    click.echo("\n".join(table_lines(rows, width=None if wide else terminal_width(), wide=wide)))


def print_facts(facts: Mapping[str, Any], *, wide: bool = False) -> None:
    """Print the properties of one object, a line each."""
    for line in fact_lines(facts, width=None if wide else terminal_width()):
        click.echo(line)


class _Column(NamedTuple):
    head: str
    cells: list[str]
    is_number: bool
    width: int

    def aligned(self, text: str) -> str:
        space = " " * (self.width - cell_len(text))
        return space + text if self.is_number else text + space


def table_lines(rows: Sequence[Mapping[str, Any]], *, width: int | None, wide: bool = False) -> Iterator[str]:
    """Yield the lines of a table. If it is too wide, its widest columns are below the rows.

    Args:
        width: the length of a line; None for no limit.
        wide: show all columns.
    """
    titles = [each for each in map(Title, rows[0]) if wide or not each.wide]
    columns = [_column(title, [row[title] for row in rows]) for title in titles]
    inside = list(columns)
    while width is not None and len(inside) > 1 and _width(inside) > width:
        inside.remove(max(inside, key=lambda each: each.width))
    below = [each for each in columns if each not in inside]
    yield click.style(_GAP.join(each.aligned(each.head) for each in inside).rstrip(), bold=True)
    for number in range(len(rows)):
        yield _GAP.join(each.aligned(each.cells[number]) for each in inside).rstrip()
        yield from (f"{_INDENT}{each.head}: {each.cells[number]}" for each in below if each.cells[number] != "-")


def _width(columns: Sequence[_Column]) -> int:
    return sum(each.width for each in columns) + len(_GAP) * (len(columns) - 1)


def _column(title: Title, values: list[Any]) -> _Column:
    head = title.for_people()
    cells = [shown_as(title, value) for value in values]
    is_number = all(value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in values)
    return _Column(head, cells, is_number and title.form != "time", width=max(map(cell_len, [head, *cells])))


def fact_lines(facts: Mapping[str, Any], *, width: int | None) -> Iterator[str]:
    """Yield the lines of the properties of one object. A list has a line for each of its elements."""
    heads = {title: Title(title).for_people() for title in facts}
    indent = max(map(cell_len, heads.values())) + len(_GAP)
    for title, value in facts.items():
        listed = [f"{name} {each}" for name, each in value.items()] if isinstance(value, Mapping) else value
        values = listed if isinstance(listed, (list, tuple)) and len(listed) > 1 else [listed]
        cells = [shown_as(title, each) for each in values]
        head = click.style(heads[title], bold=True)
        if width is not None and any(indent + cell_len(cell) > width for cell in cells):
            # A long name has no room beside its title, so it begins on the next line, and so does the rest of its list.
            yield head
            yield from (_INDENT + cell for cell in cells)
            continue
        beside = head + " " * (indent - cell_len(heads[title]))
        for cell in cells:
            yield (beside + cell).rstrip()
            beside = " " * indent
