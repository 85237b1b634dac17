"""``eoslog history``: what was done to topics, commit by commit (Delta's ``DESCRIBE HISTORY``)."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from eoslog.cli import output
from eoslog.cli.context import Session, global_options, pass_session
from eoslog.cli.json_values import to_json
from eoslog.client.operations import Operation

_DEFAULT_LIMIT = 20
_OWN_COLUMNS = ("slot", "timestamp", "operation", "topics", "rows", "files", "bytes", "duration_ms")


@click.command()
@click.argument("topic", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="The newest N operations.",
)
@click.option("--all", "unlimited", is_flag=True, help="All operations that the log still tells of.")
@click.option("--transactional-id", metavar="ID", help="Only the transactions of this id.")
@click.option("--aborts", is_flag=True, help="With the transactions that were aborted.")
@global_options
@pass_session
def history(
    session: Session, topic: str | None, limit: int, unlimited: bool, transactional_id: str | None, aborts: bool
) -> None:
    """Show what was done to TOPIC, or to all topics: commits and changes, the newest first.

    Rows, files and bytes are those of TOPIC alone, if it is given. The log forgets old slots after a grace, and the
    history with them; where it ends is said on standard error.

    \b
    Examples:
      eoslog --store my-store history
      eoslog --store my-store history payments --limit 5
      eoslog --store my-store history payments --transactional-id etl-1 --aborts --json
    """
    found = session.store().history(
        topic, limit=None if unlimited else limit, transactional_id=transactional_id, include_aborts=aborts
    )
    operations = list(found)
    if session.as_json:
        output.print_json([_json(each) for each in operations])
    else:
        session.print_rows(
            ("Slot", "Timestamp", "Operation", "Topics", "Rows", "Files", "Bytes", "DurationMs", "By", "Details"),
            [
                (*(_shown(each, name) for name in _OWN_COLUMNS), _by(each), "; ".join(_details(each)) or None)
                for each in operations
            ],
            empty="no operations",
        )
    if found.is_cut:
        click.echo(f"slots before {found.oldest_slot} were deleted, and what they tell with them", err=True)


def _json(operation: Operation) -> dict[str, object]:
    return {name: to_json(getattr(operation, name)) for name in Operation.__dataclass_fields__}


def _shown(operation: Operation, name: str) -> object:
    value = getattr(operation, name)
    if name == "timestamp" and value is not None:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def _by(operation: Operation) -> str | None:
    if operation.transactional_id is not None or operation.producer_id is None:
        return operation.transactional_id
    return f"producer {operation.producer_id}"


def _details(operation: Operation) -> list[str]:
    found = []
    if operation.query_id is not None:
        named = f"{operation.query_name} " if operation.query_name else ""
        found.append(f"query {named}{operation.query_id}")
    if operation.batch_id is not None:
        found.append(f"micro-batch {operation.batch_id}")
    told = (operation.application_id, operation.version) == (operation.transactional_id, operation.batch_id)
    if operation.version is not None and not told:
        found.append(f"version {operation.version} of {operation.application_id}")
    if operation.task_count is not None:
        found.append(f"{operation.task_count} tasks")
    if operation.engine is not None:
        found.append(operation.engine)
    if operation.reason not in (None, "client"):
        found.append(f"ended by {operation.reason}")
    return found + [f"{name} {_text(value)}" for name, value in operation.parameters.items() if value not in ({}, [])]


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return output.shown(value)
