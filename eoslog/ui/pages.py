"""A page: its template, its values, and the query of its request. Templates use the functions of ``display``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from eoslog.errors import InvalidOption, UnknownTopicOrPartition
from eoslog.ui import display
from eoslog.wording import quoted

T = TypeVar("T")
S = TypeVar("S")
ASSETS = Path(__file__).parent / "assets"
PAGE_SIZE = 100
_LARGEST_NUMBER = 2**63 - 1
_LIVE = "live_"


@dataclass(frozen=True, slots=True)
class Query:
    """The parameters of a request: those of its path, and those after the question mark."""

    path: str
    values: Mapping[str, str] = field(default_factory=dict)
    """The parameters after the question mark."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The parameters within the path."""
    is_live: bool = False
    """True if only the live parts of the page are wanted."""

    def text(self, name: str) -> str:
        """Return a parameter; an empty text if it is missing."""
        return self.parts.get(name, self.values.get(name, "")).strip()

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number.

        Raises:
            InvalidOption: the parameter is not a number.
        """
        # A user may copy a number from a page, with its separators.
        given = self.text(name).replace(display.THIN_SPACE, "").replace(",", "")
        if not given:
            return default
        if not re.fullmatch(r"-?[0-9]{1,19}", given, re.ASCII) or abs(int(given)) > _LARGEST_NUMBER:
            raise InvalidOption(f"{name} is {quoted(given)}; it must be a whole number")
        return int(given)

    def natural(self, name: str, default: int) -> int:
        """Return a whole number of 0 or more. Raises: InvalidOption"""
        found = self.number(name, default)
        if found is None or found < 0:
            raise InvalidOption(f"{name} is {quoted(self.text(name))}; it must be a whole number, 0 or more")
        return found

    def partition(self) -> int:
        """Return the number of the partition within the path. Raises: UnknownTopicOrPartition"""
        given = self.text("partition")
        if not (given.isascii() and given.isdecimal() and len(given) < 10):
            raise UnknownTopicOrPartition(f"there is no partition {quoted(given)}: partitions have numbers")
        return int(given)

    def link(self, **changes: Any) -> str:
        """Return the address of this page below the store's root, with other parameters.

        A value of None or an empty text drops a parameter.
        """
        values = {**self.values, **{name: "" if value is None else str(value) for name, value in changes.items()}}
        given = {name: value for name, value in values.items() if value != ""}
        return f"{self.path}?{urlencode(given)}" if given else self.path


def with_zone(text: str) -> str:
    """Return a time in ISO 8601 with a zone: a browser's field for a date and time has none, and means UTC here."""
    has_zone = text.endswith(("Z", "z")) or "+" in text or text.count("-") > 2
    return text if text.isdecimal() or has_zone else f"{text}Z"


@dataclass(frozen=True, slots=True)
class Page:
    """A page before it is written as HTML."""

    template: str
    title: str
    values: Mapping[str, Any]
    status: int = 200
    is_live: bool = True
    """True if parts of the page follow the store. False if the page does not change."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The answer to a form: the browser goes to another page."""

    path: str


class Listing(Generic[T]):
    """One page of a list."""

    def __init__(self, everything: Sequence[T], query: Query, *, name: str = "page", size: int = PAGE_SIZE) -> None:
        """Take a page of a list.

        Args:
            everything: the whole list.
            name: the parameter with the page's number, which counts from 1.
        """
        self.total = len(everything)
        self.pages = max(1, -(-self.total // size))
        self.number = min(max(1, query.natural(name, 1)), self.pages)
        self.first = (self.number - 1) * size
        self.rows = everything[self.first : self.first + size]
        self.older = query.link(**{name: self.number + 1}) if self.number < self.pages else None
        self.newer = query.link(**{name: self.number - 1 if self.number > 2 else None}) if self.number > 1 else None

    @property
    def last(self) -> int:
        """The number of the last row on this page, counted from 1."""
        return self.first + len(self.rows)

    def map(self, function: Callable[[T], S]) -> Listing[S]:
        """Return the page with the results of a function. It is called for the rows of this page only."""
        found: Any = copy(self)
        found.rows = [function(row) for row in self.rows]
        mapped: Listing[S] = found
        return mapped


class Templates:
    """Writes pages as HTML. Every value is escaped."""

    def __init__(self, root: str) -> None:
        """
        Args:
            root: the beginning of the paths of the store's pages.
        """
        self._root = root

    @cached_property
    def _environment(self) -> Environment:
        found = Environment(
            loader=PackageLoader("eoslog.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for name in ("number", "size", "duration", "moment", "ago", "text", "counted"):
            found.filters[name] = getattr(display, name)
        # Browsers cache the assets. So the assets of each version have their own address.
        found.globals["root"] = self._root
        found.globals["assets"] = _digest_of_assets()
        # A block that is rendered alone does not see what its template imports.
        found.globals["m"] = found.get_template("macros.html").module
        return found

    def page(self, page: Page, values: Mapping[str, Any]) -> str:
        """Return a page as HTML.

        Args:
            values: the values that all pages have.
        """
        return self._environment.get_template(page.template).render(self._values(page, values))

    def _values(self, page: Page, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**values, **page.values, "title": page.title, "is_live": page.is_live}

    def live_parts(self, page: Page, values: Mapping[str, Any]) -> dict[str, str]:
        """Return the parts of a page that change by themselves, by the ids of their elements."""
        template, base = (self._environment.get_template(name) for name in (page.template, "base.html"))
        context = template.new_context(self._values(page, values))
        blocks = {**base.blocks, **template.blocks}
        return {name: "".join(block(context)).strip() for name, block in blocks.items() if name.startswith(_LIVE)}


def _digest_of_assets() -> str:
    digest = sha256()
    for asset in sorted(ASSETS.iterdir()):
        digest.update(asset.read_bytes())
    return digest.hexdigest()[:16]


def partial(element_id: str, html: str) -> str:
    """Return a part of a page as htmx takes it: it changes the element's content and keeps the focus."""
    return f'<hx-partial hx-target="#{element_id}" hx-swap="innerMorph">{Markup(html)}</hx-partial>'
