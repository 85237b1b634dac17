"""Tables and lists of properties for people. They fit the width of a terminal.

Numbers and names are never cut or broken. A name that does not fit its column moves to a line of its own. If that is
too short, too, the terminal continues the name on its next line, so that a copied name is whole. Only prose, the form
``text``, is shortened. In a file or a pipe, and with ``--wide``, lines have any length.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
from rich.cells import cell_len, set_cell_size

from eoslog.cli.rendering import Title, shown_as

_GAP = 2
_LEAST = 12
"""The least width of a column of long names. If there is less room, the column is moved out of the table."""
_SHORT = 20
"""A column keeps its width if no value is longer than this: times, states, short names."""
_INDENT = "    "
_HEAD_PART = re.compile(r"[A-Z]?[^A-Z\- ]+|[A-Z]+-?|-| ")


def terminal_width() -> int | None:
    """Return the width of the terminal on standard output; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(rows: Sequence[Mapping[str, Any]], *, wide: bool = False) -> None:
    """Print rows below their titles, which all rows share. Numbers are aligned to the right."""
    for line in table_lines(rows, width=None if wide else terminal_width(), wide=wide):
        click.echo(line)


def print_facts(facts: Mapping[str, Any], *, wide: bool = False) -> None:
    """Print the properties of one object, a line each."""
    for line in fact_lines(facts, width=None if wide else terminal_width()):
        click.echo(line)


class _Column(NamedTuple):
    head: str
    is_number: bool
    is_fixed: bool
    """True for a column that stays as wide as its values."""
    is_text: bool
    cells: list[str]

    def least_head(self) -> int:
        """Return the least width of the title if it is folded between its words."""
        return max(map(cell_len, _HEAD_PART.findall(self.head)))

    def widest(self) -> int:
        return max(map(cell_len, self.cells))

    def useful(self, most: int) -> int:
        """Return the width of the widest value that fits into ``most``. Prose can be cut, so it uses all of it."""
        sizes = list(map(cell_len, self.cells))
        return min(most, max(sizes)) if self.is_text else max((size for size in sizes if size <= most), default=0)


def table_lines(rows: Sequence[Mapping[str, Any]], *, width: int | None, wide: bool = False) -> Iterator[str]:
    """Yield the lines of a table.

    A name that does not fit its column has a line of its own. A name of the first column is above its row, as in the
    output of ``df``, or above the first of several rows with this name. A name of another column is below its row. If a
    column of names has no room at all, all of its names are below their rows.

    Args:
        width: the length of a line; None for no limit.
        wide: show all columns.
    """
    titles = [each for each in rows[0] if wide or not (isinstance(each, Title) and each.wide)]
    columns = [_column(title, [row[title] for row in rows]) for title in titles]
    widths = _widths(columns, width)
    heads = [_folded_head(each.head, size) for each, size in zip(columns, widths, strict=True)]
    height = max((len(head) for head, size in zip(heads, widths, strict=True) if size), default=0)
    for number in range(height):
        parts = [head[number - height + len(head)] if number >= height - len(head) else "" for head in heads]
        yield click.style(_line(columns, widths, parts), bold=True)
    for number in range(len(rows)):
        above = columns[0].cells[number - 1] if number else None
        yield from _row_lines(columns, widths, [each.cells[number] for each in columns], width, above)


def _column(title: str, values: list[Any]) -> _Column:
    form = title.form if isinstance(title, Title) else ""
    is_number = all(value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in values)
    cells = [shown_as(title, value) for value in values]
    head = title.for_people() if isinstance(title, Title) else title
    return _Column(
        head,
        is_number=is_number and form != "time",
        is_fixed=is_number or max(map(cell_len, cells)) <= _SHORT,
        is_text=form == "text",
        cells=cells,
    )


def _widths(columns: list[_Column], width: int | None) -> list[int]:
    """Return the width of each column; 0 for a column that is moved out of the table."""
    heads = [cell_len(each.head) for each in columns]
    natural = [max(head, each.widest()) for head, each in zip(heads, columns, strict=True)]
    if width is None or sum(natural) + _GAP * (len(columns) - 1) <= width:
        return natural
    least = [each.least_head() for each in columns]
    widths = _fitted(columns, heads, width)
    if any(not size or (each.is_text and each.widest() > size) for each, size in zip(columns, widths, strict=True)):
        # Folded titles are better than a column that is moved out, or prose that is cut.
        widths = _fitted(columns, least, width)
    return widths


def _fitted(columns: list[_Column], heads: list[int], width: int) -> list[int]:
    """Fit the columns into a width, given the least widths of their titles."""
    inside = list(range(len(columns)))
    while inside:
        widths = [0] * len(columns)
        for each in inside:
            widths[each] = max(heads[each], columns[each].widest() if columns[each].is_fixed else 0)
        names = [each for each in inside if not columns[each].is_fixed]
        left = width - _GAP * (len(inside) - 1) - sum(widths)
        if left >= 0 and all(left >= _LEAST - widths[each] for each in names):
            # Columns of names share the remaining width equally. The names, then the titles, take the rest.
            for taken, each in enumerate(names):
                left -= _grown(widths, each, columns[each].useful(widths[each] + left // (len(names) - taken)))
            for each in names:
                left -= _grown(widths, each, columns[each].useful(widths[each] + left))
            for each in inside:
                head = cell_len(columns[each].head)
                left -= _grown(widths, each, head if head <= widths[each] + left else 0)
            return widths
        inside.remove(max(names, key=lambda each: columns[each].widest()) if names else inside[-1])
    return [0] * len(columns)


def _grown(widths: list[int], index: int, wanted: int) -> int:
    """Widen a column if it is narrower than wanted. Return the added width."""
    before = widths[index]
    widths[index] = max(before, wanted)
    return widths[index] - before


def _folded_head(head: str, width: int) -> list[str]:
    lines = [""]
    for part in _HEAD_PART.findall(head) if cell_len(head) > width else [head]:
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return [line.strip() for line in lines]


def _line(columns: list[_Column], widths: list[int], parts: list[str]) -> str:
    placed = []
    for column, width, part in zip(columns, widths, parts, strict=True):
        if width:
            space = " " * (width - cell_len(part))
            placed.append(space + part if column.is_number else part + space)
    return (" " * _GAP).join(placed).rstrip()


def _row_lines(
    columns: list[_Column], widths: list[int], cells: list[str], width: int | None, above: str | None
) -> Iterator[str]:
    """Yield the lines of a row. ``above`` is the first cell of the row before."""
    parts, below = [], []
    for number, (column, size, cell) in enumerate(zip(columns, widths, cells, strict=True)):
        fits = cell_len(cell) <= size
        if fits:
            parts.append(cell)
        elif column.is_text and size:
            parts.append(set_cell_size(cell, size - 1).rstrip() + "…")
        else:
            parts.append("" if number == 0 else "…")
            if number == 0:
                yield from [] if cell == above else [cell]
            elif cell != "-":
                below.append((column.head, cell))
    if any(widths):
        yield _line(columns, widths, parts)
    for head, cell in below:
        yield from _labeled(head, cell, width, is_text=False)


def _labeled(head: str, cell: str, width: int | None, *, is_text: bool) -> Iterator[str]:
    """Yield ``head: cell`` below a row. If this is too long for one line, the cell begins on the next line."""
    line = f"{_INDENT}{head}: {cell}"
    if width is None or cell_len(line) <= width:
        yield line
        return
    yield f"{_INDENT}{head}:"
    yield from (_INDENT + each for each in wrapped(cell.split(" "), width - len(_INDENT)))


def fact_lines(facts: Mapping[str, Any], *, width: int | None) -> Iterator[str]:
    """Yield the lines of the properties of one object. A list has a line for each of its elements."""
    heads = {title: title.for_people() if isinstance(title, Title) else title for title in facts}
    indent = max(map(cell_len, heads.values())) + _GAP
    for title, value in facts.items():
        listed = [f"{name} {each}" for name, each in value.items()] if isinstance(value, Mapping) else value
        values = listed if isinstance(listed, (list, tuple)) and len(listed) > 1 else [listed]
        head = click.style(heads[title], bold=True) + " " * (indent - cell_len(heads[title]))
        cells = [shown_as(title, each) for each in values]
        if width is None:
            lines = cells
        elif any(cell_len(word) > width - indent for cell in cells for word in cell.split(" ")):
            # A long name has no room beside its title, so it begins on the next line, and so does the rest of its list.
            yield head.rstrip()
            yield from (_INDENT + line for cell in cells for line in wrapped(cell.split(" "), width - len(_INDENT)))
            continue
        else:
            lines = [line for cell in cells for line in wrapped(cell.split(" "), width - indent)]
        for line in lines:
            yield (head + line).rstrip()
            head = " " * indent


def paragraph(parts: Sequence[str], width: int | None) -> list[str]:
    """Return lines of these parts. Only a part that is longer than a line is broken, between its words."""
    if width is None:
        return [" ".join(parts)]
    room = width - len(_INDENT)
    words = [word for part in parts for word in ([part] if cell_len(part) <= room else part.split(" "))]
    first, *others = wrapped(words, room)
    return [first, *(_INDENT + each for each in others)]


def wrapped(words: Iterable[str], width: int) -> list[str]:
    """Return lines of these words. A word that is longer than a line has one of its own."""
    lines = [""]
    for word in words:
        if lines[-1] and cell_len(f"{lines[-1]} {word}") > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines
