"""The console in Chromium: on a store into which a soak writes, and on a store of all kinds of content."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

import eoslog
from tests.browser import chromium
from tests.browser.chromium import FOCUSED, LOW_CONTRAST, PATIENCE_S, REACHABLE, UNNAMED, Browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not chromium.is_there(), reason="Chromium and its driver are not installed"),
]
REPOSITORY = Path(__file__).resolve().parents[2]
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
EVIL = "\"'><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>\u202e\u0000"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with chromium.browser(tmp_path / "profile") as found:
        yield found


@contextmanager
def console_of(url: str, *options: str) -> Iterator[str]:
    """A console as a process of its own; yields its link."""
    command = [sys.executable, "-m", "eoslog.main", "--store", url, "ui", "--json", *options]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            yield str(json.loads("".join(lines))["url"])
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0


@pytest.fixture
def full_store(tmp_path: Path) -> eoslog.Store:
    """A store with topics of both kinds, open and aborted transactions, a group, and names that are hostile."""
    store = eoslog.connect(tmp_path / "store")
    store.admin.create_topic("payments", partitions=2)
    store.admin.create_topic("flights", schema=pa.schema([("carrier", pa.string()), ("miles", pa.int64())]))
    for name in ("etl-1", EVIL.replace("\0", "")):
        with store.producer(name) as producer:
            producer.init_transactions()
            for _ in range(3):
                producer.begin_transaction()
                for number in range(40):
                    producer.send("payments", key=b"k%d" % number, value=EVIL.encode(), partition=0)
                producer.send_table("flights", pa.table({"carrier": [EVIL], "miles": [1]}))
                producer.send_offsets_to_transaction({eoslog.TopicPartition("payments", 0): 1}, name)
                producer.commit_transaction()
    held = store.producer("late", transaction_timeout_ms=900_000)
    held.init_transactions()
    held.begin_transaction()
    held.send("payments", value=b"open", partition=1)
    held.flush()
    return store


PATHS = [
    "/",
    "/topics",
    "/topics/payments",
    "/topics/payments/rows",
    "/topics/payments/rows?partition=1",
    "/topics/payments/rows/0/0",
    "/topics/payments/follow?partition=0",
    "/topics/payments/segments/0",
    "/topics/flights/rows",
    "/transactions",
    "/transactions/one?id=late",
    "/groups",
    "/groups/one?id=etl-1",
    "/jobs",
    "/log",
    "/log/9",
    "/verify",
]
SOAK_PATHS = ["/", "/topics", "/topics/orders", "/topics/orders/rows", "/transactions", "/groups", "/log"]


def check(browser: Browser, width: int) -> None:
    """What holds on every page."""
    assert browser.ask("return document.documentElement.scrollWidth") <= width
    assert browser.ask(LOW_CONTRAST) == []
    assert browser.ask(UNNAMED) == []
    assert browser.ask("return window.evil") is None
    assert browser.messages() == []


def test_every_page_is_readable_at_each_width_in_light_and_dark(browser: Browser, full_store: eoslog.Store) -> None:
    with console_of(full_store.url, "--allow-admin") as link:
        browser.driver.get(link)
        base = link.partition("/?")[0]
        assert browser.driver.current_url == f"{base}/"
        for width, scheme in LOOKS:
            browser.show_as(width, scheme)
            for path in PATHS:
                browser.driver.get(base + path)
                check(browser, width)


HEAD_BEGINS = """
const heads = document.querySelectorAll(`[aria-label="${arguments[0]}"] th`);
return [...heads].find((each) => each.textContent.trim() === arguments[1]).getBoundingClientRect().left;
"""
"""Where a column of a table begins on the screen (pixels)."""


def test_a_narrow_screen_shows_values_lags_and_reasons(browser: Browser, full_store: eoslog.Store) -> None:
    columns = [
        ("/topics/payments/rows?partition=1", "List of rows", "value"),
        ("/groups", "List of consumer groups", "Lag"),
        ("/groups/one?id=etl-1", "Partitions", "Lag"),
        ("/", "Transactions that hold readers back", "Why it is open"),
    ]
    with console_of(full_store.url) as link:
        browser.driver.get(link)
        browser.show_as(390, "light")
        begins = {}
        for path, region, title in columns:
            browser.driver.get(link.partition("/?")[0] + path)
            begins[path] = browser.ask(HEAD_BEGINS, region, title)

    assert {path: left for path, left in begins.items() if left > 320} == {}


OFFSETS = "return [...document.querySelectorAll('.rows tbody th')].map((each) => Number(each.textContent))"
"""The offsets of the rows on a page, from the top."""


def test_a_page_follows_new_rows_until_it_is_stopped(browser: Browser, tmp_path: Path) -> None:
    store = eoslog.connect(tmp_path / "store")
    store.admin.create_topic("payments")

    def send(count: int) -> None:
        with store.producer() as producer:
            for _ in range(count):
                producer.send("payments", value=b"v")

    def wait_for(newest: int) -> list[int]:
        def is_shown(driver: Any) -> bool:
            return bool(browser.ask(OFFSETS)[:1] == [newest])

        WebDriverWait(browser.driver, PATIENCE_S).until(is_shown)
        found: list[int] = browser.ask(OFFSETS)
        return found

    with console_of(store.url) as link:
        browser.driver.get(link)
        browser.driver.get(f"{link.partition('/?')[0]}/topics/payments/rows")
        browser.driver.find_element(By.LINK_TEXT, "Follow new rows").send_keys(Keys.ENTER)
        send(3)
        assert wait_for(2) == [2, 1, 0]
        send(100)
        assert wait_for(102) == list(range(102, 52, -1))
        check(browser, browser.ask("return innerWidth"))

        browser.driver.find_element(By.LINK_TEXT, "Stop here").send_keys(Keys.ENTER)
        send(1)
        ends = (By.ID, "live_ends")
        WebDriverWait(browser.driver, PATIENCE_S).until(
            lambda driver: "high watermark 104" in driver.find_element(*ends).text
        )
        assert browser.ask(OFFSETS) == list(range(53, 103))


OVERFLOWING = """
return [...document.querySelectorAll(".scroll")].filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => each.ariaLabel);
"""
"""The tables that are wider than their place."""


def test_long_names_push_no_column_off_a_wide_screen(browser: Browser, tmp_path: Path) -> None:
    store = eoslog.connect(tmp_path / "store")
    topic, name = f"warehouse.{'customer-orders.' * 6}v2", f"spark-{'streaming-' * 10}17"
    store.admin.create_topic(topic, partitions=3)
    with store.consumer(f"group-{name}", group_instance_id=f"host-{name}") as consumer:
        consumer.subscribe([topic])
        consumer.poll(0)
        with store.producer(name) as producer:
            producer.init_transactions()
            for commits in (True, False):
                producer.begin_transaction()
                for partition in range(3):
                    producer.send(topic, b"value", key=b"key", partition=partition)
                producer.flush()
                if commits:
                    producer.send_offsets_to_transaction({eoslog.TopicPartition(topic, 0): 1}, f"group-{name}")
                    producer.commit_transaction()
            with console_of(store.url) as link:
                base = link.partition("/?")[0]
                browser.show_as(1280, "light")
                browser.driver.get(link)
                for path in (
                    *("/", "/topics", f"/topics/{topic}", f"/topics/{topic}/rows", "/transactions"),
                    *(f"/transactions/one?id={name}", "/groups", f"/groups/one?id=group-{name}", "/log"),
                ):
                    browser.driver.get(base + path)
                    assert browser.ask(OVERFLOWING) == [], path


def test_every_page_is_readable_while_a_soak_writes(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    soak = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.run", "--minutes", "1", "--no-spark", "--folder", str(folder)],
        cwd=REPOSITORY,
        # A file system that the soak mounts for itself would not be seen by the console.
        env=os.environ | {"EOSLOG_TEST_OWN_MOUNTS": "1", "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        url = WebDriverWait(browser.driver, PATIENCE_S).until(lambda _: _store_of(folder))
        with console_of(url) as link:
            base = link.partition("/?")[0]
            browser.driver.get(link)
            _wait_for_rows(browser, base)
            for width, scheme in LOOKS:
                browser.show_as(width, scheme)
                for path in SOAK_PATHS:
                    browser.driver.get(base + path)
                    check(browser, width)
        output = soak.communicate(timeout=600)[0]
    finally:
        if soak.poll() is None:
            soak.terminate()
            soak.communicate(timeout=PATIENCE_S)
    assert soak.returncode == 0, output


def _store_of(folder: Path) -> str | None:
    """Return the store of a soak, as soon as it has topics."""
    try:
        url: str = json.loads((folder / "run.json").read_text())["url"]
        store = eoslog.connect(url)
        return url if "orders" in store.admin.list_topics() else None
    except (OSError, ValueError, eoslog.EosLogError):
        return None


def _wait_for_rows(browser: Browser, base: str) -> None:
    def has_rows(driver: Any) -> bool:
        driver.get(f"{base}/topics/orders/rows")
        return bool(driver.find_elements(By.CSS_SELECTOR, "table.rows"))

    WebDriverWait(browser.driver, PATIENCE_S).until(has_rows)


def test_a_page_follows_the_store_and_keeps_the_focus(browser: Browser, full_store: eoslog.Store) -> None:
    with console_of(full_store.url) as link:
        browser.driver.get(link)
        browser.driver.get(f"{link.partition('/?')[0]}/topics")
        browser.ask("document.querySelector('#live_topics a[href=\"/topics/payments\"]').focus()")
        browser.ask("window.stays = 1")

        full_store.admin.create_topic("arrivals")

        WebDriverWait(browser.driver, PATIENCE_S).until(
            lambda driver: driver.find_elements(By.CSS_SELECTOR, '#live_topics a[href="/topics/arrivals"]')
        )
        assert browser.ask("return document.activeElement.getAttribute('href')") == "/topics/payments"
        assert browser.ask("return window.stays") == 1
        assert browser.driver.find_element(By.ID, "stream").text == "live"
        assert browser.messages() == []


def test_the_keyboard_reaches_everything_in_order(browser: Browser, full_store: eoslog.Store) -> None:
    with console_of(full_store.url, "--allow-admin") as link:
        browser.driver.get(link)
        for path in ("/", "/topics/payments/rows", "/transactions/one?id=late"):
            browser.driver.get(link.partition("/?")[0] + path)
            wanted, found = browser.ask(REACHABLE), []
            while not found or (found[-1]["seen"] < wanted and len(found) < 10 * wanted):
                # A field for a date and a time has several parts.
                browser.press(Keys.TAB)
                found.append(browser.ask(FOCUSED))

            assert found[0]["name"] == "skip"
            assert found[-1]["seen"] == wanted
            assert [each for each in found if not each["isMarked"]] == []


def test_the_skip_link_leads_to_the_content(browser: Browser, full_store: eoslog.Store) -> None:
    with console_of(full_store.url) as link:
        browser.driver.get(link)
        browser.press(Keys.TAB)
        browser.press(Keys.ENTER)

        assert browser.ask("return document.activeElement.id") == "main"


def test_the_slider_travels_in_time_by_keyboard(browser: Browser, full_store: eoslog.Store) -> None:
    with console_of(full_store.url) as link:
        browser.driver.get(link)
        browser.driver.get(f"{link.partition('/?')[0]}/topics/payments/rows?partition=0")
        slider = browser.driver.find_element(By.ID, "slot")
        newest = int(slider.get_attribute("max") or 0)

        slider.send_keys(Keys.ARROW_LEFT)

        WebDriverWait(browser.driver, PATIENCE_S).until(lambda driver: f"slot={newest - 1}" in driver.current_url)
        assert "from=" not in browser.driver.current_url
        browser.wait_for_text(f"as of slot {newest - 1}")


def test_an_abort_is_made_in_the_browser(browser: Browser, full_store: eoslog.Store) -> None:
    with console_of(full_store.url, "--allow-admin") as link:
        browser.driver.get(link)
        browser.driver.get(f"{link.partition('/?')[0]}/transactions/one?id=late")
        browser.driver.find_element(By.ID, "confirmed").send_keys("late", Keys.ENTER)

        browser.wait_for_text("COMPLETE_ABORT")
    assert full_store.admin.describe_transaction("late").transaction_state == "COMPLETE_ABORT"


def test_the_link_opens_one_browser_only(browser: Browser, full_store: eoslog.Store, tmp_path: Path) -> None:
    with console_of(full_store.url) as link, chromium.browser(tmp_path / "another") as another:
        browser.driver.get(link)
        another.driver.get(link)

        assert "token" not in browser.driver.current_url
        assert browser.driver.title.startswith("Overview")
        assert another.driver.title.startswith("No access")
        assert browser.ask("return document.cookie") == ""
