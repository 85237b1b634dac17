"""``eoslog groups`` as a user of ``kafka-consumer-groups.sh`` expects it."""

from __future__ import annotations

import socket

import pytest

import eoslog
from eoslog.state.names import TopicPartition
from tests.unit.cli.command import Command
from tests.unit.support.groups import coordinate

T0 = TopicPartition("t", 0)


@pytest.fixture
def group(store: eoslog.Store) -> str:
    """A group without members, at offset 2 of 3."""
    with store.producer() as producer:
        for value in (b"1", b"2", b"3"):
            producer.send("t", value)
    store.consumer("g").commit({T0: 2})
    return "g"


def test_groups_are_listed(command: Command, store: eoslog.Store, group: str) -> None:
    assert command.json("groups", "list") == [{"group": "g", "state": "Empty"}]
    assert command.json("groups", "list", "--state", "Stable") == []
    assert "Reconciling" in command.run("groups", "list", "--state", "Dead").stderr


def test_a_group_is_described_as_kafkas_tool_does(command: Command, store: eoslog.Store, group: str) -> None:
    head, row = command.ok("groups", "describe", group, "--wide").splitlines()

    assert head.split() == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LAST-STABLE-OFFSET", "LOG-END-OFFSET", "LAG"),
        "CONSUMER-ID",
    ]
    assert row.split() == ["g", "t", "0", "2", "3", "3", "1", "-"]
    assert command.json("groups", "describe", group, "--state") == {
        "group": "g",
        "state": "Empty",
        "generation": 0,
        "members": 0,
    }
    assert command.json("groups", "describe", group, "--members") == []


def test_members_are_described_with_their_hosts_and_what_they_read(command: Command, store: eoslog.Store) -> None:
    with store.consumer("g", group_instance_id="i", config={"client.id": "billing-7"}) as consumer:
        consumer.subscribe("t")
        consumer.poll(0)
        member_id = consumer.group_metadata().member_id

        assert command.json("groups", "describe", "g", "--members") == [
            {
                "group": "g",
                "consumer_id": member_id,
                "group_instance_id": "i",
                "host": socket.gethostname(),
                "client_id": "billing-7",
                "address": None,
                "topics": ["t"],
                "assignment": ["t-0"],
                "revoking": [],
            }
        ]
        assert command.ok("groups", "describe", "g", "--members").split()[:4] == [
            *("CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID"),
        ]


def test_the_coordinator_of_kafkas_clients_is_described_and_removed_as_a_member(
    command: Command, store: eoslog.Store
) -> None:
    coordinate(store)

    (told,) = command.json("groups", "describe", "g", "--members")
    head, row = command.ok("groups", "describe", "g", "--members").splitlines()
    state = command.json("groups", "describe", "g", "--state")
    removed = command.json("groups", "remove-member", "g", "k1", "--yes")

    assert told == {
        "group": "g",
        "consumer_id": "k1",
        "group_instance_id": None,
        "host": "far",
        "client_id": "eoslog gateway",
        "address": "k1.example:9092",
        "topics": ["t"],
        "assignment": [],
        "revoking": [],
    }
    assert head.split() == ["CONSUMER-ID", "HOST", "CLIENT-ID", "ADDRESS", "ASSIGNMENT"]
    assert row.split() == ["k1", "far", "eoslog", "gateway", "k1.example:9092", "-"]
    assert (state["state"], state["generation"], state["members"]) == ("Stable", 1, 1)
    assert removed == [{"consumer_id": "k1"}]
    assert command.json("groups", "describe", "g", "--state")["state"] == "Empty"


def test_a_group_whose_members_have_no_names_has_no_columns_of_names(command: Command, store: eoslog.Store) -> None:
    with store.consumer("g") as consumer:
        consumer.subscribe("t")
        consumer.poll(0)

        assert command.ok("groups", "describe", "g", "--members").split()[:3] == ["CONSUMER-ID", "HOST", "ASSIGNMENT"]


def test_all_groups_are_described_in_one_table(command: Command, store: eoslog.Store, group: str) -> None:
    with store.consumer("a", group_instance_id="i") as consumer:
        consumer.subscribe("t")
        consumer.poll(0)

        offsets = command.json("groups", "describe", "--all-groups")
        members = command.json("groups", "describe", "--all-groups", "--members")
        states = command.json("groups", "describe", "--all-groups", "--state")

    assert [(each["group"], each["current_offset"], each["lag"]) for each in offsets] == [
        ("a", None, None),
        ("g", 2, 1),
    ]
    assert [(each["group"], each["group_instance_id"]) for each in members] == [("a", "i")]
    assert [(each["group"], each["state"], each["members"]) for each in states] == [
        ("a", "Stable", 1),
        ("g", "Empty", 0),
    ]
    assert len(command.ok("groups", "describe", "--all-groups").splitlines()) == 3


@pytest.mark.parametrize("view", ["--offsets", "--members", "--state"])
def test_a_store_without_groups_has_none_to_describe(command: Command, store: eoslog.Store, view: str) -> None:
    assert command.json("groups", "describe", "--all-groups", view) == []
    assert "no consumer group" in command.ok("groups", "describe", "--all-groups", view)


def test_a_reset_is_shown_and_done_only_with_execute(command: Command, store: eoslog.Store, group: str) -> None:
    arguments = ("groups", "reset-offsets", group, "t:0", "--to-earliest")
    change = {"group": "g", "topic": "t", "partition": 0, "current_offset": 2, "new_offset": 0}

    assert command.json(*arguments) == [change]
    assert "--execute" in command.run(*arguments).stderr
    assert store.admin.list_consumer_group_offsets("g")[T0].offset == 2
    assert command.json(*arguments, "--execute") == [change]
    assert store.admin.list_consumer_group_offsets("g")[T0].offset == 0


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (("--to-latest",), 3),
        (("--to-offset", "1"), 1),
        (("--shift-by", "-1"), 1),
        (("--to-datetime", "2001-01-01T00:00:00+01:00"), 0),
        (("--by-duration", "PT1H"), 0),
        (("--to-current",), 2),
    ],
)
def test_offsets_are_reset_in_each_of_kafkas_ways(
    command: Command, store: eoslog.Store, group: str, way: tuple[str, ...], expected: int
) -> None:
    (change,) = command.json("groups", "reset-offsets", group, "--all-topics", *way, "--execute")

    assert change["new_offset"] == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ("--to-earliest",),
        ("t", "--all-topics", "--to-earliest"),
        ("t:x", "--to-earliest"),
        ("t", "--by-duration", "1 hour"),
        ("t", "--to-datetime", "yesterday"),
    ],
)
def test_a_reset_that_is_not_clear_is_wrong_usage(command: Command, store: eoslog.Store, arguments: list[str]) -> None:
    assert command.run("groups", "reset-offsets", "g", *arguments).exit_code == 2


def test_offsets_and_groups_are_deleted(command: Command, store: eoslog.Store, group: str) -> None:
    assert command.json("groups", "delete-offsets", group, "t", "--yes") == [{"topic": "t", "partition": 0}]
    assert command.ok("groups", "delete-offsets", group, "t:0") == "consumer group g has no such offsets\n"
    assert command.ok("groups", "delete", group, "--yes") == "deleted consumer group g\n"

    refused = command.run("groups", "delete", group)
    assert (refused.exit_code, refused.stderr[:28]) == (1, "[EOSLOG_GROUP_ID_NOT_FOUND] ")


def test_a_group_with_members_is_not_deleted(command: Command, store: eoslog.Store) -> None:
    with store.consumer("g") as consumer:
        consumer.subscribe("t")
        consumer.poll(0)

        assert "[EOSLOG_GROUP_NOT_EMPTY]" in command.run("groups", "delete", "g", "--yes").stderr


def test_members_are_removed_by_their_ids_or_instance_ids_and_an_unknown_one_is_refused(
    command: Command, store: eoslog.Store
) -> None:
    consumers = [store.consumer("g", group_instance_id=instance) for instance in ("worker-1", "worker-2", None)]
    for consumer in consumers:
        consumer.subscribe("t")
        consumer.poll(0)
    members = {each.group_instance_id: each.member_id for each in store.admin.describe_consumer_group("g").members}

    refused = command.run("groups", "remove-member", "g", "worker-1", "worker-3", "--yes")
    removed = command.json("groups", "remove-member", "g", "worker-1", members[None] or "", "--yes")
    rest = command.ok("groups", "remove-member", "g", "--all", "--yes")

    assert (refused.exit_code, "is named 'worker-3'. Did you mean 'worker-" in refused.stderr) == (1, True)
    assert [each["consumer_id"] for each in removed] == sorted([members["worker-1"], members[None]])
    assert rest.splitlines()[1:] == [members["worker-2"]]
    assert command.run("groups", "remove-member", "g", "worker-1", "--all").exit_code == 2
    for consumer in consumers:
        consumer.close()
