"""The checker's command comes to the verdict of the soak on what the soak wrote."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

import eoslog
from tests.checker import Kind, Operation, Outcome, Poll, Send, read_history
from tests.checker.__main__ import main
from tests.soak.checking import Evidence, Row, checked_history, illegal_histories
from tests.soak.history import write_history
from tests.soak.made_up import evidence, row

OPERATIONS = [
    Operation("idempotent-1.1", Kind.SEND, Outcome.OK, 1, 2, (Send("recent-0", "idempotent-1/1/1", 0),)),
    Operation(
        "eager-1.1", Kind.TXN, Outcome.OK, 3, 4, (Send("orders-0", "eager-1/1/1"), Send("orders-1", "eager-1/1/2"))
    ),
    Operation("eager-1.1", Kind.TXN, Outcome.INFO, 5, 5, (Send("orders-0", "eager-1/1/3"),)),
    Operation("assigned-1.1", Kind.POLL, Outcome.OK, 6, 7, (Poll({"copies-0": ((0, "eager-1/1/1"),)}),)),
]
"""A row that retention has dropped, orders that no history has read, and a copy that none has sent."""
ROWS = [
    row("orders-0", 0, "eager-1/1/1"),
    row("orders-1", 0, "eager-1/1/2"),
    row("copies-0", 0, "eager-1/1/1"),
]


def found(store: eoslog.Store, rows: list[Row]) -> Evidence:
    return evidence(store, OPERATIONS, rows, has_streams=True)


def test_the_command_finds_the_checked_history_valid(store: eoslog.Store, tmp_path: Path) -> None:
    exact = found(store, ROWS)
    write_history(tmp_path / "judged.jsonl", checked_history(exact))

    told = CliRunner().invoke(main, [str(tmp_path / "judged.jsonl")])

    assert list(illegal_histories(exact)) == []
    assert told.exit_code == 0, told.output
    assert told.output.startswith("valid: ")


def test_the_command_finds_a_lost_row_invalid_by_the_same_rule(store: eoslog.Store, tmp_path: Path) -> None:
    lossy = found(store, [each for each in ROWS if each.value != "eager-1/1/2"])
    write_history(tmp_path / "judged.jsonl", checked_history(lossy))

    told = CliRunner().invoke(main, [str(tmp_path / "judged.jsonl")])

    contradictions = list(illegal_histories(lossy))
    assert contradictions
    assert told.exit_code == 1
    assert told.output.startswith("INVALID: ")
    for contradiction in contradictions:
        rule, _, witness = contradiction.partition(": ")
        assert rule in told.output
        assert witness in told.output


def test_the_written_history_is_the_checked_history(store: eoslog.Store, tmp_path: Path) -> None:
    history = checked_history(found(store, ROWS))

    write_history(tmp_path / "judged.jsonl", history)

    assert list(map(str, read_history([tmp_path / "judged.jsonl"]))) == list(map(str, history))


def test_the_last_reader_comes_after_everything_whose_end_was_seen(store: eoslog.Store) -> None:
    history = checked_history(found(store, ROWS))

    (last,) = [each for each in history if each.process == "the last reader"]

    assert last.invoked == 8
