"""The summary names the events that did not happen. They leave the verdict open unless the run was short."""

from __future__ import annotations

import pytest

import eoslog
from tests.checker import Kind, Operation, Outcome, Send
from tests.soak.checking import Row
from tests.soak.layout import PUBLISHED
from tests.soak.made_up import evidence, row
from tests.soak.supervisor import Event
from tests.soak.untried import not_come_about, untried, without_rows

WRITTEN = [
    row("orders-0", 0, "eager-1/1/1"),
    row("invoices-0", 0, "transformer-1/1/1|eager-1/1/1"),
    row("bank-0", 0, "bank-1/1/1"),
]
ABORTED = Operation("eager-1.1", Kind.TXN, Outcome.FAIL, 1, 2, (Send("orders-0", "eager-1/1/2"),))
FENCED = Event(0, "zombie ended", "eager-1", note="status 1")


@pytest.mark.parametrize("topic", ["orders", "invoices", "bank"])
def test_a_topic_without_rows_tries_nothing_however_short_the_run(store: eoslog.Store, topic: str) -> None:
    rows = [each for each in WRITTEN if not each.place.startswith(topic)]

    assert untried(evidence(store, [], rows), [], minutes=0.5) == [f"no row of {topic} was committed"]


def test_streams_that_committed_nothing_tried_nothing(store: eoslog.Store) -> None:
    rows = [*WRITTEN, row("copies-0", 0, "eager-1/1/1")]

    assert list(without_rows(evidence(store, [], rows))) == []
    assert list(without_rows(evidence(store, [], rows, has_streams=True))) == [
        "the streaming query into recopies committed no row"
    ]


def gone_through(store: eoslog.Store) -> list[Row]:
    """Two rows of a key, of which compaction took one, and one row, which was dropped; the rows that are left.

    Each published topic has three versions.
    """
    for topic in PUBLISHED:
        for version in range(3):
            store.object_store.put(f"{topic}/_delta_log/{version:020d}.json", b"")
    with store.producer() as producer:
        for number in (1, 2):
            producer.send("newest", f"idempotent-1/1/{number}@a".encode(), key=b"a", partition=0)
        producer.send("recent", b"idempotent-1/1/3", partition=0)
        producer.flush()
    store.admin.delete_records({eoslog.TopicPartition("recent", 0): 1})
    return [*WRITTEN, row("newest-0", 1, "idempotent-1/1/2@a")]


def test_a_run_that_went_through_everything_tried_everything(store: eoslog.Store) -> None:
    rows = gone_through(store)

    assert untried(evidence(store, [ABORTED], rows), [FENCED], minutes=60) == []


def test_a_topic_that_has_all_rows_that_were_written_was_not_compacted(store: eoslog.Store) -> None:
    rows = [*gone_through(store), row("newest-0", 0, "idempotent-1/1/1@a")]

    assert list(not_come_about(evidence(store, [ABORTED], rows), [FENCED])) == ["compaction took no row of newest"]


def test_a_history_of_commits_and_kills_has_tried_neither_abort_nor_fence(store: eoslog.Store) -> None:
    committed = Operation("eager-1.1", Kind.TXN, Outcome.OK, 1, 2, (Send("orders-0", "eager-1/1/1"),))
    refused = Operation("idempotent-1.1", Kind.SEND, Outcome.FAIL, 1, 2, (Send("orders-0", "idempotent-1/1/1"),))
    events = [Event(0, "zombie killed", "eager-1"), Event(0, "kill", "eager-1")]

    assert list(not_come_about(evidence(store, [committed, refused], gone_through(store)), events)) == [
        "no transaction was aborted",
        "no zombie found out that it was fenced",
    ]


@pytest.mark.parametrize(("minutes", "count"), [(1, 0), (5, 0), (5.1, 7)])
def test_only_a_run_of_over_five_minutes_must_try_everything(store: eoslog.Store, minutes: float, count: int) -> None:
    assert len(untried(evidence(store, [], WRITTEN), [], minutes)) == count
