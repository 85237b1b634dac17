"""The recipes of the page run as printed, and each survives a crash before any of its lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from eoslog import Commit, Consumer, Store, TopicPartition
from tests.pages import REPOSITORY, fenced_blocks

PAGE = REPOSITORY / "docs/beyond-transactions.md"


class Killed(BaseException):
    """The program ends before a line of the recipe."""


def kill_before_line(number: int, function: Callable[..., object], *arguments: object) -> bool:
    """Call a function of the page, and end it before its ``number``-th line. Return False if it has fewer lines."""
    own: set[object] = {function.__code__, *function.__code__.co_consts}
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code not in own:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False


def crash_at_each_line(change: Callable[[int], object], function: Callable[..., object], *arguments: object) -> int:
    """Make a change, let the recipe crash before one of its lines, and run it again: for each line once.

    Returns:
        The number of lines that the recipe executes.
    """
    opened: list[Consumer] = []
    open_consumer = Store.consumer

    def noted(*arguments: Any, **options: Any) -> Consumer:
        opened.append(open_consumer(*arguments, **options))
        return opened[-1]

    number = 1
    change(number)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "consumer", noted)
        while kill_before_line(number, function, *arguments):
            for consumer in opened:
                consumer.close()  # stands for the eviction of a consumer whose process has died
            function(*arguments)
            number += 1
            change(number)
    return number


@pytest.fixture
def page(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The names of the page's program after it has run."""
    names: dict[str, Any] = {"__name__": "page"}
    with chdir(tmp_path):
        for block in fenced_blocks(PAGE, "python"):
            code: CodeType = compile(block, PAGE.name, "exec")
            exec(code, names)
        yield names
        names["database"].close()


def pay(page: dict[str, Any], number: int) -> None:
    """Commit a transaction with one row."""
    with page["store"].producer("shop") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("payments", b"%d" % number, key=b"card-1", headers=[("number", b"%d" % number)])
        producer.commit_transaction()


def payments(page: dict[str, Any]) -> list[int]:
    return sorted(int(value) for value in page["store"].scan("payments").to_table()["value"].to_pylist())


def test_a_database_has_each_row_once_after_crashes_at_every_line(page: dict[str, Any]) -> None:
    database = page["database"]

    assert crash_at_each_line(partial(pay, page), page["book"], database) > 10

    assert sorted(amount for (amount,) in database.execute("SELECT amount FROM booked")) == payments(page)


def test_the_totals_of_a_database_are_exact_after_crashes_at_every_line(page: dict[str, Any]) -> None:
    database = page["database"]

    assert crash_at_each_line(partial(pay, page), page["add_up"], database) > 15

    totals = database.execute("SELECT card, amount FROM totals ORDER BY card").fetchall()
    assert totals == [("card-1", sum(payments(page)) - 33), ("card-2", 33)]


def test_of_two_workers_with_the_same_partition_one_is_refused(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pay(page, 1)
    database, seek = page["database"], Consumer.seek

    def seek_too_late(consumer: Consumer, place: TopicPartition, offset: int) -> None:
        seek(consumer, place, offset)
        with database:
            database.execute("UPDATE positions SET next = next + 1 WHERE place = ?", (place.partition,))

    monkeypatch.setattr(Consumer, "seek", seek_too_late)
    with pytest.raises(RuntimeError, match="another worker"):
        page["add_up"](database)

    assert database.execute("SELECT amount FROM totals").fetchall() == [(33,), (33,)]


def test_of_two_sinks_with_the_same_slot_one_is_refused(page: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pay(page, 1)
    database, to_tables = page["database"], Commit.to_tables

    def read_too_late(commit: Commit) -> dict[str, Any]:
        with database:
            database.execute("UPDATE position SET slot = ?", (commit.slot,))
        return to_tables(commit)

    monkeypatch.setattr(Commit, "to_tables", read_too_late)
    with pytest.raises(RuntimeError, match="another instance"):
        page["book"](database)

    assert database.execute("SELECT count(*) FROM booked").fetchone() == (6,)


def test_an_outbox_is_sent_once_and_in_order_after_crashes_at_every_line(page: dict[str, Any]) -> None:
    database, order = page["database"], page["order"]

    lines = crash_at_each_line(lambda number: order(database, "card", str(number)), page["relay"], database)

    assert lines > 10
    sent = [value.decode() for value in page["store"].scan("orders").to_table()["value"].to_pylist()]
    assert sent == ["lamp", "chair", "table", *map(str, range(1, lines + 1))]


def test_a_mirror_has_each_transaction_once_after_crashes_at_every_line(page: dict[str, Any]) -> None:
    store, copy = page["store"], page["copy"]

    assert crash_at_each_line(partial(pay, page), page["mirror"], store, copy, ["payments"]) > 8

    rows, expected = (each.scan("payments", columns=page["columns"]).to_table() for each in (copy, store))
    assert rows == expected
    counts = [[commit.record_count for commit in each.commits(["payments"])] for each in (copy, store)]
    assert counts[0] == counts[1]


def test_a_mail_is_sent_once_after_crashes_at_every_line(page: dict[str, Any]) -> None:
    mail, database = page["mail"], page["database"]

    def order(number: int) -> None:
        page["order"](database, "card", str(number))
        page["relay"](database)

    assert crash_at_each_line(order, page["notify"], mail) > 5

    assert len(mail.sent) == page["store"].scan("orders").record_count
