"""Names, keys and values of a store harm nobody who looks at them."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import eoslog
from eoslog.producer import rows
from eoslog.state.group_entries import LONGEST_HOST, GroupMember
from eoslog.state.group_members import ChangeGroup
from eoslog.ui.application import _event
from eoslog.ui.display import CELL_BYTES, VALUE_BYTES, cell, counted, duration, moment, number, size, text
from tests.unit.support.transactions import open_transaction
from tests.unit.ui.forms import words

HTML = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}<hx-partial hx-target='#main'>"
TRICKS = "\x00\x1b[31m\u202egnp.exe\u2066\u200b\r\nevent: evil\ndata: x\x85\u2028\ud7ff\ue000"


@pytest.mark.parametrize("evil", [HTML, TRICKS, "a" * 5_000], ids=["html", "control", "long"])
def test_hostile_keys_and_values_are_text(store: eoslog.Store, browser: TestClient, evil: str) -> None:
    with store.producer() as producer:
        producer.send("payments", key=evil.encode(), value=evil.encode(), headers=[(evil[:1_000], b"x")], partition=0)
        table = pa.table({"carrier": [evil], "miles": [1], "tags": [[evil]]})
        producer.send_table("flights", table)

    for path in (
        "/topics/payments/rows",
        "/topics/payments/rows/0/0",
        "/topics/flights/rows",
        "/topics/flights/rows/0/0",
    ):
        page = browser.get(path)
        assert page.status_code == 200
        _check_harmless(page.text)


@pytest.mark.parametrize("evil", [HTML, "\u202egnp.exe\u200b", "a/b?c=d&e#f%2f..", "a" * 1_000])
def test_hostile_ids_are_text_and_have_pages(store: eoslog.Store, browser: TestClient, evil: str) -> None:
    with open_transaction(store, evil) as producer:
        producer.send("payments", value=b"v", partition=0)
        producer.send_offsets_to_transaction({eoslog.TopicPartition("payments", 0): 0}, evil)
        producer.commit_transaction()

    paths = ("/", "/transactions", "/log", "/log/5", "/groups", f"/topics/payments/rows?partition=0&key={quote(evil)}")
    for path in (*paths, f"/transactions/one?id={quote(evil)}", f"/groups/one?id={quote(evil)}"):
        page = browser.get(path)
        assert page.status_code == 200, path
        _check_harmless(page.text)
    assert f'href="/groups/one?id={quote(evil)}"' in browser.get("/groups").text


@pytest.mark.parametrize("evil", [HTML, TRICKS, "a" * 5_000])
def test_hostile_names_of_clients_and_hosts_are_text(store: eoslog.Store, browser: TestClient, evil: str) -> None:
    joined = GroupMember(member_id="m", topics=("payments",), client_id=evil[:1024], host=evil[:LONGEST_HOST])
    store.append(ChangeGroup("billing", store.now_ms(), joined=joined))

    page = browser.get("/groups/one?id=billing")

    assert page.status_code == 200
    _check_harmless(page.text)


@pytest.mark.parametrize("evil", [HTML, TRICKS, "//evil.example/"])
def test_hostile_queries_are_text(browser: TestClient, evil: str) -> None:
    for path in (
        "/topics?q=",
        "/transactions?q=",
        "/groups?q=",
        "/jobs?q=",
        "/topics/payments/rows?where=",
        "/nowhere/",
    ):
        page = browser.get(path + quote(evil))
        _check_harmless(page.text)
        assert not re.search(r"""(href|action)="(//|\w+:)""", page.text)


def _check_harmless(page: str) -> None:
    assert "<img" not in page
    assert "<hx-partial" not in page
    assert "&gt;49&lt;" not in page
    assert page.count("<script") == page.count('<script src="/assets/')
    # A field repeats what the user has written into it.
    page = re.sub(r' value="[^"]*"', "", page)
    invisible = {each for each in unescape(page) if not each.isprintable()} - {"\n", "\u202f"}
    assert invisible == set()


def test_a_large_value_is_cut_in_the_list_and_on_its_own_page(store: eoslog.Store, browser: TestClient) -> None:
    with store.producer() as producer:
        producer.send("payments", key=b"k", value=b"y" * 10_000_000, partition=0)

    listed, whole = browser.get("/topics/payments/rows?partition=0"), browser.get("/topics/payments/rows/0/0")

    assert listed.text.count("y" * CELL_BYTES) == 1
    assert "y" * (CELL_BYTES + 1) not in listed.text
    assert "9.5 MiB" in words(listed)
    assert len(whole.text) < VALUE_BYTES + 10_000


def test_a_record_of_the_log_that_is_too_large_is_cut(store: eoslog.Store, browser: TestClient) -> None:
    schema = pa.schema([(f"column_{number}", pa.int64()) for number in range(10_000)])
    store.admin.create_topic("wide", schema=schema)

    page = browser.get("/log/3")

    assert page.status_code == 200
    assert len(page.text) < 300_000
    assert "its first" in words(page)


def test_times_that_python_cannot_hold_are_shown(
    store: eoslog.Store, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_ms = 300_000_000_000_000
    # As another writer may have stored it: eoslog refuses the time.
    monkeypatch.setattr(rows, "GREATEST_MS", late_ms)
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("on", pa.list_(pa.date32()))])
    store.admin.create_topic("times", schema=schema)
    with store.producer() as producer:
        producer.send("payments", value=b"v", partition=0, timestamp=late_ms)
        times = pa.array([late_ms * 1000], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        days = pa.array([[2_000_000_000]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
        producer.send_table("times", pa.table({"at": times, "on": days}))

    assert "9999-12-31" in browser.get("/topics/payments/rows/0/0").text
    for path in ("/topics/payments/rows", "/topics/times/rows", "/topics/times/rows/0/0"):
        assert browser.get(path).status_code == 200
    assert words(browser.get("/topics/times/rows")).count("beyond the years 1 to 9999") == 2


def test_a_topic_of_many_columns_has_pages_of_limited_size(store: eoslog.Store, browser: TestClient) -> None:
    names = [f"column_{number}" for number in range(1_500)]
    store.admin.create_topic("wide", schema=pa.schema([(name, pa.int64()) for name in names]))
    with store.producer() as producer:
        producer.send_table("wide", pa.table({name: [7] for name in names}))

    for path, more in (("/topics/wide", 500), ("/topics/wide/rows", 1_400), ("/topics/wide/rows/0/0", 500)):
        page = browser.get(path)
        assert f"{more} more columns" in words(page)
        assert len(page.text) < 300_000


def test_a_stream_has_no_event_of_a_value() -> None:
    assert _event("a\r\nevent: evil\rdata: x\n\nid: 1") == (
        "data: a\ndata: event: evil\ndata: data: x\ndata: \ndata: id: 1\n\n"
    )


def test_a_cut_value_keeps_whole_characters() -> None:
    found = cell(pa.scalar("\u00e4" * 200, pa.string()), 11)

    assert (found.text, found.cut_bytes) == ("\u00e4" * 5, 400)


def test_bytes_that_are_no_text_are_shown_in_hexadecimal() -> None:
    assert cell(pa.scalar(b"\xff\x00\x01", pa.binary())).text == "ff0001"
    cut = cell(pa.scalar(b"\xff" * 1_000, pa.binary()), 10)
    assert (cut.text, cut.kind, cut.cut_bytes) == ("ff" * 5, "bytes", 1_000)


def test_a_value_of_each_kind_is_shown() -> None:
    assert cell(pa.scalar(None, pa.binary())).kind == "null"
    assert cell(pa.scalar(float("nan"))) == ("NaN", "number", None)
    assert cell(pa.scalar([1, None], pa.list_(pa.int64()))).text == "[1, null]"
    assert cell(pa.scalar({"a": b"\xff"})).text == '{"a": {"base64": "/w=="}}'
    assert cell(pa.scalar(True)).text == "True"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(1_234_567), "1\u202f234\u202f567"),
        (number(None), "\u2013"),
        (size(999), "999 B"),
        (size(1_500_000), "1.4 MiB"),
        (duration(999), "999 ms"),
        (duration(61_000), "1 m 1 s"),
        (duration(90_000_000), "1 d 1 h"),
        (duration(-1), "\u2013"),
        (moment(0), "1970-01-01 00:00:00.000 UTC"),
        (moment(2**60), f"{2**60} ms"),
        (text("a\u202eb"), "a\\u202eb"),
        (text(f"spark-{'x' * 300}-17", 12), "spark-\u2026xx-17"),
        (counted(1, "row"), "1 row"),
        (counted(1_000, "row"), "1\u202f000 rows"),
    ],
)
def test_numbers_and_texts_are_written_for_people(shown: str, expected: str) -> None:
    assert shown == expected
