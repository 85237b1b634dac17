"""``eoslog groups``: consumer groups, their members, offsets and lags (``kafka-consumer-groups.sh``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from eoslog.admin.group_admin import OffsetReset, describe_group
from eoslog.cli import completion
from eoslog.cli.options import TIME, Group, Invocation, confirm, parsed, pass_invocation, yes_option
from eoslog.cli.rendering import Columns, shown
from eoslog.errors import InvalidRequest
from eoslog.session.metrics import parse_duration
from eoslog.state.names import TopicPartition
from eoslog.wording import counted, none_named

_PARTITION = "TOPIC=topic_partition.topic PARTITION=topic_partition.partition"


_Topics = tuple[list[str | TopicPartition], ...]


def _topic_or_partitions(text: str) -> list[str | TopicPartition]:
    topic, colon, numbers = text.partition(":")
    return [TopicPartition(topic, int(number)) for number in numbers.split(",")] if colon else [topic]


_TOPICS = parsed(_topic_or_partitions, "a topic, or a topic with partitions, such as payments:0,2")
_DURATION = parsed(parse_duration)

groups = Group("groups", help="List and describe consumer groups, set and delete their offsets, remove members.")


@groups.command("list", examples=["", "--state Empty"])
@click.option("--state", metavar="STATE", multiple=True, help="Only groups in this state. May be repeated.")
@pass_invocation
def list_groups(invocation: Invocation, state: tuple[str, ...]) -> None:
    """List consumer groups and their states.

    The states are Empty, Reconciling (a member has partitions to give up) and Stable.
    """
    listed = invocation.store().admin.list_consumer_groups(states=state or None)
    invocation.print_rows(Columns("GROUP=group_id STATE"), listed, empty="no consumer groups")


class _PartOfGroup(NamedTuple):
    """A row of a description: a member or a partition of a group."""

    group_id: str
    part: Any


@groups.command("describe", examples=["billing", "billing --members", "--all-groups --state"])
@click.argument("group", required=False, shell_complete=completion.groups)
@click.option("--all-groups", is_flag=True, help="Describe all groups, from one snapshot.")
@click.option("--members", "view", flag_value="members", help="Show the members and their partitions.")
@click.option("--state", "view", flag_value="state", help="Show the state, the generation and the number of members.")
@click.option("--offsets", "view", flag_value="offsets", default=True, help="Show offsets and lags (the default).")
@pass_invocation
def describe_groups(invocation: Invocation, group: str | None, view: str, all_groups: bool) -> None:
    """Describe the consumer group GROUP, or all groups with --all-groups.

    A group of Kafka's clients has one member: its coordinator, which is the gateway at ADDRESS. The clients share the
    partitions among themselves.

    LAG is LOG-END-OFFSET less CURRENT-OFFSET, as in Kafka. A consumer under read_committed reads up to
    LAST-STABLE-OFFSET (with --wide). If that is less than LOG-END-OFFSET, a transaction is open there.
    """
    if (group is None) != all_groups:
        raise click.UsageError("Give GROUP, or --all-groups.")
    store = invocation.store()
    if group is not None:
        found = [store.admin.describe_consumer_group(group)]
    else:
        found = store.read(lambda state, slot: [describe_group(state, each) for each in sorted(state.groups)])
    # The user knows the name of a single group, so only a wide table repeats it.
    of_group = "GROUP=group_id" if group is None else "GROUP=group_id?"
    if view == "state":
        columns = Columns(of_group, "STATE GENERATION", ("MEMBERS", lambda each: len(each.members)))
        if group is not None:
            invocation.print_facts(columns.of(found[0]))
        else:
            invocation.print_rows(columns, found, empty="no consumer groups")
    elif view == "members":
        rows = [_PartOfGroup(each.group_id, member) for each in found for member in each.members]
        # Only static members have an instance id.
        has_static = any(each.part.group_instance_id is not None for each in rows)
        instance = f"CONSUMER-ID=part.member_id GROUP-INSTANCE-ID=part.group_instance_id{'' if has_static else '?'}"
        has_names = any(each.part.client_id for each in rows)
        # Only a gateway that coordinates clients of Kafka's protocol has an address.
        has_coordinators = any(each.part.address is not None for each in rows)
        columns = Columns(
            of_group,
            instance,
            ("HOST", lambda each: each.part.host or None),
            (f"CLIENT-ID{'' if has_names else '?'}", lambda each: each.part.client_id or None),
            f"ADDRESS=part.address{'' if has_coordinators else '?'}",
            "TOPICS=part.topics? ASSIGNMENT=part.partitions REVOKING=part.revoking?",
        )
        nothing = "no consumer group has members" if group is None else f"consumer group {group} has no members"
        invocation.print_rows(columns, rows, empty=nothing)
    else:
        rows = [_PartOfGroup(each.group_id, partition) for each in found for partition in each.partitions]
        of_partition = "TOPIC=part.topic_partition.topic PARTITION=part.topic_partition.partition"
        offsets = "CURRENT-OFFSET=part.committed_offset LAST-STABLE-OFFSET=part.last_stable_offset?"
        ends = "LOG-END-OFFSET=part.high_watermark LAG=part.lag CONSUMER-ID=part.member_id?"
        columns = Columns(of_group, of_partition, offsets, ends)
        nothing = "no consumer groups" if group is None else f"consumer group {group} has neither offsets nor members"
        invocation.print_rows(columns, rows, empty=nothing)


@groups.command(
    examples=[
        "billing payments --to-earliest",
        "billing payments:0,2 --shift-by -10 --execute",
        "billing --all-topics --by-duration PT1H --execute",
    ]
)
@click.argument("group", shell_complete=completion.groups)
@click.argument("topics", type=_TOPICS, metavar="[TOPIC[:0,2]]...", nargs=-1, shell_complete=completion.topics)
@click.option("--all-topics", is_flag=True, help="All topics for which the group has offsets.")
@click.option("--execute", is_flag=True, help="Set the offsets. Without this option they are only shown.")
@click.option("--to-earliest", is_flag=True, help="To the first offset.")
@click.option("--to-latest", is_flag=True, help="To the last stable offset.")
@click.option("--to-current", is_flag=True, help="To the current offset of the group.")
@click.option("--to-offset", type=int, metavar="OFFSET", help="To this offset, or the nearest one that exists.")
@click.option("--shift-by", type=int, metavar="N", help="Forward by N offsets, back if N is negative.")
@click.option("--to-datetime", type=TIME, metavar="TIME", help="To the first record since this time (ISO 8601, UTC).")
@click.option("--by-duration", type=_DURATION, metavar="DURATION", help="Back from now, such as PT1H30M or P7D.")
@pass_invocation
def reset_offsets(
    invocation: Invocation, /, group: str, topics: _Topics, all_topics: bool, execute: bool, **targets: Any
) -> None:
    """Set the offsets of the consumer group GROUP in topics, or in some partitions of a topic.

    Its consumers must have stopped.
    """
    if bool(topics) == all_topics:
        raise click.UsageError("Give topics, or --all-topics.")
    given = {name: target for name, target in targets.items() if target is not None and target is not False}
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in OffsetReset.__dataclass_fields__)
        raise click.UsageError(f"Give exactly one new position: {names}.")
    store = invocation.store()
    # Report a missing store before a missing group.
    store.describe()
    partitions = None if all_topics else [each for chosen in topics for each in chosen]
    changes = store.admin.reset_consumer_group_offsets(
        group, OffsetReset(**given), partitions=partitions, dry_run=not execute
    )
    if not execute:
        click.echo("Nothing is changed without --execute.", err=True)
    columns = Columns(("GROUP?", lambda each: group), _PARTITION, "CURRENT-OFFSET=offset NEW-OFFSET")
    invocation.print_rows(columns, changes, empty="no offsets to set")


@groups.command(examples=["billing payments", "billing payments:0,2 --yes"])
@click.argument("group", shell_complete=completion.groups)
@click.argument(
    "topics", type=_TOPICS, metavar="TOPIC[:0,2]...", nargs=-1, required=True, shell_complete=completion.topics
)
@yes_option
@pass_invocation
def delete_offsets(invocation: Invocation, group: str, topics: _Topics, yes: bool) -> None:
    """Delete the committed offsets of GROUP in topics. No consumer of the group may subscribe to them."""
    admin = invocation.store().admin
    partitions: list[TopicPartition] = []
    for each in (each for chosen in topics for each in chosen):
        if isinstance(each, str):
            partitions += [TopicPartition(each, number) for number in range(admin.describe_topic(each).partitions)]
        else:
            partitions.append(each)
    known = admin.list_consumer_group_offsets(group)
    count = len(known.keys() & set(partitions))
    if count:
        confirm(f"Delete the offsets of consumer group {shown(group)} in {counted(count, 'partition')}?", yes=yes)
    deleted = admin.delete_consumer_group_offsets(group, partitions)
    invocation.print_rows(Columns("TOPIC PARTITION"), deleted, empty=f"consumer group {group} has no such offsets")


@groups.command("delete", examples=["billing", "billing --yes"])
@click.argument("group", shell_complete=completion.groups)
@yes_option
@pass_invocation
def delete_group(invocation: Invocation, group: str, yes: bool) -> None:
    """Delete the consumer group GROUP and its offsets. Its consumers must have stopped."""
    admin = invocation.store().admin
    known = admin.list_consumer_group_offsets(group)
    confirm(f"Delete consumer group {shown(group)} with its offsets in {counted(len(known), 'partition')}?", yes=yes)
    admin.delete_consumer_group(group)
    invocation.print_result(f"deleted consumer group {group}", {"group": group, "deleted": True})


@groups.command(examples=["billing worker-7", "billing --all"])
@click.argument("group", shell_complete=completion.groups)
@click.argument("members", metavar="[MEMBER]...", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="All members.")
@yes_option
@pass_invocation
def remove_member(invocation: Invocation, group: str, members: tuple[str, ...], everyone: bool, yes: bool) -> None:
    """Remove members from the consumer group GROUP. A consumer that still runs joins again.

    If the member is the coordinator of Kafka's clients, all of them join again.

    MEMBER is the id of a member or the instance id of a static member, as `groups describe --members` shows them. The
    partitions of a static member that does not come back are free at once.
    """
    if bool(members) == everyone:
        raise click.UsageError("Give members, or --all.")
    admin = invocation.store().admin
    joined = admin.describe_consumer_group(group).members
    known = {each.member_id for each in joined} | {each.group_instance_id for each in joined}
    for name in members:
        if name not in known:
            raise InvalidRequest(none_named(f"member of consumer group {group}", name, filter(None, known)))
    count = len(members) if members else len(joined)
    if count:
        confirm(f"Remove {counted(count, 'member')} from consumer group {shown(group)}?", yes=yes)
    removed = admin.remove_members(group, members or None)
    invocation.print_rows(Columns(("CONSUMER-ID", str)), removed, empty=f"consumer group {group} has no members")
