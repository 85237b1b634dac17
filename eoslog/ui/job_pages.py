"""Jobs: Spark's queries and batch writes, with their micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from eoslog.errors import TransactionalIdNotFound
from eoslog.read.history import Operation
from eoslog.state.store_state import ApplicationVersionKey, LastVersion, StoreState, Transaction
from eoslog.ui.console_store import RECENT_SLOTS, ConsoleStore
from eoslog.ui.pages import Listing, Page, Query
from eoslog.wording import quoted

_COMMITS = 50


class RecentWork(NamedTuple):
    """The recent work of a job."""

    name: str | None
    """The name or the id of its query."""
    engine: str | None
    commits: int
    rows: int
    median_ms: int | None
    longest_ms: int | None


def recent_work(operations: Sequence[Operation]) -> RecentWork:
    """Return the sum of a job's operations, which are given newest first."""
    commits = [each for each in operations if each.outcome == "commit"]
    durations = [each.duration_ms for each in commits if each.duration_ms is not None]
    newest = commits[0] if commits else None
    return RecentWork(
        name=None if newest is None else newest.query_name or newest.query_id,
        engine=None if newest is None else newest.engine,
        commits=len(commits),
        rows=sum(each.rows or 0 for each in commits),
        median_ms=int(median(durations)) if durations else None,
        longest_ms=max(durations, default=None),
    )


def jobs(console: ConsoleStore, query: Query) -> Page:
    """Return the list of jobs, the last used first."""
    text = query.text("q")

    def snapshot(state: StoreState, slot: int) -> Listing[Transaction]:
        found = [each for each in state.transactions.values() if each.kind == "job" and text in each.transactional_id]
        return Listing(sorted(found, key=lambda each: -each.last_update_ms), query)

    recent = console.recent()
    listing = console.store.read(snapshot)
    shown = {each.transactional_id for each in listing.rows}
    by_job: dict[str, list[Operation]] = {name: [] for name in shown}
    for operation in recent.operations:
        if operation.transactional_id in shown:
            by_job[operation.transactional_id].append(operation)
    work = {name: recent_work(operations) for name, operations in by_job.items()}
    values = {
        "jobs": listing,
        "work": work,
        "text": text,
        "oldest_slot": recent.oldest_slot,
        "is_whole": recent.is_whole,
    }
    return Page("jobs.html", "Jobs", values)


class _Whole(NamedTuple):
    job: Transaction | None
    """None if the transactional id has expired. Its versions stay."""
    versions: Sequence[tuple[ApplicationVersionKey, LastVersion]]


def job(console: ConsoleStore, query: Query) -> Page:
    """Return the page of one job: the versions by which replays are recognized, and its commits."""
    name = query.text("id")

    def snapshot(state: StoreState, slot: int) -> _Whole:
        found = state.transactions.get(name)
        versions = [(key, last) for key, last in state.application_versions.items() if key.transactional_id == name]
        if found is None and not versions:
            raise TransactionalIdNotFound(f"no job is named {quoted(name)}, or it has expired. See the list of jobs")
        return _Whole(found, versions)

    whole = console.store.read(snapshot)
    until = query.number("until")
    if until is None:
        recent = console.recent()
        operations = [each for each in recent.operations if each.transactional_id == name]
        oldest, is_whole = recent.oldest_slot, recent.is_whole
    else:
        history = console.store.history(
            transactional_id=name, include_aborts=True, until_slot=until, after_slot=max(-1, until - RECENT_SLOTS)
        )
        operations = list(history)
        oldest = 0 if history.oldest_slot is None else history.oldest_slot
        is_whole = oldest == 0 or history.is_cut
    return Page(
        "job.html",
        f"Job {name}",
        {
            "name": name,
            "whole": whole,
            "operations": Listing(operations, query, size=_COMMITS),
            "longest": max((each.duration_ms or 0 for each in operations), default=0),
            "work": recent_work(operations),
            "oldest_slot": oldest,
            "older": None if is_whole else query.link(until=oldest - 1, page=None),
        },
        is_live=until is None,
    )
