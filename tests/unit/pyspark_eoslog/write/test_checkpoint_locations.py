"""The location of a checkpoint, from the text that Spark passes."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from eoslog.producer.job import CheckpointLocation
from pyspark_eoslog.write import checkpoint_locations
from pyspark_eoslog.write.checkpoint_locations import planned_checkpoint


def located(location: str, query_id: str = "query") -> CheckpointLocation:
    return planned_checkpoint(location).of_query(query_id)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": "query"}))
    return tmp_path / "checkpoint"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3a://bucket/a/b", "s3://bucket/a//b/"),
        ("s3n://bucket/a", "S3A://bucket/a/."),
        ("s3a://key:secret@bucket/a", "s3a://bucket/a"),
        ("hdfs://one/a", "HDFS://one/a/"),
        ("/a/b", "/a//b/"),
        ("a/b", "./a/b/"),
    ],
)
def test_spellings_of_one_location_are_the_same(one: str, other: str) -> None:
    assert located(one) == located(other)
    assert located(one).host is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3a://bucket/a", "s3a://bucket/A"),
        ("hdfs://one/a", "hdfs://two/a"),
        ("hdfs://user@one/a", "hdfs://one/a"),
        ("abfss://one@account/a", "abfss://two@account/a"),
        ("/a", "a"),
        ("file:/a", "/a"),
        ("dbfs:/a", "/a"),
    ],
)
def test_other_locations_are_told_apart(one: str, other: str) -> None:
    assert located(one) != located(other)


def test_the_log_shows_neither_path_nor_credentials() -> None:
    assert located("s3a://key:secret@bucket/private").name.startswith("spark-checkpoint-")
    assert "private" not in located("s3a://key:secret@bucket/private").name
    assert "secret" not in located("s3a://key:secret@bucket/private").path


def test_a_local_checkpoint_is_its_path_and_host(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent)
    (checkpoint.parent / "link").symlink_to(checkpoint)
    here = CheckpointLocation(str(checkpoint), socket.gethostname())

    for spelling in (
        str(checkpoint),
        f"{checkpoint}/",
        "checkpoint",
        "link",
        f"file:{checkpoint}",
        f"file://{checkpoint}",
    ):
        assert located(spelling) == here


def test_a_local_checkpoint_of_another_query_is_not_that_of_the_default_file_system(checkpoint: Path) -> None:
    assert located(str(checkpoint), "another") == CheckpointLocation(str(checkpoint))


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b'{"id": 3}', b"\xff", b"[" * 10_000])
def test_a_damaged_checkpoint_has_no_query(checkpoint: Path, content: bytes) -> None:
    (checkpoint / "metadata").write_bytes(content)

    assert planned_checkpoint(str(checkpoint)).query_id is None


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs Linux")
def test_a_relative_path_may_be_of_the_jvms_directory(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of Spark Connect works elsewhere."""
    monkeypatch.chdir(checkpoint.parent)
    monkeypatch.setattr(checkpoint_locations.os, "getppid", os.getpid)
    real = os.path.realpath
    monkeypatch.setattr(
        checkpoint_locations.os.path,
        "realpath",
        lambda path: real(path) if os.path.isabs(path) else f"/elsewhere/{path}",
    )

    assert located("checkpoint").path == str(checkpoint)
