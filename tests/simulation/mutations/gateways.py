"""Mutations of several gateways in front of one store.

They import the gateway when they are applied. Modules that import kio cannot be imported here: it imports hypothesis,
which pytest wants to import first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulation.mutations.mutation import instead_of, method, mutation

GATEWAYS = "unit/gateway/test_several_gateways.py::"
HANDOVER = "unit/gateway/test_group_handover.py::"


@mutation(unit_test=GATEWAYS + "test_clients_of_other_machines_get_no_loopback_address[127.0.0.1:9092-False]")
def loopback_addresses_of_other_hosts() -> Iterator[None]:
    """A gateway lists all gateways: a client connects to the loopback address of another host, at its own host."""
    from eoslog.gateway.live_gateways import GatewayRecord

    with method(GatewayRecord, "is_known_to", lambda self, other: True):
        yield


@mutation(unit_test=GATEWAYS + "test_an_address_whose_id_another_one_has_is_no_broker")
def brokers_with_one_id() -> Iterator[None]:
    """Two addresses with one id are two brokers: a client takes one gateway for the other."""

    from eoslog.gateway import live_gateways

    def brokers(records: Any) -> tuple[Any, ...]:
        return tuple(map(live_gateways._broker_of, sorted(records, key=lambda each: str(each.address))))

    with instead_of(live_gateways.brokers_of, brokers):
        yield


@mutation(unit_test=GATEWAYS + "test_a_gateway_that_is_not_in_the_list_yet_keeps_its_groups")
def replaced_without_a_look_at_its_heartbeat() -> Iterator[None]:
    """A gateway that is missing in an old list has ended: gateways take their groups from one that has just started."""
    from eoslog.gateway.group_memberships import Memberships

    original = Memberships._are_silent

    def are_silent(self: Memberships, group_id: str, members: Any) -> bool:
        return all(map(self.has_ended, members.values())) or original(self, group_id, members)

    with method(Memberships, "_are_silent", are_silent):
        yield


@mutation(unit_test=GATEWAYS + "test_a_gateway_is_not_replaced_while_the_list_cannot_be_read")
def ended_by_an_old_list() -> Iterator[None]:
    """A list that could not be read shows which gateways have ended: a cut off gateway takes groups of live ones."""

    from eoslog.gateway.live_gateways import LiveGateways

    def has_ended(self: LiveGateways, gateway: Any) -> bool:
        return (gateway.host, gateway.address) not in {(each.host, each.address) for each in self._live}

    with method(LiveGateways, "has_ended", has_ended):
        yield


@mutation(unit_test=GATEWAYS + "test_a_consumer_goes_on_at_a_gateway_that_does_not_know_the_newest_rows")
def end_of_an_old_state() -> Iterator[None]:
    """A gateway refuses offsets beyond the end that it knows: a consumer that read them elsewhere starts anew."""
    from eoslog.gateway.known_topics import KnownTopics

    with method(KnownTopics, "is_beyond_end", lambda self, topic, partition, offset: False):
        yield


@mutation(unit_test=GATEWAYS + "test_a_consumer_keeps_its_position_while_the_newest_rows_are_unknown")
def end_of_an_old_state_in_an_outage() -> Iterator[None]:
    """A gateway without its store refuses offsets beyond the end that it knows: consumers start anew, and lose rows."""
    from eoslog.gateway.known_topics import KnownTopics

    original = KnownTopics.refresh

    async def refresh(self: KnownTopics, timeout_s: float | None = None) -> None:
        await original(self, timeout_s)

    with method(KnownTopics, "refresh", refresh):
        yield


@mutation(unit_test=GATEWAYS + "test_no_gateway_has_ended_by_a_list_that_does_not_come")
def ended_by_a_list_that_hangs() -> Iterator[None]:
    """A gateway believes a list that it cannot renew: it takes the groups of gateways that have started since."""
    from eoslog.gateway.live_gateways import LiveGateways

    original = LiveGateways.refresh

    async def refresh(self: LiveGateways, max_age_ms: int = 0) -> None:
        is_known = self._is_known
        await original(self, max_age_ms)
        self._is_known = self._is_known or is_known

    with method(LiveGateways, "refresh", refresh):
        yield


@mutation(unit_test=GATEWAYS + "test_rows_of_a_topic_that_was_created_again_are_not_the_old_ones")
def topics_of_an_old_state() -> Iterator[None]:
    """A gateway fetches by the topics that it knows: a consumer gets rows of a topic that another gateway deleted."""

    from eoslog.gateway.known_topics import KnownTopics

    async def keep_recent(self: KnownTopics) -> None:
        pass

    with method(KnownTopics, "keep_recent", keep_recent):
        yield


@mutation(unit_test=HANDOVER + "test_clients_join_again_if_somebody_has_changed_the_group_since")
def handover_of_a_group_that_was_changed_since() -> Iterator[None]:
    """A gateway takes over the clients of a group that others have had since: two clients have one partition."""
    from eoslog.gateway.group_memberships import Membership

    def take_over(self: Membership, topics: Any, predecessor: Any) -> int | None:
        return self.join(topics, predecessor.member_id)

    with method(Membership, "take_over", take_over):
        yield


@mutation(unit_test="unit/gateway/test_classic_group.py::test_a_rebalance_begins_again_at_the_next_coordinator[True]")
def handover_in_a_rebalance() -> Iterator[None]:
    """A group that is handed over in a rebalance is stable: its members wait for an assignment that never comes."""
    from eoslog.gateway.classic_group import ClassicGroup

    original = ClassicGroup.handed_over

    def handed_over(self: ClassicGroup, now_ms: int) -> Any:
        found = original(self, now_ms)
        return found and found.model_copy(update={"is_stable": True})

    with method(ClassicGroup, "handed_over", handed_over):
        yield
