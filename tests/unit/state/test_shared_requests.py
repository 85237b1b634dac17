"""Requests that any process may append: after one was done or refused once, every later state refuses it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import EosLogError, IllegalGeneration, InvalidEntry, InvalidProducerEpoch
from eoslog.session.store_machine import StoreMachine
from eoslog.state import producer_ids
from eoslog.state.append_requests import AppendBatches
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request
from eoslog.state.entries import Entry, HorizonMoved, LogStartMoved, TopicCreated
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.sequences import SEQUENCES, DuplicateBatch, sequence_after
from eoslog.state.state_machine import encode_entry
from eoslog.state.transaction_ends import EndRepeated
from eoslog.state.transaction_entries import ApplicationVersion, BatchAppended, ProducerInitialized
from tests.unit.state.histories import TOPIC_ID, History, in_record, joining, offsets_of, planned_expiry, topic_created

MACHINE = StoreMachine()
DAY_MS = 24 * 3600 * 1000
ALONE = "alone"
"""The producer without a transactional id."""


def for_another(history: History, *entries: Entry) -> None:
    """Append entries like a process that has read them in another process's publication."""
    encoded = [encode_entry(entry) for entry in entries]
    history.append(lambda draft: MACHINE.append_for_another(draft, encoded, {}))


def refused_for_another(history: History, *entries: Entry) -> Exception:
    encoded = [encode_entry(entry) for entry in entries]
    return history.refused(lambda draft: MACHINE.append_for_another(draft, encoded, {}))


@dataclass
class Producer:
    """What one producer knows. It sends one request after the other."""

    name: str
    identity: ProducerIdentity
    sequence: int = 0
    outstanding: tuple[Entry, ...] = ()
    must_abort: bool = False


@dataclass
class Run:
    """A history driven by random steps. Any process may append each request of a producer at any time."""

    data: st.DataObject
    history: History = field(default_factory=History)
    topics: list[str] = field(default_factory=lambda: [TOPIC_ID])
    producers: list[Producer] = field(default_factory=list)
    """All producers that ever were. Those that were fenced or expired go on, too."""
    copies: list[tuple[Entry, ...]] = field(default_factory=list)
    """Every request that was ever published."""
    over: list[tuple[Entry, ...]] = field(default_factory=list)
    """Requests that were done, or that the newest state refused."""

    def draw(self, values: list[Any]) -> Any:
        return self.data.draw(st.sampled_from(values))

    def step(self) -> None:
        kinds = ["init", "publish", "publish", "publish", "another", "another", "own", "own", "prepare"]
        kinds += ["time_out", "expire", "vacuum", "topic", "truncate", "admin", "terminate", "later", "give_up"]
        getattr(self, self.draw(kinds))()
        for request in self.over:
            refused_for_another(self.history, *request)

    def init(self) -> None:
        name = self.draw(["x", "y", ALONE])
        options = {} if name == ALONE else {"keep_prepared": self.draw([False, True])}
        identity = self.history.init(None if name == ALONE else name, **options)
        self.producers.append(Producer(name, identity))

    def publish(self) -> None:
        ready = [each for each in self.producers if not each.outstanding]
        if not ready:
            return
        producer = self.draw(ready)
        kinds = ["batch"] if producer.name == ALONE else ["batch", "batch", "commit", "abort"]
        kind = "abort" if producer.must_abort else self.draw(kinds)
        producer.outstanding = (self._batch(producer),) if kind == "batch" else (self._end(producer, kind),)
        self.copies.append(producer.outstanding)

    def _batch(self, producer: Producer) -> BatchAppended:
        count = self.draw([1, 2, SEQUENCES // 2])
        sequence, producer.sequence = producer.sequence, sequence_after(producer.sequence, count)
        name = None if producer.name == ALONE else producer.name
        return self.history.batch(
            producer.identity, sequence, count, transactional_id=name, topic_id=self.draw(self.topics)
        )

    def _end(self, producer: Producer, outcome: str) -> Entry:
        content: dict[str, Any] = {}
        if outcome == "commit" and self.draw([False, True, True]):
            content |= {"batches": [self.history.staged(topic_id=self.draw(self.topics))]}
            content |= {"upload_ms": self.history.now_ms}
        if outcome == "commit" and self.draw([False, True]):
            content |= {"offsets": [offsets_of("g", 7, topic_id=self.draw(self.topics))]}
        return end_request(
            producer.name,
            producer.identity,
            outcome,
            content=TransactionContent(**content),
            time_ms=self.history.now_ms,
        )

    def another(self) -> None:
        """Another process appends a copy, however old."""
        if not self.copies:
            return
        request = self.draw(self.copies)
        try:
            for_another(self.history, *request)
        except (EosLogError, DuplicateBatch, EndRepeated):
            return
        assert request not in self.over
        self.over.append(request)

    def own(self) -> None:
        """A producer appends its request itself, and learns the outcome."""
        waiting = [each for each in self.producers if each.outstanding]
        if not waiting:
            return
        producer = self.draw(waiting)
        request, producer.outstanding = producer.outstanding, ()
        (entry,) = request
        try:
            if isinstance(entry, BatchAppended):
                self.history.append(lambda draft: draft.append(entry).base_offset)
            else:
                producer.identity = self.history.append(lambda draft: EndTransaction(entry).apply(draft).identity)  # type: ignore[arg-type]
                producer.sequence, producer.must_abort = 0, False
        except DuplicateBatch:
            pass
        except EosLogError:
            producer.must_abort = True
            if producer.name == ALONE or not isinstance(entry, BatchAppended):
                # This identity is of no more use, or a program may give it up. Another producer takes its place.
                self.producers.remove(producer)
        if request not in self.over:
            self.over.append(request)

    def give_up(self) -> None:
        """A producer without a transaction gives up its request, which may still land, and raises its epoch."""
        waiting = [each for each in self.producers if each.name == ALONE and each.outstanding]
        if waiting:
            producer = self.draw(waiting)
            epoch = producer.identity.producer_epoch
            producer.identity = producer.identity._replace(producer_epoch=epoch + 1)
            producer.sequence, producer.outstanding = 0, ()

    def prepare(self) -> None:
        ready = [each for each in self.producers if each.name != ALONE and not each.outstanding]
        if ready:
            producer = self.draw(ready)
            try:
                self.history.prepare(producer.identity, producer.name)
            except EosLogError:
                producer.must_abort = True

    def time_out(self) -> None:
        self.history.now_ms += 61_000
        self.history.abort_timed_out()

    def later(self) -> None:
        self.history.now_ms += 1

    def expire(self) -> None:
        self.history.now_ms += self.draw([DAY_MS, 8 * DAY_MS])
        entry = planned_expiry(self.history.state, self.history.now_ms)
        if entry is not None:
            self.history.append(lambda draft: draft.append(entry))

    def vacuum(self) -> None:
        if self.history.state.horizon_ms < self.history.now_ms:
            horizon = HorizonMoved(horizon_ms=self.history.now_ms)
            self.history.append(lambda draft: draft.append(horizon))
            self.history.now_ms += 1

    def topic(self) -> None:
        self.history.delete_topic("t", self.topics[-1])
        self.topics.append(f"{len(self.topics):032x}")
        created: TopicCreated = topic_created("t", self.topics[-1])
        self.history.append(lambda draft: draft.append(created))

    def truncate(self) -> None:
        partition = self.history.partition(0, self.topics[-1])
        if partition.last_stable_offset > partition.log_start_offset:
            moved = LogStartMoved(
                topic_id=self.topics[-1], partition=0, offset=partition.last_stable_offset, reason="delete_records"
            )
            self.history.append(lambda draft: draft.append(moved))

    def admin(self) -> None:
        self._to_open_one(self.history.abort_by_admin)

    def terminate(self) -> None:
        self._to_open_one(self.history.force_terminate)

    def _to_open_one(self, end: Any) -> None:
        known = [name for name in ("x", "y") if name in self.history.state.transactions]
        if known:
            with suppress(EosLogError):
                end(self.draw(known))


@given(st.data(), st.sampled_from([1, 2, producer_ids.LAST_USABLE_EPOCH]))
def test_a_request_that_was_done_or_refused_once_is_refused_for_ever(data: st.DataObject, last_epoch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_ids, "LAST_USABLE_EPOCH", last_epoch)
        run = Run(data)
        for _ in range(data.draw(st.integers(5, 40))):
            run.step()


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_an_old_batch_is_refused_after_its_producer_has_used_all_sequences(transactional_id: str | None) -> None:
    history = History()
    identity = history.init(transactional_id)
    count = SEQUENCES // 8
    first = history.batch(identity, 0, count, transactional_id=transactional_id)
    for_another(history, first)
    for number in range(1, 8):
        history.now_ms += 1
        history.send(identity, number * count, count, transactional_id=transactional_id)

    assert isinstance(refused_for_another(history, first), InvalidEntry)
    history.send(identity, 0, count, transactional_id=transactional_id)


def test_a_batch_of_a_flush_of_several_batches_is_not_older_than_the_others() -> None:
    history = History()
    identity = history.init(None)
    batches = [history.batch(identity, transactional_id=None, partition=partition) for partition in (0, 1)]

    for_another(history, *batches)

    assert [history.partition(partition).next_offset for partition in (0, 1)] == [1, 1]


def test_a_batch_that_was_given_up_is_refused_once_its_producer_has_written_with_the_next_epoch() -> None:
    history = History()
    identity = history.init(None)
    given_up = history.batch(identity, transactional_id=None)
    history.send(identity._replace(producer_epoch=1), transactional_id=None)

    assert isinstance(refused_for_another(history, given_up), InvalidProducerEpoch)


def test_a_batch_that_may_register_its_producer_is_appended_by_its_own_process_alone() -> None:
    """Its producer id may expire after it has landed, and then a late copy would be there twice."""
    history = History()
    identity = history.init(None)
    batch = history.batch(identity, transactional_id=None, registers_producer=True)

    assert isinstance(refused_for_another(history, batch), InvalidEntry)
    assert not AppendBatches([batch]).shared_entries
    history.append(AppendBatches([batch]).apply)


def test_an_end_with_the_offsets_of_a_member_is_appended_by_its_own_process_alone() -> None:
    """The group refuses the offset of another member's partition. It may come back in the same generation."""
    history = History()
    history.change_group(joining("a"))
    content = TransactionContent(offsets=[offsets_of("g", 1, 1, "a")])
    end = end_request("tx", history.init(), "commit", content=content, time_ms=1)

    assert isinstance(refused_for_another(history, end), InvalidEntry)
    history.append(lambda draft: EndTransaction(end).apply(draft).identity)


def test_a_given_up_offset_may_return_at_the_same_generation() -> None:
    history = History()
    history.change_group(joining("a"))
    history.change_group(joining("b", instance="second"))
    history.change_group(revoked=["a"])
    group = history.change_group(joining("c"))
    (place,) = group.members["b"].assigned + group.members["b"].revoking
    offsets = offsets_of("g", 1, group.generation, "a", partition=place.partition)
    end = end_request("tx", history.init(), "commit", content=TransactionContent(offsets=[offsets]), time_ms=1)

    refusal = history.refused(lambda draft: EndTransaction(end).apply(draft))

    assert isinstance(refusal, IllegalGeneration)
    assert isinstance(refused_for_another(history, end), InvalidEntry)


def test_a_request_of_another_process_needs_the_content_of_its_files() -> None:
    history = History()
    batch = history.batch(history.init())
    batch = batch.model_copy(update={"file": in_record(batch.file)})
    content = bytes(batch.file.length)
    entries = [encode_entry(batch)]

    for files in ({}, {batch.file.path: content[1:]}, {batch.file.path: b"x" + content[1:]}):
        refused = history.refused(lambda draft, files=files: MACHINE.append_for_another(draft, entries, files))
        assert isinstance(refused, InvalidEntry)
    history.append(lambda draft: MACHINE.append_for_another(draft, entries, {batch.file.path: content}))

    assert history.partition().next_offset == 1


def test_only_batches_and_ends_of_producers_are_appended_for_others() -> None:
    history = History()
    identity = history.init()
    init = ProducerInitialized(
        transactional_id="y", timeout_ms=1, producer_id=3 << 20, producer_epoch=0, time_ms=history.now_ms
    )
    application_version = ApplicationVersion(application_id="app", sink="*", version=1)
    ends = [
        end_request(
            "tx", identity, "commit", content=TransactionContent(application_version=application_version), time_ms=1
        ),
        end_request("tx", identity, "abort", time_ms=1, reason="timeout"),
        end_request("tx", identity, "commit", content=TransactionContent(task_count=1), time_ms=1),
    ]

    for request in ([init], [], *([end] for end in ends), [history.batch(identity), init]):
        assert isinstance(refused_for_another(history, *request), InvalidEntry)
