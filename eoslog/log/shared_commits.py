"""Shared commits: one process appends the requests of other processes in its own record.

Processes of one host send their requests to the process that has the turn (see ``host_queue``). Where a coordinator
appends for all hosts, processes send their requests to it (see ``append_client``).

The choice of the appending process is a hint. Put-if-absent alone decides which record a slot gets, and each record is
validated against the state before it. A request that was sent may reach the log late, or through several processes. So
a process shares only requests that the state machine refuses the second time. It refuses a batch by its producer epoch
and sequence, and the end of a transaction by its epoch. The log need not remember which requests it has.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

from eoslog.errors import InvalidRequest
from eoslog.log.append_queue import Proposal, SentRequest
from eoslog.log.machine import Machine, shared_entries, shared_files
from eoslog.log.messages import MOST_REQUESTS, Message, PendingRequest, decode_message, encode_message, request_id
from eoslog.log.replica import Replica
from eoslog.storage.environment import Environment

_logger = logging.getLogger(__name__)
_BYTES_OF_A_MESSAGE = 128
"""A message without its requests is shorter (bytes)."""
_BYTES_OF_A_REQUEST = 32
"""The JSON around the entries of a request is shorter (bytes)."""


class SharedCommits:
    """Writes the messages of one process, and reads the messages of other processes."""

    def __init__(self, url: str, environment: Environment, machine: Machine[Any]) -> None:
        self._url = url
        self._environment = environment
        self._machine = machine

    def message(self, replica: Replica[Any], proposals: Iterable[Proposal], most_bytes: int) -> bytes:
        """Return a message with the proposals that other processes may append; empty if there are none.

        The proposals are marked as sent. A proposal that was sent before, or for which there is no room, is left out.

        Args:
            most_bytes: the largest size of the message (bytes).
        """
        name = self._environment.new_id()
        requests: list[PendingRequest] = []
        room = most_bytes - _BYTES_OF_A_MESSAGE
        for proposal in proposals if replica.is_open else ():
            if proposal.sent is not None or len(requests) == MOST_REQUESTS:
                continue
            entries = tuple(self._machine.encode_entry(entry) for entry in shared_entries(proposal.content))
            if not entries:
                continue
            contents = shared_files(proposal.content)
            if sum(map(len, contents.values())) > room:
                # Known without encoding: base64 is longer than the content.
                continue
            files = {path: b64encode(content).decode() for path, content in contents.items()}
            request_bytes = len(to_json(entries)) + len(to_json(files)) + _BYTES_OF_A_REQUEST
            if request_bytes > room:
                continue
            room -= request_bytes
            sent = SentRequest(replica.slot, request_id(name, len(requests)), replica.opening)
            requests.append(PendingRequest(entries=entries, files=files))
            # Mark the proposal before it is sent: the other process may append it without an answer.
            proposal.sent = sent
            replica.awaited[sent.request_id] = proposal.tell
            proposal.attempts.sent.append(sent)
        return encode_message(Message(name=name, slot=replica.slot, requests=tuple(requests))) if requests else b""

    def request_for_a_slot(self, replica: Replica[Any]) -> bytes:
        """Return a message without requests: its sender puts the next record by itself."""
        return encode_message(Message(name=self._environment.new_id(), slot=max(0, replica.slot), requests=()))

    def decoded(self, messages: Iterable[bytes]) -> list[Message | None]:
        """Return the messages in their order; None for each one that is malformed."""
        found: list[Message | None] = []
        for body in messages:
            try:
                found.append(decode_message(body))
            except InvalidRequest as error:
                _logger.warning("%s: %s. It is skipped", self._url, error)
                found.append(None)
        return found
