"""``eoslog offsets``: where a topic's partitions begin and end, and how far readers are behind."""

from __future__ import annotations

import click

from eoslog.cli.context import Session, global_options, pass_session
from eoslog.errors import GroupIdNotFound, quoted
from eoslog.rules.groups import committed_offset
from eoslog.rules.partitions import partition_of
from eoslog.rules.state import StoreState
from eoslog.rules.topics import topic_named


@click.command()
@click.argument("topic")
@click.option("--group", metavar="GROUP", help="Show the offsets that this consumer group has committed, and its lag.")
@global_options
@pass_session
def offsets(session: Session, topic: str, group: str | None) -> None:
    """Show earliest offset, last stable offset and high watermark of each partition of TOPIC.

    read_committed shows rows below the last stable offset. LsoLag is how many offsets open transactions hold back;
    Lag is how many the group has not yet read of what read_committed shows.

    \b
    Examples:
      eoslog --store my-store offsets payments
      eoslog --store my-store offsets payments --group billing
    """

    def look(state: StoreState, slot: int) -> list[tuple[int | None, ...]]:
        if group is not None and group not in state.groups:
            known = ", ".join(sorted(state.groups)) or "none"
            raise GroupIdNotFound(f"no consumer group is named {quoted(group)}; the store has: {known}")
        rows: list[tuple[int | None, ...]] = []
        for place in topic_named(state, topic).partition_ids():
            found = partition_of(state, place)
            lso, end = found.last_stable_offset, found.high_watermark
            row: tuple[int | None, ...] = (place.partition, found.log_start_offset, lso, end, end - lso)
            if group is not None:
                committed = committed_offset(state, group, place)
                row += (None, None) if committed is None else (committed.offset, max(0, lso - committed.offset))
            rows.append(row)
        return rows

    columns = ("Partition", "Earliest", "LastStableOffset", "HighWatermark", "LsoLag")
    of_group = ("CommittedOffset", "Lag") if group is not None else ()
    session.print_rows(columns + of_group, session.store().read(look))
