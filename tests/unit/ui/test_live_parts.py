"""The streams of the live parts of pages: small parts, only those that changed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from html import unescape

import pytest
from starlette.types import Message

import eoslog
from eoslog.errors import StoreUnavailable
from eoslog.ui import application
from eoslog.ui.access import BrowserSession
from eoslog.ui.application import VIEWS
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.pages import Page, Query
from tests.unit.ui.conftest import COOKIE, ServedConsole


def session_of(console: ServedConsole) -> BrowserSession:
    """The session of the browser that has opened the console, or of a new one."""
    session = console.access.use_token(console.access.token)
    return console.access._sessions[0] if session is None else session


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsoleStore, "poll_ms", 0)


def followed(console: ServedConsole, path: str, *steps: Callable[[], object], since: int | None = None) -> list[str]:
    """The messages of the stream of a page: one for its opening, and the next one after each step."""

    async def follow() -> list[str]:
        stream = console.console.stores[""]._live(VIEWS[path], Query(path), session_of(console), since)
        found = [await anext(stream)]
        for step in steps:
            await asyncio.to_thread(step)
            waiting: Awaitable[str] = anext(stream)
            found.append(await asyncio.wait_for(waiting, 60))
        await stream.aclose()
        return found

    return asyncio.run(follow())


def changed(message: str) -> set[str]:
    return set(re.findall(r'hx-target="#(\w+)"', message))


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


def test_a_change_of_the_store_brings_the_parts_that_changed(store: eoslog.Store, read_only: ServedConsole) -> None:
    def create() -> None:
        store.admin.create_topic("new")

    opened, first, second = followed(read_only, "/topics", create, create_another(store))

    assert opened.startswith(":")
    assert changed(first) == {"live_topics", "live_status"}
    assert "/topics/new" in first
    assert "/topics/another" in second
    assert "<html" not in first


def create_another(store: eoslog.Store) -> Callable[[], object]:
    return lambda: store.admin.create_topic("another")


def test_parts_that_stay_the_same_are_not_sent_again(store: eoslog.Store, read_only: ServedConsole) -> None:
    _, first, second = followed(
        read_only, "/", lambda: store.admin.create_topic("new"), lambda: store.admin.create_topic("newer")
    )

    assert {"live_totals", "live_rate", "live_held", "live_operations"} <= changed(first)
    assert "live_held" not in changed(second)
    assert {"live_totals", "live_operations"} <= changed(second)


def test_a_page_that_is_up_to_date_gets_nothing_until_its_ages_are_old(
    store: eoslog.Store, read_only: ServedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    elapsed_ms = [0]
    monkeypatch.setattr(store.environment, "monotonic_ms", lambda: elapsed_ms[0])

    def view(console: ConsoleStore, query: Query) -> Page:
        written.append(elapsed_ms[0])
        return VIEWS["/topics"](console, query)

    async def follow() -> None:
        stream = read_only.console.stores[""]._live(view, Query("/topics"), session_of(read_only), newest_slot(store))
        await anext(stream)
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.2)
        assert written == []
        elapsed_ms[0] = application._AGES_EVERY_MS
        await asyncio.wait_for(following, 60)
        await stream.aclose()

    asyncio.run(follow())

    assert written == [application._AGES_EVERY_MS]


def test_a_stream_survives_a_store_that_does_not_answer_for_a_while(
    store: eoslog.Store, read_only: ServedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down() -> None:
        def fail(*arguments: object, **options: object) -> None:
            raise StoreUnavailable("the object store does not answer")

        monkeypatch.setattr(store, "read", fail)

    def recover() -> None:
        monkeypatch.undo()
        monkeypatch.setattr(ConsoleStore, "poll_ms", 0)

    _, broken, mended = followed(read_only, "/topics", break_down, recover)

    assert broken == ": no answer\n\n" or changed(broken)
    assert changed(mended) or mended == ": no answer\n\n"


def test_streams_end_when_the_console_stops(read_only: ServedConsole) -> None:
    async def follow() -> list[str]:
        stream = read_only.console.stores[""]._live(VIEWS["/topics"], Query("/topics"), session_of(read_only), None)
        found = [await anext(stream)]
        read_only.console.is_stopped = True
        return found + [message async for message in stream]

    assert asyncio.run(follow()) == [": open\n\n"]


def test_many_open_pages_ask_for_the_newest_slot_once(store: eoslog.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsoleStore, "poll_ms", 60_000)
    console = ConsoleStore(store, allow_admin=False)
    console.newest_slot()
    before = store.requests.total()

    for _ in range(10):
        console.newest_slot()

    assert store.requests.total() == before


def test_only_a_limited_number_of_streams_is_open(read_only: ServedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_MOST_STREAMS", 0)

    assert read_only.opened().get("/live/topics").status_code == 503


def test_the_latest_operations_are_read_once(store: eoslog.Store) -> None:
    console = ConsoleStore(store, allow_admin=False)
    first = console.recent()
    before = store.requests["GET"]

    again = console.recent()
    store.admin.create_topic("new")
    later = console.recent()

    assert again == first
    assert store.requests["GET"] - before <= 6
    assert [each.slot for each in later.operations] == [3, 2, 1]
    assert later.is_whole


def test_the_latest_operations_are_those_of_the_newest_slots(
    store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eoslog.ui.console_store.RECENT_SLOTS", 2)
    console = ConsoleStore(store, allow_admin=False)
    for name in ("a", "b", "c"):
        store.admin.create_topic(name)
        found = console.recent()
        newest = newest_slot(store)
        assert [each.slot for each in found.operations] == [newest, newest - 1]
        assert (found.oldest_slot, found.is_whole) == (newest - 1, False)

    for name in ("d", "e", "f"):
        store.admin.create_topic(name)

    assert [each.topics for each in console.recent().operations] == [("f",), ("e",)]


@pytest.mark.parametrize(
    ("path", "follows"),
    [
        ("/", True),
        ("/topics/payments/rows", True),
        ("/log", True),
        ("/log?until=1", False),
        ("/log/1", False),
        ("/verify", True),
        ("/nowhere", False),
    ],
)
def test_a_page_that_does_not_change_follows_nothing(read_only: ServedConsole, path: str, follows: bool) -> None:
    page = read_only.opened().get(path).text

    assert ("hx-sse:connect" in page) == follows


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/payments/rows"])
def test_the_stream_of_a_page_has_its_address_with_its_parameters(read_only: ServedConsole, path: str) -> None:
    page = read_only.opened().get(f"{path}?q=a%26b&page=1").text

    (address,) = re.findall(r'hx-sse:connect="([^"]*)"', page)
    assert unescape(address) == f"/live{path}?q=a%26b&page=1&since=2"


def test_the_live_parts_of_a_page_of_rows_read_no_file(store: eoslog.Store, read_only: ServedConsole) -> None:
    with store.producer() as producer:
        for _ in range(5):
            producer.send("payments", value=b"v", partition=0)
            producer.flush()
    gets: list[int] = []

    def write() -> None:
        store.admin.create_topic("new")
        gets.append(store.requests["GET"])

    query = Query("/topics/payments/rows", parts={"topic": "payments"}, is_live=True)

    async def follow() -> str:
        stream = read_only.console.stores[""]._live(VIEWS["/topics/{topic}/rows"], query, session_of(read_only), None)
        await anext(stream)
        write()
        found = await asyncio.wait_for(anext(stream), 60)
        gets.append(store.requests["GET"])
        await stream.aclose()
        return found

    assert "high watermark 5" in asyncio.run(follow())
    assert gets[1] - gets[0] <= 3


def test_the_progress_of_a_verification_is_shown_although_the_store_does_not_change(
    store: eoslog.Store, read_only: ServedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = read_only.console.stores[""]._store.verification
    monkeypatch.setattr(store.environment, "background", lambda work: None)
    run.start(None, data=False)

    _, running, ended = followed(
        read_only, "/verify", lambda: run._progress("slots", 3, 9), run._run, since=newest_slot(store)
    )

    assert "slots: 3 of 9" in running
    assert "nothing is wrong" in ended


def test_streams_that_are_asked_for_at_once_are_limited_too(
    read_only: ServedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_MOST_STREAMS", 2)
    session = read_only.access.use_token(read_only.access.token)
    assert session is not None
    headers = [(b"host", b"localhost"), (b"cookie", f"{COOKIE}={session.name}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/live/topics", "query_string": b"", "headers": headers}
    serve = read_only.console.application({"localhost"})

    async def ask_at_once() -> list[int]:
        statuses: list[int] = []
        is_asked = asyncio.Event()

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if len(statuses) == 3:
                    is_asked.set()
            # As a connection whose buffer is full.
            await asyncio.wait_for(is_asked.wait(), 60)

        requests = [asyncio.create_task(serve(dict(scope), receive, send)) for _ in range(3)]
        await asyncio.wait_for(is_asked.wait(), 60)
        read_only.console.is_stopped = True
        await asyncio.gather(*requests)
        return statuses

    assert sorted(asyncio.run(ask_at_once())) == [200, 200, 503]
    assert read_only.console.streams == 0
