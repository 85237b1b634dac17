"""Mutations of append services and of the writers that use them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from unittest import mock

from eoslog.errors import EosLogError
from eoslog.log.append_client import AppendClient
from eoslog.log.contention import AppendGroup, Contention
from eoslog.log.next_record import NextRecord
from eoslog.log.record_put import PutResult
from eoslog.log.replica import Replica
from eoslog.log.slots import decode_line, first_line
from eoslog.maintenance.append_service import AppendService
from eoslog.storage.append_channel import Channel
from tests.simulation.focus import FOCUSES
from tests.simulation.mutations.mutation import method, mutation

SERVICES = FOCUSES["append-services"]


@mutation(SERVICES)
def answered_before_the_record_is_in_the_log() -> Iterator[None]:
    """A service answers before its put is known: it acknowledges a request whose record lost its race."""

    def append_for(self: AppendService, taken: list[Any]) -> None:
        log = self._store.log
        put = log.appender._put.put
        left = list(taken)

        def answer_first(record: NextRecord) -> PutResult:
            while left:
                self._tell(left.pop(), b"%d\n" % record.slot_record.slot + first_line(record.body))
            return put(record)

        with mock.patch.object(log.appender._put, "put", answer_first), suppress(EosLogError):
            log.append_for_others([each.message for each in taken])
        for each in left:
            self._tell(each, b"")

    with method(AppendService, "_append_for", append_for):
        yield


@mutation(SERVICES)
def records_after_a_gap_followed() -> Iterator[None]:
    """A writer folds records of a service that do not continue its own: its state lacks the records between them."""

    def follow(self: Replica[Any], records: bytes) -> bool:
        first, *lines = records.split(b"\n")
        for slot, line in enumerate(lines, int(first or 0)):
            if slot > self.slot:
                self.fold(decode_line(line, slot), line)
        return bool(lines)

    with method(Replica, "follow", follow):
        yield


@mutation(SERVICES)
def dead_service_awaited() -> Iterator[None]:
    """A writer waits for a service without a time limit: it never appends by itself, and stops."""
    original = AppendClient.ask

    def ask(self: AppendClient, message: bytes, deadline_ms: int | None) -> bytes | None:
        answer = original(self, message, deadline_ms)
        if answer is None:
            self._environment.wait_for(threading.Event())
        return answer

    with method(AppendClient, "ask", ask):
        yield


@mutation(SERVICES)
def any_answer_taken_for_success() -> Iterator[None]:
    """A writer takes any answer for success: a request that the records lack is acknowledged."""
    original = Contention.append_through_service

    def append_through_service(self: Contention, group: AppendGroup) -> None:
        sent_before = [proposal for proposal in group.pending if proposal.sent is not None]
        original(self, group)
        for proposal in group.pending:
            is_answered = self._client._socket is not None
            if proposal.sent is not None and proposal not in sent_before and is_answered:
                proposal.answer = self._replica.slot
                proposal.finish()
        group.drop_settled()

    with method(Contention, "append_through_service", append_through_service):
        yield


@mutation(SERVICES)
def unanswered_request_forgotten() -> Iterator[None]:
    """A writer forgets a request that a service did not answer: it reports a failure, and the request lands later."""
    original = Contention.append_through_service

    def append_through_service(self: Contention, group: AppendGroup) -> None:
        drop_settled = group.drop_settled

        def forget() -> None:
            for proposal in group.pending:
                if proposal.sent is not None and not proposal.has_landed:
                    self._replica.awaited.pop(proposal.sent.request_id, None)
                    proposal.sent = None
            drop_settled()

        with mock.patch.object(group, "drop_settled", forget):
            original(self, group)

    with method(Contention, "append_through_service", append_through_service):
        yield


@mutation(
    unit_test="unit/maintenance/test_append_service_strangers.py::test_a_stranger_without_the_key_changes_nothing"
)
def strangers_appended_for() -> Iterator[None]:
    """A service does not check that a writer has the store's key: any program that reaches its port may write."""
    with (
        method(Channel, "check_proof", lambda self, proof: None),
        method(Channel, "check", lambda self, header, body: body),
    ):
        yield


@mutation(unit_test="unit/storage/test_append_channel.py::test_a_repeated_or_dropped_frame_is_refused")
def frames_taken_twice() -> Iterator[None]:
    """The HMAC of a frame lacks its number: an attacker on the network repeats or drops frames."""
    original = Channel._hmac

    def unnumbered(self: Channel, side: bytes, body: bytes) -> bytes:
        self._numbers[side] = 0
        return original(self, side, body)

    with method(Channel, "_hmac", unnumbered):
        yield
