"""Commands on the store as a whole: describe, vacuum, seal, checkpoint."""

from __future__ import annotations

from typing import Any

import click

from eoslog.cli.context import Session, global_options, pass_session
from eoslog.cli.output import progress
from eoslog.client.coordinator import Coordinator
from eoslog.log.deletion import delete_old_checkpoints, delete_old_publications, delete_old_slots
from eoslog.rules.state import StoreState


@click.command()
@global_options
@pass_session
def describe(session: Session) -> None:
    """Describe the store: its id, format, log and size. Times are ms by the store's clock.

    \b
    Example:
      eoslog --store my-store describe
    """
    store = session.store()
    description = store.describe()

    def look(state: StoreState, slot: int) -> dict[str, Any]:
        checkpoint, previous = store.log.view.checkpoint, store.log.view.previous_checkpoint
        return {
            "NewestSlot": slot,
            "CheckpointSlot": checkpoint.slot if checkpoint is not None else None,
            "PreviousCheckpointSlot": previous.slot if previous is not None else None,
            "HorizonMs": state.horizon_ms,
            "Topics": len(state.topics),
            "Partitions": len(state.partitions),
            "TransactionalIds": len(state.transactions),
            "OngoingTransactions": len(state.ongoing),
            "IdempotentProducers": len(state.producers),
            "ConsumerGroups": len(state.groups),
        }

    found = store.read(look)
    session.print_facts(
        {
            "Url": store.url,
            "StoreId": description.store_id,
            "FormatVersion": description.format_version,
            "ReaderFeatures": list(description.reader_features),
            "WriterFeatures": list(description.writer_features),
            "CreatedMs": description.created_ms,
            "ProbedPutIfAbsent": description.probe.put_if_absent,
            "ProbedMs": description.probe.time_ms,
            **found,
        }
    )


@click.command()
@click.option("--dry-run", is_flag=True, help="Say which files would be deleted, and delete nothing.")
@global_options
@pass_session
def vacuum(session: Session, dry_run: bool) -> None:
    """Delete files that no transaction names and none can name any more, and old slots and checkpoints of the log.

    How old they must be is in the settings: vacuum.staged_max_age_ms, vacuum.reader_grace_ms and log.grace_ms. A job
    that takes longer than the first from its first upload to its commit is refused with StagedFilesExpired.

    \b
    Examples:
      eoslog --store my-store vacuum --dry-run
      eoslog --store my-store vacuum
    """
    store, ages = session.store(), session.settings.vacuum
    with progress("looking at every file of the store"):
        report = store.admin.vacuum(
            staged_max_age_ms=ages.staged_max_age_ms,
            reader_grace_ms=ages.reader_grace_ms,
            dry_run=dry_run,
        )
        slots = 0 if dry_run else delete_old_slots(store.log)
        checkpoints = 0 if dry_run else delete_old_checkpoints(store.log)
        publications = 0 if dry_run else delete_old_publications(store.log)
    facts = {
        "DryRun": dry_run,
        "HorizonMs": report.horizon_ms,
        "Files": len(report.paths),
        "Bytes": report.bytes,
        "KeptFiles": report.kept_files,
        "Slots": slots,
        "CheckpointObjects": checkpoints,
        "Publications": publications,
    }
    session.print_facts(facts | ({"Paths": report.paths} if dry_run or session.as_json else {}))


@click.command()
@global_options
@pass_session
def seal(session: Session) -> None:
    """Close the segments that are large or old enough, so that the state of the log stays small. Writers do it too.

    \b
    Example:
      eoslog --store my-store seal
    """
    with progress("sealing"):
        sealed = Coordinator(session.store()).seal()
    session.print_rows(("Topic", "Partition"), sealed, empty="no segment is large or old enough")


@click.command("rebuild-indexes")
@click.argument("topic")
@click.option("--dry-run", is_flag=True, help="Say which files are missing or damaged, and put nothing back.")
@global_options
@pass_session
def rebuild_indexes(session: Session, topic: str, dry_run: bool) -> None:
    """Put back the .txnindex and .snapshot files of TOPIC that are missing or damaged, as they were.

    Only Kafka's tools read them. A .snapshot can be put back if the segment before it is there. An .index.parquet
    cannot be put back: nothing else has its content.

    \b
    Examples:
      eoslog --store my-store rebuild-indexes payments --dry-run
      eoslog --store my-store rebuild-indexes payments
    """
    admin = session.store().admin
    with progress("looking at every index file of the topic"):
        found = admin.rebuild_indexes(topic, dry_run=dry_run)
    session.print_rows(
        ("Partition", "BaseOffset", "Kind", "Problem", "Restored", "Path"),
        [(each.partition, each.base_offset, each.kind, each.problem, each.restored, each.path) for each in found],
        empty="no file is missing or damaged",
    )


@click.command()
@global_options
@pass_session
def checkpoint(session: Session) -> None:
    """Write the state down now, so that the log is read from here on. Writers do it too.

    \b
    Example:
      eoslog --store my-store checkpoint
    """
    store = session.store()
    store.read(lambda state, slot: None)
    with progress("writing the state down"):
        reference = store.log.checkpoint()
    session.print_facts({"Slot": reference.slot, "Path": reference.path, "Bytes": reference.length})
