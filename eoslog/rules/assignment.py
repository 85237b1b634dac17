"""Which member of a group reads which partition: balanced first, and then as few moves as can be.

A function of the members and what they read already, so that no member leads the others (Kafka's cooperative sticky
assignor).
"""

from __future__ import annotations

from collections.abc import Mapping

from eoslog.rules.draft import Draft
from eoslog.rules.names import PartitionId
from eoslog.rules.state import Member, StoreState

Assignment = dict[str, tuple[PartitionId, ...]]


def partitions_to_read(state: StoreState | Draft, members: Mapping[str, Member]) -> dict[str, list[PartitionId]]:
    """The partitions of each topic that there is and that a member subscribes to, by the topic's name."""
    names = sorted({topic for member in members.values() for topic in member.topics} & state.topic_ids.keys())
    return {name: state.topics[state.topic_ids[name]].partition_ids() for name in names}


def share_out(state: StoreState | Draft, members: Mapping[str, Member]) -> Assignment:
    """What each member is to read.

    A member keeps what it has as long as none of the topic's other subscribers has two partitions fewer than it.
    What a member is to give up already counts as free.
    """
    return _Sharing(partitions_to_read(state, members), members).shared_out()


class _Sharing:
    def __init__(self, topics: Mapping[str, list[PartitionId]], members: Mapping[str, Member]) -> None:
        self._topics = topics
        self._subscribers = {
            name: sorted(member_id for member_id, member in members.items() if name in member.topics) for name in topics
        }
        self._kept = {member_id: frozenset(member.assigned) for member_id, member in members.items()}
        self._holders = {place: member_id for member_id, member in members.items() for place in member.revoking}
        self._load = dict.fromkeys(members, 0)
        self._owned: dict[str, dict[str, list[PartitionId]]] = {
            name: {member_id: [] for member_id in subscribers} for name, subscribers in self._subscribers.items()
        }

    def shared_out(self) -> Assignment:
        self._keep()
        # Topics with few subscribers first: their partitions have the least choice.
        for name in sorted(self._topics, key=lambda name: (len(self._subscribers[name]), name)):
            self._give_free(name)
        while any(self._even_out(name) for name in self._topics):
            pass
        found: dict[str, list[PartitionId]] = {member_id: [] for member_id in self._load}
        for owners in self._owned.values():
            for member_id, places in owners.items():
                found[member_id] += places
        return {member_id: tuple(sorted(places)) for member_id, places in sorted(found.items())}

    def _keep(self) -> None:
        for name, places in self._topics.items():
            for member_id in self._subscribers[name]:
                kept = [place for place in places if place in self._kept[member_id]]
                self._owned[name][member_id] = kept
                self._load[member_id] += len(kept)

    def _give_free(self, name: str) -> None:
        taken = {place for places in self._owned[name].values() for place in places}
        for place in self._topics[name]:
            if place not in taken:
                self._give(name, place, self._least_loaded(name, self._holders.get(place)))

    def _give(self, name: str, place: PartitionId, member_id: str) -> None:
        self._owned[name][member_id].append(place)
        self._load[member_id] += 1

    def _least_loaded(self, name: str, preferred: str | None = None) -> str:
        return min(self._subscribers[name], key=lambda each: (self._load[each], each != preferred, each))

    def _even_out(self, name: str) -> bool:
        """Move partitions from who has most to who has least, until none has two more. True if one was moved."""
        moved = False
        owned = self._owned[name]
        while True:
            to = self._least_loaded(name)
            owners = [member_id for member_id in self._subscribers[name] if owned[member_id]]
            most = max(owners, key=lambda each: (self._load[each], each), default=to)
            if self._load[most] - self._load[to] < 2:
                return moved
            # What was not its own before is moved first: that is no move for anybody.
            place = max(owned[most], key=lambda place: (place not in self._kept[most], place))
            owned[most].remove(place)
            self._load[most] -= 1
            self._give(name, place, to)
            moved = True
