"""An extension of the API reference: it shows a docstring's "Raises" as a list, because some lines are only names."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_RAISES = re.compile(r"^Raises:\n((?:    .*\n?)+)", re.MULTILINE)
_NAMES = re.compile(r"[A-Z]\w+(?:, [A-Z]\w+)*")


def raises_as_list(docstring: str) -> str:
    """Return a docstring whose section "Raises" is a list in Markdown."""
    return _RAISES.sub(lambda found: f"**Raises:**\n\n{_list(found[1])}\n", docstring)


def _list(section: str) -> str:
    joined = re.sub(r"\n {5,}", " ", section)
    items = []
    for line in joined.strip().splitlines():
        names, colon, meaning = line.strip().partition(":")
        if _NAMES.fullmatch(names):
            names = ", ".join(f"`{name}`" for name in names.split(", "))
        items.append(f"- {names}{colon}{meaning}")
    return "\n".join(items)


class RaisesAsList(Extension):
    """Changes the docstrings of everything that is shown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = raises_as_list(obj.docstring.value)
