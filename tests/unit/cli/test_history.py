"""``eoslog history`` tells what was done to topics."""

from __future__ import annotations

import json

import eoslog
from eoslog.log.slots import slot_path
from eoslog.state.end_requests import TransactionContent
from eoslog.state.jobs import CommitJob
from eoslog.state.transaction_entries import ApplicationVersion, CommitSummary
from tests.requests import Applying
from tests.unit.cli.command import Command
from tests.unit.support.transactions import open_transaction


def commit(store: eoslog.Store, *values: bytes, name: str = "etl", version: int | None = None) -> None:
    with open_transaction(store, name) as producer:
        for value in values:
            producer.send("t", value)
        producer.commit_transaction(version=version)


def test_commits_and_changes_are_shown_the_newest_first(command: Command, store: eoslog.Store) -> None:
    commit(store, b"1", b"2", version=2)
    store.admin.create_topic("other")
    store.admin.alter_topic("t", retention_ms=1000)

    lines = command.ok("history", "--wide").splitlines()
    of_topic = command.ok("history", "t", "--wide").splitlines()

    assert lines[0].split() == [
        *("Slot", "Timestamp", "UTC", "Operation", "Topics", "Rows", "Files", "Bytes", "Duration", "By", "Details"),
    ]
    assert [line.split()[3] for line in lines[1:]] == ["topic_config", "create_topic", "append", "create_topic"]
    assert [line.split()[3] for line in of_topic[1:]] == ["topic_config", "append", "create_topic"]
    assert "config retention_ms=1000" in lines[1]
    assert lines[3].split()[4:7] == ["t", "2", "1"]
    assert lines[3].rstrip().endswith("etl  version 2 of etl")


def test_programs_get_every_field(command: Command, store: eoslog.Store) -> None:
    commit(store, b"1")

    (shown,) = command.json("history", "t", "--limit", "1")

    (known,) = store.history("t", limit=1)
    assert shown == {name: json.loads(json.dumps(getattr(known, name))) for name in known.__dataclass_fields__}


def test_transactional_id_aborts_and_limit_choose(command: Command, store: eoslog.Store) -> None:
    for name in ("x", "y", "x"):
        commit(store, b"v", name=name)
    with open_transaction(store, "x") as producer:
        producer.send("t", b"aborted")
        producer.flush()

    def told(*arguments: str) -> list[str]:
        return [each["operation"] for each in command.json("history", "t", *arguments)]

    assert told("--transactional-id", "y") == ["append"]
    assert told("--aborts") == ["abort", "append", "append", "append", "create_topic"]
    assert told("--limit", "2") == ["append", "append"]
    assert command.run("history", "nowhere").exit_code == 1


def test_the_default_is_twenty_and_all_are_there_on_request(command: Command, store: eoslog.Store) -> None:
    with store.producer() as producer:
        for _ in range(30):
            producer.send("t", b"v")
            producer.flush()

    assert len(command.json("history", "t")) == 20
    assert len(command.json("history", "t", "--all")) == 31


def test_a_history_that_deleted_slots_cut_off_says_so(command: Command, store: eoslog.Store) -> None:
    for _ in range(3):
        commit(store, b"v", name="again")
    store.log.checkpoint()
    commit(store, b"v")
    store.log.checkpoint()
    store.object_store.delete([slot_path(slot) for slot in range(3)])

    shown = command.run("history", "t", "--all")

    assert shown.exit_code == 0
    assert "slots before 3 were deleted" in shown.stderr
    assert "deleted" not in command.run("history", "t", "--limit", "1").stderr


def test_a_micro_batch_is_named_by_its_query(command: Command, store: eoslog.Store) -> None:
    topic_id = store.admin.describe_topic("t").topic_id
    for job, application, version in (("sink", "sink", 7), ("backfill", "monthly", 7)):
        application_version = ApplicationVersion(application_id=application, sink=f"t:{topic_id}", version=version)
        summary = CommitSummary(query_id="q-1", query_name="copy", batch_id=7, engine="spark-4.3.0")
        store.append(
            Applying(
                lambda draft, job=job, application_version=application_version, summary=summary: CommitJob(
                    job_id=job,
                    owner="run",
                    take_over=True,
                    content=TransactionContent(application_version=application_version, task_count=3, summary=summary),
                    time_ms=store.now_ms(),
                ).apply(draft)
            )
        )

    lines = [line.rstrip() for line in command.ok("history", "t", "--wide").splitlines()]

    assert lines[1].endswith("query copy q-1; micro-batch 7; version 7 of monthly; 3 tasks; spark-4.3.0")
    assert lines[2].endswith("query copy q-1; micro-batch 7; 3 tasks; spark-4.3.0")
