"""Stores and time for tests of streams without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eoslog
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import ObjectStore
from pyspark_eoslog.pyspark_version import is_at_least
from pyspark_eoslog.worker import this_worker
from tests.unit.pyspark_eoslog.stream.world import NUMBERS, ManualEnvironment

if not is_at_least(4, 2):
    # Spark tells the streams of other tests where a micro-batch starts. Earlier releases do not.
    streams = (Path(__file__).parent / "stream").glob("test_*.py")
    collect_ignore = [str(path) for path in streams if path.stem not in {"test_offsets", "test_without_start"}]


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test needs rows to outlive the machine, and to wait for its disk takes long."""
    monkeypatch.setenv("EOSLOG_LOCAL__FSYNC", "false")


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> ManualEnvironment:
    """The time of readers; without it they really wait."""
    manual = ManualEnvironment()
    monkeypatch.setattr(this_worker(), "environment", manual)
    return manual


@pytest.fixture
def store(tmp_path: Path) -> Iterator[eoslog.Store]:
    """A store with the topic ``in`` of one column and one partition."""
    store = eoslog.connect(str(tmp_path / "store"), fsync=False)
    store.admin.create_topic("in", schema=NUMBERS)
    yield store
    this_worker().forget_stores()


@pytest.fixture
def paid_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local stores are polled as seldom as stores whose requests cost money."""
    monkeypatch.setattr(LocalStore, "least_poll_pause_ms", ObjectStore.least_poll_pause_ms)
