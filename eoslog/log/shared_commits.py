"""Shared commits: one process appends the requests of other processes in its own record.

Processes of one host send their requests to the process that has the turn (see ``host_queue``).

On a system without turns a process that lost races publishes its requests: it puts them into one object. Then it lists
the publications. The process whose publication is the first reads the others, and puts one record with all requests
that are valid. The other processes wait for that record. If it does not come, the next process in the list puts it.

The order is a hint. Put-if-absent alone decides which record a slot gets, and each record is validated against the
state before it. A request that was sent or published may reach the log late, or through several processes. So a process
shares only requests that the state machine refuses the second time. It refuses a batch by its producer epoch and
sequence, and the end of a transaction by its epoch. The log need not remember which requests it has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from eoslog.errors import EosLogError, StoreAccessDenied
from eoslog.log.append_queue import Proposal, Published
from eoslog.log.machine import Machine, shared_entries
from eoslog.log.replica import Replica
from eoslog.log.slots import LONGEST_PENDING_MS, PENDING, pending_name, pending_path
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import LARGEST_MESSAGE_BYTES
from eoslog.storage.object_store import ObjectInfo, ObjectStore

_logger = logging.getLogger(__name__)
_LARGEST_REQUEST_BYTES = 256 << 10
_LARGEST_REQUESTS_BYTES = 2 << 20
"""The largest total size of a publication's requests (bytes), without the JSON around them."""
_LARGEST_REQUESTS_IN_MESSAGE_BYTES = LARGEST_MESSAGE_BYTES // 2
_LARGEST_PUBLICATION_BYTES = 4 << 20
_MOST_READ_BYTES = 8 << 20
"""The largest total size of the publications that a process reads for one record (bytes)."""
_MOST_REQUESTS = 1024
_SHORTEST_PATIENCE_MS = 50
_LONGEST_PATIENCE_MS = 2_000


class PendingRequest(BaseModel):
    """A request that any process may append."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    entries: tuple[dict[str, Any], ...]
    """The entries as in a record. The process that appends them fills in their results, such as offsets."""


class Publication(BaseModel):
    """The requests of one process in one object."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    requests: Annotated[tuple[PendingRequest, ...], Field(max_length=_MOST_REQUESTS)]


class Message(Publication):
    """The requests of one process as a message to the process whose turn it is."""

    name: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """A random name, with which the ids of the requests begin. A publication has this name in its path."""


class OthersPublication(NamedTuple):
    """A publication of another process: its requests, with their ids."""

    path: str
    """Empty for a message."""
    requests: Sequence[tuple[str, PendingRequest]]


class OwnPublication:
    """The publication of this process, and the publications of others before and after it in the list."""

    def __init__(self, path: str, put_ms: int) -> None:
        self.path = path
        """Empty if nothing was published."""
        self.put_ms = put_ms
        """How long the put of the publication took (ms). A record of another process should take about as long."""
        self.before: list[str] = []
        """The paths of the publications before it in the list that no record has yet."""
        self.after: list[str] = []
        self.sizes: dict[str, int] = {}
        """The size of each publication in the list (bytes)."""
        self.patient_until_ms = 0
        """When to stop waiting for the processes of ``before`` (elapsed time, ms)."""

    @property
    def newest_slot(self) -> int:
        """The newest slot that any process knew when it published; -1 if no other process has published."""
        names = [name for path in self.before + self.after if (name := pending_name(path)) is not None]
        return max((name.slot for name in names), default=-1)

    @property
    def patience_ms(self) -> int:
        """The longest wait for a record of the processes before this one (ms)."""
        patience_ms = max(_SHORTEST_PATIENCE_MS, 3 * self.put_ms) + len(self.before) * self.put_ms
        return min(patience_ms, _LONGEST_PATIENCE_MS)

    def pause_ms(self, jitter: float) -> float:
        """Return the pause between two GETs of the next slot (ms)."""
        return min(100.0, max(2.0, self.put_ms / 8)) * (0.5 + jitter)


class SharedCommits:
    """Publishes the requests of one process, and reads the requests of other processes."""

    def __init__(self, store: ObjectStore, environment: Environment, machine: Machine[Any]) -> None:
        self._store = store
        self._environment = environment
        self._machine = machine
        self._is_allowed = True
        self._read: dict[str, OthersPublication] = {}

    @property
    def is_possible(self) -> bool:
        """True if this process may publish requests in this store."""
        return self._is_allowed

    def publish(self, replica: Replica[Any], proposals: Iterable[Proposal]) -> OwnPublication:
        """Publish the proposals that other processes may append.

        Returns:
            The publication. Its path is empty if other processes may append none of the proposals.
        """
        if not self._is_allowed:
            return OwnPublication("", 0)
        name = self._environment.new_id()
        requests = self._requests(replica, proposals, name, _LARGEST_REQUESTS_BYTES)
        if not requests:
            return OwnPublication("", 0)
        path = pending_path(replica.slot, name)
        began_ms = self._environment.monotonic_ms()
        try:
            self._environment.reached("log.shared.before_publish")
            self._store.put_new([(path, to_json(Publication(requests=requests)))])
            self._environment.reached("log.shared.published")
        except StoreAccessDenied as error:
            _logger.warning("%s: requests cannot be published: %s", self._store.url, error)
            self._is_allowed = False
        except EosLogError as error:
            # The publication may land late. This process continues to append the requests itself.
            _logger.debug("%s: a publication was not answered: %s", self._store.url, error)
        return OwnPublication(path, self._environment.monotonic_ms() - began_ms)

    def message(self, replica: Replica[Any], proposals: Iterable[Proposal]) -> bytes:
        """Return the proposals that other processes may append as a message; empty if there are none."""
        name = self._environment.new_id()
        requests = self._requests(replica, proposals, name, _LARGEST_REQUESTS_IN_MESSAGE_BYTES)
        return to_json(Message(name=name, requests=requests)) if requests else b""

    def _requests(
        self, replica: Replica[Any], proposals: Iterable[Proposal], name: str, most_bytes: int
    ) -> tuple[PendingRequest, ...]:
        """Mark the proposals that other processes may append as published, and return their requests."""
        requests: list[PendingRequest] = []
        size = 0
        for proposal in proposals if replica.is_open else ():
            if proposal.published is not None or len(requests) == _MOST_REQUESTS:
                continue
            entries = tuple(self._machine.encode_entry(entry) for entry in shared_entries(proposal.request))
            if not entries:
                continue
            request_bytes = len(to_json(entries))
            if request_bytes > _LARGEST_REQUEST_BYTES or size + request_bytes > most_bytes:
                continue
            size += request_bytes
            published = Published(replica.slot, f"{name}-{len(requests)}", replica.opening)
            requests.append(PendingRequest(entries=entries))
            # Mark the proposal before it is sent: the put may land without an answer.
            proposal.published = published
            replica.awaited[published.request_id] = proposal.tell
            proposal.attempts.publications.append(published)
        return tuple(requests)

    def of_messages(self, replica: Replica[Any], messages: Sequence[bytes]) -> list[OthersPublication]:
        """Return the requests in each message. A message that is malformed or already in a record has none."""
        return [OthersPublication("", self._requests_in(replica, message)) for message in messages]

    def _requests_in(self, replica: Replica[Any], body: bytes) -> Sequence[tuple[str, PendingRequest]]:
        try:
            message = Message.model_validate(from_json(body))
        except (ValidationError, ValueError) as error:
            _logger.warning("%s: a malformed message of another process is skipped: %s", self._store.url, error)
            return ()
        return () if message.name in replica.included else _with_ids(message.name, message.requests)

    def look(self, replica: Replica[Any], own: OwnPublication) -> bool:
        """List the publications that no record has yet.

        Returns:
            True if no publication comes before ``own``, or if that is not known. Then this process should append.
        """
        try:
            listed = sorted(self._store.list(PENDING, limit=_MOST_REQUESTS), key=lambda info: info.path)
        except EosLogError as error:
            _logger.debug("%s: publications cannot be listed: %s", self._store.url, error)
            own.before, own.after = [], []
            return True
        own.sizes = {info.path: info.size for info in self._without_old(listed) if not _is_included(replica, info.path)}
        fresh = list(own.sizes)
        if own.path not in fresh:
            # The put has not landed, or another process has appended the requests and deleted the publication.
            own.before, own.after = [], fresh
            return True
        before = [path for path in fresh if path < own.path]
        is_shorter = not own.before or not set(own.before) <= set(before)
        own.before = before
        if is_shorter:
            # Wait longer only if the list before it got shorter. A record with none of these requests is no reason to
            # wait: other writers may put many such records while the processes of ``before`` are dead.
            own.patient_until_ms = self._environment.monotonic_ms() + own.patience_ms
        own.after = [path for path in fresh if path > own.path]
        return not own.before

    def _without_old(self, listed: Sequence[ObjectInfo]) -> list[ObjectInfo]:
        oldest_ms = self._store.clock.last_date_ms - LONGEST_PENDING_MS
        old = [info.path for info in listed if info.last_modified_ms < oldest_ms]
        # The processes of old publications have died, or append the requests themselves.
        self.delete([path for path in old if pending_name(path) is not None])
        return [info for info in listed if info.last_modified_ms >= oldest_ms]

    def of_others(self, own: OwnPublication) -> list[OthersPublication]:
        """Return the publications of other processes, in the order of the list, up to ``_MOST_READ_BYTES``."""
        paths: list[str] = []
        room = _MOST_READ_BYTES
        for path in own.before + own.after:
            size = own.sizes.get(path, 0)
            if size <= room:
                room -= size
                paths.append(path)
        unread = [path for path in paths if path not in self._read]
        self._read = {path: self._read[path] for path in paths if path in self._read}
        try:
            for path, found in zip(unread, self._store.get_many(unread) if unread else (), strict=True):
                if found is not None:
                    self._read[path] = self._decoded(path, found.body)
        except EosLogError as error:
            _logger.debug("%s: publications cannot be read: %s", self._store.url, error)
        return [self._read[path] for path in paths if path in self._read]

    def _decoded(self, path: str, body: bytes) -> OthersPublication:
        """Return the requests in a publication; none if it is malformed."""
        name = pending_name(path)
        try:
            if name is None:
                raise ValueError("no publication has such a path")
            if len(body) > _LARGEST_PUBLICATION_BYTES:
                raise ValueError(f"it is larger than {_LARGEST_PUBLICATION_BYTES} bytes")
            requests = Publication.model_validate(from_json(body)).requests
        except (ValidationError, ValueError) as error:
            _logger.warning("%s: publication %s is skipped: %s", self._store.url, path, error)
            return OthersPublication(path, ())
        return OthersPublication(path, _with_ids(name.name, requests))

    def delete_own(self, own: OwnPublication) -> None:
        if own.path:
            self.delete([own.path])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete publications in the background. Deleting one too early is safe: its process still has the requests."""
        if not paths:
            return
        with suppress(RuntimeError):  # The interpreter exits. Another process deletes them later.
            self._environment.background(lambda: self._delete(list(paths)))

    def _delete(self, paths: list[str]) -> None:
        try:
            self._store.delete_many(paths)
        except EosLogError as error:
            _logger.debug("%s: publications could not be deleted: %s", self._store.url, error)


def _with_ids(name: str, requests: Sequence[PendingRequest]) -> list[tuple[str, PendingRequest]]:
    return [(f"{name}-{place}", request) for place, request in enumerate(requests)]


def _is_included(replica: Replica[Any], path: str) -> bool:
    name = pending_name(path)
    return name is not None and name.name in replica.included
