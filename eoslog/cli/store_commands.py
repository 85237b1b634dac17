"""Commands on the store as a whole: describe, vacuum, checkpoint, and a coordinator's round."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import Console

from eoslog.cli.context import Session, pass_session
from eoslog.client.coordinator import Coordinator
from eoslog.log.deletion import delete_old_checkpoints, delete_old_slots
from eoslog.rules.state import StoreState
from eoslog.segment import vacuum as vacuuming


@click.command()
@pass_session
def describe(session: Session) -> None:
    """Describe the store: its id, format and size.

    \b
    Example:
      eoslog --store my-store describe
    """
    store = session.store()

    def look(state: StoreState, slot: int) -> dict[str, int]:
        return {
            "newest_slot": slot,
            "topics": len(state.topics),
            "transactional_ids": len(state.transactions),
            "open_transactions": len(state.ongoing),
            "groups": len(state.groups),
        }

    facts = store.read(look)
    checkpoint = store.log.view.checkpoint
    session.print_facts(
        {"url": store.url}
        | store.describe().model_dump()
        | facts
        | {"checkpoint_slot": checkpoint.slot if checkpoint is not None else None}
    )


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@pass_session
def vacuum(session: Session, dry_run: bool) -> None:
    """Delete files that no transaction names and none can name any more, and old slots of the log.

    \b
    Examples:
      eoslog --store my-store vacuum --dry-run
      eoslog --store my-store vacuum
    """
    store, limits = session.store(), session.settings.vacuum
    store.describe()
    with Console(stderr=True).status("looking at every file of the store"):
        report = vacuuming.vacuum(
            store.log,
            store.object_store,
            staged_max_age_ms=limits.staged_max_age_ms,
            reader_grace_ms=limits.reader_grace_ms,
            dry_run=dry_run,
        )
        slots = 0 if dry_run else delete_old_slots(store.log)
        checkpoints = 0 if dry_run else delete_old_checkpoints(store.log)
    session.print_facts(
        {
            "dry_run": dry_run,
            "files": len(report.paths),
            "bytes": report.bytes,
            "kept_files": report.kept_files,
            "slots": slots,
            "checkpoint_objects": checkpoints,
            "paths": report.paths if dry_run else [],
        }
    )


@click.command()
@pass_session
def checkpoint(session: Session) -> None:
    """Write the state down now, so that the log is read from here on.

    \b
    Example:
      eoslog --store my-store checkpoint
    """
    store = session.store()
    store.describe()
    reference = store.log.checkpoint()
    session.print_facts({"slot": reference.slot, "path": reference.path, "bytes": reference.length})


@click.command()
@pass_session
def coordinate(session: Session) -> None:
    """Do a coordinator's round: end timed-out transactions, expire ids, seal segments, vacuum.

    Nothing depends on it: whoever writes and meets a transaction past its time-out ends it.

    \b
    Example:
      eoslog --store my-store coordinate
    """
    report = Coordinator(session.store()).run_once()
    facts = asdict(report)
    facts["sealed_segments"] = [f"{place.topic}-{place.partition}" for place in report.sealed_segments]
    facts["vacuum"] = f"{len(report.vacuum.paths)} files" if report.vacuum else None
    session.print_facts(facts)
