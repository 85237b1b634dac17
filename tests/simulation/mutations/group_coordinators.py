"""Mutations of groups of Kafka's clients, which have a gateway as their coordinator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eoslog.format import checkpoint_codec
from eoslog.state import expiry, group_members, groups
from eoslog.state.names import PartitionId
from eoslog.state.store_state import Group, Member
from tests.simulation.mutations.mutation import instead_of, method, mutation

COORDINATORS = "unit/state/test_group_coordinators.py::"


@mutation(unit_test=COORDINATORS + "test_a_group_has_consumers_or_one_coordinator")
def members_beside_a_coordinator() -> Iterator[None]:
    """A consumer joins a coordinator: it reads the partitions that the coordinator's clients read, too."""
    with method(group_members, "_check_protocol", lambda group_id, members, joined: None):
        yield


@mutation(unit_test=COORDINATORS + "test_each_join_of_a_coordinator_is_a_generation_and_none_is_lost_by_a_takeover")
def rebalance_without_a_generation() -> Iterator[None]:
    """A coordinator's rebalance does not raise the generation: clients commit for partitions that others read since."""
    original = group_members._changed

    def changed(group_id: str, group: Group, joined: Any, left: Any, revoked: Any) -> Any:
        found = original(group_id, group, joined, left, revoked)
        is_known = all(member.member_id in group.members for member in joined)
        return found._replace(is_new_generation=False) if is_known and not left else found

    with method(group_members, "_changed", changed):
        yield


@mutation(unit_test=COORDINATORS + "test_offsets_need_exactly_the_current_generation")
def older_generations_of_a_coordinator() -> Iterator[None]:
    """A coordinator commits in each generation that it had: a late commit moves the offset of the next reader back."""
    original = groups._check_partition

    def check(draft: Any, group: Group, member: Member, **options: Any) -> None:
        if member.address is None:
            original(draft, group, member, **options)

    with method(groups, "_check_partition", check):
        yield


@mutation(unit_test=COORDINATORS + "test_a_coordinator_gets_no_partitions_and_subscribes_to_topics")
def partitions_of_a_coordinator() -> Iterator[None]:
    """A coordinator gets partitions as a consumer does: its late commits for them are accepted after a rebalance."""
    original = group_members.partitions_to_read

    def partitions(state: Any, members: Mapping[str, Member]) -> dict[str, list[PartitionId]]:
        return original(state, {name: replace(member, address=None) for name, member in members.items()})

    with instead_of(original, partitions):
        yield


@mutation(
    unit_test="unit/state/test_group_expiry.py::"
    "test_no_offset_expires_while_a_coordinator_does_not_know_the_topics_of_its_clients"
)
def unknown_topics_are_none() -> Iterator[None]:
    """A coordinator does not know the topics of its clients, and their offsets expire: live clients begin anew."""

    def may_subscribe(group: Group, topic: str) -> bool:
        return any(topic in member.topics for member in group.members.values())

    with method(expiry, "may_subscribe", may_subscribe):
        yield


@mutation(unit_test=COORDINATORS + "test_the_feature_comes_just_before_the_first_coordinator")
def coordinator_without_its_feature() -> Iterator[None]:
    """A coordinator joins in a store without the feature: an older version lets consumers join its group."""
    with method(group_members, "need_feature", lambda draft, feature: None):
        yield


@mutation(unit_test=COORDINATORS + "test_a_checkpoint_keeps_the_address_and_may_lack_it")
def address_not_in_the_checkpoint() -> Iterator[None]:
    """A checkpoint leaves a coordinator's address out: the coordinator becomes a consumer that others may join."""
    original = checkpoint_codec._member_row

    def row(member: Member) -> dict[str, Any]:
        return original(replace(member, address=None))

    with method(checkpoint_codec, "_member_row", row):
        yield
