"""What a log itself must be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.checker import Anomaly
from tests.checker.oracle import readings, shown_at
from tests.checker.slots import (
    Ends,
    Slot,
    append_ids,
    check_slots,
    decisions,
    micro_batches,
    partition_ends,
    published_ranges,
    stable_ends,
)

P0, P1 = ("topic", 0), ("topic", 1)


def log(*entries: dict[str, Any]) -> list[Slot]:
    """One entry a slot."""
    return [
        Slot(number, f"append id {number}", f"append id {number - 1}" if number else "", [entry])
        for number, entry in enumerate(entries)
    ]


def batch(base_offset: int, count: int = 1, *, partition: int = 0, epoch: int | None = 0) -> dict[str, Any]:
    """Rows of the transaction of this epoch; without one, of none."""
    entry = {"type": "batch", "topic_id": "topic", "partition": partition, "base_offset": base_offset}
    entry |= {"record_count": count, "producer_id": 7, "producer_epoch": epoch or 0}
    return entry if epoch is None else entry | {"transactional_id": "t"}


def end(outcome: str, *markers: int, epoch: int = 0, **fields: object) -> dict[str, Any]:
    """The end of a transaction in partition 0."""
    placed = [{"topic_id": "topic", "partition": 0, "offset": offset} for offset in markers]
    identity = {"transactional_id": "t", "producer_id": 7, "producer_epoch": epoch}
    return {"type": "end", "outcome": outcome, "markers": placed, **identity, **fields}


def version(number: int, **fields: object) -> dict[str, Any]:
    return {"application_id": "query", "sink": "*", "version": number, **fields}


def rules(anomalies: Iterable[Anomaly]) -> list[str]:
    return [each.rule for each in anomalies]


def test_a_log_of_one_slot_after_the_other_breaks_no_rule() -> None:
    assert not rules(check_slots(log(batch(0, 3), end("commit", 3), batch(4, epoch=1), end("abort", 5, epoch=1))))


def test_a_missing_slot_is_a_gap() -> None:
    first, _, third = log(batch(0), batch(1), batch(2))

    assert rules(append_ids([first, third])) == ["slot-gap", "foreign-predecessor"]


def test_a_record_that_was_written_after_another_has_a_foreign_predecessor() -> None:
    first, second = log(batch(0), batch(1))

    assert rules(append_ids([first, second._replace(prev="another")])) == ["foreign-predecessor"]


def test_a_record_in_two_slots_is_there_twice() -> None:
    first, second = log(batch(0), batch(1))

    assert rules(append_ids([first, second._replace(append_id=first.append_id)])) == ["append-id-twice"]


def test_rows_that_leave_offsets_out_are_no_range() -> None:
    assert rules(published_ranges(log(batch(0, 2), batch(3)))) == ["offset-range"]


def test_rows_at_offsets_that_are_taken_are_no_range() -> None:
    assert rules(published_ranges(log(batch(0, 2), batch(1)))) == ["offset-range"]


def test_a_marker_takes_an_offset() -> None:
    assert rules(published_ranges(log(batch(0, 2), end("commit", 2), batch(2)))) == ["offset-range"]
    assert not rules(published_ranges(log(batch(0, 2), end("commit", 2), batch(3))))


def test_staged_rows_lie_before_their_marker() -> None:
    staged = {"topic_id": "topic", "partition": 0, "base_offset": 0, "record_count": 4}

    assert not rules(published_ranges(log(end("commit", 4, batches=[staged]))))


def test_each_partition_has_offsets_of_its_own() -> None:
    assert not rules(published_ranges(log(batch(0, 2), batch(0, 3, partition=1), batch(2))))


def test_a_transaction_that_is_ended_twice_is_decided_twice() -> None:
    assert rules(decisions(log(end("commit"), end("abort")))) == ["decided-twice"]
    assert not rules(decisions(log(end("commit"), end("abort", epoch=1))))


def test_an_epoch_that_an_end_kept_is_decided_again_only_after_a_batch_or_an_addition() -> None:
    kept, raised = end("commit", transaction_version=1), end("abort")
    added = {"type": "add_to_transaction", "transactional_id": "t", "producer_id": 7, "producer_epoch": 0}
    alone = batch(0, epoch=None)

    for begin in (batch(0), added):
        for last in (kept, raised):
            assert not rules(decisions(log(begin, kept, begin, kept, begin, begin, last)))
    for between in ([], [alone], [batch(0, epoch=1)]):
        for last in (kept, raised):
            assert rules(decisions(log(batch(0), kept, *between, last))) == ["decided-twice"]
    # An end of version 2 raises the epoch, so the one before is over.
    for begin in (batch(0), added):
        assert rules(decisions(log(begin, raised, begin, kept))) == ["decided-twice"]
        assert rules(decisions(log(begin, kept, begin, raised, begin, kept))) == ["decided-twice"]


def test_a_micro_batch_that_is_committed_twice_is_found() -> None:
    once = end("commit", application_version=version(1))

    assert rules(micro_batches(log(once, end("commit", epoch=1, application_version=version(1))))) == [
        "committed-twice"
    ]
    assert not rules(micro_batches(log(once, end("commit", epoch=1, application_version=version(2)))))


def test_an_aborted_micro_batch_may_be_committed_later() -> None:
    assert not rules(
        micro_batches(
            log(end("abort", application_version=version(1)), end("commit", epoch=1, application_version=version(1)))
        )
    )


def test_an_application_that_begins_anew_counts_again() -> None:
    anew = end("commit", epoch=1, application_version=version(1, starts_anew_after={"version": 1}))

    assert not rules(micro_batches(log(end("commit", application_version=version(1)), anew)))


def test_an_end_that_moves_back_is_found() -> None:
    assert rules(partition_ends([(0, {P0: Ends(2, 5)}), (1, {P0: Ends(1, 5)})])) == ["end-moved-back"]
    assert rules(partition_ends([(0, {P0: Ends(2, 5)}), (1, {P0: Ends(2, 4)})])) == ["end-moved-back"]


def test_a_stable_end_lies_within_the_log() -> None:
    assert rules(partition_ends([(0, {P0: Ends(6, 5)})])) == ["end-beyond-log"]
    assert not rules(partition_ends([(0, {P0: Ends(0, 5)}), (1, {P0: Ends(5, 5), P1: Ends(0, 0)})]))


def test_no_undecided_row_lies_below_the_stable_end() -> None:
    assert rules(stable_ends(3, {P0: Ends(5, 5)}, {P0: Ends(0, 5)})) == ["undecided-below-end"]
    assert rules(stable_ends(3, {P0: Ends(1, 5)}, {P0: Ends(0, 5)})) == ["undecided-below-end"]
    assert rules(stable_ends(3, {P1: Ends(1, 1)}, {})) == ["undecided-below-end"]


def test_the_stable_end_lies_above_every_decided_row() -> None:
    assert rules(stable_ends(3, {P0: Ends(0, 5)}, {P0: Ends(5, 5)})) == ["end-differs"]
    assert rules(stable_ends(3, {P0: Ends(5, 6)}, {P0: Ends(5, 5)})) == ["end-differs"]
    assert not rules(stable_ends(3, {P0: Ends(2, 5), P1: Ends(0, 0)}, {P0: Ends(2, 5)}))


def test_the_oracle_has_a_partition_stable_up_to_its_first_open_row() -> None:
    marker = {"topic_id": "topic", "partition": 0, "offset": 3}
    staged = {"topic_id": "topic", "partition": 1, "base_offset": 0, "record_count": 2}
    records = log(
        batch(0, epoch=None), batch(1), batch(2, epoch=None), end("commit", 3, markers=[marker], batches=[staged])
    )

    assert [dict(reading.ends()) for reading in readings(records)] == [
        {P0: Ends(1, 1)},
        {P0: Ends(1, 2)},
        {P0: Ends(1, 3)},
        {P0: Ends(4, 4), P1: Ends(2, 2)},
    ]


def test_the_oracle_shows_committed_rows_below_the_first_open_one() -> None:
    records = log(batch(0, epoch=None), batch(1), batch(2, epoch=None), end("commit", 3), batch(4, epoch=1))

    assert shown_at(records, 2).read_committed(P0) == {0}
    assert shown_at(records, 2).committed[P0] == {0, 2}
    assert shown_at(records, 3).read_committed(P0) == {0, 1, 2}
    assert shown_at(records, 4).read_committed(P0) == {0, 1, 2}


def test_the_oracle_shows_no_aborted_rows() -> None:
    assert not shown_at(log(batch(0, 2), end("abort", 2)), 1).committed


def test_the_oracle_shows_staged_rows_from_the_commit_on() -> None:
    staged = {"topic_id": "topic", "partition": 1, "base_offset": 0, "record_count": 2}
    records = log(batch(0), end("commit", 1, batches=[staged]))

    assert shown_at(records, 0).read_committed(P1) == set()
    assert shown_at(records, 1).read_committed(P1) == {0, 1}


def test_the_oracle_shows_no_rows_below_where_the_log_starts() -> None:
    start = {"type": "log_start", "topic_id": "topic", "partition": 0, "offset": 2, "reason": "overwrite"}
    records = log(batch(0, 3), start, end("commit", 3), batch(4, epoch=None))

    assert shown_at(records, 3).committed[P0] == {2, 4}


def test_an_open_transaction_in_one_partition_hides_nothing_of_another() -> None:
    records = log(batch(0), batch(0, partition=1, epoch=None))

    assert shown_at(records, 1).read_committed(P0) == set()
    assert shown_at(records, 1).read_committed(P1) == {0}
