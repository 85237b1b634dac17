"""``eoslog compact-files`` and ``eoslog compact-keys`` tell what was written anew."""

from __future__ import annotations

import pytest

import eoslog
from tests.unit.cli.command import Command


def write(store: eoslog.Store, topic: str, count: int) -> None:
    with store.producer() as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, key=b"k")
            producer.flush()


@pytest.mark.usefixtures("files_are_objects")
def test_files_are_compacted_and_told(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("small", config=eoslog.TopicConfig(segment_batches=4))
    write(store, "small", 9)
    command.ok("seal")

    (compacted,) = command.json("compact-files", "small")

    assert (compacted["topic"], compacted["partition"], compacted["base_offset"]) == ("small", 0, 0)
    assert compacted["files_before"] > compacted["files_after"] == 1
    assert command.ok("compact-files") == "no sealed segment has small files to be compacted\n"
    assert [each.operation for each in store.history("small", limit=1)] == ["compact_files"]
    assert command.run("compact-files", "nowhere").exit_code == 1


def test_a_topic_is_compacted_and_told(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("keyed", config=eoslog.TopicConfig(segment_batches=4, cleanup_policy="compact"))
    write(store, "keyed", 9)
    command.ok("seal")

    (compacted,) = command.json("compact-keys", "keyed")

    assert (compacted["topic"], compacted["partition"]) == ("keyed", 0)
    assert compacted["rows_removed"] > 0
    assert [each.operation for each in store.history("keyed", limit=1)] == ["compact_keys"]
    assert "nothing is to be compacted" in command.ok("compact-keys")
    assert "[EOSLOG_INVALID_TOPIC]" in command.run("compact-keys", "t").stderr


@pytest.mark.usefixtures("files_are_objects")
def test_a_new_topic_is_compacted_now(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("keyed", config=eoslog.TopicConfig(cleanup_policy="compact"))
    write(store, "t", 3)
    write(store, "keyed", 3)
    assert command.json("compact-files") == []

    (compacted,) = command.json("compact-files", "t", "--now")
    (keys,) = command.json("compact-keys", "keyed", "--now")

    assert (compacted["files_before"], compacted["files_after"]) == (3, 1)
    assert keys["rows_removed"] == 2


def test_publish_tells_the_version_of_the_delta_table(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("open-to-all", config=eoslog.TopicConfig(publish="delta"))
    with store.producer() as producer:
        producer.send("open-to-all", b"v")

    (published,) = command.json("publish", "open-to-all")

    assert (published["topic"], published["version"], published["files_added"]) == ("open-to-all", 0, 1)
    assert "Set its setting publish to delta" in command.run("publish", "t").output
    assert command.json("metrics")["publications"] == [{"topic": "open-to-all", "publication_lag_ms": 0}]
