"""Consumer groups: their list, one of them, and the reset of its offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from eoslog.admin.group_admin import GroupDescription, OffsetChange, OffsetReset, describe_group, state_of
from eoslog.admin.transaction_descriptions import named_partition
from eoslog.errors import EosLogError, InvalidOption
from eoslog.state.names import TopicPartition
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import Group, StoreState
from eoslog.ui.console_store import ConsoleStore
from eoslog.ui.pages import Listing, Moved, Page, Query, with_zone
from eoslog.wording import quoted

_RESETS = {
    "to_earliest": "the first offset",
    "to_latest": "the last stable offset",
    "to_offset": "an offset",
    "shift_by": "a number of offsets from the committed one (negative: back)",
    "to_datetime": "the first record since a time (UTC)",
}


class GroupLine(NamedTuple):
    """A consumer group in the list."""

    group_id: str
    state: str
    members: int
    partitions: int
    """The number of partitions with a committed offset."""
    lag: int
    """The sum of the offsets from the committed one to the high watermark."""
    last_commit_ms: int | None


def _line(state: StoreState, group_id: str, group: Group) -> GroupLine:
    lags = [
        max(0, partition_of(state, partition).high_watermark - committed.offset)
        for partition, committed in group.offsets.items()
    ]
    last = max((each.commit_ms for each in group.offsets.values()), default=None)
    return GroupLine(
        group_id=group_id,
        state=state_of(group),
        members=len(group.members),
        partitions=len(group.offsets),
        lag=sum(lags),
        last_commit_ms=last,
    )


def groups(console: ConsoleStore, query: Query) -> Page:
    """Return the list of consumer groups."""
    text, order = query.text("q"), query.text("sort") or "name"

    def snapshot(state: StoreState, slot: int) -> Listing[GroupLine]:
        names = sorted(each for each in state.groups if text in each)
        if order == "lag":
            lines = [_line(state, each, state.groups[each]) for each in names]
            return Listing(sorted(lines, key=lambda each: -each.lag), query)
        return Listing(names, query).map(lambda each: _line(state, each, state.groups[each]))

    return Page("groups.html", "Groups", {"groups": console.store.read(snapshot), "text": text, "order": order})


class _Whole(NamedTuple):
    description: GroupDescription
    line: GroupLine
    commits_ms: Mapping[TopicPartition, int]
    """When each offset was committed (ms)."""


def group(
    console: ConsoleStore,
    query: Query,
    *,
    problem: str | None = None,
    changes: Sequence[OffsetChange] | None = None,
    form: Mapping[str, str] | None = None,
) -> Page:
    """Return the page of one group.

    Args:
        problem: the reason why a form was refused.
        changes: the dry run of a reset.
        form: the fields of that reset.
    """
    name = query.text("id")

    def snapshot(state: StoreState, slot: int) -> _Whole:
        description = describe_group(state, name)
        found = state.groups[name]
        commits_ms = {
            named_partition(state, partition): committed.commit_ms for partition, committed in found.offsets.items()
        }
        return _Whole(description, _line(state, name, found), commits_ms)

    whole = console.store.read(snapshot)
    topics = sorted({each.topic_partition.topic for each in whole.description.partitions})
    return Page(
        "group.html",
        f"Group {name}",
        {
            "name": name,
            "whole": whole,
            "partitions": Listing(whole.description.partitions, query),
            "members": Listing(whole.description.members, query, name="members"),
            "topics": topics,
            "resets": _RESETS,
            "problem": problem,
            "changes": changes,
            "digest": None if changes is None else digest_of(changes),
            "form": form or {},
        },
        400 if problem else 200,
        is_live=problem is None and changes is None,
    )


def reset(console: ConsoleStore, form: Mapping[str, str]) -> Page | Moved:
    """Show the changes of a reset of a group's offsets. Make them after the user has confirmed them."""
    name = form.get("id", "")
    query = Query("/groups/one", {"id": name})
    confirmed = form.get("confirmed", "")
    try:
        wanted = OffsetReset(**_reset_of(form))
        topic = form.get("topic", "")
        changes = console.store.admin.reset_consumer_group_offsets(
            name, wanted, partitions=[topic] if topic else None, dry_run=True
        )
        if not confirmed:
            return group(console, query, changes=changes, form=form)
        if confirmed != digest_of(changes):
            # Between the dry run and this form, rows were written or offsets were committed.
            return group(
                console, query, changes=changes, form=form, problem="The offsets have moved. Look at the changes again."
            )
        console.store.admin.alter_consumer_group_offsets(
            name, {each.topic_partition: each.new_offset for each in changes}
        )
    except EosLogError as error:
        return group(console, query, problem=str(error), form=form)
    return Moved(query.link())


def digest_of(changes: Sequence[OffsetChange]) -> str:
    """Return a digest of the changes. The form that confirms a dry run repeats it."""
    return sha256(repr([tuple(each) for each in changes]).encode()).hexdigest()


def _reset_of(form: Mapping[str, str]) -> dict[str, Any]:
    way, value = form.get("way", ""), form.get("value", "").strip()
    if way not in _RESETS:
        raise InvalidOption(f"{quoted(way)} is no way to reset offsets. Choose one of the form's")
    if way in ("to_earliest", "to_latest"):
        return {way: True}
    try:
        return {way: datetime.fromisoformat(with_zone(value)) if way == "to_datetime" else int(value)}
    except ValueError:
        expected = "a time such as 2026-01-31T12:00" if way == "to_datetime" else "a whole number"
        raise InvalidOption(f"the value is {quoted(value)}; {_RESETS[way]} needs {expected}") from None
