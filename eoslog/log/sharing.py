"""Shared commits: under contention, processes publish what they want to append, and one of them appends it for all.

This is flat combining over the object store. A process that lost races puts its requests into an object of their own.
Then it looks who published before it. The process that published first reads the requests of all, and puts one record
with all that are valid. The others wait for that record, and take over in their order if it does not come.

The order is a hint. Put-if-absent alone decides which record a slot gets, and each record is validated against the
state before it. A published request may reach the log late, or through several processes. So only a request that the
state machine refuses once it was done is published: a batch, by its producer epoch and sequence, and the end of a
transaction, by its epoch. The log need not remember which requests it has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from eoslog.errors import EosLogError, StoreAccessDenied
from eoslog.log.machine import Machine
from eoslog.log.paths import LONGEST_PENDING_MS, PENDING, pending_name, pending_path
from eoslog.log.proposals import Proposal, Published
from eoslog.log.view import View
from eoslog.store.environment import Environment
from eoslog.store.object_store import ObjectInfo, ObjectStore

_logger = logging.getLogger(__name__)
_LARGEST_REQUEST_BYTES = 256 << 10
_LARGEST_REQUESTS_BYTES = 2 << 20
"""Of all requests of a publication. There is room for the JSON around them."""
_LARGEST_PUBLICATION_BYTES = 4 << 20
_MOST_READ_BYTES = 8 << 20
"""Of all publications that a process appends at once."""
_MOST_REQUESTS = 1024
_SHORTEST_PATIENCE_MS = 50
_LONGEST_PATIENCE_MS = 2_000


class PendingRequest(BaseModel):
    """A request that any process may append."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    entries: tuple[dict[str, Any], ...]
    """As they would stand in a record. Their results are filled in where they are appended."""


class Publication(BaseModel):
    """The requests that a process publishes at once."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    requests: Annotated[tuple[PendingRequest, ...], Field(max_length=_MOST_REQUESTS)]


class Company(NamedTuple):
    """The requests that another process published at once, with their ids."""

    path: str
    requests: Sequence[tuple[str, PendingRequest]]


class OwnPublication:
    """What a process published, and its place among what others published."""

    def __init__(self, path: str, put_ms: int) -> None:
        self.path = path
        """Empty if nothing was published."""
        self.put_ms = put_ms
        """How long it took to put it (ms): the measure of how long a record of another process may take."""
        self.before: list[str] = []
        """The paths of what was published before it and has not been appended."""
        self.after: list[str] = []
        self.sizes: dict[str, int] = {}
        """How large each of them is (bytes)."""
        self.patient_until_ms = 0
        """Until when to wait for the processes of ``before`` (elapsed time)."""

    @property
    def newest_slot(self) -> int:
        """The newest slot that a process knew which published."""
        names = [name for path in self.before + self.after if (name := pending_name(path)) is not None]
        return max((name.slot for name in names), default=-1)

    @property
    def patience_ms(self) -> int:
        """How long to wait for the record of a process that comes before this one."""
        patience_ms = max(_SHORTEST_PATIENCE_MS, 3 * self.put_ms) + len(self.before) * self.put_ms
        return min(patience_ms, _LONGEST_PATIENCE_MS)

    def pause_ms(self, jitter: float) -> float:
        """How long to wait between two looks at the next slot."""
        return min(100.0, max(2.0, self.put_ms / 8)) * (0.5 + jitter)


class SharedCommits:
    """Publishes the requests of one process, and reads those of the others."""

    def __init__(self, store: ObjectStore, environment: Environment, machine: Machine[Any]) -> None:
        self._store = store
        self._environment = environment
        self._machine = machine
        self._is_allowed = True
        self._read: dict[str, Company] = {}

    @property
    def is_possible(self) -> bool:
        """Whether processes may share records in this store."""
        # Processes that take turns on one host do better by that.
        return self._is_allowed and not self._store.queues_writers

    def publish(self, view: View[Any], proposals: Iterable[Proposal]) -> OwnPublication:
        """Let other processes append what they may of these proposals.

        Returns:
            Without a path if they may append none.
        """
        if not view.is_open:
            return OwnPublication("", 0)
        name = self._environment.new_token()
        requests: list[PendingRequest] = []
        published: list[Proposal] = []
        size = 0
        for proposal in proposals:
            if proposal.shared is None or proposal.published is not None or len(requests) == _MOST_REQUESTS:
                continue
            entries = tuple(self._machine.encode_entry(entry) for entry in proposal.shared.entries)
            request_bytes = len(to_json(entries))
            if request_bytes > _LARGEST_REQUEST_BYTES or size + request_bytes > _LARGEST_REQUESTS_BYTES:
                continue
            size += request_bytes
            proposal.published = Published(view.slot, f"{name}-{len(requests)}", view.opening)
            requests.append(PendingRequest(entries=entries))
            published.append(proposal)
        if not requests:
            return OwnPublication("", 0)
        path = pending_path(view.slot, name)
        for proposal in published:
            assert proposal.shared is not None
            assert proposal.published is not None
            # Before the put: it may land although it is not answered.
            view.awaited[proposal.published.request_id] = proposal.tell
            proposal.shared.when_published(proposal.published.slot, proposal.published.request_id)
        began_ms = self._environment.monotonic_ms()
        try:
            self._environment.reached("log.shared.before_publish")
            self._store.put_new([(path, to_json(Publication(requests=tuple(requests))))])
            self._environment.reached("log.shared.published")
        except StoreAccessDenied as error:
            _logger.warning("%s: requests cannot be published: %s", self._store.url, error)
            self._is_allowed = False
        except EosLogError as error:
            # It may land late. Whatever becomes of it, this process goes on to append the requests itself.
            _logger.debug("%s: a publication was not answered: %s", self._store.url, error)
        return OwnPublication(path, self._environment.monotonic_ms() - began_ms)

    def look(self, view: View[Any], own: OwnPublication) -> bool:
        """List what is published and not yet in a record.

        Returns:
            True if nothing was published before ``own``, or if that is not known.
        """
        try:
            listed = sorted(self._store.list(PENDING, limit=_MOST_REQUESTS), key=lambda info: info.path)
        except EosLogError as error:
            _logger.debug("%s: publications cannot be listed: %s", self._store.url, error)
            own.before, own.after = [], []
            return True
        own.sizes = {info.path: info.size for info in self._without_old(listed) if not _is_included(view, info.path)}
        fresh = list(own.sizes)
        if own.path not in fresh:
            # The put was not answered and has not landed, or a process took the requests into a record and was faster.
            own.before, own.after = [], fresh
            return True
        before = [path for path in fresh if path < own.path]
        is_shorter = not own.before or not set(own.before) <= set(before)
        own.before = before
        if is_shorter:
            # A record that has none of their requests is no reason to wait longer: other writers may put many.
            own.patient_until_ms = self._environment.monotonic_ms() + own.patience_ms
        own.after = [path for path in fresh if path > own.path]
        return not own.before

    def _without_old(self, listed: Sequence[ObjectInfo]) -> list[ObjectInfo]:
        oldest_ms = self._store.clock.last_date_ms - LONGEST_PENDING_MS
        old = [info.path for info in listed if info.last_modified_ms < oldest_ms]
        # Their processes are gone, or append them alone.
        self.delete([path for path in old if pending_name(path) is not None])
        return [info for info in listed if info.last_modified_ms >= oldest_ms]

    def of_others(self, own: OwnPublication) -> list[Company]:
        """What others have published, in its order, as much as is worth reading at once."""
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

    def _decoded(self, path: str, body: bytes) -> Company:
        """The requests in a publication; none if it is malformed."""
        name = pending_name(path)
        try:
            if name is None:
                raise ValueError("no publication has such a path")
            if len(body) > _LARGEST_PUBLICATION_BYTES:
                raise ValueError(f"it is larger than {_LARGEST_PUBLICATION_BYTES} bytes")
            requests = Publication.model_validate(from_json(body)).requests
        except (ValidationError, ValueError) as error:
            _logger.warning("%s: %s is passed over: %s", self._store.url, path, error)
            return Company(path, ())
        return Company(path, [(f"{name.name}-{place}", request) for place, request in enumerate(requests)])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete publications that no process needs to append any more. To delete one too early does no harm."""
        if not paths:
            return
        self._environment.background(lambda: self._delete(list(paths)))

    def _delete(self, paths: list[str]) -> None:
        try:
            self._store.delete_many(paths)
        except EosLogError as error:
            _logger.debug("%s: publications are left behind: %s", self._store.url, error)


def _is_included(view: View[Any], path: str) -> bool:
    name = pending_name(path)
    return name is not None and name.name in view.included
