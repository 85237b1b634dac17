"""A shell completes the names of the store that the line names, and never shows an error."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

import eoslog
from eoslog.main import cli
from tests.depth import sweep
from tests.pages import REPOSITORY, prose
from tests.unit.cli.command import Command

VARIABLE = "_EOSLOG_COMPLETE"


def completed(line: str) -> list[str]:
    """What the shell completes the last word of a line to."""
    *words, incomplete = line.split(" ")
    return [each.value for each in ShellComplete(cli, {}, "eoslog", VARIABLE).get_completions(words, incomplete)]


@pytest.fixture
def url(command: Command, store: eoslog.Store) -> str:
    for topic in ("payments", "pages"):
        store.admin.create_topic(topic)
    for name in ("etl-1", "etl-2", "other", "line\u2028break"):
        store.producer(name).init_transactions()
    store.consumer("billing").commit({eoslog.TopicPartition("t", 0): 0})
    return command.url


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("topics describe pa", ["pages", "payments"]),
        ("topics alter pay", ["payments"]),
        ("topics create pa", []),
        ("offsets ", ["pages", "payments", "t"]),
        ("offsets t --group ", ["billing"]),
        ("console consume pay", ["payments"]),
        ("groups describe b", ["billing"]),
        ("groups reset-offsets billing p", ["pages", "payments"]),
        ("transactions describe etl", ["etl-1", "etl-2"]),
        ("history --transactional-id ", ["etl-1", "etl-2", "other"]),
        ("verify --topic pag", ["pages"]),
        ("transactions describe nothing", []),
    ],
)
def test_names_are_completed(url: str, line: str, names: list[str]) -> None:
    assert completed(f"--store {url} {line}") == names


def test_the_store_comes_from_the_environment_too(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOSLOG_STORE", url)

    assert completed("topics describe pay") == ["payments"]
    assert completed(f"topics describe --store {url}x pay") == []


@pytest.mark.parametrize(
    ("words", "incomplete", "names"),
    [([], "t", ["topics", "transactions"]), (["topics"], "de", ["delete", "delete-records", "describe"])],
)
def test_commands_are_completed_without_their_modules(words: list[str], incomplete: str, names: list[str]) -> None:
    program = f"""
import sys
from click.shell_completion import ShellComplete
from eoslog.main import cli
found = ShellComplete(cli, {{}}, "eoslog", {VARIABLE!r}).get_completions({words!r}, {incomplete!r})
print([each.value for each in found], sorted({{"numpy", "pyarrow", "pydantic"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == f"{names} []\n"


@pytest.mark.parametrize(
    "store",
    ["/nowhere", "ftp://x", "s3://bucket/prefix --config /nowhere", __file__],
    ids=["no-store", "no-scheme", "no-config", "a-file"],
)
def test_an_error_completes_nothing_and_says_nothing(
    store: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    assert completed(f"-v --store {store} topics describe ") == []
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == 0


@pytest.mark.parametrize("shell", sweep(["bash", "zsh", "fish"], quick=["fish"]))
def test_the_page_has_the_line_for_each_shell(shell: str, url: str) -> None:
    assert f"{VARIABLE}={shell}_source eoslog" in prose(REPOSITORY / "docs/operations.md")
    words = ["eoslog", "--store", url, "topics", "describe", "pay"]
    asked = {"COMP_WORDS": shlex.join(words), "COMP_CWORD": "pay" if shell == "fish" else "5"}
    complete = [sys.executable, "-c", "from eoslog.main import main; main()"]

    done = subprocess.run(
        complete,
        env=os.environ | asked | {VARIABLE: f"{shell}_complete", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "payments" in done.stdout
    assert done.stderr == ""
