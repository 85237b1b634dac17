"""``eoslog coordinator``: the daemon that looks after a store, and one run of all that it does."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

import click

from eoslog.cli.context import Session, global_options, pass_session
from eoslog.cli.dump_lines import Line
from eoslog.client.coordinator import Coordinator
from eoslog.client.coordinator_steps import STEPS, StepReport, chosen_steps

_MS_A_SECOND = 1_000
_STEP = click.Choice([step.name for step in STEPS])


class _Interval(click.ParamType):  # type: ignore[type-arg]
    name = "interval"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        step, _, text = str(value).partition("=")
        try:
            seconds = float(text)
        except ValueError:
            self.fail(f"{value!r} is not STEP=SECONDS", parameter, context)
        if not 0.001 <= seconds <= 1e9:
            self.fail(f"{value!r}: an interval is 0.001 to 1000000000 seconds", parameter, context)
        return _STEP.convert(step, parameter, context), int(seconds * _MS_A_SECOND)


@click.command()
@click.option("--once", is_flag=True, help="Take every step once, tell of each, and end; status 1 if one failed.")
@click.option("--step", "only", multiple=True, type=_STEP, metavar="STEP", help="Only this step; may be repeated.")
@click.option("--without", multiple=True, type=_STEP, metavar="STEP", help="Not this step; may be repeated.")
@click.option(
    "--interval",
    "intervals",
    multiple=True,
    type=_Interval(),
    metavar="STEP=SECONDS",
    help="How often a step is taken.",
)
@click.option("--verbose", is_flag=True, help="Tell also of steps that found nothing to do.")
@global_options
@pass_session
def coordinator(
    session: Session,
    once: bool,
    only: tuple[str, ...],
    without: tuple[str, ...],
    intervals: tuple[tuple[str, int], ...],
    verbose: bool,
) -> None:
    """Look after the store: end timed-out transactions, expire ids, seal, write checkpoints, vacuum.

    It runs until SIGTERM (or Ctrl-C) and tells a line for each step that did something, with --json a JSON object a
    line. Any number may run at once. Every append also aborts transactions past their timeouts, so readers that may
    not write depend on the coordinator only while no process appends.

    The steps: STEPS. Their intervals are in the settings, section coordinator.

    \b
    Examples:
      eoslog --store my-store coordinator
      eoslog --store my-store coordinator --once
      eoslog --store my-store coordinator --interval vacuum=3600 --without delete-old-slots --json
    """
    settings = session.settings
    chosen = [step.name for step in STEPS if (not only or step.name in only) and step.name not in without]
    if not chosen:
        raise click.UsageError("no step is left to take")
    if once and intervals:
        raise click.UsageError("--once takes every step once: leave --interval out")
    set_intervals = {step.name: getattr(settings.coordinator, step.setting) for step in chosen_steps(None)}
    store = session.store()
    work = Coordinator(
        store,
        transactional_id_expiration_ms=settings.coordinator.transactional_id_expiration_ms,
        producer_id_expiration_ms=settings.coordinator.producer_id_expiration_ms,
        offsets_retention_ms=settings.groups.offsets_retention_ms,
        staged_max_age_ms=settings.vacuum.staged_max_age_ms,
        reader_grace_ms=settings.vacuum.reader_grace_ms,
        intervals_ms=set_intervals | dict(intervals),
    )

    def report(found: StepReport) -> None:
        _print(found, as_json=session.as_json, always=verbose or once)

    if once:
        if any(found.error is not None for found in work.run_once(steps=chosen, report=report)):
            raise click.exceptions.Exit(1)
        return
    store.describe()
    click.echo(f"looking after {store.url}: {len(chosen)} steps; SIGTERM or Ctrl-C ends it", err=True)
    work.run(steps=chosen, report=report, stop=_Terminated())


coordinator.help = (coordinator.help or "").replace("STEPS", ", ".join(step.name for step in STEPS))


class _Terminated:
    """Whether SIGTERM has come. The first one lets a step end, a second one ends the process."""

    def __init__(self) -> None:
        self._came = False
        signal.signal(signal.SIGTERM, self._come)

    def __call__(self) -> bool:
        return self._came

    def _come(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _print(found: StepReport, *, as_json: bool, always: bool) -> None:
    if not found.did and found.error is None and not always:
        return
    error = " ".join(str(found.error).split()) if found.error is not None else None
    facts = {
        "time_ms": found.time_ms,
        "step": found.step,
        **found.did,
        "duration_ms": found.duration_ms,
        "requests": dict(found.requests),
    }
    line = Line(facts, facts | {"error": error})
    if as_json:
        click.echo(line.json())
    elif error is None:
        click.echo(line.text())
    else:
        click.secho(f"{line.text()} error: {error}", fg="red", err=True)
    sys.stdout.flush()
