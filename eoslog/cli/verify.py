"""``eoslog verify``: whether everything that lies in a store is what its log says, and what of it may be put right."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import click

from eoslog.cli.context import Session, global_options, pass_session
from eoslog.cli.output import print_json, print_line, progress_bars, shown
from eoslog.errors import EosLogError
from eoslog.verification.finding import Finding
from eoslog.verification.kinds import Severity
from eoslog.verification.repair import Repair

_CLEAN, _FOUND, _COULD_NOT_LOOK = 0, 1, 2


@click.command()
@click.argument("place", required=False, metavar="[STORE]")
@click.option("--topic", metavar="TOPIC", help="Only the files of TOPIC; the log is always looked at whole.")
@click.option("--data", is_flag=True, help="Read every data file whole; else their presence and length count.")
@click.option("--repair", is_flag=True, help="Put right what can be without losing anything, after a question.")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@global_options
@pass_session
def verify(session: Session, place: str | None, topic: str | None, data: bool, repair: bool, yes: bool) -> None:
    """Look at all that lies in a store, and tell what is not as its log says. Others may be at work meanwhile.

    A repair writes checkpoints anew, puts back .txnindex and .snapshot files as they were, and removes what writers
    that died left aside a day ago. It touches no slot, row or data file; of the rest it is told what you may do. While
    the log or its state cannot be trusted it does nothing, and tells what to do first.

    Exit status: 0 nothing is wrong, or all of it was repaired; 1 something is; 2 it could not be looked at.

    \b
    Examples:
      eoslog verify my-store
      eoslog --store s3://bucket/prefix verify --data --json
      eoslog --store my-store verify --repair --yes
    """
    if place is not None:
        session.url = place
    try:
        store = session.store()
        with _told_once():
            with progress_bars() as progress:
                found = _look(store.admin.verify(topic, data=data, progress=progress), as_json=session.as_json)
            repairs: list[Repair] = []
            wanted = [each for each in found if each.repairable]
            in_doubt = any(each.log_in_doubt for each in found)
            if repair and wanted and (yes or in_doubt or _is_wanted(wanted)):
                for done in store.admin.repair(found):
                    repairs.append(done)
                    if not session.as_json:
                        print_line(f"{'repaired' if done.done else 'not repaired'}: {done.finding.place}: {done.what}")
    except EosLogError as error:
        click.secho(" ".join(str(error).split()), fg="red", err=True)
        raise click.exceptions.Exit(_COULD_NOT_LOOK) from None
    done_with = [each.finding for each in repairs if each.done]
    left = [each for each in found if each.severity is not Severity.INFO and each not in done_with]
    unread = [] if data else ["data files were not read (--data reads them)"]
    if session.as_json:
        print_json(
            {
                "data_files_read": data,
                "findings": [each.as_json() for each in found],
                "repairs": [
                    {"kind": each.finding.kind, "path": each.finding.path, "done": each.done, "what": each.what}
                    for each in repairs
                ],
            }
        )
    elif repairs:
        print_line(f"left: {_counted(left)}" if left else "; ".join(["all that was wrong is repaired", *unread]))
    elif not left:
        print_line("; ".join(["nothing is wrong", *([_counted(found)] if found else []), *unread]))
    elif repair:
        hint = "nothing was repaired" if wanted else "none of it can be repaired from here; see what to do about each"
        print_line(f"{_counted(found)}: {hint}")
    else:
        hint = ": eoslog verify --repair puts right what can be" if wanted and not in_doubt else ""
        print_line(f"{_counted(found)}{hint}")
    raise click.exceptions.Exit(_FOUND if left else _CLEAN)


def _look(findings: Iterable[Finding], *, as_json: bool) -> list[Finding]:
    """Take all findings, and print each as it comes."""
    found = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            colour = {Severity.ERROR: "red", Severity.WARNING: "yellow"}.get(finding.severity)
            head = f"{finding.severity.value}: {finding.kind}: {finding.place}: {finding.problem}"
            click.secho(shown(head), fg=colour)
            if finding.severity is not Severity.INFO:
                print_line(f"  what follows: {finding.follows}")
                print_line(f"  what to do: {finding.remedy}")
    return found


def _counted(findings: Sequence[Finding]) -> str:
    """As "2 errors, 1 warning"."""
    counts = Counter(each.severity for each in findings)
    names = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
    return ", ".join(
        f"{counts[each]} {name}{'s' * (counts[each] != 1)}" for each, name in names.items() if counts[each]
    )


@contextmanager
def _told_once() -> Iterator[None]:
    """What the log warns of while it is opened is found by the verification, with what to do about it."""
    logger = logging.getLogger("eoslog.log")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _is_wanted(wanted: list[Finding]) -> bool:
    for finding in wanted:
        click.echo(f"to be repaired: {finding.kind}: {finding.place}", err=True)
    try:
        return click.confirm("Repair these?", err=True)
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):
            # Nobody is there to answer.
            return False
        raise
