"""What is valid, and yet somebody may want to know: transactions that are open for long, offsets beyond the end."""

from __future__ import annotations

from collections.abc import Iterator

from eoslog.rules.state import StoreState
from eoslog.rules.transactions import timed_out
from eoslog.verification.finding import Finding
from eoslog.verification.live import Live


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
        if live.look(lambda newest, name=name, start=start: _is_open(newest, name, start)):  # type: ignore[misc]
            yield Finding(kind=kind, problem=f"{problem}, since slot {start}", slot=start)
    for group_id, group in state.groups.items():
        for place, committed in group.offsets.items():
            partition = state.partitions.get(place)
            if partition is not None and committed.offset > partition.high_watermark:
                problem = (
                    f"group {group_id!r} is to read from offset {committed.offset} on, the partition ends at "
                    f"{partition.high_watermark}"
                )
                yield Finding(
                    kind="group-offset-beyond-end",
                    problem=problem,
                    topic=state.topics[place.topic_id].topic,
                    partition=place.partition,
                )


def _is_open(state: StoreState, transactional_id: str, start_slot: int) -> bool:
    transaction = state.transactions.get(transactional_id)
    return transaction is not None and transactional_id in state.ongoing and transaction.start_slot == start_slot
