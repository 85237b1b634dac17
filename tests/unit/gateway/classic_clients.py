"""Clients of a classic group: they send requests to the state machine and keep its answers."""

from __future__ import annotations

import struct
from itertools import count
from typing import Any, Generic, TypeVar

from kio.schema.errors import ErrorCode

from eoslog.gateway.classic_group import ClassicGroup, GroupSettings
from eoslog.gateway.classic_requests import JoinAnswer, JoinRequest, MemberIdentity, SyncAnswer, SyncRequest

SESSION_MS, REBALANCE_MS = 10_000, 60_000
AnswerT = TypeVar("AnswerT")


def subscription(*topics: str, version: int = 0, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    """Return the metadata of a consumer."""
    names = [each.encode() for each in topics]
    return (
        struct.pack(">hi", version, len(names)) + b"".join(struct.pack(">h", len(each)) + each for each in names) + rest
    )


class Reply(Generic[AnswerT]):
    """The answer to one request, as soon as there is one. A second answer is an error."""

    def __init__(self) -> None:
        self.answers: list[AnswerT] = []

    def __call__(self, answer: AnswerT) -> None:
        assert not self.answers, f"answered again: {answer}"
        self.answers.append(answer)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> AnswerT:
        assert self.answers, "the request waits"
        return self.answers[0]


class Host:
    """The coordinator of a group, with a clock that the test sets and a log that has one generation after another."""

    def __init__(self, **settings: Any) -> None:
        ids = count(1)
        self.group = ClassicGroup("g", settings=GroupSettings(**settings), new_id=lambda: str(next(ids)))
        self.now_ms = 1_000_000
        self.log_generation = 0

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: str = "range",
        metadata: bytes = b"",
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        old: bool = False,
        client_id: str = "client",
    ) -> Reply[JoinAnswer]:
        """Send JoinGroup.

        Args:
            protocols: the names of the protocols, with spaces between them.
            old: the client knows neither KIP-394 nor KIP-814.
        """
        reply: Reply[JoinAnswer] = Reply()
        request = JoinRequest(
            client_id=client_id,
            client_host="/10.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=tuple((name, metadata) for name in protocols.split()),
            member_id=member_id,
            group_instance_id=instance,
            needs_member_id=not old,
            can_skip_assignment=not old,
        )
        self.group.join(request, self.now_ms, reply)
        return reply

    def join_new(self, **request: Any) -> tuple[str, Reply[JoinAnswer]]:
        """Join as a new dynamic member, which takes two requests. Return its member id and the second one's answer."""
        answer = self.join(**request).answer
        assert answer.error is ErrorCode.member_id_required
        return answer.member_id, self.join(answer.member_id, **request)

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        generation: int | None = None,
        **request: Any,
    ) -> Reply[SyncAnswer]:
        """Send SyncGroup, with the current generation unless another one is given."""
        reply: Reply[SyncAnswer] = Reply()
        member = self.identity(member_id, instance, generation)
        given = tuple((assignments or {}).items())
        self.group.sync(SyncRequest(member=member, assignments=given, **request), self.now_ms, reply)
        return reply

    def heartbeat(self, member_id: str, instance: str | None = None, generation: int | None = None) -> ErrorCode:
        return self.group.heartbeat(self.identity(member_id, instance, generation), self.now_ms)

    def commit(
        self,
        member_id: str,
        instance: str | None = None,
        generation: int | None = None,
        *,
        in_transaction: bool = False,
    ) -> ErrorCode:
        member = self.identity(member_id, instance, generation)
        return self.group.check_commit(member, self.now_ms, in_transaction=in_transaction)

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        named = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
        outcomes = self.group.leave(named, self.now_ms)
        assert [each for each, _ in outcomes] == named
        return [code for _, code in outcomes]

    def identity(self, member_id: str, instance: str | None, generation: int | None) -> MemberIdentity:
        generation = self.group.generation if generation is None else generation
        return MemberIdentity(member_id=member_id, group_instance_id=instance, generation=generation)

    def sleep(self, duration_ms: int) -> None:
        """Let time pass, and do what is due at its time."""
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.group.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.group.advance(self.now_ms)
        self.now_ms = end_ms
        self.group.advance(self.now_ms)

    def begin(self) -> int:
        """Put the generation that the group needs into the log, and return it."""
        assert self.group.needs_generation
        self.log_generation += 1
        self.group.begin_generation(self.log_generation, self.now_ms)
        return self.log_generation

    def stable(self, members: int, **request: Any) -> list[str]:
        """Return the member ids of new members of a stable group. The first one leads, and each has an assignment."""
        joined = [self.join_new(**request) for _ in range(members)]
        self.sleep(REBALANCE_MS)
        self.begin()
        member_ids = [member_id for member_id, _ in joined]
        self.assign(*member_ids)
        return member_ids

    def assign(self, leader: str, *followers: str) -> None:
        """Let all members send SyncGroup. The assignment of a member is its id."""
        replies = [self.sync(each) for each in followers]
        replies.append(self.sync(leader, {each: each.encode() for each in (*followers, leader)}))
        assert [each.answer.assignment.decode() for each in replies] == [*followers, leader]
