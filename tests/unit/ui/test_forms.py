"""Forms that change the store: each is confirmed, and changes what was shown."""

from __future__ import annotations

import re

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

import eoslog
from eoslog.errors import EosLogError
from tests.unit.support.transactions import open_transaction
from tests.unit.ui.forms import csrf_token, problem, rows, words


@pytest.fixture
def held(store: eoslog.Store) -> eoslog.Producer:
    """A producer with an open transaction."""
    producer = open_transaction(store, "etl/1 ä")
    producer.send("payments", value=b"v", partition=0)
    producer.flush()
    return producer


def send(browser: TestClient, path: str, **fields: str) -> Response:
    token = csrf_token(browser, "/verify")
    return browser.post(path, data={"csrf_token": token, **fields})


def test_an_abort_ends_the_transaction_and_fences_its_producer(
    store: eoslog.Store, held: eoslog.Producer, admin_browser: TestClient
) -> None:
    answer = send(admin_browser, "/transactions/abort", id="etl/1 ä", confirmed="etl/1 ä")

    assert answer.status_code == 303
    assert admin_browser.get(answer.headers["location"]).status_code == 200
    assert store.admin.describe_transaction("etl/1 ä").transaction_state == "COMPLETE_ABORT"
    with pytest.raises(EosLogError):
        held.commit_transaction()


@pytest.mark.parametrize("confirmed", ["", "etl/1", "yes"])
def test_an_abort_without_confirmation_changes_nothing(
    store: eoslog.Store, held: eoslog.Producer, admin_browser: TestClient, confirmed: str
) -> None:
    answer = send(admin_browser, "/transactions/abort", id="etl/1 ä", confirmed=confirmed)

    assert answer.status_code == 400
    assert "Nothing was changed" in problem(answer)
    held.commit_transaction()


def test_a_prepared_transaction_is_aborted_only_if_the_form_says_so(
    store: eoslog.Store, held: eoslog.Producer, admin_browser: TestClient
) -> None:
    held.prepare_transaction()

    refused = send(admin_browser, "/transactions/abort", id="etl/1 ä", confirmed="etl/1 ä")
    forced = send(admin_browser, "/transactions/abort", id="etl/1 ä", confirmed="etl/1 ä", even_prepared="yes")

    assert (refused.status_code, "[EOSLOG_INVALID_TXN_STATE]" in problem(refused)) == (409, True)
    assert forced.status_code == 303
    assert store.admin.describe_transaction("etl/1 ä").transaction_state == "EMPTY"


def test_a_transaction_that_has_ended_meanwhile_is_reported(held: eoslog.Producer, admin_browser: TestClient) -> None:
    held.commit_transaction()

    answer = send(admin_browser, "/transactions/abort", id="etl/1 ä", confirmed="etl/1 ä")

    assert "It has ended meanwhile" in problem(answer)


def test_only_a_console_that_may_change_the_store_shows_the_forms(
    store: eoslog.Store, held: eoslog.Producer, admin_browser: TestClient, browser: TestClient
) -> None:
    store.admin.alter_consumer_group_offsets("billing", {eoslog.TopicPartition("payments", 0): 1})
    for path in ("/transactions/one?id=etl/1%20%C3%A4", "/groups/one?id=billing"):
        assert "<form" in admin_browser.get(path).text
        assert "<form" not in browser.get(path).text


@pytest.fixture
def group(store: eoslog.Store) -> str:
    """A group with offset 1 in the first partition of ``payments``, which has four rows."""
    with store.producer() as producer:
        for number in range(4):
            producer.send("payments", value=b"v", partition=0, timestamp=number * 86_400_000)
    store.admin.alter_consumer_group_offsets("billing", {eoslog.TopicPartition("payments", 0): 1})
    return "billing"


def committed(store: eoslog.Store) -> dict[str, int]:
    offsets = store.admin.list_consumer_group_offsets("billing")
    return {f"{place.topic}-{place.partition}": each.offset for place, each in offsets.items()}


@pytest.mark.parametrize(
    ("way", "value", "offset"),
    [
        ("to_earliest", "", 0),
        ("to_latest", "", 4),
        ("to_offset", "3", 3),
        ("shift_by", "-1", 0),
        ("shift_by", "2", 3),
        ("to_datetime", "1970-01-02T12:00", 2),
    ],
)
def test_a_reset_is_shown_first_and_then_made(
    store: eoslog.Store, group: str, admin_browser: TestClient, way: str, value: str, offset: int
) -> None:
    shown = send(admin_browser, "/groups/reset", id=group, way=way, value=value)

    assert rows(shown, "Changes")[0][:3] == ["payments-0", "1", str(offset)]
    assert committed(store) == {"payments-0": 1}

    (digest,) = re.findall(r'name="confirmed" value="(\w+)"', shown.text)
    done = send(admin_browser, "/groups/reset", id=group, way=way, value=value, confirmed=digest)

    assert done.status_code == 303
    assert committed(store) == {"payments-0": offset}


def test_a_reset_may_choose_one_topic(store: eoslog.Store, group: str, admin_browser: TestClient) -> None:
    shown = send(admin_browser, "/groups/reset", id=group, way="to_latest", topic="flights")

    assert rows(shown, "Changes") == [["flights-0", "\u2013", "0", ""]]


def test_a_reset_with_other_changes_than_its_dry_run_needs_another_confirmation(
    store: eoslog.Store, group: str, admin_browser: TestClient
) -> None:
    shown = send(admin_browser, "/groups/reset", id=group, way="to_latest")
    (digest,) = re.findall(r'name="confirmed" value="(\w+)"', shown.text)
    with store.producer() as producer:
        producer.send("payments", value=b"v", partition=0)

    again = send(admin_browser, "/groups/reset", id=group, way="to_latest", confirmed=digest)

    assert "The offsets have moved" in problem(again)
    assert rows(again, "Changes")[0][2] == "5"
    assert committed(store) == {"payments-0": 1}


def test_a_group_with_members_is_not_reset(store: eoslog.Store, group: str, admin_browser: TestClient) -> None:
    with store.consumer(group_id=group, enable_auto_commit=False) as consumer:
        consumer.subscribe(["payments"])
        consumer.poll(timeout=5)
        shown = send(admin_browser, "/groups/reset", id=group, way="to_earliest")
        (digest,) = re.findall(r'name="confirmed" value="(\w+)"', shown.text)

        refused = send(admin_browser, "/groups/reset", id=group, way="to_earliest", confirmed=digest)

        assert "The group has members" in words(shown)
        assert "[EOSLOG_GROUP_NOT_EMPTY]" in problem(refused)
        assert committed(store) == {"payments-0": 1}


@pytest.mark.parametrize(
    ("way", "value"), [("", ""), ("sideways", ""), ("to_offset", ""), ("shift_by", "one"), ("to_datetime", "noon")]
)
def test_the_error_after_a_wrong_reset_of_offsets_names_the_valid_value(
    group: str, admin_browser: TestClient, way: str, value: str
) -> None:
    answer = send(admin_browser, "/groups/reset", id=group, way=way, value=value)

    assert (answer.status_code, "[EOSLOG_INVALID_OPTION]" in problem(answer)) == (400, True)
