"""Every command of ``eoslog``: what it prints for people, what with --json, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import eoslog
from eoslog.cli.main import cli


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def _run(root: str, *arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["--store", root, *arguments], input=text)


def _ok(root: str, *arguments: str, text: str | None = None) -> str:
    result = _run(root, *arguments, text=text)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def _json(root: str, *arguments: str, text: str | None = None) -> Any:
    return json.loads(_ok(root, "--json", *arguments, text=text))


def test_topics_are_created_listed_described_and_deleted(root: str) -> None:
    assert "created topic payments with 3 partitions" in _ok(root, "topics", "create", "payments", "--partitions", "3")
    _ok(root, "topics", "create", "flights", "--column", "carrier:string", "--column", "miles:long", "--key", "carrier")

    listed = _json(root, "topics", "list")
    described = _json(root, "topics", "describe", "flights")

    assert [(each["topic"], each["partitions"], each["kind"]) for each in listed] == [
        ("flights", 1, "columns"),
        ("payments", 3, "records"),
    ]
    assert (described["columns"], described["key"]) == (["carrier string", "miles int64"], ["carrier"])
    assert "payments" in _ok(root, "topics", "list")
    assert "deleted topic payments" in _ok(root, "topics", "delete", "payments", "--yes")
    assert [each["topic"] for each in _json(root, "topics", "list")] == ["flights"]


def test_a_topic_is_not_deleted_without_a_yes(root: str) -> None:
    _ok(root, "topics", "create", "t")

    assert _run(root, "topics", "delete", "t", text="n\n").exit_code != 0

    assert [each["topic"] for each in _json(root, "topics", "list")] == ["t"]


def test_a_topic_takes_its_columns_from_a_parquet_file(root: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), tmp_path / "rows.parquet")

    _ok(root, "topics", "create", "t", "--schema-from", str(tmp_path / "rows.parquet"))

    assert _json(root, "topics", "describe", "t")["columns"] == ["id int64", "name string"]


def test_lines_go_in_and_come_out(root: str) -> None:
    _ok(root, "topics", "create", "payments")

    result = _run(root, "console", "produce", "payments", "--key-separator", ":", text="anna:12.50\nbert:3.10\n")

    assert result.stderr == "wrote 2 records to payments\n"
    consumed = _ok(root, "console", "consume", "payments", "--from-beginning", "--timeout", "0")
    assert consumed == "12.50\n3.10\n"
    with_places = _ok(
        root, "console", "consume", "payments", "--from-beginning", "--timeout", "0", "--print-key", "--print-offset"
    )
    assert with_places == "0:0\tanna\t12.50\n0:1\tbert\t3.10\n"


def test_rows_of_columns_are_json_lines(root: str) -> None:
    _ok(root, "topics", "create", "flights", "--column", "carrier:string", "--column", "miles:long")

    _ok(root, "console", "produce", "flights", text='{"carrier": "UA", "miles": 1400}\n{"carrier": "B6"}\n')

    lines = _ok(root, "--json", "console", "consume", "flights", "--from-beginning", "--timeout", "0").splitlines()
    assert [json.loads(line)["value"] for line in lines] == [
        {"carrier": "UA", "miles": 1400},
        {"carrier": "B6", "miles": None},
    ]


def test_a_transactional_console_commits_every_so_many_lines(root: str) -> None:
    _ok(root, "topics", "create", "t")

    _ok(root, "console", "produce", "t", "--transactional-id", "loader", "--commit-every", "2", text="a\nb\nc\nd\ne\n")

    assert _ok(root, "console", "consume", "t", "--from-beginning", "--timeout", "0") == "a\nb\nc\nd\ne\n"
    offsets = _json(root, "offsets", "t")
    rows, commits = 5, 3
    assert offsets[0]["last_stable_offset"] == offsets[0]["high_watermark"] == rows + commits


def test_a_bad_line_aborts_its_transaction_and_is_named(root: str) -> None:
    _ok(root, "topics", "create", "t")

    result = _run(
        root, "console", "produce", "t", "--transactional-id", "x", "--key-separator", ":", text="a:1\nnothing\n"
    )

    assert result.exit_code == 1
    assert "[EOSLOG_INVALID_REQUEST] line 2 has no key" in result.stderr
    assert "0 lines had been committed before" in result.stderr
    assert _ok(root, "console", "consume", "t", "--from-beginning", "--timeout", "0") == ""


def test_a_group_goes_on_where_it_was(root: str) -> None:
    _ok(root, "topics", "create", "t")
    _ok(root, "console", "produce", "t", text="a\nb\n")
    consume = ("console", "consume", "t", "--group", "g", "--from-beginning", "--timeout", "0.2")

    assert _ok(root, *consume) == "a\nb\n"

    _ok(root, "console", "produce", "t", text="c\n")
    assert _ok(root, *consume) == "c\n"


def test_consuming_stops_after_so_many_records(root: str) -> None:
    _ok(root, "topics", "create", "t")
    _ok(root, "console", "produce", "t", text="a\nb\nc\n")

    assert _ok(root, "console", "consume", "t", "--partition", "0", "--offset", "1", "--max-records", "1") == "b\n"


def test_transactions_are_listed_described_found_hanging_and_aborted(root: str) -> None:
    store = eoslog.connect(root)
    store.admin.create_topic("t")
    producer = store.producer("etl-1")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"open")
    producer.flush()

    assert _json(root, "transactions", "list", "--state", "Ongoing")[0]["transactional_id"] == "etl-1"
    assert _json(root, "transactions", "list", "--state", "Empty") == []
    described = _json(root, "transactions", "describe", "etl-1")
    assert (described["transaction_state"], described["topic_partitions"]) == ("ONGOING", ["t-0"])
    producers = _json(root, "transactions", "describe-producers", "t", "0")
    assert producers[0]["current_transaction_start_offset"] == 0
    assert _json(root, "transactions", "find-hanging") == []
    while not (hanging := _json(root, "transactions", "find-hanging", "--max-transaction-timeout", "0")):
        time.sleep(0.01)
    assert hanging[0]["transactional_id"] == "etl-1"
    assert _json(root, "offsets", "t") == [
        {"partition": 0, "earliest": 0, "last_stable_offset": 0, "high_watermark": 1, "lso_lag": 1}
    ]
    assert _json(root, "transactions", "abort", "etl-1")["aborted"] is True
    assert "nothing was open" in _ok(root, "transactions", "abort", "etl-1")
    assert _json(root, "offsets", "t")[0]["last_stable_offset"] == 2


def test_the_store_is_described_checkpointed_swept_and_vacuumed(root: str) -> None:
    _ok(root, "topics", "create", "t")
    _ok(root, "console", "produce", "t", text="a\n")

    described = _json(root, "describe")
    assert (described["format_version"], described["topics"], described["checkpoint_slot"]) == (1, 1, None)
    assert _json(root, "checkpoint")["slot"] == described["newest_slot"]
    assert _json(root, "describe")["checkpoint_slot"] == described["newest_slot"]
    assert _json(root, "vacuum", "--dry-run")["files"] == 0
    assert _json(root, "vacuum")["kept_files"] == 1
    assert _json(root, "coordinator")["aborted_transactions"] == []
    assert _ok(root, "console", "consume", "t", "--from-beginning", "--timeout", "0") == "a\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topics", "create", "t", "--column", "n:number"], "the types are string, binary"),
        (["console", "produce", "t", "--commit-every", "5"], "--commit-every needs --transactional-id"),
        (["console", "consume", "t", "--offset", "5"], "--offset needs --partition"),
        (["console", "consume", "t", "--isolation-level", "dirty"], "read_committed"),
        (["nothing"], "No such command"),
    ],
)
def test_wrong_usage_is_explained(root: str, arguments: list[str], message: str) -> None:
    result = _run(root, *arguments)

    assert result.exit_code == 2
    assert message in result.output


def test_without_a_store_the_command_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EOSLOG_STORE", raising=False)

    result = CliRunner().invoke(cli, ["topics", "list"])

    assert result.exit_code == 2
    assert "EOSLOG_STORE" in result.output


def test_the_store_may_come_from_the_environment(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _ok(root, "topics", "create", "t")
    monkeypatch.setenv("EOSLOG_STORE", root)

    assert "t" in CliRunner().invoke(cli, ["topics", "list"]).output


def test_an_error_is_one_line_with_its_code(root: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "eoslog.cli.main", "--store", root, "topics", "list"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.returncode == 1
    assert process.stdout == ""
    assert process.stderr.startswith("[EOSLOG_NOT_A_STORE] there is no eoslog store at")
    assert len(process.stderr.splitlines()) == 1


@pytest.mark.parametrize("path", [[], ["topics"], ["transactions"], ["console"], ["console", "produce"], ["vacuum"]])
def test_every_help_text_shows_an_example(path: list[str]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])

    assert result.exit_code == 0
    assert "eoslog --store" in result.output or path in (["topics"], ["transactions"], ["console"])
