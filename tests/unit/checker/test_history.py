"""Histories as files, and the command that checks them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.checker import HistoryWriter, InvalidHistory, Kind, Operation, Outcome, read_history
from tests.checker.__main__ import main
from tests.checker.history import NEVER
from tests.unit.checker.histories import assign, operation, poll, polled, send, sent, snapshot


def write(path: Path, *operations: Operation) -> None:
    with path.open("w") as out:
        writer = HistoryWriter(out)
        for each in operations:
            writer.invoke(each)
            writer.complete(each)


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = [
        assign("a", "j", "k"),
        operation("a", sent("k", 1, 0), sent("k", "zwei", None), polled(j=[(0, "x")]), staged=True),
        snapshot("b", ("j",), j=[]),
        send("b", "j", 3, None, Outcome.FAIL),
        send("b", "j", 4, None, Outcome.INFO),
    ]
    write(tmp_path / "a.jsonl", *history[:2])
    write(tmp_path / "b.jsonl", *history[2:])

    assert read_history([tmp_path]) == history


def test_an_operation_of_unknown_outcome_is_never_over() -> None:
    assert send("a", "k", 1, None, Outcome.INFO).completed == NEVER


def test_an_operation_that_never_ended_has_an_unknown_outcome(tmp_path: Path) -> None:
    begun = operation("a", sent("k", 1), lasted=(3, 4))
    with (tmp_path / "a.jsonl").open("w") as out:
        HistoryWriter(out).invoke(begun)

    (found,) = read_history([tmp_path / "a.jsonl"])

    assert found == Operation("a", Kind.TXN, Outcome.INFO, 3, NEVER, (sent("k", 1),))


def test_a_line_that_death_cut_off_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, send("a", "k", 1, 0))
    text = path.read_text()
    path.write_text(text + text[:30])

    assert len(read_history([path])) == 1


@pytest.mark.parametrize(
    "line",
    ["{", "7", "{}", '{"process": "a", "kind": "sned", "outcome": "ok", "invoked": 1, "completed": 2}'],
)
def test_a_line_that_is_no_operation_is_told_with_its_place(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"{line}\n")

    with pytest.raises(InvalidHistory, match=r"a\.jsonl:1 is no operation"):
        read_history([tmp_path])


def test_the_command_tells_that_a_history_is_valid(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", send("a", "k", 1, 0))
    write(tmp_path / "b.jsonl", poll("b", k=[(0, 1)]))

    result = CliRunner().invoke(main, [str(tmp_path)])

    assert result.exit_code == 0
    assert "valid: 2 operations, 1 values acknowledged, 1 polled" in result.output


def test_the_command_tells_what_is_illegal_and_fails(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", send("a", "k", 1, 0), send("a", "k", 2, 1))
    write(tmp_path / "b.jsonl", poll("b", k=[(1, 2)]))

    result = CliRunner().invoke(main, [str(tmp_path), "--unfinished"])

    assert result.exit_code == 1
    assert "INVALID" in result.output
    assert "lost-write: 1, illegal 1\n    1 of k, written by a[" in result.output


def test_the_command_refuses_a_directory_without_histories(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(tmp_path)])

    assert result.exit_code == 1
    assert "no operation in" in result.output
