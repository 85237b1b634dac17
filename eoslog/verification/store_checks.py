"""Verifying: the log, then what it says there is, then what there is beside it. Nothing is written.

Links and special files come first: where one is in the place of a part of the log, that cannot be looked at.

The state is read once. What others change meanwhile is no fault: before anything is reported of an object, the newest
state is asked whether it still names it. Memory holds the state, one partition's paths and one data file.
"""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.log.log import Log
from eoslog.state.invariants import broken_in_store
from eoslog.state.names import PartitionId
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.state.transactions import timed_out
from eoslog.verification.findings import Finding, Progress, of_broken
from eoslog.verification.live_files import Live
from eoslog.verification.log_checks import LogVerification, verify_log
from eoslog.verification.partition_checks import PartitionVerification
from eoslog.verification.unknown_files import find_irregular, find_strays


def conditions(live: Live, state: StoreState, now_ms: int) -> Iterator[Finding]:
    """What of a state somebody may want to know, and is still so in the newest one."""
    overdue = {each.transactional_id: each for each in timed_out(state.transactions.values(), now_ms)}
    for name in state.ongoing:
        transaction = state.transactions[name]
        if name in overdue:
            kind, problem = "transaction-overdue", f"the transaction of {name!r} is open past its time-out"
        elif transaction.prepared is not None:
            kind, problem = "transaction-prepared", f"the transaction of {name!r} is prepared"
        else:
            continue
        start = transaction.start_slot
        if live.read(lambda newest, name=name, start=start: _is_open(newest, name, start)):  # type: ignore[misc]
            yield Finding(kind=kind, problem=f"{problem}, since slot {start}", slot=start)
    for group_id, group in state.groups.items():
        for partition_id, committed in group.offsets.items():
            partition = state.partitions.get(partition_id)
            if partition is not None and committed.offset > partition.high_watermark:
                problem = (
                    f"group {group_id!r} is to read from offset {committed.offset} on, the partition ends at "
                    f"{partition.high_watermark}"
                )
                yield Finding(
                    kind="group-offset-beyond-end",
                    problem=problem,
                    topic=state.topics[partition_id.topic_id].topic,
                    partition=partition_id.partition,
                )


def _is_open(state: StoreState, transactional_id: str, start_slot: int) -> bool:
    transaction = state.transactions.get(transactional_id)
    return transaction is not None and transactional_id in state.ongoing and transaction.start_slot == start_slot


def verify(
    log: Log[StoreState],
    description_path: str,
    store_id: str | None,
    *,
    topic: str | None,
    with_data: bool,
    progress: Progress,
) -> Iterator[Finding]:
    """What is wrong with a store, as it is found.

    Args:
        log: of the store; nothing is appended.
        description_path: where the store's description lies.
        store_id: by the description; None if that cannot be read.
        topic: only this one's files, all if None; the log is always looked at.
        with_data: read every data file whole; else their presence and length count.

    Raises:
        UnknownTopicOrPartition: there is no such topic.
        UnsupportedFormat: a newer version wrote something.
        StoreUnavailable, StoreAccessDenied: it could not be looked at.
    """
    if topic is None:
        yield from find_irregular(log.store)
    verification, found = verify_state(log, description_path, store_id, progress)
    yield from found
    state, slot = verification.state, verification.slot
    if state is None:
        return
    live = Live(log)
    yield from conditions(live, state, log.store.clock.now_ms())
    chosen = _chosen_partitions(state, topic)
    for number, (each, partition_id) in enumerate(chosen):
        progress("partitions", number, len(chosen))
        yield from PartitionVerification(live, state, slot, each, partition_id, with_data=with_data).findings()
    progress("partitions", len(chosen), len(chosen))
    if topic is None:
        yield from find_strays(live, description_path, verification.checkpoint_objects)


def verify_state(
    log: Log[StoreState], description_path: str, store_id: str | None, progress: Progress
) -> tuple[LogVerification, list[Finding]]:
    """Look at the log, and at the state that it leads to, without the files that it names.

    Raises:
        UnsupportedFormat, StoreUnavailable, StoreAccessDenied
    """
    verification, found = verify_log(log, progress)
    state = verification.state
    if state is not None:
        if store_id is not None and state.store_id != store_id:
            problem = f"it is that of store {store_id}, the log that of store {state.store_id}"
            found.append(Finding(kind="description-differs", problem=problem, path=description_path))
        found += [of_broken(broken, state) for broken in broken_in_store(state, verification.slot)]
    return verification, found


def _chosen_partitions(state: StoreState, topic: str | None) -> list[tuple[Topic, PartitionId]]:
    topics = list(state.topics.values()) if topic is None else [topic_named(state, topic)]
    return [
        (each, partition_id)
        for each in topics
        for partition_id in each.partition_ids()
        if partition_id in state.partitions
    ]
