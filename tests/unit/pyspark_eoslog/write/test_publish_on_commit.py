"""``publishOnCommit``: a commit is followed by a version of the topic's Delta table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructField, StructType

import eoslog
from eoslog import TopicConfig
from eoslog.errors import InvalidOption
from pyspark_eoslog.options import Options
from pyspark_eoslog.worker import this_worker, verified_store
from pyspark_eoslog.write import tasks
from pyspark_eoslog.write.sink import EosLogStreamWriter, EosLogWriter
from tests.unit.pyspark_eoslog.write.sink.sinks import OnlyTask, told
from tests.unit.pyspark_eoslog.write.test_new_columns import commit, written

ROWS = StructType([StructField("id", LongType())])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[eoslog.Store]:
    monkeypatch.setattr(tasks, "TaskContext", OnlyTask)
    told("query")
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("out", schema=ROWS, config=TopicConfig(publish="delta"))
    yield store
    this_worker().forget_stores()


def options(store: eoslog.Store, **more: Any) -> Options:
    return Options.of({"path": store.url, "topic": "out", "publishOnCommit": "true"} | more)


def write(store: eoslog.Store, number: int, *, stream: bool = False, batch_id: int = 0) -> None:
    planned = (EosLogStreamWriter if stream else EosLogWriter)(options(store), ROWS, False)
    commit(planned, written(planned, ROWS, {"id": number}), batch_id)


def published(store: eoslog.Store) -> list[int]:
    return sorted(DeltaTable(f"{store.url}/out").to_pyarrow_table()["id"].to_pylist())


@pytest.mark.parametrize("stream", [False, True])
def test_each_commit_is_a_version(store: eoslog.Store, stream: bool) -> None:
    write(store, 1, stream=stream)
    first = published(store)
    write(store, 2, stream=stream, batch_id=1)

    assert (first, published(store)) == ([1], [1, 2])
    assert DeltaTable(f"{store.url}/out").version() == 1


def test_a_commit_reads_only_the_newest_version(store: eoslog.Store) -> None:
    for batch_id in range(3):
        write(store, batch_id, stream=True, batch_id=batch_id)
    requests = verified_store(options(store).location).requests
    before = requests.copy()

    write(store, 3, stream=True, batch_id=3)

    assert published(store) == [0, 1, 2, 3]
    # The commit and the version; the newest slot, and of the Delta log the newest version and the next one.
    assert requests - before == {"PUT": 2, "GET": 3}


def test_a_replay_publishes_what_the_first_run_did_not(store: eoslog.Store) -> None:
    unpublished = EosLogStreamWriter(options(store, publishOnCommit="false"), ROWS, False)
    commit(unpublished, written(unpublished, ROWS, {"id": 1}))

    write(store, 1, stream=True)

    assert published(store) == [1]


def test_a_failed_publication_leaves_the_rows_committed(store: eoslog.Store, caplog: pytest.LogCaptureFixture) -> None:
    Path(store.url, "out", "_delta_log").mkdir(parents=True)
    Path(store.url, "out", "_delta_log", f"{0:020d}.json").write_text("no JSON")

    with caplog.at_level(logging.WARNING):
        write(store, 1)

    assert "the rows are committed, but topic out was not published" in caplog.text
    assert store.scan("out").to_table()["id"].to_pylist() == [1]


def test_the_topic_must_be_published(store: eoslog.Store) -> None:
    store.admin.alter_topic("out", publish="none")

    with pytest.raises(InvalidOption, match="publish='delta'"):
        EosLogWriter(options(store), ROWS, False)
