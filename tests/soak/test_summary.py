"""The summary says what was found, what was not tried, and what cannot be a part of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

import eoslog
from tests.soak.layout import Run
from tests.soak.made_up import evidence, row
from tests.soak.summary import DRAINS, TRIED, Summary, verdict_of


@pytest.mark.parametrize(
    ("broken", "verdict"),
    [
        ([], "EXACT"),
        ([DRAINS], "UNFINISHED"),
        ([TRIED], "UNFINISHED"),
        ([DRAINS, TRIED], "UNFINISHED"),
        (["a promise", TRIED], "BROKEN"),
    ],
)
def test_a_promise_that_was_not_tried_is_neither_exact_nor_broken(broken: list[str], verdict: str) -> None:
    promises = ["a promise", DRAINS, TRIED]

    assert verdict_of({each: ["what contradicts it"] * (each in broken) for each in promises}) == verdict


def text(store: eoslog.Store, folder: Path, *, url: str = "", untried: list[str] | None = None) -> str:
    """Of a run of a minute in which only orders, invoices and a bank were written."""
    rows = [row(f"{topic}-0", 0, "a/1/1") for topic in ("orders", "invoices", "bank")]
    summary = Summary(Run(folder, url, 7), 1, can_fill_disk=False)
    summary.write(evidence(store, [], rows), [], {DRAINS: [], TRIED: untried or []}, {})
    return (folder / "summary.txt").read_text()


def test_a_short_run_is_exact_and_names_what_it_did_not_try(store: eoslog.Store, tmp_path: Path) -> None:
    told = text(store, tmp_path)

    assert told.startswith("EXACT: 1 minutes on local disk, seed 7; not tried: compaction took no row of newest, ")
    assert "no zombie found out that it was fenced\n" in told
    assert f"IN PART {TRIED}" in told
    assert f"kept    {DRAINS}" in told


def test_an_event_that_did_not_happen_leaves_the_verdict_open(store: eoslog.Store, tmp_path: Path) -> None:
    told = text(store, tmp_path, untried=["no transaction was aborted"])

    assert told.startswith("UNFINISHED: ")
    assert f"NOT YET {TRIED}\n      no transaction was aborted\n" in told


def test_the_summary_names_the_file_of_the_checked_history(store: eoslog.Store, tmp_path: Path) -> None:
    assert f"python -m tests.checker {tmp_path / 'judged.jsonl'}" in text(store, tmp_path)


@pytest.mark.parametrize(
    ("url", "why"), [("/a/store", "could not be made here"), ("s3://b/a", "not part of a run on s3")]
)
def test_a_disk_that_was_never_full_has_its_reason(store: eoslog.Store, tmp_path: Path, url: str, why: str) -> None:
    assert f"  full disk: {why}\n" in text(store, tmp_path, url=url)
