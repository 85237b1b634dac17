"""Streams whose checkpoint is new, old, moved or deleted, and where checkpoints lie."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

import pytest

import eoslog
from eoslog.errors import (
    CheckpointMismatch,
)
from tests.unit.pyspark_eoslog.write.sink.sinks import (
    new_process,
    numbers,
    stream,
    uploads,
    writer,
    written,
)


def test_a_new_checkpoint_is_refused_before_anything_is_uploaded(store: eoslog.Store) -> None:
    stream(store, "deleted", 0, 1)
    stream(store, "deleted", 1, 2)
    new_process()
    before = uploads(store)

    with pytest.raises(CheckpointMismatch) as refused:
        stream(store, "fresh", 0, 1, 2)

    for part in ("version 1 of streaming query deleted", "restore it", "startAnewAfter='deleted:1'"):
        assert part in str(refused.value)
    assert uploads(store) == before
    assert numbers(store) == [1, 2]


def test_a_new_checkpoint_is_refused_also_after_planning_on_older_state(store: eoslog.Store) -> None:
    written(writer(store), 0)
    stream(store, "deleted", 0, 1)

    with pytest.raises(CheckpointMismatch):
        stream(store, "fresh", 0, 1)

    assert numbers(store) == [1]


def test_a_new_checkpoint_starts_anew_once_it_says_after_what(store: eoslog.Store) -> None:
    stream(store, "deleted", 0, 1)
    new_process()

    for batch_id in (0, 0, 1):
        stream(store, "fresh", batch_id, 2 + batch_id, startAnewAfter="deleted:0")
    new_process()

    with pytest.raises(CheckpointMismatch):
        stream(store, "third", 0, 9, startAnewAfter="deleted:0")
    assert numbers(store) == [1, 2, 3]


def test_an_older_copy_of_the_checkpoint_is_refused_before_anything_is_uploaded(store: eoslog.Store) -> None:
    for batch_id in range(3):
        stream(store, "query", batch_id, batch_id)
    new_process()
    before = uploads(store)

    with pytest.raises(CheckpointMismatch, match=r"micro-batch 1 comes after micro-batch 2.*startAnewAfter='query:2'"):
        stream(store, "query", 1, 1)

    assert uploads(store) == before
    stream(store, "query", 1, 1, startAnewAfter="query:2")
    assert numbers(store) == [0, 1, 1, 2]


def checkpoint_at(path: Path, query_id: str) -> str:
    """Make the checkpoint of a query, as Spark does before the first micro-batch."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "metadata").write_text(json.dumps({"id": query_id}))
    return str(path)


@pytest.mark.parametrize("location", ["checkpoint", "/checkpoint", "hdfs:///checkpoint", "s3a://bucket/checkpoint"])
def test_queries_whose_checkpoints_have_one_name_do_not_fence_each_other(store: eoslog.Store, location: str) -> None:
    for batch_id in range(3):
        stream(store, "a", batch_id, batch_id, checkpointlocation=location)
        stream(store, "b", batch_id, 10 + batch_id, checkpointlocation=location, topic="other")

    assert (numbers(store), numbers(store, "other")) == ([0, 1, 2], [10, 11, 12])


def test_queries_in_two_working_directories_write_to_one_topic(
    store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch_id in range(2):
        for number, query in enumerate("ab"):
            checkpoint_at(tmp_path / query / "checkpoint", query)
            monkeypatch.chdir(tmp_path / query)
            new_process()
            stream(store, query, batch_id, 10 * number + batch_id, checkpointlocation="checkpoint")

    assert numbers(store) == [0, 1, 10, 11]


def test_queries_on_two_hosts_write_to_one_topic_with_a_warning(
    store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    location = tmp_path / "checkpoint"
    for batch_id in range(2):
        for number, query in enumerate("ab"):
            checkpoint_at(location, query)
            monkeypatch.setattr(socket, "gethostname", lambda query=query: f"pod-{query}")
            new_process()
            stream(store, query, batch_id, 10 * number + batch_id, checkpointlocation=str(location))

    assert numbers(store) == [0, 1, 10, 11]
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "query b begins to write to out. Its checkpoint has the same path as that of a on another host" in warning


@pytest.mark.parametrize(
    "spelling", ["{}", "{}/", "{}/.", "file:{}", "file://{}/", "FILE:{}", "checkpoint", "./checkpoint/"]
)
def test_a_deleted_checkpoint_is_refused_in_any_spelling(
    store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    location = checkpoint_at(tmp_path / "checkpoint", "deleted")
    stream(store, "deleted", 0, 1, checkpointlocation=location)
    checkpoint_at(tmp_path / "checkpoint", "fresh")
    new_process()
    before = uploads(store)

    with pytest.raises(CheckpointMismatch, match=r"from the same checkpoint location.*startAnewAfter='deleted:0'"):
        stream(store, "fresh", 0, 2, checkpointlocation=spelling.format(location))

    assert uploads(store) == before
    stream(store, "fresh", 0, 2, checkpointlocation=spelling.format(location), startAnewAfter="deleted:0")
    assert numbers(store) == [1, 2]


@pytest.mark.parametrize("spelling", ["{}/", "file:{}", "checkpoint"])
def test_a_query_is_known_in_any_spelling_of_its_checkpoint(
    store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    location = checkpoint_at(tmp_path / "checkpoint", "query")
    stream(store, "query", 0, 1, checkpointlocation=location)
    new_process()
    before = uploads(store)

    stream(store, "query", 0, 1, checkpointlocation=spelling.format(location), run="another run")

    assert uploads(store) == before
    assert numbers(store) == [1]
