"""A worker process of Spark: what it excludes from garbage collection, and what it reports of an error."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from pyspark.util import handle_worker_exception

import eoslog
from eoslog import NotAStore
from pyspark_eoslog.worker import plain_errors

OPENING = {
    "a planner or a commit": "recently_verified_store(location, 0)",
    "a task": "object_store(location)",
}


def frozen_objects(main: str, opening: str, store: Path) -> list[int]:
    """How many objects a process whose program is the module ``main`` has frozen after it opened each of two stores."""
    for name in ("first", "second"):
        eoslog.connect(store / name, fsync=False).ensure_created()
    program = f"""
import gc, sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec({main!r}, None)
from pyspark_eoslog.options import StoreLocation
from pyspark_eoslog.worker import object_store, recently_verified_store
for name in ("first", "second"):
    location = StoreLocation({str(store)!r} + "/" + name)
    {opening}
    print(gc.get_freeze_count())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [int(count) for count in done.stdout.split()]


@pytest.mark.parametrize("opening", OPENING.values(), ids=OPENING)
def test_a_worker_of_sparks_daemon_exempts_what_it_has_loaded(opening: str, tmp_path: Path) -> None:
    first, second = frozen_objects("pyspark.daemon", opening, tmp_path)

    assert first > 10_000
    assert second <= first, "a store that replaces another one must stay collectable"


def test_a_users_program_is_collected_as_ever(tmp_path: Path) -> None:
    assert max(frozen_objects("some.program", "; ".join(OPENING.values()), tmp_path)) < 1_000


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Exception], str]:
    """What Spark's worker reports of an error in a process whose program is this module."""

    def report(main: str, error: Exception) -> str:
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(main, None))
        # The process has an environment of its own.
        monkeypatch.setattr(os, "environ", dict(os.environ))
        told = io.BytesIO()
        try:
            with plain_errors():
                raise error
        except Exception as raised:
            handle_worker_exception(raised, told)
        return told.getvalue()[8:].decode()

    return report


@pytest.mark.parametrize("main", ["pyspark.daemon", "pyspark.sql.worker.plan_data_source_read"])
def test_an_error_of_eoslog_is_reported_by_its_message_alone(
    reported: Callable[[str, Exception], str], main: str
) -> None:
    error = NotAStore("no store")
    error.__cause__ = ValueError("cause")

    text = reported(main, error)

    assert text.strip() == "eoslog.errors.NotAStore: [EOSLOG_NOT_A_STORE] no store"


def test_another_error_and_one_in_a_users_program_keep_their_traceback(
    reported: Callable[[str, Exception], str],
) -> None:
    assert reported("pyspark.daemon", ValueError("a bug")).startswith("Traceback")
    assert reported("some.program", NotAStore("no store")).startswith("Traceback")


def test_a_worker_without_memory_says_which_setting_to_raise(reported: Callable[[str, Exception], str]) -> None:
    text = reported("pyspark.daemon", MemoryError("malloc of size 64 failed"))

    assert "Raise spark.executor.pyspark.memory" in text
    assert "malloc of size 64 failed" in text
