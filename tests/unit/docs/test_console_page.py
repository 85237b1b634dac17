"""docs/console.md: its options, pages and limits are those of the console."""

from __future__ import annotations

import re

from eoslog.cli.options import GLOBAL_OPTIONS
from eoslog.ui import console_store, display, overview_page, row_pages
from eoslog.ui.application import VIEWS
from eoslog.ui.command import ui
from eoslog.ui.pages import Templates
from tests.pages import REPOSITORY, first_cells, links, prose

PAGE = REPOSITORY / "docs/console.md"


def test_each_option_of_the_command_is_listed() -> None:
    listed = {name for names in first_cells(PAGE, "Option") for name in names}

    own = {name for each in ui.params if each not in GLOBAL_OPTIONS for name in each.opts if name.startswith("-")}
    assert listed - {"--json", "NAME=URL"} == own


def test_each_entry_of_the_navigation_is_described() -> None:
    environment = Templates("")._environment
    base = environment.loader.get_source(environment, "base.html")[0]  # type: ignore[union-attr]
    names = re.findall(r'\("(\w*)", "(\w+)"\)', base)

    assert {f"/{path}" for path, _ in names} <= set(VIEWS)
    for _, name in names:
        assert f"| {name} |" in PAGE.read_text(encoding="utf-8")


def test_the_limits_are_those_of_the_console() -> None:
    text = prose(PAGE)

    assert f"up to {overview_page._BARS * overview_page._BAR_MS[0] // 60_000} minutes" in text
    assert f"newest {console_store.RECENT_SLOTS:,} slots" in text
    assert f"shows {display.CELL_BYTES} bytes of each value" in text
    assert f"the page of a row {display.VALUE_BYTES >> 10} KiB" in text
    assert f"more than {row_pages._LARGEST_FETCH_BYTES >> 20} MiB" in text
    assert f"about {row_pages._SEARCHED_BYTES >> 20} MiB of files" in text


def test_its_pictures_are_small() -> None:
    pictures = [PAGE.parent / link for link in links(PAGE) if link.startswith("images/")]

    assert len(pictures) == 2
    assert all(0 < picture.stat().st_size < 150_000 for picture in pictures)
