"""The page that follows the newest rows of a partition: what its stream brings, and what bounds it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from html import unescape

import pytest
from starlette.testclient import TestClient

import eoslog
from eoslog.ui import console_store
from eoslog.ui.application import VIEWS
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.pages import Query
from eoslog.ui.row_pages import ROWS
from tests.unit.support.transactions import open_transaction
from tests.unit.ui.conftest import ServedConsole
from tests.unit.ui.forms import rows

VIEW = "/topics/{topic}/follow"
PATH = "/topics/payments/follow?partition=0"


def send(store: eoslog.Store, count: int) -> None:
    with store.producer() as producer:
        for number in range(count):
            producer.send("payments", value=b"v%d" % number, partition=0)


def offsets(browser: TestClient, path: str = PATH) -> list[int]:
    return [int(row[0]) for row in rows(browser.get(path), "List of rows")]


def followed(console: ServedConsole, steps: Sequence[Callable[[], object]]) -> list[list[int]]:
    """The offsets that the stream brings after each step, from the top."""

    async def follow() -> list[list[int]]:
        session = console.access.use_token(console.access.token)
        assert session is not None
        query = Query("/topics/payments/follow", {"partition": "0"}, {"topic": "payments"}, is_live=True)
        stream = console.console.stores[""]._live(VIEWS[VIEW], query, session, None)
        await anext(stream)
        found = []
        for step in steps:
            await asyncio.to_thread(step)
            message = await asyncio.wait_for(anext(stream), 60)
            found.append([int(each) for each in re.findall(r'id="row-(\d+)"', message)])
        await stream.aclose()
        return found

    return asyncio.run(follow())


def test_new_rows_appear_at_the_top_and_old_ones_leave(
    store: eoslog.Store, read_only: ServedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConsoleStore, "poll_ms", 0)

    first, second = followed(read_only, [lambda: send(store, 2), lambda: send(store, ROWS)])

    assert first == [1, 0]
    assert second == list(range(ROWS + 1, 1, -1))


def test_an_open_row_gets_its_outcome(store: eoslog.Store, browser: TestClient) -> None:
    producer = open_transaction(store, "etl-1")
    producer.send("payments", value=b"v", partition=0)
    producer.flush()
    before = [row[:2] for row in rows(browser.get(PATH), "List of rows")]
    producer.abort_transaction()

    assert before == [["0", "open"]]
    assert [row[:2] for row in rows(browser.get(PATH), "List of rows")] == [["1", "ABORT"], ["0", "aborted"]]
    assert "No row is visible yet" in browser.get(f"{PATH}&view=committed").text


def test_a_page_that_is_stopped_keeps_its_rows(store: eoslog.Store, browser: TestClient) -> None:
    send(store, ROWS + 7)
    page = browser.get(PATH)
    (stop,) = re.findall(r'href="([^"]*)">Stop here', page.text)
    shown = offsets(browser)
    send(store, 3)

    assert offsets(browser, unescape(stop)) == shown[::-1]


def test_many_pages_read_the_rows_of_a_partition_once(store: eoslog.Store, read_only: ServedConsole) -> None:
    send(store, 3)
    browser = read_only.opened()
    first = offsets(browser)
    scans: list[object] = []
    scan = store.scan
    store.scan = lambda *given, **options: scans.append(given) or scan(*given, **options)  # type: ignore[method-assign]

    again = offsets(browser)
    unchanged = len(scans)
    send(store, 1)

    assert (again, unchanged) == (first, 0)
    assert offsets(browser) == [3, 2, 1, 0]


def test_the_rows_of_a_limited_number_of_partitions_are_kept(store: eoslog.Store) -> None:
    console = ConsoleStore(store, allow_admin=False)
    for number in range(console_store.MOST_FOLLOWED + 1):
        console.newest_rows(number, lambda: "rows")

    assert list(console._newest_rows) == list(range(1, console_store.MOST_FOLLOWED + 1))
