"""``eoslog groups``: consumer groups, their members, offsets and lags (``kafka-consumer-groups.sh``)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from eoslog.cli.context import Session, global_options, pass_session
from eoslog.client.durations import parse_duration
from eoslog.client.group_descriptions import GroupDescription
from eoslog.client.offset_resets import OffsetReset
from eoslog.rules.names import TopicPartition

_WAYS = "--to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime or --by-duration"


class _Duration(click.ParamType[timedelta]):
    name = "duration"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> timedelta:
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), parameter, context)


class _Moment(click.ParamType[datetime]):
    name = "time"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> datetime:
        try:
            return datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a time as 2026-11-21T08:30:00 (UTC) or 2026-11-21T08:30:00+01:00")


class _Topics(click.ParamType[Any]):
    """A topic's name, or with partitions as in Kafka: ``payments:0,2``."""

    name = "topic"

    def convert(
        self, value: object, parameter: click.Parameter | None, context: click.Context | None
    ) -> str | list[TopicPartition]:
        topic, colon, numbers = str(value).partition(":")
        if not colon:
            return topic
        try:
            return [TopicPartition(topic, int(number)) for number in numbers.split(",")]
        except ValueError:
            self.fail(f"{value!r} is neither a topic nor a topic with partitions, as payments:0,2")


@click.group()
def groups() -> None:
    """List and describe consumer groups, set and delete their offsets."""


@groups.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only those in this state, as Empty or Stable.")
@global_options
@pass_session
def list_groups(session: Session, states: tuple[str, ...]) -> None:
    """List consumer groups and their states: Empty, Reconciling (a member has partitions to give up), Stable.

    \b
    Examples:
      eoslog --store my-store groups list
      eoslog --store my-store groups list --state Empty
    """
    listed = session.store().admin.list_consumer_groups(states=states or None)
    session.print_rows(("GROUP", "STATE"), listed, empty="no consumer groups")


@groups.command("describe")
@click.argument("group")
@click.option("--members", "view", flag_value="members", help="Show the members and what they read.")
@click.option("--state", "view", flag_value="state", help="Show the state, the generation and the number of members.")
@click.option(
    "--offsets", "view", flag_value="offsets", default=True, help="Show offsets and lags (this is the default)."
)
@global_options
@pass_session
def describe(session: Session, group: str, view: str) -> None:
    """Describe the consumer group GROUP.

    LAG is LOG-END-OFFSET less CURRENT-OFFSET, as Kafka counts it. A consumer under read_committed comes as far as
    LAST-STABLE-OFFSET; a transaction is open there if that is less than LOG-END-OFFSET.

    \b
    Examples:
      eoslog --store my-store groups describe billing
      eoslog --store my-store groups describe billing --members
    """
    found = session.store().admin.describe_consumer_group(group)
    if view == "state":
        session.print_facts(
            {"GROUP": group, "STATE": found.state, "GENERATION": found.generation, "MEMBERS": len(found.members)}
        )
    elif view == "members":
        _print_members(session, found)
    else:
        _print_offsets(session, found)


def _print_members(session: Session, found: GroupDescription) -> None:
    session.print_rows(
        ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "TOPICS", "ASSIGNMENT", "REVOKING"),
        [
            (
                found.group_id,
                member.member_id,
                member.group_instance_id,
                list(member.topics),
                [f"{place.topic}-{place.partition}" for place in member.partitions],
                [f"{place.topic}-{place.partition}" for place in member.revoking],
            )
            for member in found.members
        ],
        empty=f"consumer group {found.group_id} has no members",
    )


def _print_offsets(session: Session, found: GroupDescription) -> None:
    columns = ("CURRENT-OFFSET", "LAST-STABLE-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
    session.print_rows(
        ("GROUP", "TOPIC", "PARTITION", *columns),
        [
            (
                found.group_id,
                *each.topic_partition,
                each.committed_offset,
                each.last_stable_offset,
                each.high_watermark,
                each.lag,
                each.member_id,
            )
            for each in found.partitions
        ],
        empty=f"consumer group {found.group_id} has neither offsets nor members",
    )


@groups.command("reset-offsets")
@click.argument("group")
@click.argument("topics", nargs=-1, type=_Topics(), metavar="[TOPIC[:0,2]]...")
@click.option("--all-topics", is_flag=True, help="Of all topics of which the group has offsets.")
@click.option("--to-earliest", is_flag=True, help="To the first offset.")
@click.option("--to-latest", is_flag=True, help="To the last stable offset.")
@click.option("--to-current", is_flag=True, help="To where the group stands.")
@click.option("--to-offset", type=int, metavar="OFFSET", help="To this offset, or the nearest there is.")
@click.option("--shift-by", type=int, metavar="N", help="By so many offsets, back if negative.")
@click.option("--to-datetime", type=_Moment(), metavar="TIME", help="To the first record from then on (ISO 8601, UTC).")
@click.option("--by-duration", type=_Duration(), metavar="DURATION", help="As far back from now, as PT1H30M or P7D.")
@click.option("--execute", is_flag=True, help="Do it. Without this option it is only shown.")
@global_options
@pass_session
def reset_offsets(
    session: Session,
    group: str,
    topics: tuple[str | list[TopicPartition], ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: datetime | None,
    by_duration: timedelta | None,
    execute: bool,
) -> None:
    """Set the offsets of the consumer group GROUP to another place, in TOPIC or in some of its partitions.

    Its consumers must have stopped.

    \b
    Examples:
      eoslog --store my-store groups reset-offsets billing payments --to-earliest
      eoslog --store my-store groups reset-offsets billing payments:0,2 --shift-by -10 --execute
      eoslog --store my-store groups reset-offsets billing --all-topics --by-duration PT1H --execute
    """
    if bool(topics) == all_topics:
        raise click.UsageError("give topics, or --all-topics")
    ways = [
        to_earliest,
        to_latest,
        to_current,
        *(way is not None for way in (to_offset, shift_by, to_datetime, by_duration)),
    ]
    if sum(ways) != 1:
        raise click.UsageError(f"say in one way where to: {_WAYS}")
    store = session.store()
    store.describe()
    reset = OffsetReset(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
    )
    changes = store.admin.reset_consumer_group_offsets(
        group,
        reset,
        partitions=None if all_topics else _chosen(topics),
        dry_run=not execute,
    )
    if not execute:
        click.echo("nothing is changed without --execute", err=True)
    session.print_rows(
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"),
        [(group, *each.topic_partition, each.offset, each.new_offset) for each in changes],
        empty="no offsets to set",
    )


def _chosen(topics: tuple[str | list[TopicPartition], ...]) -> list[str | TopicPartition]:
    chosen: list[str | TopicPartition] = []
    for each in topics:
        chosen += [each] if isinstance(each, str) else each
    return chosen


@groups.command("delete-offsets")
@click.argument("group")
@click.argument("topics", nargs=-1, required=True, type=_Topics(), metavar="TOPIC[:0,2]...")
@global_options
@pass_session
def delete_offsets(session: Session, group: str, topics: tuple[str | list[TopicPartition], ...]) -> None:
    """Forget the offsets that GROUP has committed of a topic. No consumer of the group may subscribe to it.

    \b
    Example:
      eoslog --store my-store groups delete-offsets billing payments
    """
    admin = session.store().admin
    places: list[TopicPartition] = []
    for each in _chosen(topics):
        if isinstance(each, str):
            places += [TopicPartition(each, number) for number in range(admin.describe_topic(each).partitions)]
        else:
            places.append(each)
    deleted = admin.delete_consumer_group_offsets(group, places)
    session.print_rows(("TOPIC", "PARTITION"), deleted, empty=f"consumer group {group} has no such offsets")


@groups.command("delete")
@click.argument("group")
@global_options
@pass_session
def delete(session: Session, group: str) -> None:
    """Forget the consumer group GROUP and its offsets. Its consumers must have stopped.

    \b
    Example:
      eoslog --store my-store groups delete billing
    """
    session.store().admin.delete_consumer_group(group)
    session.print_result(f"deleted consumer group {group}", {"group": group, "deleted": True})
