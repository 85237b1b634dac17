"""``coordinator``: what the daemon prints, how it is told what to do, and how it ends."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import eoslog
from eoslog.errors import StoreUnavailable
from eoslog.maintenance.coordinator import STEPS, Coordinator
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import StoredObject
from tests.unit.cli.command import Command
from tests.unit.support.transactions import open_transaction

ALL = [step.name for step in STEPS]
_TIMEOUT_MS = 300


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def leave_open(store: eoslog.Store, transactional_id: str) -> None:
    """A transaction that timed out, after the record that began it: any record aborts what is overdue."""
    producer = open_transaction(store, transactional_id, transaction_timeout_ms=_TIMEOUT_MS)
    producer.send("t", b"open")
    producer.flush()
    time.sleep(2 * _TIMEOUT_MS / 1000)


def state_of(command: Command, transactional_id: str) -> str:
    return str(command.json("transactions", "describe", transactional_id)["transaction_state"])


def test_one_run_takes_every_step_and_tells_of_each(command: Command, store: eoslog.Store) -> None:
    leave_open(store, "late")
    while state_of(command, "late") == "ONGOING":
        told = lines(command.ok("coordinator", "--once", "--json"))

    assert [each["step"] for each in told] == ALL
    assert told[0]["aborted_transactions"] == ["late"]
    assert all(each["error"] is None and each["time_ms"] > 0 and each["duration_ms"] >= 0 for each in told)
    text = command.ok("coordinator", "--once").splitlines()
    assert [line.split()[2].removesuffix(",") for line in text] == ALL


def test_ages_and_expirations_are_those_of_the_settings(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.producer("idle").init_transactions()
    lost = Path(command.url, "t", store.admin.describe_topic("t").topic_id, "0", "lost.parquet")
    lost.parent.mkdir(parents=True)
    lost.write_bytes(b"unreferenced")
    command.ok("coordinator", "--once")
    assert lost.exists()

    monkeypatch.setenv("EOSLOG_VACUUM__STAGED_MAX_AGE_MS", "1")
    monkeypatch.setenv("EOSLOG_COORDINATOR__TRANSACTIONAL_ID_EXPIRATION_MS", "1")
    while lost.exists():
        command.ok("coordinator", "--once")

    assert command.json("transactions", "list") == []


def test_only_the_wanted_steps_are_taken(command: Command, store: eoslog.Store) -> None:
    def taken(*options: str) -> list[str]:
        return [each["step"] for each in lines(command.ok("coordinator", "--once", "--json", *options))]

    assert taken("--step", "vacuum", "--step", "seal-segments") == ["seal-segments", "vacuum"]
    assert taken("--without", "vacuum") == [name for name in ALL if name != "vacuum"]


def test_a_failed_step_fails_the_run_after_all_the_others(
    command: Command, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(coordinator: eoslog.Coordinator) -> None:
        raise eoslog.CorruptRecord("an index")

    monkeypatch.setattr(eoslog.Coordinator, "vacuum", fail)

    as_json = command.run("coordinator", "--once", "--json")
    as_text = command.run("coordinator", "--once")

    assert (as_json.exit_code, as_text.exit_code) == (1, 1)
    told = lines(as_json.stdout)
    assert [each["step"] for each in told] == ALL
    assert [each["step"] for each in told if each["error"]] == ["vacuum"]
    assert " vacuum, " in as_text.stderr
    assert "[EOSLOG_CORRUPT_RECORD]" in as_text.stderr
    assert len(as_text.stdout.splitlines()) == len(ALL) - 1


def test_an_index_that_vacuum_cannot_read_is_told(command: Command, store: eoslog.Store) -> None:
    command.ok("topics", "create", "s", "--add-config", "segment.batches=1")
    command.ok("console", "produce", "s", text="a\n")
    command.ok("coordinator", "--once")
    (index,) = Path(command.url, "s").rglob("*.index.parquet")
    index.write_bytes(b"damaged")
    path = index.relative_to(command.url).as_posix()

    (step,) = lines(command.ok("coordinator", "--once", "--step", "vacuum", "--json"))

    assert (step["step"], step["error"], step["unreadable_indexes"]) == ("vacuum", None, [path])
    assert "unreadableIndexes: 1" in command.ok("coordinator", "--once", "--step", "vacuum")
    assert command.json("vacuum")["unreadable_indexes"] == [path]
    assert path in command.ok("vacuum", "--wide")


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGINT])
def test_the_daemon_tells_what_it_did_and_ends_when_told_to(
    command: Command, store: eoslog.Store, ended_by: signal.Signals
) -> None:
    # No other step: whichever appends first aborts the transaction, and tells nothing of it.
    step = "abort-timed-out-transactions"
    with command.start("coordinator", "--step", step, "--interval", f"{step}=0.05", "--json") as process:
        leave_open(store, "late")

        told = json.loads(next(line for line in process.stdout if b"aborted" in line))
        process.send_signal(ended_by)
        _, errors = process.communicate()

    assert (told["step"], told["aborted_transactions"]) == ("abort-timed-out-transactions", ["late"])
    assert state_of(command, "late") == "COMPLETE_ABORT"
    assert errors.startswith(b"maintaining ")
    assert errors.endswith(b": 1 transaction aborted after their timeouts: 'late'\n")
    assert (errors.count(b"\n"), process.returncode) == (2, 0 if ended_by is signal.SIGTERM else 130)


def test_the_daemon_tells_of_idle_steps_only_if_asked_to(command: Command, store: eoslog.Store) -> None:
    often = [f"--interval={name}=0.02" for name in ("abort-timed-out-transactions", "seal-segments")]
    daemon = ("coordinator", "--json", *often)
    with command.start(*daemon) as quiet, command.start(*daemon, "--verbose") as verbose:
        idle = [json.loads(verbose.stdout.readline())["step"] for _ in range(30)]
        told = []
        for name in ("first", "second"):
            verbose.kill()
            verbose.wait()
            leave_open(store, name)
            told.append(json.loads(quiet.stdout.readline())["aborted_transactions"])

    assert set(idle[: len(ALL)]) == set(ALL)
    assert told == [["first"], ["second"]]


def test_a_place_that_is_no_store_ends_the_daemon(command: Command) -> None:
    result = command.run("coordinator")

    assert result.exit_code == 1
    assert result.stderr.startswith("[EOSLOG_NOT_A_STORE] ")


def test_an_object_store_that_does_not_answer_yet_ends_nothing(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    def unanswered(store: LocalStore, path: str) -> StoredObject:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(LocalStore, "get", unanswered)
    monkeypatch.setattr(Coordinator, "run", lambda self, **options: runs.append(options))

    assert command.run("coordinator").exit_code == 0

    assert len(runs) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--step sweep", "'sweep' is not one of 'abort-timed-out-transactions'"),
        ("--interval vacuum", "is not STEP=SECONDS"),
        ("--interval vacuum=soon", "is not STEP=SECONDS"),
        ("--interval sweep=5", "'sweep' is not one of"),
        ("--interval vacuum=0", "an interval is 0.001"),
        ("--interval vacuum=nan", "an interval is 0.001"),
        ("--once --interval vacuum=5", "leave --interval out"),
        ("--step vacuum --without vacuum", "No step is left to run"),
    ],
)
def test_wrong_usage_is_explained(command: Command, store: eoslog.Store, arguments: str, message: str) -> None:
    result = command.run("coordinator", *arguments.split())

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_with_append_listen_it_appends_for_writers_until_sigterm(command: Command, store: eoslog.Store) -> None:
    with command.start("coordinator", "--step", "vacuum", "--append-listen", "127.0.0.1:0") as process:
        while store.log.read(lambda state, slot: store.log.replica.append_service) is None:
            time.sleep(0.02)
        producer = open_transaction(store, "tx", staged=True)
        producer.send("t", b"one")
        producer.commit_transaction()
        assert store.log.appender.counts.by_others == 1
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate()

    assert process.returncode == 0
    assert b"listening for writers: 127.0.0.1:" in told
    assert store.log.read(lambda state, slot: store.log.replica.append_service) is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--once", "--append-listen", "127.0.0.1:0"), "leave --append-listen out"),
        (("--advertise", "host:1"), "need --append-listen"),
        (("--append-certificate", "file"), "need --append-listen"),
        (("--append-listen", "9300"), "host:port"),
        (("--append-listen", "0.0.0.0:0"), "advertise"),
        (("--append-listen", "127.0.0.1:0", "--append-certificate", "none.pem"), "both"),
    ],
)
def test_options_of_the_append_service_that_make_no_sense_are_refused(
    command: Command, store: eoslog.Store, options: tuple[str, ...], told: str
) -> None:
    result = command.run("coordinator", *options)

    assert result.exit_code != 0
    assert told in result.output
