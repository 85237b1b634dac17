"""``eoslog copy``: what it prints, its own settings for the target, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import eoslog
from tests.unit.cli.command import Command
from tests.unit.verification.histories import references, small_history


@pytest.fixture
def source(store: eoslog.Store) -> eoslog.Store:
    store.admin.delete_topic("t")
    return small_history(store)


def test_it_prints_what_was_copied(command: Command, source: eoslog.Store, tmp_path: Path) -> None:
    target = tmp_path / "target"
    slot = source.read(lambda state, slot: slot)

    done = command.json("copy", str(target))

    copied = eoslog.connect(target)
    assert (done["url"], done["slot"], done["was_complete"]) == (str(target), slot, False)
    assert done["store_id"] == source.describe().store_id
    assert done["files"] == sum(1 for path in target.rglob("*") if path.parent.parent.parent.parent.parent == target)
    assert done["bytes"] > 0
    assert done["findings"] == []
    assert copied.scan("t").to_table().equals(source.scan("t").to_table())


def test_people_get_a_table_and_a_sentence_if_nothing_was_left_to_do(
    command: Command, source: eoslog.Store, tmp_path: Path
) -> None:
    target = str(tmp_path / "target")

    first, second = command.ok("copy", target), command.ok("copy", target)

    assert "FilesReused" in first
    slot = source.read(lambda state, slot: slot)
    assert second == f"{target} is a complete copy already, of slot {slot}. The store has no newer slot\n"
    source.admin.create_topic("later")
    assert command.ok("copy", target) == (
        f"{target} is a complete copy already, of slot {slot}. The store is at slot {slot + 1}, so the copy is 1 slot "
        "behind. Nothing was done: --update copies the newest slot\n"
    )
    behind = command.json("copy", target)
    assert (behind["was_complete"], behind["slot"], behind["source_slot"]) == (True, slot, slot + 1)
    updated = command.json("copy", target, "--update")
    assert (updated["was_complete"], updated["slot"]) == (False, slot + 1)
    assert updated["files_reused"] == updated["files"] > 0
    assert "later" in eoslog.connect(target).admin.list_topics()


def test_a_new_identity_is_a_new_store_id(command: Command, source: eoslog.Store, tmp_path: Path) -> None:
    done = command.json("copy", str(tmp_path / "target"), "--new-identity")

    assert done["store_id"] == eoslog.connect(tmp_path / "target").describe().store_id != source.describe().store_id


def test_an_earlier_slot_or_time_is_copied(command: Command, source: eoslog.Store, tmp_path: Path) -> None:
    slot, time_ms = source.read(lambda state, slot: (slot, state.time_ms))
    source.admin.delete_topic("t")
    expected = source.admin.copy(eoslog.connect("memory://"), timestamp=time_ms)

    of_slot = command.json("copy", str(tmp_path / "of slot"), "--slot", str(slot))
    of_time = command.json("copy", str(tmp_path / "of time"), "--timestamp", str(time_ms))
    refused = command.run("copy", str(tmp_path / "neither"), "--timestamp", "1")

    assert of_slot["slot"] == slot < of_slot["source_slot"]
    assert of_time["slot"] == expected.slot
    assert "t" in eoslog.connect(tmp_path / "of slot").admin.list_topics()
    assert refused.exit_code == 1
    assert refused.stderr.startswith("[EOSLOG_OFFSET_OUT_OF_RANGE]")
    assert "The oldest slot that can be copied is 0" in refused.stderr


def test_findings_of_the_copy_are_printed(command: Command, source: eoslog.Store, tmp_path: Path) -> None:
    lost = next(Path(command.url).rglob("*.snapshot"))
    lost.unlink()

    printed = command.ok("copy", str(tmp_path / "one"))
    done = command.json("copy", str(tmp_path / "two"))

    assert "warning: snapshot-missing" in printed
    assert [each["kind"] for each in done["findings"]] == ["snapshot-missing"]


def test_errors_are_one_line_and_leave_no_store(command: Command, source: eoslog.Store, tmp_path: Path) -> None:
    next(path for path in Path(command.url).rglob("*.parquet") if "index" not in path.name).unlink()

    refused = command.run("copy", str(tmp_path / "target"))
    inside = command.run("copy", f"{command.url}/inside")

    assert (refused.exit_code, inside.exit_code) == (1, 1)
    assert refused.stderr.startswith("[EOSLOG_CORRUPT_RECORD]")
    assert inside.stderr.startswith("[EOSLOG_INVALID_REQUEST]")
    assert not (tmp_path / "target" / "eoslog.json").exists()


def test_the_target_has_settings_of_its_own(command: Command, source: eoslog.Store, tmp_path: Path) -> None:
    config = tmp_path / "target.toml"
    config.write_text('[s3]\nendpoint_url = "http://127.0.0.1:9"\nmax_attempts = 1\n')

    result = command.run("copy", "s3://bucket/store", "--target-config", str(config))

    assert result.exit_code == 1
    assert result.stderr.startswith(("[EOSLOG_STORE_UNAVAILABLE]", "[EOSLOG_STORE_ACCESS_DENIED]"))
    assert len(references(source)) == 2


def test_the_description_of_a_copy_has_its_origin(command: Command, source: eoslog.Store, tmp_path: Path) -> None:
    target = Command(str(tmp_path / "target"))
    done = command.json("copy", target.url, "--new-identity")

    described = target.json("describe")

    assert described["copied_slot"] == done["slot"]
    assert described["copied_store_id"] == source.describe().store_id
    assert "copied_slot" not in command.json("describe")


def test_the_description_of_a_store_has_the_features_that_it_got_later(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("c", schema={"n": "int64"})
    before = command.json("describe")["reader_features"]

    store.admin.alter_topic("c", statistics_columns=3)

    assert (before, command.json("describe")["reader_features"]) == ([], ["statistics_columns"])
