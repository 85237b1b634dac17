"""The plain oracle: what a log says that readers are shown."""

from __future__ import annotations

from typing import Any

from tests.checker.oracle import Aborted, readings, shown_at
from tests.checker.slots import Slot

PLACE = ("1" * 32, 0)


def log_of(*entries: dict[str, Any]) -> list[Slot]:
    return [Slot(number, f"append id {number}", "", [entry]) for number, entry in enumerate(entries)]


def batch(base_offset: int, *, epoch: int = 0, transactional_id: str | None = "t") -> dict[str, Any]:
    return {
        "type": "batch",
        "topic_id": PLACE[0],
        "partition": PLACE[1],
        "base_offset": base_offset,
        "record_count": 2,
        "transactional_id": transactional_id,
        "producer_id": 7,
        "producer_epoch": epoch,
    }


def end(
    outcome: str,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    transactional_id: str = "t",
    marker: int | None = None,
) -> dict[str, Any]:
    markers = [] if marker is None else [{"topic_id": PLACE[0], "partition": PLACE[1], "offset": marker}]
    return {
        "type": "end",
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "outcome": outcome,
        "markers": markers,
    }


def test_an_open_transaction_holds_readers_back_from_its_first_offset_on() -> None:
    shown = shown_at(log_of(batch(0, transactional_id=None), batch(2), batch(4, transactional_id=None)), 2)

    assert shown.committed[PLACE] == {0, 1, 4, 5}
    assert shown.read_committed(PLACE) == {0, 1}


def test_each_transaction_of_an_epoch_has_an_end_of_its_own() -> None:
    log = log_of(batch(0), end("commit", marker=2), batch(3), end("abort", marker=5), batch(6), end("commit", marker=8))

    assert [shown_at(log, slot).read_committed(PLACE) for slot in (1, 3, 5)] == [{0, 1}, {0, 1}, {0, 1, 6, 7}]
    *_, reading = readings(log)
    assert reading.aborted == {PLACE: [Aborted(7, 3, 5, 6)]}


def test_rows_show_from_the_slot_that_commits_them_and_never_if_it_aborts() -> None:
    log = log_of(batch(0), end("commit"), batch(3, epoch=1), end("abort", epoch=1))

    assert [shown_at(log, slot).read_committed(PLACE) for slot in range(4)] == [set(), {0, 1}, {0, 1}, {0, 1}]


def test_a_prepared_transaction_ends_under_the_newest_identity_of_its_id() -> None:
    log = log_of(batch(0), end("commit", producer_id=9, epoch=0))

    assert shown_at(log, 1).read_committed(PLACE) == {0, 1}


def test_an_aborted_transaction_is_listed_with_the_last_stable_offset_right_after_its_marker() -> None:
    log = log_of(
        batch(0, transactional_id="other"),
        batch(2),
        end("abort", marker=4),
        end("commit", transactional_id="other", marker=5),
        batch(6, epoch=1),
        batch(8, epoch=1),
        end("abort", producer_id=9, marker=10),
    )

    *_, reading = readings(log)

    assert reading.aborted == {PLACE: [Aborted(7, 2, 4, 0), Aborted(7, 6, 10, 11)]}
