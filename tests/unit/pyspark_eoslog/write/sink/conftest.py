"""A store for the writers of a sink, and the task in which they run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eoslog
from pyspark_eoslog.write import tasks
from tests.unit.pyspark_eoslog.write.sink.sinks import (
    NUMBERS,
    OnlyTask,
    new_process,
    told,
)


@pytest.fixture(autouse=True)
def in_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TaskContext", OnlyTask)
    told("query")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[eoslog.Store]:
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("out", schema=NUMBERS)
    store.admin.create_topic("other", schema=NUMBERS)
    yield store
    new_process()
