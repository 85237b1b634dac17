"""``eoslog merge-files`` and ``eoslog compact``: files are written anew. A coordinator does both by itself."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import click

from eoslog.cli.context import Session, global_options, pass_session
from eoslog.cli.output import progress
from eoslog.segment.compaction import CompactedPartition
from eoslog.segment.merging import MergedSegments


@click.command("merge-files")
@click.argument("topic", required=False)
@global_options
@pass_session
def merge_files(session: Session, topic: str | None) -> None:
    """Make large data files of the small ones in sealed segments of TOPIC, or of all topics. Readers see no change.

    \b
    Examples:
      eoslog --store my-store merge-files
      eoslog --store my-store merge-files flights
    """
    with progress("merging files"):
        found = session.store().admin.merge_files(topic)
    _print(session, MergedSegments, found.merged, "no sealed segment has files that are small enough to be merged")


@click.command()
@click.argument("topic", required=False)
@global_options
@pass_session
def compact(session: Session, topic: str | None) -> None:
    """Keep the newest row of each key in the sealed segments of TOPIC, now; without TOPIC, wherever it is due.

    \b
    Examples:
      eoslog --store my-store compact
      eoslog --store my-store compact balances
    """
    with progress("compacting"):
        found = session.store().admin.compact(topic)
    _print(session, CompactedPartition, found.partitions, "nothing is to be compacted")


def _print(session: Session, kind: Any, found: list[Any], empty: str) -> None:
    columns = ["".join(part.capitalize() for part in each.name.split("_")) for each in fields(kind)]
    session.print_rows(columns, [tuple(asdict(each).values()) for each in found], empty=empty)
