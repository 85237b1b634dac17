"""``eoslog verify``: its exit status says what was found, ``--json`` all of it, and a repair asks first."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import eoslog
from eoslog.log.slots import slot_path
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from tests.unit.cli.command import Command
from tests.unit.verification.histories import copy_of_small_history, references

NOT_READ = "data files were not read (--data reads them)"


@pytest.fixture
def damaged(command: Command) -> eoslog.Store:
    """A store whose newest checkpoint is missing, and of which a data file is."""
    store = copy_of_small_history(eoslog.Store(LocalStore(command.url, Environment(), fsync=False), Environment()))
    store.object_store.delete([references(store)[0].path])
    return store


def a_data_file(command: Command) -> Path:
    return next(path for path in Path(command.url).glob("t/**/*.parquet") if ".index." not in path.name)


def test_a_sound_store_has_status_0(command: Command, store: eoslog.Store) -> None:
    assert command.ok("verify", "--data").strip() == "nothing is wrong"
    assert command.json("verify", "--data") == {"data_files_read": True, "findings": [], "repairs": []}


def test_where_data_files_are_not_read_it_says_so(command: Command, damaged: eoslog.Store) -> None:
    command.ok("verify", "--repair", "--yes")
    data_file = a_data_file(command)
    body = bytearray(data_file.read_bytes())
    body[len(body) // 2] ^= 0xFF
    data_file.write_bytes(body)

    assert command.ok("verify").strip() == f"nothing is wrong; {NOT_READ}"
    assert command.json("verify") == {"data_files_read": False, "findings": [], "repairs": []}
    assert "data-damaged" in command.run("verify", "--data").stdout


def test_the_store_may_stand_behind_the_command(command: Command, store: eoslog.Store) -> None:
    place, command.url = command.url, "/nowhere"

    assert command.ok("verify", place, "--data").strip() == "nothing is wrong"


def test_a_command_that_meets_damage_names_verify(command: Command, damaged: eoslog.Store) -> None:
    command.ok("topics", "list")
    newest = max((Path(command.url) / "__transaction_state" / "slot").glob("*/*.json"))
    newest.write_text('{"cut')

    refused = command.run("topics", "list")

    assert refused.exit_code == 1
    assert refused.stderr.startswith("[EOSLOG_CORRUPT_RECORD] the record of slot ")
    assert refused.stderr.endswith(". Run eoslog verify: it names the damaged object and the remedy\n")


def test_verify_prints_each_finding_with_its_consequence_and_remedy(command: Command, damaged: eoslog.Store) -> None:
    result = command.run("verify")

    assert result.exit_code == 1
    assert "error: checkpoint-missing: slot" in result.stdout
    assert "what follows: processes open the other checkpoint" in result.stdout
    assert "what to do: repair" in result.stdout
    assert "1 error: eoslog verify --repair repairs what can be repaired" in result.stdout


def test_each_thing_is_told_once_and_not_logged_too(command: Command, damaged: eoslog.Store) -> None:
    older = references(damaged)[1]
    damaged.object_store.put(older.path, b"spoilt")

    with command.start("verify", "--repair", "--yes") as process:
        output, errors = process.communicate()

    assert errors == b""
    told = next(line for line in output.decode().splitlines() if "checkpoint-damaged" in line)
    assert told.endswith(f"{older.path}: has 6 bytes, but its entry says {older.length}")


def test_notes_are_counted_and_are_no_fault(command: Command, store: eoslog.Store) -> None:
    (Path(command.url) / "notes.txt").write_text("not the store's")

    assert command.ok("verify").splitlines()[-1] == f"nothing is wrong; 1 note; {NOT_READ}"


def test_a_repair_of_what_cannot_be_repaired_says_so(command: Command, damaged: eoslog.Store) -> None:
    command.ok("verify", "--repair", "--yes")
    a_data_file(command).unlink()

    result = command.run("verify", "--repair", "--yes")

    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "1 error: none of it can be repaired. Each finding says what to do"


def test_json_tells_kind_and_place(command: Command, damaged: eoslog.Store) -> None:
    path = a_data_file(command)
    path.unlink()

    result = command.run("verify", "--json", "--topic", "t")

    found = json.loads(result.stdout)["findings"]
    assert result.exit_code == 1
    assert [(each["kind"], each["severity"], each["repairable"]) for each in found] == [
        ("checkpoint-missing", "error", True),
        ("data-missing", "error", False),
    ]
    assert found[1]["path"] == str(path.relative_to(command.url))
    assert (found[1]["topic"], found[1]["partition"]) == ("t", 0)


def test_a_repair_asks_first_and_does_nothing_on_a_no(command: Command, damaged: eoslog.Store) -> None:
    result = command.run("verify", "--repair", text="n\n")

    assert result.exit_code == 1
    assert "to be repaired: checkpoint-missing" in result.stderr
    assert command.run("verify").exit_code == 1


def test_an_unanswered_question_is_a_no_and_json_still_appears(command: Command, damaged: eoslog.Store) -> None:
    result = command.run("verify", "--repair", "--json", text="")

    assert result.exit_code == 1
    assert "to be repaired: checkpoint-missing" in result.stderr
    told = json.loads(result.stdout)
    assert ([each["kind"] for each in told["findings"]], told["repairs"]) == (["checkpoint-missing"], [])


def test_a_repair_says_what_it_did_and_then_nothing_is_wrong(command: Command, damaged: eoslog.Store) -> None:
    *_, repaired, last = command.ok("verify", "--repair", "--yes").splitlines()

    assert repaired.startswith("repaired: slot")
    assert last == f"everything is repaired; {NOT_READ}"
    assert command.ok("verify", "--data").strip() == "nothing is wrong"


def test_damage_that_cannot_be_repaired_keeps_the_exit_status(command: Command, damaged: eoslog.Store) -> None:
    a_data_file(command).unlink()

    result = command.run("verify", "--repair", "--yes", "--json")

    assert result.exit_code == 1
    assert [(each["kind"], each["done"]) for each in json.loads(result.stdout)["repairs"]] == [
        ("checkpoint-missing", True)
    ]
    assert [each["kind"] for each in json.loads(command.run("verify", "--json").stdout)["findings"]] == ["data-missing"]


def test_without_a_readable_description_nothing_is_repaired_and_json_tells_why(
    command: Command, damaged: eoslog.Store
) -> None:
    (Path(command.url) / "eoslog.json").write_text("{")

    result = command.run("verify", "--repair", "--yes", "--json")

    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [each["kind"] for each in told["findings"]] == ["description-damaged", "checkpoint-missing"]
    assert [(each["kind"], each["done"]) for each in told["repairs"]] == [("checkpoint-missing", False)]
    assert "eoslog.json" in told["repairs"][0]["what"]
    assert "not repaired: slot" in command.run("verify", "--repair", "--yes").stdout


def test_while_the_log_is_in_doubt_nothing_is_asked_or_repaired(command: Command, damaged: eoslog.Store) -> None:
    lost = references(damaged)[1].slot + 1
    damaged.object_store.delete([slot_path(lost)])

    result = command.run("verify", "--repair")

    assert result.exit_code == 1
    assert "to be repaired" not in result.stderr
    remedies = {line for line in result.stdout.splitlines() if line.startswith("  what to do: ")}
    assert remedies == {"  what to do: bring the object back from a backup or an earlier version of the bucket"}
    assert result.stdout.splitlines()[-1] == "2 errors: none of it can be repaired. Each finding says what to do"


def test_while_the_log_is_in_doubt_no_repair_is_promised(command: Command, damaged: eoslog.Store) -> None:
    lost = references(damaged)[1].slot + 1
    damaged.object_store.delete([slot_path(lost)])

    assert command.run("verify").stdout.splitlines()[-1] == f"2 errors; {NOT_READ}"


def test_a_missing_store_and_a_missing_topic_have_status_2(command: Command) -> None:
    result = command.run("verify")
    assert (result.exit_code, result.stderr.startswith("[EOSLOG_NOT_A_STORE]")) == (2, True)

    eoslog.connect(command.url).admin.create_topic("t")
    result = command.run("verify", "--topic", "other")
    assert (result.exit_code, "[EOSLOG_UNKNOWN_TOPIC_OR_PARTITION]" in result.stderr) == (2, True)


def test_damaged_files_are_listed_and_left_out_after_a_yes(command: Command, store: eoslog.Store) -> None:
    for _ in range(2):
        with store.producer() as producer:
            producer.send("t", os.urandom(100_000))
    lost = next(path for path in Path(command.url).rglob("*.parquet"))
    lost.unlink()

    planned = command.json("topics", "skip-damaged", "t", "--dry-run")
    unanswered = command.run("topics", "skip-damaged", "t")
    told = command.run("verify").stdout
    done = command.json("topics", "skip-damaged", "t", "--yes")

    assert [(each["path"], each["skipped"]) for each in planned] == [(str(lost.relative_to(command.url)), False)]
    assert (unanswered.exit_code, "nobody answered" in unanswered.stderr) == (1, True)
    assert "topics skip-damaged leaves these rows out" in told
    assert [(each["rows"], each["problem"], each["skipped"]) for each in done] == [(1, "the file is missing", True)]
    assert store.scan("t").to_table().num_rows == 1
    assert command.ok("topics", "skip-damaged", "t") == "no data file is missing or damaged\n"
    assert "rows-skipped" in command.ok("verify", "--data")
