"""The coordinator of groups whose members speak Kafka's classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

The members are in memory (``classic_group``). In the log the gateway itself is the group's only member
(``group_memberships``). It joins anew for each generation, and only then tells its members the generation. It commits
the offsets of its members with its own member id and the generation. So the log refuses offsets of an earlier
generation, and all offsets of a gateway that another one has replaced.

A gateway that ends hands its groups over (``handed_over_group``). The next gateway that gets a request for a group
joins in its place. The clients stay members, and keep their generation. The log has a later one then.

If a gateway is killed, the gateway that is started at its address replaces it at once. Another gateway replaces it when
it is not among the live gateways any more (``live_gateways``), or when its heartbeat in the group is older than
``SESSION_TIMEOUT_MS``. Then the clients join again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kio.schema.errors import ErrorCode

from eoslog.errors import EosLogError, InconsistentGroupProtocol, NotCoordinator, RetriableError
from eoslog.gateway.classic_group import ClassicGroup, GroupSettings
from eoslog.gateway.classic_requests import GroupState, JoinAnswer, JoinRequest, MemberIdentity, SyncAnswer, SyncRequest
from eoslog.gateway.error_codes import coordinator_code
from eoslog.gateway.gateway_config import GatewayConfig
from eoslog.gateway.group_memberships import SESSION_TIMEOUT_MS, Membership, Memberships, Predecessor
from eoslog.gateway.handed_over_group import HandedOverGroup
from eoslog.gateway.live_gateways import Broker, LiveGateways
from eoslog.session.session import Session
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.groups import has_members, is_from_outside
from eoslog.state.names import check_id
from eoslog.storage.environment import Backoff

_NO_MEMBER = {"member_id": "", "group_instance_id": None}
_HEARTBEAT_MS = SESSION_TIMEOUT_MS // 3
_PAUSE_MS = 1_000
"""The pause between two reads of the heartbeat of a gateway that seems to have ended (ms)."""
_RETRIES = Backoff(first_ms=100, longest_ms=2_000)
_LARGEST_MEMBER = 1 << 20
"""The largest JoinGroup request (bytes). In a cluster of Kafka even a whole group has to fit into a record of 1 MB."""
_GROUP_BYTES = 5_000
"""The memory that a group takes without its members (bytes)."""
_GRACE_MS = 5_000
"""The time that a gateway has to hand its groups over when it ends (ms)."""
_logger = logging.getLogger(__name__)
T = TypeVar("T")


class GroupRefusal(Exception):
    """A request for a group is refused with a code of Kafka's protocol."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(eq=False)
class _Coordinated:
    """A group that this gateway coordinates, or will coordinate when its first generation is in the log."""

    group_id: str
    group: ClassicGroup
    membership: Membership
    generation_in_log: int = 0
    """The group's generation in the log. After a handover it is later than ``group.generation``, which clients have."""
    size: int = 0
    """The bytes of memory that were last counted for the group."""
    work: asyncio.Task[None] | None = None
    """The task that puts changes of the group into the log."""
    timer: asyncio.TimerHandle | None = None


class GroupCoordinator:
    """Coordinates the groups of a gateway's clients. All methods run in the gateway's event loop."""

    def __init__(
        self,
        store: Session,
        config: GatewayConfig,
        gateways: LiveGateways,
        *,
        executor: Executor,
        listens_elsewhere: bool,
    ) -> None:
        """
        Args:
            listens_elsewhere: as for ``Memberships``.
        """
        self._store = store
        self._most_bytes = config.group_bytes
        self._settings = GroupSettings(initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms)
        self._executor = executor
        self.gateways = gateways
        self._memberships = Memberships(store, gateways, listens_elsewhere=listens_elsewhere)
        self._groups: dict[str, _Coordinated] = {}
        self._taking_over: dict[str, asyncio.Task[_Coordinated | None]] = {}
        """The tasks that take over groups which other gateways have handed over, by group."""
        self._size = 0
        """The bytes of memory of all groups."""
        self._committing: dict[tuple[str, str], set[asyncio.Future[None]]] = {}
        """The ends of the commits of static members that are not in the log yet, by group and instance id."""
        self._heartbeats_read_ms: dict[str, int] = {}
        """The time of the last read of other gateways' heartbeats, by group."""
        self._told: set[str] = set()
        """The groups for which this process has logged that clients do not find the coordinator."""
        self._is_ending = False
        self.rebalances = 0
        """The generations that this gateway has begun."""

    @property
    def size(self) -> int:
        """The memory of all groups (bytes)."""
        return self._size

    def members(self) -> list[int]:
        """Return the number of members of each group that this gateway coordinates."""
        return [each.group.member_count for each in list(self._groups.values())]

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """Join a group. The answer comes when the log has the generation.

        Raises:
            GroupRefusal: this gateway cannot coordinate the group.
            EosLogError: the store does not answer.
        """
        if request.size > _LARGEST_MEMBER:
            raise GroupRefusal(
                ErrorCode.group_max_size_reached,
                f"a member has {request.size} bytes of names and metadata. At most {_LARGEST_MEMBER} are allowed",
            )
        coordinated = await self._coordinate(group_id)
        # A new process of a static member may get the current generation. Then no later generation fences the commits
        # of the old process. So the new one waits until they are in the log. Commits that waited for a handover begin
        # with the end of ``_coordinate``.
        while committing := self._committing.get((group_id, request.group_instance_id or "")):
            # If the group is new, it is forgotten.
            self._settle(coordinated)
            await asyncio.wait(committing)
            coordinated = await self._coordinate(group_id)
        self._check_memory(coordinated, request.size - coordinated.group.size_of(request.member_id))
        return await self._answer(coordinated, partial(coordinated.group.join, request, self._now_ms()))

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        """Return the assignment of a member when the leader has given it. The leader gives the assignments of all.

        Raises:
            GroupRefusal, EosLogError
        """
        coordinated = await self._existing(group_id)
        self._check_memory(coordinated, sum(len(assignment) for _, assignment in request.assignments))
        return await self._answer(coordinated, partial(coordinated.group.sync, request, self._now_ms()))

    def _check_memory(self, coordinated: _Coordinated, more: int) -> None:
        """Check that the memory of all groups stays below its limit.

        Args:
            more: the bytes that a client adds to the group.

        Raises:
            GroupRefusal
        """
        if more > 0 and self._size + more > self._most_bytes:
            # If the group is new, it is forgotten.
            self._settle(coordinated)
            raise GroupRefusal(ErrorCode.group_max_size_reached, "the groups of this gateway have no memory left")

    async def heartbeat(self, group_id: str, member: MemberIdentity) -> ErrorCode:
        """Note that a member is alive. Raises: GroupRefusal, EosLogError"""
        coordinated = await self._existing(group_id)
        # The next deadline only becomes later, and to find it takes time for each member. So the timer stays.
        return coordinated.group.heartbeat(member, self._now_ms())

    async def leave(self, group_id: str, members: list[MemberIdentity]) -> list[ErrorCode]:
        """Let members leave, and return the outcome for each. Raises: GroupRefusal, EosLogError"""
        coordinated = await self._existing(group_id)
        found = coordinated.group.leave(members, self._now_ms())
        self._settle(coordinated)
        return [code for _, code in found]

    async def offsets_for_log(self, offsets: GroupOffsets, *, in_transaction: bool) -> GroupOffsets:
        """Check a commit of offsets, and return it as this gateway puts it into the log.

        The commit of a member gets the gateway's member id, and the generation of the log. If this gateway does not
        coordinate the group, the log itself answers the commit as Kafka's coordinator would.

        Args:
            in_transaction: the request is TxnOffsetCommit.

        Raises:
            GroupRefusal: the member may not commit.
            EosLogError: another gateway coordinates the group, or the store does not answer.
        """
        if is_from_outside(offsets):
            return offsets
        coordinated = await self._found(offsets.group)
        if offsets.generation < 0 and self._is_empty(offsets.group):
            # A group without members only keeps offsets, so the client's member id does not matter. In a transaction it
            # does: the client names a member of its consumer's group, and the log refuses an unknown one.
            return offsets if in_transaction else offsets.model_copy(update=_NO_MEMBER)
        if coordinated is None:
            return offsets
        member = MemberIdentity(
            member_id=offsets.member_id,
            group_instance_id=offsets.group_instance_id,
            generation=offsets.generation,
        )
        code = coordinated.group.check_commit(member, self._now_ms(), in_transaction=in_transaction)
        if code is not ErrorCode.none:
            raise GroupRefusal(code, f"a member of group {offsets.group!r} may not commit: {code.name}")
        generation = offsets.generation if offsets.generation < 0 else coordinated.generation_in_log
        own = {"member_id": coordinated.membership.member_id, "group_instance_id": None, "generation": generation}
        return offsets.model_copy(update=own)

    def _is_empty(self, group_id: str) -> bool:
        coordinated = self._groups.get(group_id)
        if coordinated is not None:
            return coordinated.group.state is GroupState.EMPTY
        return not has_members(self._store.known_state, group_id)

    async def commit(self, offsets: GroupOffsets, work: Callable[[], None]) -> None:
        """Run work that commits offsets in a thread. A new process of a static member joins after the work has ended.

        Args:
            offsets: the offsets as the client gave them.
        """
        committing = self._executor.submit(work)
        if offsets.group_instance_id is not None:
            key = offsets.group, offsets.group_instance_id
            loop = asyncio.get_running_loop()
            end = loop.create_future()
            self._committing.setdefault(key, set()).add(end)
            # The work goes on if the client closes its connection.
            committing.add_done_callback(lambda done: loop.call_soon_threadsafe(self._committed, key, end))
        await asyncio.wrap_future(committing)

    def _committed(self, key: tuple[str, str], end: asyncio.Future[None]) -> None:
        end.set_result(None)
        committing = self._committing[key]
        committing.discard(end)
        if not committing:
            del self._committing[key]

    def code_of_commit(self, offsets: GroupOffsets, code: ErrorCode) -> ErrorCode:
        """Return the code that a client gets for a commit.

        If the log does not know the member id of this gateway, the gateway no longer coordinates the group.

        Args:
            offsets: the commit as ``offsets_for_log`` has returned it.
            code: the log's code for it.
        """
        if code is not ErrorCode.unknown_member_id:
            return code
        if self._is_ending:
            return ErrorCode.not_coordinator
        coordinated = self._groups.get(offsets.group)
        if coordinated is None:
            return code
        if coordinated.membership.member_id != offsets.member_id:
            return code
        self._drop(coordinated, ErrorCode.not_coordinator)
        return ErrorCode.not_coordinator

    def known_coordinator(self, group_id: str) -> Broker | None:
        """Return the coordinator of a group by the known state; None if clients do not find the gateway that has it."""
        if group_id in self._groups:
            return self.gateways.own
        gateways = self._memberships.known_gateways(group_id)
        if not gateways:
            return self.gateways.chosen_for(group_id)
        found = next(filter(None, map(self.gateways.broker_of, gateways.values())), None)
        # If another process has the address of this one, clients cannot choose between them.
        return None if found is None or found.address == self.gateways.own.address else found

    def lists(self, group_id: str) -> bool:
        """Return whether this gateway lists a group by the known state.

        Exactly one of the gateways that clients find lists it.
        """
        found = self.known_coordinator(group_id) or self.gateways.chosen_for(group_id)
        return found.address == self.gateways.own.address

    async def coordinator(self, group_id: str) -> Broker:
        """Return the coordinator of a group, or the gateway that may begin to coordinate it.

        Raises:
            NotCoordinator: a gateway that clients do not find coordinates the group, and its heartbeat is not silent.
            EosLogError: the store does not answer, or the group id is invalid.
        """
        check_id("group id", group_id)
        found = self.known_coordinator(group_id)
        if found is not None:
            self._told.discard(group_id)
            return found
        now_ms = self._now_ms()
        check = self._memberships.check_newest
        # Clients ask again and again, and a read of heartbeats costs a LIST.
        has_ended = all(map(self._memberships.has_ended, self._memberships.known_gateways(group_id).values()))
        pause_ms = _PAUSE_MS if has_ended else _HEARTBEAT_MS
        if now_ms - self._heartbeats_read_ms.get(group_id, -_HEARTBEAT_MS) >= pause_ms:
            self._heartbeats_read_ms[group_id] = now_ms
            check = self._memberships.check_silent
        try:
            await self._run(lambda: check(group_id))
        except NotCoordinator as error:
            # A gateway that seems to have ended is replaced soon.
            if not has_ended and group_id not in self._told:
                # Most clients ask again without a word to their user.
                self._told.add(group_id)
                _logger.warning("%s: clients ask here, but %s", self._store.url, error)
            raise
        self._told.discard(group_id)
        self._heartbeats_read_ms.pop(group_id, None)
        return self.gateways.chosen_for(group_id)

    def group_here(self, group_id: str) -> ClassicGroup | None:
        """Return a group if this gateway coordinates it."""
        found = self._groups.get(group_id)
        return None if found is None else found.group

    async def group(self, group_id: str) -> ClassicGroup | None:
        """Return a group that this gateway coordinates, or takes over now; None if no gateway coordinates it.

        Raises:
            GroupRefusal, EosLogError: as for requests of members.
        """
        if group_id not in self._groups and not self._memberships.has_gateway(group_id):
            return None
        found = await self._found(group_id)
        return None if found is None else found.group

    async def run(self) -> None:
        """Write heartbeats, and end the groups that other gateways have taken, until the task is canceled."""
        while True:
            await asyncio.sleep(_HEARTBEAT_MS / 1000)
            joined = [each for each in self._groups.values() if each.membership.has_joined]
            if not joined:
                continue
            await asyncio.gather(*map(self._keep_alive, joined))
            try:
                await self._run(lambda: self._store.read(lambda state, slot: None))
            except EosLogError as error:
                _logger.warning("%s: the newest state cannot be read: %s", self._store.url, error)
            for each in joined:
                if each.membership.has_joined and each.work is None and each.membership.generation is None:
                    self._drop(each, ErrorCode.not_coordinator)

    async def _keep_alive(self, coordinated: _Coordinated) -> None:
        try:
            await self._run(coordinated.membership.keep_alive)
        except EosLogError as error:
            _logger.warning("%s: group %r has no new heartbeat: %s", self._store.url, coordinated.group_id, error)

    async def close(self) -> None:
        """Answer the requests that wait, and hand the groups over to the next gateway, for a limited time."""
        self._is_ending = True
        if self._taking_over:
            await asyncio.wait(self._taking_over.values(), timeout=_GRACE_MS / 1000)
        groups = list(self._groups.values())
        ending = [self._end(each, each.group.handed_over(self._now_ms())) for each in groups]
        for each in groups:
            self._drop(each, ErrorCode.not_coordinator)
        tasks = list(map(asyncio.create_task, ending))
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_MS / 1000)
        for task in tasks:
            task.cancel()

    async def _end(self, coordinated: _Coordinated, group: HandedOverGroup | None) -> None:
        """Hand a group over. If there is nothing to hand over, or if this fails, remove this gateway from the group."""
        if coordinated.work is not None:
            await asyncio.wait([coordinated.work])
        membership = coordinated.membership
        if not membership.may_have_joined:
            return
        try:
            if group is not None and await self._run(lambda: membership.hand_over(group)):
                return
        except EosLogError as error:
            _logger.warning("%s: group %r is not handed over: %s", self._store.url, coordinated.group_id, error)
        try:
            await self._run(partial(membership.leave, _GRACE_MS))
        except EosLogError as error:
            _logger.warning("%s: this gateway stays in group %r: %s", self._store.url, coordinated.group_id, error)

    async def _existing(self, group_id: str) -> _Coordinated:
        """Return a group that this gateway coordinates. Raises: GroupRefusal, EosLogError"""
        found = await self._found(group_id)
        if found is None:
            # A client that gets this code joins again. Then the log says whether this gateway may coordinate the group.
            raise GroupRefusal(ErrorCode.unknown_member_id, f"group {group_id!r} has no such member")
        return found

    async def _found(self, group_id: str) -> _Coordinated | None:
        """Return a group that this gateway coordinates, or takes over now; None if no gateway coordinates it.

        Raises:
            GroupRefusal: this gateway is ending.
            EosLogError: another gateway coordinates the group, or the store does not answer.
        """
        self._check_not_ending()
        found = self._groups.get(group_id)
        if found is not None:
            return found
        task = self._taking_over.get(group_id)
        if task is None:
            task = self._taking_over[group_id] = asyncio.create_task(self._take_over(group_id))
            # The clients may have closed their connections. asyncio would log an error otherwise.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        # The other clients of the group wait for the task, too.
        return await asyncio.shield(task)

    async def _take_over(self, group_id: str) -> _Coordinated | None:
        """Take the place of the gateway that has handed a group over, and return the group.

        Returns:
            None if no gateway has handed the group over, or if there is no memory for it. Then its clients join again.
        """
        try:
            return await self._found_in_log(group_id)
        finally:
            del self._taking_over[group_id]

    async def _found_in_log(self, group_id: str) -> _Coordinated | None:
        await self.gateways.refresh()
        predecessor = await self._run(lambda: self._memberships.predecessor(group_id))
        if predecessor is None:
            return None
        group = self._taken_over(group_id, predecessor)
        size = _GROUP_BYTES + group.size
        if self._size + size > self._most_bytes:
            _logger.warning("%s: group %r is not taken over: there is no memory left", self._store.url, group_id)
            return None
        coordinated = _Coordinated(group_id, group, self._memberships.new(group_id), size=size)
        # Others may be taken over at the same time.
        self._size += size
        topics = group.subscribed_topics
        try:
            generation = await self._run(lambda: coordinated.membership.take_over(topics, predecessor))
        except BaseException:
            self._size -= size
            raise
        if generation is None:
            coordinated.group = self._new_group(group_id)
        else:
            # The sessions begin only now: the store may have been slow.
            coordinated.group = self._taken_over(group_id, predecessor)
            coordinated.generation_in_log = generation
        self._groups[group_id] = coordinated
        self._settle(coordinated)
        return coordinated

    def _taken_over(self, group_id: str, predecessor: Predecessor) -> ClassicGroup:
        return ClassicGroup.taken_over(
            group_id,
            predecessor.group,
            self._now_ms(),
            settings=self._settings,
            new_id=self._store.environment.new_id,
        )

    def _new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, settings=self._settings, new_id=self._store.environment.new_id)

    def _check_not_ending(self) -> None:
        if self._is_ending:
            raise GroupRefusal(ErrorCode.not_coordinator, "this gateway is ending. Ask for the new coordinator")

    async def _coordinate(self, group_id: str) -> _Coordinated:
        """Return a group that this gateway coordinates. Begin to coordinate it if it does not yet.

        Raises:
            GroupRefusal, EosLogError
        """
        found = await self._found(group_id)
        if found is not None:
            return found
        await self._run(lambda: self._memberships.replaceable(group_id))
        # The request of another client may take the group over since.
        while (task := self._taking_over.get(group_id)) is not None:
            found = await asyncio.shield(task)
            if found is not None:
                return found
        self._check_not_ending()
        # The request of another client may have begun since.
        return self._groups.setdefault(
            group_id, _Coordinated(group_id, self._new_group(group_id), self._memberships.new(group_id))
        )

    async def _answer(self, coordinated: _Coordinated, ask: Callable[[Callable[[T], object]], object]) -> T:
        """Pass a request on to a group, and return the answer when the group gives it."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def respond(found: T) -> None:
            # A client that has closed its connection does not wait any more.
            if not answer.done():
                answer.set_result(found)

        ask(respond)
        self._settle(coordinated)
        return await answer

    def _settle(self, coordinated: _Coordinated) -> None:
        """Start the work and the timer that a group needs after a change. Forget the group if it is unused."""
        if self._groups.get(coordinated.group_id) is not coordinated:
            return
        if coordinated.timer is not None:
            coordinated.timer.cancel()
            coordinated.timer = None
        size = _GROUP_BYTES + coordinated.group.size
        self._size += size - coordinated.size
        coordinated.size = size
        deadline_ms = coordinated.group.next_deadline_ms
        if coordinated.work is None and self._next_step(coordinated) is not None:
            coordinated.work = asyncio.create_task(self._work(coordinated))
        if deadline_ms is not None:
            pause_ms = max(1, deadline_ms - self._now_ms())
            coordinated.timer = asyncio.get_running_loop().call_later(pause_ms / 1000, self._advance, coordinated)
        elif coordinated.work is None and coordinated.group.is_unused:
            self._forget(coordinated)

    def _forget(self, coordinated: _Coordinated) -> None:
        if self._groups.get(coordinated.group_id) is coordinated:
            del self._groups[coordinated.group_id]
            self._size -= coordinated.size

    def _advance(self, coordinated: _Coordinated) -> None:
        coordinated.group.advance(self._now_ms())
        self._settle(coordinated)

    def _next_step(self, coordinated: _Coordinated) -> Callable[[_Coordinated], Awaitable[None]] | None:
        """Return the next change of the log that the group needs; None if it needs none."""
        if coordinated.group.needs_generation:
            return self._begin_generation
        if coordinated.membership.may_have_joined and coordinated.group.state is GroupState.EMPTY:
            return self._leave_log
        return None

    async def _work(self, coordinated: _Coordinated) -> None:
        """Put changes of the group into the log, one after the other."""
        failures = 0
        while self._groups.get(coordinated.group_id) is coordinated:
            step = self._next_step(coordinated)
            if step is None:
                break
            try:
                await step(coordinated)
                failures = 0
            except (InconsistentGroupProtocol, NotCoordinator):
                # Another gateway or a consumer has joined since. The clients join again, and their answers say so.
                self._drop(coordinated, ErrorCode.not_coordinator)
            except RetriableError as error:
                failures += 1
                _logger.warning("%s: group %r is not in the log: %s", self._store.url, coordinated.group_id, error)
                await asyncio.sleep(_RETRIES.pause_ms(failures) / 1000)
            except Exception as error:
                _logger.exception("group %r is not in the log", coordinated.group_id)
                code = coordinator_code(error) if isinstance(error, EosLogError) else ErrorCode.unknown_server_error
                self._drop(coordinated, code)
        coordinated.work = None
        self._settle(coordinated)

    async def _begin_generation(self, coordinated: _Coordinated) -> None:
        topics = coordinated.group.subscribed_topics
        generation = await self._run(lambda: coordinated.membership.join(topics))
        if generation is None:
            self._drop(coordinated, ErrorCode.not_coordinator)
        elif _covers(topics, coordinated.group.subscribed_topics):
            self.rebalances += 1
            coordinated.generation_in_log = generation
            coordinated.group.begin_generation(generation, self._now_ms())

    async def _leave_log(self, coordinated: _Coordinated) -> None:
        await self._run(coordinated.membership.leave)

    def _drop(self, coordinated: _Coordinated, code: ErrorCode) -> None:
        """Stop coordinating a group, and answer its requests that wait."""
        self._forget(coordinated)
        if coordinated.timer is not None:
            coordinated.timer.cancel()
            coordinated.timer = None
        coordinated.group.close(code)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    @staticmethod
    def _now_ms() -> int:
        """Return the time of the event loop (ms), by which timers run."""
        return int(asyncio.get_running_loop().time() * 1000)


def _covers(topics: frozenset[str] | None, wanted: frozenset[str] | None) -> bool:
    """Return whether a membership with some topics keeps the offsets of others. With unknown topics it keeps all."""
    return topics is None or (wanted is not None and wanted <= topics)
