"""``eoslog offsets``: where a topic's partitions begin and end."""

from __future__ import annotations

import click

from eoslog.cli.context import Session, pass_session


@click.command()
@click.argument("topic")
@pass_session
def offsets(session: Session, topic: str) -> None:
    """Show earliest offset, last stable offset and high watermark of each partition.

    read_committed shows rows below the last stable offset; Undecided is what open transactions hold back.

    \b
    Example:
      eoslog --store my-store offsets payments
    """
    session.print_rows(
        ("Partition", "Earliest", "LastStableOffset", "HighWatermark", "Undecided"),
        [(*each, each.high_watermark - each.last_stable_offset) for each in session.store().admin.offsets(topic)],
    )
