"""Coordinators of groups: the one member of a group whose consumers are clients of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eoslog.errors import (
    EosLogError,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidEntry,
    NotCoordinator,
    UnknownMember,
    UnsupportedFormat,
)
from eoslog.format.checkpoint_codec import parts
from eoslog.session.store_machine import StoreMachine
from eoslog.state import features
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request
from eoslog.state.entries import FeaturesAdded
from eoslog.state.features import GROUP_COORDINATORS, READER_FEATURES
from eoslog.state.group_entries import GroupChanged, GroupMember, GroupOffsets, OffsetsCommitted
from eoslog.state.group_members import ChangeGroup, plan_group_change
from eoslog.state.groups import EMPTY_GROUP
from eoslog.state.invariants import broken_in_store
from eoslog.state.names import PartitionId
from eoslog.state.state_machine import encode_entry
from eoslog.state.store_state import Group
from eoslog.state.transaction_requests import AddToTransaction
from tests.unit.state.histories import (
    NOW_MS,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    History,
    coordinating,
    fold,
    joining,
    offsets_of,
    topic_created,
)


def change(history: History, joined: GroupMember | None = None, **changes: Any) -> Group:
    """Append a change of the group ``g`` as clients do; the group after it."""
    request = ChangeGroup("g", history.now_ms, joined=joined, **changes)
    history.append(request.apply)
    return history.state.groups.get("g", EMPTY_GROUP)


def coordinated() -> History:
    """A group at generation 2, whose coordinator is ``k1``."""
    history = History()
    change(history, coordinating("k1"))
    change(history, coordinating("k1"))
    return history


# The rules of joining

BEFORE: dict[str, Sequence[GroupMember]] = {
    "a new group": (),
    "a consumer": (joining("c1"),),
    "two consumers": (joining("c1"), joining("c2")),
    "a coordinator": (coordinating("k1"),),
}


class Step(NamedTuple):
    joined: GroupMember | None = None
    left: Sequence[str] = ()


STEPS = {
    "a consumer joins": Step(joining("c9")),
    "a consumer joins and evicts all": Step(joining("c9"), ("c1", "c2", "k1")),
    "a coordinator joins": Step(coordinating("k9")),
    "a coordinator joins and evicts all": Step(coordinating("k9"), ("c1", "c2", "k1")),
    "a coordinator joins and evicts one": Step(coordinating("k9"), ("c1",)),
    "the coordinator joins again": Step(coordinating("k1")),
    "the coordinator joins with other topics": Step(coordinating("k1", "u")),
    "the coordinator joins at another address": Step(coordinating("k1", address="[::1]:9")),
    "the coordinator joins as a consumer": Step(joining("k1")),
    "the consumer joins as a coordinator": Step(coordinating("c1")),
    "all leave": Step(left=("c1", "c2", "k1")),
}
REFUSED: dict[tuple[str, str], type[EosLogError]] = {
    ("a consumer", "a coordinator joins"): InconsistentGroupProtocol,
    ("a consumer", "the coordinator joins again"): InconsistentGroupProtocol,
    ("a consumer", "the coordinator joins with other topics"): InconsistentGroupProtocol,
    ("a consumer", "the coordinator joins at another address"): InconsistentGroupProtocol,
    ("a consumer", "the consumer joins as a coordinator"): InconsistentGroupProtocol,
    ("two consumers", "a coordinator joins"): InconsistentGroupProtocol,
    ("two consumers", "a coordinator joins and evicts one"): InconsistentGroupProtocol,
    ("two consumers", "the coordinator joins again"): InconsistentGroupProtocol,
    ("two consumers", "the coordinator joins with other topics"): InconsistentGroupProtocol,
    ("two consumers", "the coordinator joins at another address"): InconsistentGroupProtocol,
    ("two consumers", "the consumer joins as a coordinator"): InconsistentGroupProtocol,
    ("a coordinator", "a consumer joins"): InconsistentGroupProtocol,
    ("a coordinator", "a coordinator joins"): NotCoordinator,
    ("a coordinator", "a coordinator joins and evicts one"): NotCoordinator,
    ("a coordinator", "the coordinator joins as a consumer"): InconsistentGroupProtocol,
    ("a coordinator", "the consumer joins as a coordinator"): NotCoordinator,
}
"""The changes that are refused. All others are accepted."""


def entry_of(history: History, step: Step) -> GroupChanged:
    """The entry that a writer without the rules for coordinators would append."""
    group = history.state.groups.get("g", EMPTY_GROUP)
    members = (group.members.keys() - set(step.left)) | ({step.joined.member_id} if step.joined is not None else set())
    owners = sorted(name for name in members if group.members.get(name) is not None)
    given = {name: [partition_id.partition for partition_id in group.members[name].assigned] for name in owners}
    return GroupChanged.model_validate(
        {
            "group": "g",
            "generation": group.generation + 1,
            "joined": [] if step.joined is None else [step.joined],
            "left": [name for name in step.left if name in group.members],
            "assigned": [
                {"member_id": name, "topics": [{"topic_id": TOPIC_ID, "partitions": given.get(name, [])}]}
                for name in sorted(members)
            ],
            "time_ms": NOW_MS,
        }
    )


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", BEFORE)
def test_a_group_has_consumers_or_one_coordinator(before: str, step: str) -> None:
    history = History()
    for member in BEFORE[before]:
        change(history, member)
    group, (joined, left) = history.state.groups.get("g", EMPTY_GROUP), STEPS[step]
    request = ChangeGroup("g", NOW_MS, joined=joined, left=left)

    error = REFUSED.get((before, step))
    if error is not None:
        assert type(history.refused(request.apply)) is error
        assert type(history.refused(lambda draft: draft.append(entry_of(history, STEPS[step])))) is error
        assert history.is_invalid(entry_of(history, STEPS[step]))
        return
    evicted = history.append(request.apply)

    after = history.state.groups.get("g", EMPTY_GROUP)
    expected = group.members.keys() - set(left) | ({joined.member_id} if joined is not None else set())
    assert after.members.keys() == expected
    assert list(evicted) == sorted(group.members.keys() & set(left))
    assert after.generation == group.generation + (joined is not None or bool(group.members))
    for name, found in after.members.items():
        expected_of = joined if joined is not None and joined.member_id == name else group.members[name]
        assert (found.topics, found.address) == (expected_of.topics, expected_of.address)
        if found.address is not None:
            assert len(after.members) == 1
            assert (found.held, found.since) == ((), {})


def test_the_errors_say_what_to_do() -> None:
    history = coordinated()
    found = history.refused(ChangeGroup("g", NOW_MS, joined=joining("c1")).apply)
    assert "the gateway at k1.example:9092 coordinates. Use another group id, or stop these clients" in str(found)
    found = history.refused(ChangeGroup("g", NOW_MS, joined=coordinating("k2")).apply)
    assert "the gateway at k1.example:9092 coordinates group 'g', so the one at k2.example:9092 cannot" in str(found)
    history = History()
    change(history, joining("c1"))
    found = history.refused(ChangeGroup("g", NOW_MS, joined=coordinating("k1")).apply)
    assert "has 1 consumer of eoslog" in str(found)
    assert "Use another group id, or stop the other consumers" in str(found)


@pytest.mark.parametrize("name", ["h", "c1"])
def test_two_members_that_join_at_once_keep_the_rule(name: str) -> None:
    history = History()
    consumers = [joining("c1"), joining("c2")]

    for joined in ([coordinating("k1"), consumers[0]], [consumers[0], coordinating(name)]):
        with pytest.raises(InconsistentGroupProtocol):
            plan_group_change(history.state, "g", joined=joined, time_ms=0)
    with pytest.raises(NotCoordinator):
        plan_group_change(history.state, "g", joined=[coordinating("k1"), coordinating("k2")], time_ms=0)
    assert len(history.change_group(*consumers).members) == 2


def test_each_join_of_a_coordinator_is_a_generation_and_none_is_lost_by_a_takeover() -> None:
    history = coordinated()

    assert change(history, coordinating("k1"), only_if_member=True).generation == 3
    assert change(history, coordinating("k2"), left=["k1"]).generation == 4
    slot = history.slot
    assert change(history, coordinating("k1"), only_if_member=True).generation == 4
    assert history.slot == slot
    assert change(history, left=["k2"]).generation == 5
    assert change(history, joining("c1")).generation == 6


def test_of_two_gateways_that_take_over_the_second_is_refused() -> None:
    history = coordinated()
    change(history, coordinating("k2"), left=["k1"])

    late = ChangeGroup("g", NOW_MS, joined=coordinating("k3"), left=["k1"])

    assert isinstance(history.refused(late.apply), NotCoordinator)


@pytest.mark.parametrize("generation", [2, 4])
def test_an_entry_with_another_generation_than_the_next_is_refused(generation: int) -> None:
    history = coordinated()
    entry = entry_of(history, Step(coordinating("k1"))).model_copy(update={"generation": generation})

    assert isinstance(history.refused(lambda draft: draft.append(entry)), IllegalGeneration)


def test_an_entry_that_the_coordinator_does_not_join_does_not_raise_the_generation() -> None:
    history = coordinated()
    entry = entry_of(history, Step())

    assert isinstance(history.refused(lambda draft: draft.append(entry)), InvalidEntry)
    same = entry.model_copy(update={"generation": 2})
    assert isinstance(history.refused(lambda draft: draft.append(same)), InvalidEntry)
    assert history.change_group().generation == 2


# No partitions


def test_a_coordinator_gets_no_partitions_and_subscribes_to_topics() -> None:
    history = History()
    history.append(lambda draft: draft.append(topic_created("u", OTHER_TOPIC_ID)))

    group = change(history, coordinating("k1", "t", "u"))

    assert history.records[-1][-1]["assigned"] == [{"member_id": "k1", "topics": []}]
    assert group.subscribed == {"t": history.slot, "u": history.slot}
    slot = history.slot
    history.change_group()
    assert history.slot == slot


def test_an_entry_that_assigns_partitions_to_a_coordinator_is_invalid() -> None:
    history = History()
    value = entry_of(history, Step(coordinating("k1"))).model_dump()
    value["assigned"] = [{"member_id": "k1", "topics": [{"topic_id": TOPIC_ID, "partitions": [0, 1]}]}]
    entry = GroupChanged.model_validate(value)

    assert isinstance(history.refused(lambda draft: draft.append(entry)), InvalidEntry)


def test_partitions_are_shared_out_again_when_consumers_replace_a_coordinator() -> None:
    history = coordinated()

    group = change(history, joining("c1"), left=["k1"])

    assert group.members["c1"].assigned == (PartitionId(TOPIC_ID, 0), PartitionId(TOPIC_ID, 1))


# Offsets


def answers(history: History, committed: GroupOffsets) -> list[type[Exception] | None]:
    """What a plain commit, an addition and an end with these offsets are answered; None if they are accepted."""
    identity = history.init()
    plain = OffsetsCommitted(committed=committed, time_ms=NOW_MS)
    end = end_request("tx", identity, "commit", content=TransactionContent(offsets=(committed,)), time_ms=NOW_MS)
    addition = AddToTransaction(history.addition(identity, offsets=[committed]), None)
    found: list[type[Exception] | None] = []
    for propose in (lambda draft: draft.append(plain), EndTransaction(end).apply, addition.apply):
        draft = StoreMachine().new_draft(history.state, history.slot + 1)
        try:
            propose(draft)
        except EosLogError as error:
            found.append(type(error))
        else:
            found.append(None)
    return found


@pytest.mark.parametrize("partition", [0, 1])
def test_offsets_need_exactly_the_current_generation(partition: int) -> None:
    history = coordinated()

    for generation, error in ((-1, IllegalGeneration), (1, IllegalGeneration), (2, None), (3, IllegalGeneration)):
        committed = offsets_of("g", 5, generation, "k1", partition=partition)
        assert answers(history, committed) == [error] * 3
    change(history, coordinating("k1"))
    assert answers(history, offsets_of("g", 5, 2, "k1", partition=partition)) == [IllegalGeneration] * 3
    assert answers(history, offsets_of("g", 5, 3, "k1", partition=partition)) == [None] * 3


def test_offsets_of_a_coordinator_that_was_replaced_or_evicted_are_refused() -> None:
    history = coordinated()
    change(history, coordinating("k2"), left=["k1"])
    assert answers(history, offsets_of("g", 5, 3, "k1")) == [UnknownMember] * 3

    change(history, left=["k2"])
    assert answers(history, offsets_of("g", 5, 4, "k2")) == [UnknownMember] * 3


def test_only_the_coordinator_commits_plain_offsets() -> None:
    history = coordinated()

    assert answers(history, offsets_of("g", 5)) == [UnknownMember, None, None]
    assert answers(history, offsets_of("g", 5, 2, "c1")) == [UnknownMember] * 3


# Any history


class Gateways:
    """Gateways and consumers that want the same group, each with its knowledge from the last time that it looked."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.history = History()
        self.rebalances: list[tuple[str, int]] = []
        """Each rebalance of a gateway's clients: the gateway and the generation that it told them."""
        self.generations = [0]
        """The group's generation after each step."""

    @property
    def members(self) -> set[str]:
        return set(self.history.state.groups.get("g", EMPTY_GROUP).members)

    def step(self) -> None:
        name = self.data.draw(st.sampled_from(["k1", "k2", "k3", "c1", "c2"]))
        before = self.members
        evicted = self.data.draw(st.sets(st.sampled_from(["k1", "k2", "k3", "c1", "c2"])))
        may_join = self.data.draw(st.booleans())
        joined = coordinating(name) if name.startswith("k") else joining(name)
        is_joined = may_join or name in before
        request = ChangeGroup("g", NOW_MS, joined=joined, only_if_member=not may_join, left=evicted - {name})
        with_it = (before - evicted) | {name}
        if is_joined and len(with_it) > 1 and any(each.startswith("k") for each in with_it):
            refused = self.history.refused(request.apply)
            assert isinstance(refused, InconsistentGroupProtocol | NotCoordinator)
            return
        self.history.append(request.apply)
        assert self.members == (with_it if is_joined else before - (evicted - {name}))
        self.generations.append(self.history.state.groups.get("g", EMPTY_GROUP).generation)
        if is_joined and name.startswith("k"):
            self.rebalances.append((name, self.generations[-1]))

    def check(self) -> None:
        assert self.generations == sorted(self.generations)
        told = [generation for _, generation in self.rebalances]
        assert told == sorted(set(told))
        for name, generation in self.rebalances:
            is_newest = name in self.members and generation == self.generations[-1]
            accepted = answers(self.history, offsets_of("g", 5, generation, name)) == [None] * 3
            assert accepted == is_newest
        assert list(broken_in_store(self.history.state, self.history.slot)) == []
        assert self.history.follower == self.history.state


@given(st.data())
def test_only_clients_of_the_newest_rebalance_of_a_living_gateway_commit(data: st.DataObject) -> None:
    run = Gateways(data)
    for _ in range(data.draw(st.integers(1, 25))):
        run.step()
    run.check()


# The format


def test_the_feature_comes_just_before_the_first_coordinator() -> None:
    history = History()
    change(history, joining("c1"))
    history.refused(ChangeGroup("g", NOW_MS, joined=coordinating("k1")).apply)
    assert history.state.reader_features == ()

    change(history, coordinating("k1"), left=["c1"])
    change(history, coordinating("k1"))

    types = [[entry["type"] for entry in record] for record in history.records]
    assert types[-3:] == [["group"], ["features", "group"], ["group"]]
    assert list(history.state.reader_features) == [GROUP_COORDINATORS]


def test_a_version_without_the_feature_reads_no_store_with_coordinators(monkeypatch: pytest.MonkeyPatch) -> None:
    history = coordinated()
    encoded = {part.name: part.encode() for part in parts(history.state, history.slot)}
    monkeypatch.setattr(features, "READER_FEATURES", READER_FEATURES - {GROUP_COORDINATORS})

    with pytest.raises(UnsupportedFormat, match=GROUP_COORDINATORS):
        fold(History().state, 2, [encode_entry(FeaturesAdded(reader_features=(GROUP_COORDINATORS,)))])
    with pytest.raises(UnsupportedFormat, match=GROUP_COORDINATORS):
        StoreMachine().restore(encoded)


def test_a_consumer_has_no_address_in_the_log_and_a_coordinator_has_one() -> None:
    history = History()
    change(history, joining("c1"))
    assert history.records[-1][-1]["joined"] == [
        {"member_id": "c1", "topics": ["t"], "client_id": "client of c1", "host": "host-of-c1"}
    ]

    change(history, coordinating("k1"), left=["c1"])
    assert history.records[-1][-1]["joined"] == [
        {
            "member_id": "k1",
            "topics": ["t"],
            "client_id": "client of k1",
            "host": "host-of-k1",
            "address": "k1.example:9092",
        }
    ]


def test_a_checkpoint_keeps_the_address_and_may_lack_it() -> None:
    history = coordinated()
    encoded = {part.name: part.encode() for part in parts(history.state, history.slot)}
    assert StoreMachine().restore(encoded) == history.state

    history = History()
    change(history, joining("c1"))
    encoded = {part.name: part.encode() for part in parts(history.state, history.slot)}
    before = encoded | {"store": encoded["store"].replace(b', "address": null', b"")}
    assert before != encoded
    assert StoreMachine().restore(before) == history.state


@pytest.mark.parametrize(
    "address", ["", "host", ":1", "host:", "host:x", "host:123456", "a b:1", "::1:9", "[::1:9", "[]:9", "ä:1", "h:1\n"]
)
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ValidationError):
        GroupMember(member_id="k1", topics=(), address=address)


@pytest.mark.parametrize("address", ["localhost:9092", "10.0.0.1:1", "[fe80::1%eth0]:65535", "a-b.c_d:0"])
def test_hosts_have_names_or_numbers(address: str) -> None:
    assert GroupMember(member_id="k1", topics=(), address=address).address == address


def test_a_coordinator_has_no_instance_id() -> None:
    with pytest.raises(ValidationError, match="must not have a group instance id"):
        GroupMember(member_id="k1", topics=(), group_instance_id="i1", address="h:1")
