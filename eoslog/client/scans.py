"""Planning a scan: which state, which partitions, which rows, which columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from eoslog.errors import InvalidOption
from eoslog.read.columns import choose_columns, default_columns, stored_schema, with_control_rows
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import check_snapshot, plan_partition
from eoslog.read.scan import Scan
from eoslog.rules.names import PartitionId
from eoslog.rules.partitions import partition_of
from eoslog.rules.state import Partition, StoreState, Topic
from eoslog.rules.topics import topic_named

if TYPE_CHECKING:
    from eoslog.client.store import Store


def plan_scan(
    store: Store,
    topic: str,
    isolation: IsolationLevel,
    *,
    columns: Sequence[str] | None,
    partitions: Sequence[int] | None,
    starting_offsets: Mapping[int, int],
    ending_offsets: Mapping[int, int],
    slot: int | None,
    include_control_rows: bool,
) -> Scan:
    """See ``Store.scan``."""
    if slot is not None and isolation is not IsolationLevel.SNAPSHOT:
        raise InvalidOption("a slot can be chosen with isolation level 'snapshot' only")

    def look(state: StoreState, newest: int) -> tuple[Topic, list[Partition], int]:
        topic_state = topic_named(state, topic)
        chosen = range(topic_state.partitions) if partitions is None else partitions
        found = [partition_of(state, PartitionId(topic_state.topic_id, partition)) for partition in chosen]
        return topic_state, found, newest

    topic_state, found, newest = store.read(look)
    if slot is not None:
        if not 0 <= slot <= newest:
            raise InvalidOption(f"slot {slot} is not there: the log holds slots 0 to {newest}")
        for partition in found:
            check_snapshot(topic, partition, slot)
    plans = [
        plan_partition(
            store.indexes,
            topic,
            partition,
            isolation,
            start_offset=starting_offsets.get(partition.id.partition),
            end_offset=ending_offsets.get(partition.id.partition),
            slot=slot,
            control_rows=include_control_rows,
        )
        for partition in found
    ]
    wanted = _columns(topic_state, columns, include_control_rows)
    return Scan(store.object_store, plans, stored_schema(topic_state), wanted, newest)


def _columns(topic: Topic, names: Sequence[str] | None, include_control_rows: bool) -> pa.Schema:
    if names is not None:
        chosen = choose_columns(topic, names)
    else:
        chosen = default_columns(topic, transaction=include_control_rows)
    return with_control_rows(chosen) if include_control_rows else chosen
