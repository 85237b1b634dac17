"""A process dies at a named point; a fresh one finds a legal state and goes on, and no row is lost, doubled or torn."""

from __future__ import annotations

import contextlib

import pytest

from eoslog import Store, TopicConfig
from eoslog.log.view import LogConfig
from eoslog.segment.sealing import seal_segments
from eoslog.segment.vacuum import vacuum
from eoslog.store.environment import Environment
from eoslog.store.memory import MemoryStore

DAY_MS = 24 * 3600 * 1000
POINTS = (
    "log.slot.before_put",
    "log.slot.claimed",
    "log.checkpoint.parts_written",
    "log.checkpoint.root_written",
    "segment.seal.files_written",
    "segment.vacuum.horizon_moved",
    "segment.vacuum.files_deleted",
    "client.producer.files_uploaded",
    "store.create.described",
)


class _Died(BaseException):
    pass


class _Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


class _Mortal(Environment):
    """Dies when it comes to a point for the n-th time; has no threads."""

    def __init__(self, point: str, times: int) -> None:
        self._point = point
        self._left = times

    def reached(self, crash_point: str) -> None:
        if crash_point == self._point:
            self._left -= 1
            if self._left == 0:
                raise _Died

    def background(self, work: object) -> None:
        work()  # type: ignore[operator]


def _life(store: Store, clock: _Clock, committed: list[bytes]) -> None:
    """Everything that a process does; ``committed`` is what it was told to be committed."""
    store.ensure_created()
    if "t" not in store.admin.list_topics():
        store.admin.create_topic("t", config=TopicConfig(segment_batches=4))
    producer = store.producer("etl")
    producer.init_transactions()
    for _ in range(4):
        value = b"%d" % len(committed)
        for verdict in ("abort", "commit"):
            producer.begin_transaction()
            producer.send("t", value)
            producer.flush()
            producer.send("t", value + b"'")
            getattr(producer, f"{verdict}_transaction")()
        committed.append(value)
    seal_segments(store.log, store.object_store, store.environment)
    store.log.checkpoint()
    clock.now_ms += 8 * DAY_MS
    vacuum(store.log, store.object_store)


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_leaves_nothing_half_done(point: str, times: int) -> None:
    clock, committed = _Clock(), list[bytes]()
    objects = MemoryStore(Environment(), wall_clock=clock)
    config = LogConfig(checkpoint_slots=8)
    with contextlib.suppress(_Died):
        _life(Store(objects, _Mortal(point, times), config), clock, committed)
    told = list(committed)

    survivor = Store(objects, _Mortal("", 0), config)
    survivor.ensure_created()
    _life(survivor, clock, committed)

    rows = survivor.scan("t", columns=["value"]).to_table()["value"].to_pylist()
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    assert all(second == first + b"'" for first, second in pairs)
    assert {first for first, _ in pairs} >= set(told)
    # A commit that was sent and not answered may have landed; then its value comes once more, from the survivor.
    assert len(pairs) - len(committed) in (0, 1)
    cold = Store(objects, Environment(), config)
    assert cold.read(lambda state, slot: state) == survivor.log.view.state
    assert cold.log.view.invalid is None
    assert all(each.last_stable_offset == each.high_watermark for each in cold.admin.offsets("t"))
