"""``eoslog dump-log``: what is stored, as it stands there (``kafka-dump-log.sh``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

import eoslog
from eoslog.cli import dump_store
from eoslog.cli.context import Session, global_options, pass_session
from eoslog.cli.dump_files import file_lines
from eoslog.cli.dump_store import Bounds, Section
from eoslog.cli.output import print_line
from eoslog.errors import EosLogError

_RANGE = re.compile(r"(\d*)\.\.(\d*)|(\d+)")


class _Range(click.ParamType):  # type: ignore[type-arg]
    name = "range"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Bounds:
        if isinstance(value, Bounds):
            return value
        found = _RANGE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is not FIRST..LAST, FIRST.., ..LAST or one number", parameter, context)
        first, last, one = found.groups()
        bounds = Bounds(int(one), int(one)) if one else Bounds(_number(first), _number(last))
        if bounds.first is not None and bounds.last is not None and bounds.last < bounds.first:
            self.fail(f"{value!r} ends before it begins", parameter, context)
        return bounds


def _number(text: str | None) -> int | None:
    return int(text) if text else None


@click.command("dump-log")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option("--slots", type=_Range(), metavar="RANGE", help="These slots of the store's log, as 10..20, 10.. or 10.")
@click.option("--checkpoints", is_flag=True, help="The two checkpoints that the log names, with all that they hold.")
@click.option("--topic", metavar="TOPIC", help="The batches and index files of --partition of TOPIC.")
@click.option("--partition", type=click.IntRange(min=0), help="The partition of --topic.")
@click.option("--offsets", type=_Range(), metavar="RANGE", help="Only batches with these offsets, as 100..200.")
@click.option("--footers", is_flag=True, help="The footers of the data files too.")
@global_options
@pass_session
def dump_log(
    session: Session,
    files: tuple[Path, ...],
    slots: Bounds | None,
    checkpoints: bool,
    topic: str | None,
    partition: int | None,
    offsets: Bounds | None,
    footers: bool,
) -> None:
    """Print what is stored: slots, checkpoints, or a partition's batches and index files; by default all slots.

    FILEs lie on this host, and are known by their names: slots and checkpoints (.json), .index.parquet, .txnindex,
    .snapshot and data files. Index files of Kafka's are printed as well, as Kafka's tool prints them.

    What is damaged is told on standard error, the rest is printed, and the exit status is 1.

    \b
    Examples:
      eoslog --store my-store dump-log
      eoslog --store my-store dump-log --slots 10..20
      eoslog --store my-store dump-log --checkpoints --json
      eoslog --store my-store dump-log --topic payments --partition 0 --offsets 100..200 --footers
      eoslog dump-log 00000000000000000000.txnindex 00000000000000000000.snapshot
    """
    if sum((bool(files), slots is not None, checkpoints, topic is not None)) > 1:
        raise click.UsageError("choose one: FILEs, --slots, --checkpoints, or --topic with --partition")
    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition go together")
    if topic is None and (offsets is not None or footers):
        raise click.UsageError("--offsets and --footers need --topic and --partition")
    sections: Iterator[Section]
    if files:
        sections = (Section(str(path), file_lines(path)) for path in files)
    elif checkpoints:
        sections = dump_store.checkpoints(session.store())
    elif topic is not None and partition is not None:
        place = eoslog.TopicPartition(topic, partition)
        sections = dump_store.partition_files(session.store(), place, offsets or Bounds(), footers=footers)
    else:
        sections = dump_store.slots(session.store(), slots or Bounds())
    with_names = bool(files) or checkpoints or topic is not None
    damaged, section = False, None
    for section in sections:
        damaged |= not _print(section, with_names=with_names, as_json=session.as_json)
    if checkpoints and section is None:
        click.echo("the log names no checkpoint yet; `eoslog checkpoint` writes one", err=True)
    if damaged:
        raise click.exceptions.Exit(1)


def _print(section: Section, *, with_names: bool, as_json: bool) -> bool:
    """Print a section line by line. False if it is damaged."""
    if with_names and not as_json:
        print_line(f"Dumping {section.name}")
    try:
        for line in section.lines:
            click.echo(line.json(**{"file": section.name} if with_names else {}) if as_json else line.text())
    except (EosLogError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = reason if isinstance(error, EosLogError) else f"{section.name}: {reason}"
        click.secho(" ".join(text.split()), fg="red", err=True)
        return False
    return True
