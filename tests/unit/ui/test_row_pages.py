"""The rows of a partition: their outcomes, their pages, time travel, searches, and the limits of what is fetched."""

from __future__ import annotations

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import eoslog
from eoslog.format.partitioner import partition_for_key
from eoslog.ui import row_pages
from tests.unit.ui.forms import rows, words

PATH = "/topics/payments/rows?partition=0"


def shown(browser: TestClient, query: str = "") -> list[list[str]]:
    return rows(browser.get(f"{PATH}&{query}"), "List of rows")


def offsets(browser: TestClient, query: str = "") -> list[int]:
    return [int(row[0]) for row in shown(browser, query)]


@pytest.fixture
def outcomes(store: eoslog.Store) -> eoslog.Producer:
    """Committed, aborted and open rows, and a row without transaction. The producer's transaction is open."""
    producer = store.producer("etl-1")
    producer.init_transactions()
    for value in (b"good", b"bad", b"open"):
        producer.begin_transaction()
        producer.send("payments", key=b"k", value=value, partition=0)
        producer.flush()
        if value == b"good":
            producer.commit_transaction()
        elif value == b"bad":
            producer.abort_transaction()
    with store.producer() as plain:
        plain.send("payments", value=b"plain", partition=0)
    return producer


def test_each_row_has_its_outcome_transaction_and_slot(outcomes: eoslog.Producer, browser: TestClient) -> None:
    found = [(row[0], row[1], row[6]) for row in shown(browser)]

    assert found == [
        ("0", "committed", "good"),
        ("1", "COMMIT", ""),
        ("2", "aborted", "bad"),
        ("3", "ABORT", ""),
        ("4", "open", "open"),
        ("5", "committed", "plain"),
    ]
    assert [row[2] for row in shown(browser)][:5] == ["etl-1"] * 5
    assert shown(browser)[0][3] == "5"
    assert shown(browser)[4][3] == "\u2013"


def test_the_view_leaves_out_rows_by_their_outcome(outcomes: eoslog.Producer, browser: TestClient) -> None:
    assert offsets(browser, "view=committed") == [0, 5]
    assert offsets(browser, "view=stable") == [0]


def test_the_title_of_a_column_of_numbers_stands_above_them(store: eoslog.Store, browser: TestClient) -> None:
    with store.producer() as producer:
        producer.send_table("flights", pa.table({"carrier": ["UA"], "miles": [1200]}))

    page = browser.get("/topics/flights/rows").text

    assert '<th scope="col" class="n">miles</th>' in page
    assert '<th scope="col">carrier</th>' in page
    assert '<td class="v number n">1200</td>' in page


def test_a_slot_of_the_past_shows_the_rows_of_then(store: eoslog.Store, browser: TestClient) -> None:
    slots = []
    with store.producer("etl-1") as producer:
        producer.init_transactions()
        for value in (b"first", b"second"):
            producer.begin_transaction()
            producer.send("payments", value=value, partition=0)
            producer.commit_transaction()
            slots.append(store.read(lambda state, slot: slot))

    assert [row[6] for row in shown(browser, f"slot={slots[0]}")] == ["first"]
    assert [row[6] for row in shown(browser, f"slot={slots[1]}")] == ["first", "second"]
    assert f"as of slot {slots[0]}" in words(browser.get(f"{PATH}&slot={slots[0]}"))
    assert f'max="{slots[1]}"' in browser.get(PATH).text


def test_a_date_of_the_past_shows_the_rows_of_then(store: eoslog.Store, browser: TestClient) -> None:
    created_ms = store.read(lambda state, slot: state.time_ms)
    while store.now_ms() <= created_ms:
        pass
    with store.producer() as producer:
        producer.send("payments", value=b"later", partition=0)

    assert len(shown(browser)) == 1
    assert "No row is visible" in words(browser.get(f"{PATH}&date={created_ms}"))


def test_a_date_before_the_topic_keeps_the_form(browser: TestClient) -> None:
    page = browser.get(f"{PATH}&date=2001-01-01T00:00")

    assert page.status_code == 400
    assert "topic payments did not exist at 2001-01-01T00:00:00Z. It was created at slot 1" in words(page)
    assert 'value="2001-01-01T00:00"' in page.text
    assert "List of rows" not in page.text


@pytest.fixture
def many(store: eoslog.Store) -> int:
    """Commits of 30 rows each, with a control row behind each."""
    with store.producer("etl-1") as producer:
        producer.init_transactions()
        for _ in range(10):
            producer.begin_transaction()
            for number in range(30):
                producer.send("payments", key=b"%d" % number, value=b"v", partition=0)
            producer.commit_transaction()
    return 310


def test_the_newest_rows_come_first_and_older_ones_on_earlier_pages(many: int, browser: TestClient) -> None:
    path, seen = PATH, []
    while path:
        page = browser.get(path)
        found = [int(row[0]) for row in rows(page, "List of rows")]
        seen = found + seen
        link = page.text.partition('rel="prev" href="')
        path = link[2].partition('"')[0].replace("&amp;", "&") if link[1] else ""

    assert seen == list(range(many))
    assert offsets(browser) == list(range(many - row_pages.ROWS, many))


def test_rows_from_an_offset_go_on_to_later_pages(many: int, browser: TestClient) -> None:
    page = browser.get(f"{PATH}&from=10")

    assert [int(row[0]) for row in rows(page, "List of rows")] == list(range(10, 60))
    assert "from=60" in page.text
    assert offsets(browser, "from=1\u202f0") == offsets(browser, "from=10")


def test_an_earlier_page_has_as_many_rows_although_most_are_hidden(store: eoslog.Store, browser: TestClient) -> None:
    with store.producer("etl-1") as producer:
        producer.init_transactions()
        for commits in (True, False):
            producer.begin_transaction()
            for _ in range(200):
                producer.send("payments", value=b"v", partition=0)
            producer.flush()
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    assert offsets(browser, "view=committed") == list(range(150, 200))


def test_rows_are_found_by_time(store: eoslog.Store, browser: TestClient) -> None:
    with store.producer() as producer:
        for day in (1, 2, 3):
            producer.send("payments", value=b"v", partition=0, timestamp=day * 86_400_000)

    assert offsets(browser, "time=1970-01-02T12:00") == [1, 2]
    assert "No row is visible" in words(browser.get(f"{PATH}&time=1980-01-01T00:00"))


def test_rows_are_found_by_key_in_the_partition_of_the_key(store: eoslog.Store, browser: TestClient) -> None:
    with store.producer() as producer:
        for number in range(20):
            producer.send("payments", key=b"k%d" % number, value=b"v%d" % number)

    right = partition_for_key(b"k7", 2)
    page = browser.get(f"/topics/payments/rows?key=k7&partition={1 - right}")
    elsewhere = browser.get(f"/topics/payments/rows?key=k7&in={1 - right}")

    assert "No row matches" in words(elsewhere)
    assert f"key=k7&amp;partition={1 - right}&amp;in={1 - right}" in page.text
    assert [row[5:7] for row in rows(page, "List of rows")] == [["k7", "v7"]]
    assert f"partition {right} start" in words(page)
    assert "No row matches" in words(browser.get("/topics/payments/rows?key=nothing"))


def test_rows_of_columns_are_found_by_key_and_condition(store: eoslog.Store, browser: TestClient) -> None:
    with store.producer() as producer:
        table = pa.table({"carrier": ["UA", "AA", "O\\'X"], "miles": [100, 200, 300], "tags": [["a"], None, []]})
        producer.send_table("flights", table)

    def found(query: str) -> list[str]:
        page = browser.get(f"/topics/flights/rows?{query}")
        return [row[6] for row in rows(page, "List of rows")]

    assert found("") == ["100", "200", "300"]
    assert found("key=O%5C'X") == ["300"]
    assert found("where=miles>150") == ["200", "300"]
    assert found("where=miles>150&key=AA") == ["200"]


def test_records_are_found_by_a_part_of_the_value_or_by_a_field_of_json(
    store: eoslog.Store, browser: TestClient
) -> None:
    values = [b'{"card": {"country": "DE"}, "n": 1}', b'{"card": {"country": "AT"}}', b"DE, no JSON", b"\xff", None]
    with store.producer() as producer:
        for value in values:
            producer.send("payments", key=b"k", value=value, partition=0)

    assert offsets(browser, "contains=DE") == [0, 2]
    assert offsets(browser, "field=card.country%3DDE") == [0]
    assert offsets(browser, "field=n%3D1") == [0]
    assert "No row matches" in words(browser.get(f"{PATH}&field=card.country%3DAT&contains=DE"))
    assert browser.get(f"{PATH}&field=country").status_code == 400


def test_a_search_stops_early_and_goes_on_where_it_stopped(
    store: eoslog.Store, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_pages, "_SEARCHED_FILES", 2)
    with store.producer() as producer:
        for number in range(6):
            producer.send("payments", key=b"%d" % number, value=b"v", partition=0)
            producer.flush()

    page = browser.get(f"{PATH}&key=5&in=0")

    assert "No row matches up to offset 2" in words(page)
    assert "from=2" in page.text
    assert offsets(browser, "key=5&in=0&from=4") == [5]


def test_large_files_are_not_fetched_for_their_values_until_the_user_asks(
    outcomes: eoslog.Producer, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_pages, "_LARGEST_FETCH_BYTES", 10)

    page = browser.get(PATH)

    assert "so their values were not fetched" in words(page)
    assert "good" not in words(page)
    assert rows(page, "List of rows")[0][:2] == ["0", "committed"]
    assert "good" in words(browser.get(f"{PATH}&values=all"))


def test_a_row_has_a_page_with_its_headers_and_its_value_as_json(store: eoslog.Store, browser: TestClient) -> None:
    with store.producer() as producer:
        producer.send("payments", key=b"k", value=b'{"a": 1}', headers=[("trace", b"7")], partition=0)

    page = browser.get("/topics/payments/rows/0/0")

    assert '{ "a": 1 }' in words(page)
    assert '"key": "trace"' in words(page)
    assert "Outcome committed" in words(page)


def test_a_control_row_has_a_page(outcomes: eoslog.Producer, browser: TestClient) -> None:
    assert "Outcome ABORT a control row" in words(browser.get("/topics/payments/rows/0/3"))
