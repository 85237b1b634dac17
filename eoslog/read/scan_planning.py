"""Planning of a scan: choose the state, the partitions, the rows and the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from eoslog.errors import InvalidOption, is_whole_number, quoted
from eoslog.format.topic_schema_json import stored_schema
from eoslog.read.columns import choose_columns, default_columns, with_control_rows
from eoslog.read.consistent_ends import transaction_consistent_ends
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import ReadPlanner, check_offset
from eoslog.read.predicate_text import compile_predicate
from eoslog.read.scan import Scan
from eoslog.read.time_travel import resolve, timestamp_ms
from eoslog.session.session import Session
from eoslog.session.topic_lookup import check_partition
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named


def plan_scan(
    store: Session,
    topic: str,
    isolation_level: str | IsolationLevel | None,
    *,
    columns: Sequence[str] | None,
    partitions: Sequence[int] | None,
    starting_offsets: Mapping[int, int],
    ending_offsets: Mapping[int, int],
    slot: int | None,
    timestamp: datetime | int | None,
    transaction_consistent: bool,
    include_control_rows: bool,
    predicate: str | None,
) -> Scan:
    """Plan a scan; see ``Store.scan``."""
    travels = slot is not None or timestamp is not None
    if isolation_level is None:
        isolation_level = IsolationLevel.SNAPSHOT if travels else IsolationLevel.READ_COMMITTED
    isolation = IsolationLevel.of(isolation_level)
    if travels and isolation is not IsolationLevel.SNAPSHOT:
        raise InvalidOption("a slot or a timestamp can be chosen with isolation level 'snapshot' only")
    if transaction_consistent and isolation is not IsolationLevel.READ_COMMITTED:
        raise InvalidOption(
            "transaction_consistent needs isolation level 'read_committed'. A snapshot never splits a transaction"
        )
    time_ms = None if timestamp is None else timestamp_ms(timestamp)
    if columns is not None:
        _check_columns(columns)

    def snapshot(state: StoreState, newest: int) -> tuple[Topic, list[Partition], int, int]:
        topic_state = topic_named(state, topic)
        chosen = range(topic_state.partitions) if partitions is None else partitions
        found = [partition_of(state, PartitionId(topic_state.topic_id, each)) for each in dict.fromkeys(chosen)]
        _check_offsets(topic_state, "starting_offsets", starting_offsets)
        _check_offsets(topic_state, "ending_offsets", ending_offsets)
        return topic_state, found, newest, state.time_ms

    def is_held_back(found_state: tuple[Topic, list[Partition], int, int]) -> bool:
        return isolation is IsolationLevel.READ_COMMITTED and any(
            partition.is_held_back for partition in found_state[1]
        )

    topic_state, found, newest, log_time_ms = store.overdue_transactions.read_unblocked(snapshot, is_held_back)
    as_of = resolve(slot, time_ms, newest_slot=newest, log_time_ms=log_time_ms, now_ms=store.now_ms())
    wanted = _columns(topic_state, columns, include_control_rows)
    compiled = None if predicate is None else compile_predicate(predicate, topic_state)
    if transaction_consistent:
        ending_offsets = _consistent_ends(store, topic, found, starting_offsets, ending_offsets)
    planner = ReadPlanner(store.indexes, topic, isolation, as_of, include_control_rows, compiled)
    plans = [
        planner.plan(each, starting_offsets.get(each.id.partition), ending_offsets.get(each.id.partition))
        for each in found
    ]
    return Scan(store.object_store, plans, stored_schema(topic_state), wanted, newest, compiled)


def _check_columns(names: object) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidOption(f"columns are a list of names, not {quoted(names)}")
    if len(set(names)) < len(names):
        raise InvalidOption(f"each column can be read once, not as {', '.join(map(repr, names))}")


def _check_offsets(topic: Topic, option: str, offsets: object) -> None:
    if not isinstance(offsets, Mapping):
        raise InvalidOption(f"{option} are offsets by partition, as {{0: 100}}, not {quoted(offsets)}")
    for partition, offset in offsets.items():
        check_partition(topic, partition)
        if not is_whole_number(offset):
            raise InvalidOption(f"{option} of partition {topic.topic}-{partition} is an offset, not {quoted(offset)}")


def _consistent_ends(
    store: Session, topic: str, partitions: Sequence[Partition], starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    by_number = {partition.id.partition: partition for partition in partitions}
    for number, partition in by_number.items():
        check_offset(topic, partition, starts.get(number, partition.log_start_offset))
    return transaction_consistent_ends(
        store.indexes,
        by_number,
        {number: starts.get(number, partition.log_start_offset) for number, partition in by_number.items()},
        {
            number: min(partition.last_stable_offset, ends.get(number, partition.last_stable_offset))
            for number, partition in by_number.items()
        },
    )


def _columns(topic: Topic, names: Sequence[str] | None, include_control_rows: bool) -> pa.Schema:
    if names is not None:
        chosen = choose_columns(topic, names)
    else:
        chosen = default_columns(topic, transaction=include_control_rows)
    return with_control_rows(chosen) if include_control_rows else chosen
