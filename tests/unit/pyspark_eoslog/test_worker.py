"""A worker process that Spark reuses excludes what it has loaded from garbage collection. Other processes do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import eoslog

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


@pytest.mark.parametrize("opening", OPENING.values(), ids=OPENING)
def test_a_users_program_is_collected_as_ever(opening: str, tmp_path: Path) -> None:
    assert max(frozen_objects("some.program", opening, tmp_path)) < 1_000
