"""Random histories: a copy made at any point of one is the source at that slot, in every respect that readers see."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.errors import EosLogError, OffsetOutOfRange
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.store_state import StoreState
from tests.depth import examples
from tests.unit.copying.copies import Place, check_copy, state_of
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World
from tests.unit.verification.histories import COLUMNS, commit_staged, rows

IDS = ("eager", "staged")
HOUR_MS = 3_600_000

steps = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(IDS), st.integers(0, 3)),
    st.tuples(st.just("end"), st.sampled_from(IDS), st.sampled_from(["commit", "abort", "prepare", "leave"])),
    st.tuples(st.sampled_from(["plain", "columns", "job", "seal", "files", "keys", "checkpoint", "recreate"])),
    st.tuples(st.just("offsets"), st.integers(0, 3)),
    st.tuples(st.just("delete"), st.integers(0, 1)),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 200])),
)


class History:
    """A store to which steps happen. A step that the store refuses changes nothing."""

    def __init__(self) -> None:
        self.world = World()
        self.store = self.world.process()
        self.store.admin.create_topic("k", config=TopicConfig(segment_batches=2, cleanup_policy="compact,delete"))
        self.store.admin.create_topic(
            "c", partitions=2, schema=COLUMNS, key="name", config=TopicConfig(segment_batches=3)
        )
        self._producers: dict[str, Any] = {}
        self._jobs = 0

    def take(self, step: tuple[Any, ...]) -> None:
        try:
            getattr(self, f"_{step[0]}")(*step[1:])
        except EosLogError:
            self._producers.clear()

    def _producer(self, name: str) -> Any:
        if name not in self._producers:
            producer = open_transaction(self.store, name, staged=name == "staged", prepared_timeout_ms=None)
            self._producers[name] = producer
        return self._producers[name]

    def _write(self, name: str, key: int) -> None:
        producer = self._producer(name)
        producer.send("k", b"%d" % self.world.time_ms, key=b"%d" % key)
        producer.send_offsets_to_transaction({TopicPartition("k", 0): key}, "g")
        if name == "eager":
            producer.flush()

    def _end(self, name: str, how: str) -> None:
        producer = self._producers.pop(name, None)
        if producer is not None and how != "leave":
            getattr(producer, f"{how}_transaction")()

    def _plain(self) -> None:
        producer = self.store.producer()
        producer.send("k", None, key=b"1")
        producer.flush()

    def _columns(self) -> None:
        producer = self.store.producer()
        producer.send_table("c", rows(self._jobs))
        producer.flush()

    def _job(self) -> None:
        self._jobs += 1
        commit_staged(self.store, "c", self._jobs)

    def _seal(self) -> None:
        Coordinator(self.store).seal()

    def _files(self) -> None:
        self.store.admin.compact_files(now=True)

    def _keys(self) -> None:
        self.store.admin.compact_keys("k", now=True)

    def _checkpoint(self) -> None:
        self.store.log.checkpoint()

    def _recreate(self) -> None:
        config = self.store.admin.describe_topic("k").config
        self.store.admin.delete_topic("k")
        self.store.admin.create_topic("k", config=config)

    def _offsets(self, offset: int) -> None:
        self.store.admin.alter_consumer_group_offsets("h", {TopicPartition("c", 1): offset})

    def _delete(self, offset: int) -> None:
        self.store.admin.delete_records({TopicPartition("k", 0): offset})

    def _wait(self, hours: int) -> None:
        self.world.pass_time(hours * HOUR_MS)
        list(Coordinator(self.store).run_once())


READS: dict[str, Callable[[Store, str, int], Any]] = {
    **{
        level: lambda store, topic, slot, level=level: store.scan(topic, isolation_level=level).to_table()  # type: ignore[misc]
        for level in ("read_committed", "read_uncommitted")
    },
    "half way": lambda store, topic, slot: store.scan(topic, slot=slot // 2).to_table(),
    "commits": lambda store, topic, slot: [
        (commit.slot, commit.timestamp, commit.transactions, commit.to_tables())
        for commit in store.commits(topic, until_slot=slot)
    ],
    "offsets": lambda store, topic, slot: store.admin.offsets(topic),
}


def answers(store: Store, state: StoreState, slot: int) -> dict[str, Any]:
    """What readers of each topic are told; an error counts by its text."""
    found = {}
    for topic in sorted(state.topic_ids):
        for what, read in READS.items():
            try:
                found[f"{topic}: {what}"] = read(store, topic, slot)
            except EosLogError as error:
                found[f"{topic}: {what}"] = str(error)
    return found


@examples(10)
@given(st.lists(steps, max_size=25), st.lists(steps, max_size=8))
def test_a_copy_is_the_source_at_its_slot(before: list[tuple[Any, ...]], meanwhile: list[tuple[Any, ...]]) -> None:
    history = History()
    for step in before:
        history.take(step)
    place = Place(history.world)
    # Otherwise the reads below would abort them.
    history.store.overdue_transactions.abort()
    state, slot = state_of(history.store)
    expected = answers(history.store, state, slot)
    groups = [history.store.admin.list_consumer_group_offsets(name) for name in sorted(state.groups)]
    rest = iter(meanwhile)

    def go_on(point: str) -> None:
        if point in ("store.copy.planned", "store.copy.file_put") and (step := next(rest, None)) is not None:
            history.take(step)

    report = history.store.admin.copy(place.hooked(go_on))

    if report.slot == slot:
        check_copy(place.process(), state, slot)
        target = place.process()
        assert [target.admin.list_consumer_group_offsets(name) for name in sorted(state.groups)] == groups
        if not any(step[0] == "wait" for step in meanwhile):
            assert answers(target, state, slot) == expected
    else:
        # The source deleted files of the slot meanwhile.
        assert any(step[0] == "wait" for step in meanwhile)
        assert not [each for each in place.process().admin.verify(data=True) if each.severity.value == "error"]


@examples(10)
@given(st.lists(steps, max_size=20), st.lists(steps, max_size=12))
def test_a_copy_of_an_earlier_slot_is_the_source_of_then(
    before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> None:
    history = History()
    for step in before:
        history.take(step)
    history.store.overdue_transactions.abort()
    state, slot = state_of(history.store)
    expected = answers(history.store, state, slot)
    groups = [history.store.admin.list_consumer_group_offsets(name) for name in sorted(state.groups)]
    for step in after:
        history.take(step)
    place = Place(history.world)

    try:
        history.store.admin.copy(place.process(), slot=slot)
    except OffsetOutOfRange as refusal:
        # The source deleted slots or files meanwhile.
        assert any(step[0] == "wait" for step in after)
        newer = re.search(r"can be copied is (\d+)|Slot (\d+) and later", str(refusal))
        assert newer is not None
        named = int(newer.group(1) or newer.group(2))
        assert history.store.admin.copy(Place(history.world).process(), slot=named).slot == named > slot
        return
    check_copy(place.process(), state, slot)
    target = place.process()
    assert [target.admin.list_consumer_group_offsets(name) for name in sorted(state.groups)] == groups
    if not any(step[0] == "wait" for step in after):
        assert answers(target, state, slot) == expected
