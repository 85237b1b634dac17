"""The end of a soak: faults have stopped, all processes were started again, and what was begun comes to its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

import eoslog
from eoslog.errors import EosLogError
from eoslog.state.store_state import StoreState, TransactionState
from tests.soak.layout import COPIES, INVOICING, KEPT, ORDERS, PARTITIONS, RECOPIES, Run
from tests.soak.supervisor import PRODUCERS, STREAMS, Supervisor

_PATIENCE_S = 600.0


def drain(run: Run, store: eoslog.Store, supervisor: Supervisor) -> str | None:
    """Wait until nothing is left to do; what is left, if for minutes nothing of it was done."""
    run.begin_to_drain()
    supervisor.kill_all()
    before: Mapping[str, int] = {}
    moved_s = time.time()
    while True:
        supervisor.tend()
        try:
            left = what_is_left(store, supervisor)
        except EosLogError as error:
            left = {f"the store does not answer: {type(error).__name__}": 1}
        if not left:
            return None
        if left != before:
            before, moved_s = left, time.time()
        if time.time() - moved_s > _PATIENCE_S:
            return ", ".join(f"{what}: {count}" for what, count in left.items())
        time.sleep(0.5)


def what_is_left(store: eoslog.Store, supervisor: Supervisor) -> dict[str, int]:
    """What has yet to be done, with a number that falls as it is done."""
    members = supervisor.members
    left: dict[str, int] = Counter()
    left["producers that have not ended"] = sum(
        members[name].is_alive or not members[name].incarnation for name in PRODUCERS
    )
    left["open transactions"] = store.read(lambda state, slot: _open_transactions(state))
    left["last stable offsets behind"] = sum(
        each.high_watermark - each.last_stable_offset for topic in PARTITIONS for each in store.admin.offsets(topic)
    )
    left["orders without invoice"] = _unread(store, INVOICING, (ORDERS,))
    for group in sorted({name.rpartition("-")[0] for name in members if name.startswith(("assigned", "subscribed"))}):
        left[f"rows that {group} has not read"] = _unread(store, group, KEPT)
    left["tables that lack rows"] = sum(lag_ms > 0 for lag_ms in store.metrics().publication_lag_ms.values())
    if STREAMS in members:
        counts = {topic: store.scan(topic).record_count for topic in (ORDERS, COPIES, RECOPIES)}
        left["orders without copy"] = counts[ORDERS] - counts[COPIES]
        left["copies without copy"] = counts[COPIES] - counts[RECOPIES]
    return {what: count for what, count in left.items() if count}


def _open_transactions(state: StoreState) -> int:
    return sum(each.state is TransactionState.ONGOING for each in state.transactions.values())


def _unread(store: eoslog.Store, group: str, topics: tuple[str, ...]) -> int:
    """How many committed rows lie beyond what a group has committed."""
    places = [eoslog.TopicPartition(topic, each) for topic in topics for each in range(PARTITIONS[topic])]
    committed = store.consumer(group).committed(places)
    count = 0
    for topic in topics:
        offsets = {
            place.partition: found.offset for place, found in committed.items() if found and place.topic == topic
        }
        count += store.scan(topic, starting_offsets=offsets).record_count
    return count
