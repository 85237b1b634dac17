"""Random histories against a naive model, and against their own checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotCoordinator,
    ProducerFenced,
    Replayed,
    UnknownMember,
)
from eoslog.format import checkpoint_codec as checkpoint
from eoslog.format.partition_rows import PARTITIONS_PREFIX
from eoslog.state.append_requests import AppendBatches
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request, prepare_request
from eoslog.state.entries import HorizonMoved, LogStartMoved, PartitionsCreated, TopicConfig, TopicConfigChanged
from eoslog.state.group_entries import GroupDeleted, OffsetsCommitted
from eoslog.state.group_members import ChangeGroup
from eoslog.state.groups import EMPTY_GROUP, committed_offset
from eoslog.state.invariants import broken_in_store
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import AbortedTransaction, Batch, Control, ProducerState, collect_aborted
from eoslog.state.pending_offsets import pending_partitions
from eoslog.state.producer_ids import LAST_USABLE_EPOCH, ProducerIdentity
from eoslog.state.sequences import DuplicateBatch
from eoslog.state.store_state import Group, StoreState
from eoslog.state.transaction_entries import BatchAppended
from eoslog.state.transaction_requests import AbortTransaction, AddToTransaction, FenceProducer, PrepareTransaction
from tests.depth import examples
from tests.unit.state.histories import (
    TOPIC_ID,
    History,
    Model,
    coordinating,
    joining,
    offsets_of,
    planned_expiry,
    topic_created,
    visible,
)
from tests.unit.state.parts import parts_of

PARTITIONS = 2


@dataclass
class Sealed:
    """A sealed segment, as the state had it before."""

    base_offset: int
    end_offset: int
    batches: list[Batch]
    aborted: list[AbortedTransaction]
    start_producers: dict[int, ProducerState]


def replayed(batches: list[Batch], start_producers: dict[int, ProducerState]) -> list[AbortedTransaction]:
    """A segment's aborted transactions from its batches and the producers at its start, as Kafka recovers them."""
    started = {each.producer_id: each.current_txn_first_offset for each in start_producers.values()}
    opened = {producer_id: offset for producer_id, offset in started.items() if offset >= 0}
    aborted = []
    for batch in batches:
        if batch.control is None:
            if batch.transactional and batch.base_sequence >= 0:
                opened.setdefault(batch.producer_id, batch.base_offset)
            continue
        first_offset = opened.pop(batch.producer_id, None)
        if first_offset is not None and batch.control is Control.ABORT:
            stable = min(opened.values(), default=batch.base_offset + 1)
            aborted.append(AbortedTransaction(batch.producer_id, first_offset, batch.base_offset, stable))
    return aborted


class Run:
    """A history driven by random steps, with the model beside it."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.history = History(PARTITIONS)
        self.model = Model()
        self.identities: dict[str, ProducerIdentity] = {}
        self.names: dict[str, str] = {}
        """The open transaction of each transactional id, as the model calls it."""
        self.prepared: dict[str, tuple[list[int], int | None]] = {}
        """Of each prepared transaction, the staged rows by partition and its time-out."""
        self.added: dict[str, set[int]] = {}
        """The partitions that were added to each open transaction."""
        self.pending: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
        """The group offsets that were added to each open transaction, by group and partition, with their slots."""
        self.offsets: dict[tuple[str, int], tuple[int, int]] = {}
        """The offset of each group and partition, with the slot that put it into the log."""
        self.fenced: list[tuple[str, ProducerIdentity]] = []
        """Identities whose transactional id was taken over."""
        self.sequences: dict[tuple[str, int], int] = {}
        self.sent: list[BatchAppended] = []
        self.sealed: dict[int, list[Sealed]] = {partition: [] for partition in range(PARTITIONS)}
        self.producers: dict[tuple[int, int], dict[int, ProducerState]] = {}
        """What was known of producers when a partition ended at an offset."""
        self.stable: dict[int, int] = {}
        self.version = 0
        self.counter = 0

    def draw_producer(self) -> str:
        return self.data.draw(st.sampled_from(["x", "y", "z"]))

    def step(self) -> None:
        kinds = ["send"] * 6 + ["commit", "abort"] * 2
        kinds += ["init", "retry", "zombie", "time", "stage", "job", "replay", "alone", "roll", "other"]
        kinds += ["seal", "forget"] + ["prepare"] * 4 + ["keep"] * 2 + ["force", "fence"]
        kinds += ["commit_keeping_epoch", "abort_keeping_epoch"] * 2 + ["add"] * 4 + ["send_to_added"] * 2
        kinds += ["end_late", "delete_group"] + ["coordinate"] * 2
        getattr(self, self.data.draw(st.sampled_from(kinds)))()
        self.counter += 1
        self.check()

    def identity(self, name: str) -> ProducerIdentity:
        if name not in self.identities:
            self.identities[name] = self.history.init(name)
        return self.identities[name]

    def begin_sequences(self, name: str) -> None:
        for partition in range(PARTITIONS):
            self.sequences[(name, partition)] = 0

    def forget_open(self, name: str, outcome: str, *, keeps_epoch: bool = False) -> None:
        counts, _ = self.prepared.pop(name, ([], None))
        if outcome == "commit":
            for partition, count in enumerate(counts):
                if count:
                    self.model.write(partition, self.names[name], count)
        if name in self.names:
            self.model.end(self.names.pop(name), outcome)
        self.added.pop(name, None)
        for place, (offset, slot) in self.pending.pop(name, {}).items():
            if outcome == "commit" and slot > self.offsets.get(place, (0, -1))[1]:
                self.offsets[place] = (offset, slot)
        if not keeps_epoch:
            self.begin_sequences(name)

    def send(self, *, needs_added_partition: bool = False) -> None:
        name, partition = self.draw_producer(), self.data.draw(st.integers(0, PARTITIONS - 1))
        count = self.data.draw(st.integers(1, 3))
        sequence = self.sequences.get((name, partition), 0)
        batch = self.history.batch(self.identity(name), sequence, count, transactional_id=name, partition=partition)
        request = AppendBatches([batch], needs_added_partition=needs_added_partition)
        if name in self.prepared or (needs_added_partition and partition not in self.partitions_of(name)):
            assert isinstance(self.history.refused(request.apply), InvalidTxnState)
            return
        ((_, offset, _),) = self.history.append(request.apply)
        assert offset == len(self.model.rows.get(partition, ()))
        self.sent.append(batch)
        self.sequences[(name, partition)] = sequence + count
        self.model.write(partition, self.names.setdefault(name, f"{name}#{self.counter}"), count)

    def send_to_added(self) -> None:
        self.send(needs_added_partition=True)

    def partitions_of(self, name: str) -> set[int]:
        """The partitions of the open transaction, added or with rows."""
        return self.model.touched.get(self.names.get(name, ""), set()) | self.added.get(name, set())

    def add(self) -> None:
        """Partitions and group offsets join a transaction, or begin it."""
        name, may_begin = self.draw_producer(), not self.data.draw(st.booleans())
        partitions = self.data.draw(st.lists(st.integers(0, PARTITIONS - 1), max_size=2))
        places = st.tuples(st.sampled_from(["g", "h"]), st.integers(0, PARTITIONS - 1))
        offsets = dict.fromkeys(self.data.draw(st.lists(places, max_size=2, unique=True)), self.counter)
        committed = [offsets_of(group, offset, partition=partition) for (group, partition), offset in offsets.items()]
        entry = self.history.addition(self.identity(name), *partitions, offsets=committed, transactional_id=name)
        request = AddToTransaction(entry, None if may_begin else self.history.transaction(name).start_slot)
        if name in self.prepared or (name not in self.names and not may_begin):
            assert isinstance(self.history.refused(request.apply), InvalidTxnState)
            return
        slot = self.history.slot
        self.history.append(request.apply)
        is_repeated = name in self.names and not offsets and set(partitions) <= self.partitions_of(name)
        assert self.history.slot == (slot if is_repeated else slot + 1)
        self.names.setdefault(name, f"{name}#{self.counter}")
        self.added.setdefault(name, set()).update(partitions)
        pending = self.pending.setdefault(name, {})
        pending |= {place: (offset, self.history.slot) for place, offset in offsets.items()}

    def alone(self) -> None:
        if "" not in self.identities:
            self.identities[""] = self.history.init(None)
        if self.data.draw(st.sampled_from([False, False, True])):
            identity = self.identities[""]
            self.identities[""] = identity._replace(producer_epoch=identity.producer_epoch + 1)
            self.sequences[("", 0)] = 0
        sequence = self.sequences.get(("", 0), 0)
        batch = self.history.batch(self.identities[""], sequence, 2, transactional_id=None)
        self.history.append(lambda draft: draft.append(batch).base_offset)
        self.sent.append(batch)
        self.sequences[("", 0)] = sequence + 2
        self.model.write(0, None, 2)

    def retry(self) -> None:
        """A batch is sent again: it is recognised, or its epoch is over."""
        if not self.sent:
            return
        batch = self.data.draw(st.sampled_from(self.sent))
        error = self.history.refused(lambda draft: draft.append(batch).base_offset)
        current = self.identities.get(batch.transactional_id or "")
        alive = current == (batch.producer_id, batch.producer_epoch)
        assert isinstance(error, DuplicateBatch if alive else ProducerFenced | InvalidProducerEpoch)

    def end(self, outcome: str) -> None:
        name = self.draw_producer()
        if name not in self.names:
            return
        before = self.identity(name)
        self.identities[name] = self.history.end(before, outcome, name)
        self.forget_open(name, outcome)
        slot = self.history.slot
        assert self.history.end(before, outcome, name) == self.identities[name]
        assert self.history.slot == slot

    def commit(self) -> None:
        self.end("commit")

    def abort(self) -> None:
        self.end("abort")

    def commit_keeping_epoch(self) -> None:
        self.end_keeping_epoch("commit")

    def abort_keeping_epoch(self) -> None:
        self.end_keeping_epoch("abort")

    def end_keeping_epoch(self, outcome: str) -> None:
        name = self.draw_producer()
        identity = self.identity(name)
        request = EndTransaction(end_request(name, identity, outcome, keeps_epoch=True, time_ms=self.history.now_ms))
        if name in self.prepared:
            assert isinstance(self.history.refused(request.apply), InvalidTxnState)
            return
        if name not in self.names:
            return
        assert self.history.append(request.apply) == (identity, True)
        self.forget_open(name, outcome, keeps_epoch=True)
        slot = self.history.slot
        assert self.history.append(request.apply) == (identity, True)
        assert self.history.slot == slot
        other = end_request(name, identity, "abort" if outcome == "commit" else "commit", keeps_epoch=True, time_ms=0)
        assert isinstance(self.history.refused(EndTransaction(other).apply), InvalidTxnState)

    def end_late(self) -> None:
        """A holder that was fenced is never told that its transaction was ended, whatever its successors ended."""
        if not self.fenced:
            return
        name, identity = self.data.draw(st.sampled_from(self.fenced))
        for outcome in ("commit", "abort"):
            for keeps_epoch in (False, True):
                request = EndTransaction(end_request(name, identity, outcome, keeps_epoch=keeps_epoch, time_ms=0))
                assert isinstance(self.history.refused(request.apply), ProducerFenced | InvalidProducerIdMapping)

    def init(self) -> None:
        name = self.draw_producer()
        if name in self.identities:
            self.fenced.append((name, self.identities[name]))
        self.identities[name] = self.history.init(name)
        self.forget_open(name, "abort")

    def prepare(self) -> None:
        name, timeout_ms = self.draw_producer(), self.data.draw(st.sampled_from([None, 30_000]))
        if name in self.prepared:
            return
        counts = [self.data.draw(st.integers(0, 2)) for _ in range(PARTITIONS)]
        batches = tuple(self.history.staged(n, partition=p) for p, n in enumerate(counts) if n)
        identity = self.identity(name)
        if self.pending.get(name):
            request = prepare_request(name, identity, timeout_ms=timeout_ms, time_ms=self.history.now_ms)
            assert isinstance(self.history.refused(PrepareTransaction(request).apply), InvalidTxnState)
            return
        named = self.history.prepare(identity, name, batches=batches, timeout_ms=timeout_ms)
        slot = self.history.slot
        assert named == identity == self.history.prepare(identity, name, batches=batches, timeout_ms=timeout_ms)
        assert self.history.slot == slot
        self.names.setdefault(name, f"{name}#{self.counter}")
        self.prepared[name] = (counts, timeout_ms)

    def keep(self) -> None:
        """A holder dies, and the next one keeps what is prepared."""
        name = self.draw_producer()
        stale = self.identity(name)
        self.identities[name] = self.history.init(name, keep_prepared=True)
        assert self.identities[name] != stale
        if name not in self.prepared:
            self.forget_open(name, "abort")
            return
        self.begin_sequences(name)
        for outcome in ("commit", "abort"):
            request = end_request(name, stale, outcome, time_ms=0)
            error = self.history.refused(lambda draft, request=request: EndTransaction(request).apply(draft))
            assert isinstance(error, ProducerFenced)

    def force(self) -> None:
        name = self.draw_producer()
        before = self.identity(name)
        if name in self.prepared:
            error = self.history.refused(lambda draft: AbortTransaction(name, reason="admin", time_ms=0).apply(draft))
            assert isinstance(error, InvalidTxnState)
        assert self.history.force_terminate(name) is (name in self.names)
        transaction = self.history.transaction(name)
        self.identities[name] = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
        assert (self.identities[name] == before) is (name not in self.names)
        self.forget_open(name, "abort", keeps_epoch=name not in self.names)

    def fence(self) -> None:
        name = self.draw_producer()
        stale = self.identity(name)
        if name in self.prepared:
            error = self.history.refused(lambda draft: FenceProducer(name, time_ms=0).apply(draft))
            assert isinstance(error, InvalidTxnState)
            return
        assert self.history.fence(name) is (name in self.names)
        transaction = self.history.transaction(name)
        self.identities[name] = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
        assert self.identities[name] != stale
        self.fenced.append((name, stale))
        self.forget_open(name, "abort")

    def zombie(self) -> None:
        """One that was fenced neither writes nor ends anything."""
        name = self.draw_producer()
        stale = self.identity(name)
        self.identities[name] = self.history.init(name)
        self.forget_open(name, "abort")
        batch = self.history.batch(stale, transactional_id=name)
        assert isinstance(self.history.refused(lambda draft: draft.append(batch).base_offset), ProducerFenced)
        request = end_request(name, stale, "commit", time_ms=0)
        assert isinstance(self.history.refused(lambda draft: EndTransaction(request).apply(draft)), ProducerFenced)

    def time(self) -> None:
        self.history.now_ms += self.data.draw(st.integers(1, 50_000))
        for name in self.history.abort_timed_out():
            transaction = self.history.transaction(name)
            self.identities[name] = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
            assert name not in self.prepared or self.prepared[name][1] is not None
            self.forget_open(name, "abort")

    def stage(self) -> None:
        name, count = self.draw_producer(), self.data.draw(st.integers(1, 3))
        batches = tuple(self.history.staged(count, partition=partition) for partition in range(PARTITIONS))
        if name in self.prepared:
            content = TransactionContent(batches=batches, upload_ms=self.history.now_ms)
            request = end_request(name, self.identity(name), "commit", content=content, time_ms=0)
            assert isinstance(self.history.refused(lambda draft: EndTransaction(request).apply(draft)), InvalidTxnState)
            return
        self.identities[name] = self.history.commit(
            self.identity(name), name, batches=batches, upload_ms=self.history.now_ms
        )
        transaction = self.names.pop(name, f"{name}#{self.counter}")
        for partition in range(PARTITIONS):
            self.model.write(partition, transaction, count)
        self.model.end(transaction, "commit")
        self.forget_open(name, "commit")

    def job(self) -> None:
        self.version += 1
        owner = self.data.draw(st.sampled_from(["run", f"run#{self.counter}"]))
        try:
            self.history.job(
                owner, self.history.staged(2, task=0), self.history.staged(1, task=1), version=self.version
            )
        except ProducerFenced:
            assert owner in self.history.transaction("job").fenced_owners
            return
        self.model.write(0, f"job#{self.counter}", 3)
        self.model.end(f"job#{self.counter}", "commit")

    def replay(self) -> None:
        committed = max((last.version for last in self.history.state.application_versions.values()), default=-1)
        if committed < 0:
            return
        owner = self.history.transaction("job").owner or ""
        try:
            self.history.job(owner, self.history.staged(task=0), version=committed)
        except Replayed:
            return
        raise AssertionError("a replay was committed")

    def seal(self) -> None:
        for partition in range(PARTITIONS):
            place = self.history.partition(partition)
            ends = [batch.end_offset for batch in place.active if batch.end_offset <= place.last_stable_offset]
            if not ends:
                continue
            end = self.data.draw(st.sampled_from(ends))
            self.sealed[partition].append(
                Sealed(
                    place.segment_base_offset,
                    end,
                    [batch for batch in place.active if batch.end_offset <= end],
                    [txn for txn in place.aborted if txn.last_offset < end],
                    dict(place.start_producers),
                )
            )
            self.history.seal(end, partition)

    def forget(self) -> None:
        """The log start moves, to anywhere up to the last stable offset: into batches and segments, too."""
        partition = self.data.draw(st.integers(0, PARTITIONS - 1))
        place = self.history.partition(partition)
        if place.log_start_offset == place.last_stable_offset:
            return
        offset = self.data.draw(st.integers(place.log_start_offset + 1, place.last_stable_offset))
        entry = LogStartMoved(topic_id=TOPIC_ID, partition=partition, offset=offset, reason="delete_records")
        self.history.append(lambda draft: draft.append(entry))
        self.sealed[partition] = [segment for segment in self.sealed[partition] if segment.end_offset > offset]

    def roll(self) -> None:
        """An epoch comes near its end, also while a transaction is prepared."""
        name = self.draw_producer()
        is_there = self.identity(name).producer_epoch == LAST_USABLE_EPOCH
        if not is_there and (name not in self.names or name in self.prepared):
            self.identities[name] = self.history.at_epoch(LAST_USABLE_EPOCH, name)
            self.begin_sequences(name)

    def other(self) -> None:
        """What touches no row: groups, horizon, topics, expiry."""
        history, kind = self.history, self.data.draw(st.integers(0, 4))
        if kind == 0:
            entry = OffsetsCommitted(committed=offsets_of("g", self.counter), time_ms=0)
            if history.change_group().members:
                assert isinstance(history.refused(lambda draft: draft.append(entry)), UnknownMember)
            else:
                history.append(lambda draft: draft.append(entry))
                self.offsets["g", 0] = (self.counter, history.slot)
        elif kind == 1:
            self.change_group()
        elif kind == 2 and history.now_ms > 2 and history.state.horizon_ms < history.now_ms - 1:
            horizon_ms = history.now_ms - 1
            history.append(lambda draft: draft.append(HorizonMoved(horizon_ms=horizon_ms)))
        elif kind == 3:
            name, topic_id = f"u{self.counter}", f"{self.counter:032x}"
            history.append(lambda draft: draft.append(topic_created(name, topic_id, 1)))
            if self.data.draw(st.booleans()):
                history.delete_topic(name, topic_id)
        elif kind == 4:
            name, topic_id = f"v{self.counter}", f"f{self.counter:031x}"
            history.append(lambda draft: draft.append(topic_created(name, topic_id, 1)))
            config = TopicConfigChanged(topic=name, topic_id=topic_id, config=TopicConfig(retention_ms=self.counter))
            history.append(lambda draft: draft.append(config))
            more = PartitionsCreated(topic=name, topic_id=topic_id, partitions=self.data.draw(st.integers(2, 3)))
            history.append(lambda draft: draft.append(more))

    def delete_group(self) -> None:
        entry = GroupDeleted(group="h")
        places = {place for place in {*self.offsets, *self.pending_places()} if place[0] == "h"}
        if not places:
            assert isinstance(self.history.refused(lambda draft: draft.append(entry)), GroupIdNotFound)
            return
        self.history.append(lambda draft: draft.append(entry))
        for offsets in [self.offsets, *self.pending.values()]:
            for place in places & offsets.keys():
                del offsets[place]

    def pending_places(self) -> set[tuple[str, int]]:
        return {place for offsets in self.pending.values() for place in offsets}

    def change_group(self) -> None:
        """Consumers join, leave and give up. None of them joins a coordinator."""
        names = st.sampled_from(["m1", "m2", "m3"])
        joined = self.data.draw(st.lists(names, max_size=2, unique=True))
        instance = self.data.draw(st.sampled_from([None, "i"]))
        left = self.data.draw(st.lists(st.sampled_from(["m1", "m2", "m3", "k1", "k2"]), max_size=2, unique=True))
        revoked = self.data.draw(st.lists(names, max_size=3, unique=True))
        members = [joining(name, instance=instance if name == "m1" else None) for name in joined]
        if joined and self.group().members.keys() & {"k1", "k2"} - set(left):
            with pytest.raises(InconsistentGroupProtocol):
                self.history.change_group(*members, left=left, revoked=revoked)
        else:
            self.history.change_group(*members, left=left, revoked=revoked)

    def coordinate(self) -> None:
        """A coordinator joins, takes over, or rebalances, and commits with some generation."""
        name = self.data.draw(st.sampled_from(["k1", "k2"]))
        left = self.data.draw(st.sampled_from([[], [], ["m1", "m2", "m3"], ["k1", "k2"]]))
        before = self.group()
        rest = before.members.keys() - set(left) - {name}
        request = ChangeGroup("g", self.history.now_ms, joined=coordinating(name), left=left)
        if rest:
            error = InconsistentGroupProtocol if rest & {"m1", "m2", "m3"} else NotCoordinator
            assert type(self.history.refused(request.apply)) is error
            return
        self.history.append(request.apply)
        assert (self.group().generation, set(self.group().members)) == (before.generation + 1, {name})
        generation = before.generation + self.data.draw(st.sampled_from([0, 1, 1, 2]))
        entry = OffsetsCommitted(committed=offsets_of("g", self.counter, generation, name), time_ms=0)
        if generation != self.group().generation:
            assert isinstance(self.history.refused(lambda draft: draft.append(entry)), IllegalGeneration)
            return
        self.history.append(lambda draft: draft.append(entry))
        self.offsets["g", 0] = (self.counter, self.history.slot)

    def group(self) -> Group:
        return self.history.state.groups.get("g", EMPTY_GROUP)

    def check(self) -> None:
        assert self.history.follower == self.history.state
        assert set(self.history.state.ongoing) == set(self.names)
        assert {name for name in self.names if self.history.transaction(name).prepared} == set(self.prepared)
        self.check_offsets()
        assert list(broken_in_store(self.history.state, self.history.slot)) == []
        for partition in range(PARTITIONS):
            place = self.history.partition(partition)
            assert place.high_watermark == len(self.model.rows.get(partition, ()))
            assert place.last_stable_offset == self.model.last_stable_offset(partition)
            assert place.last_stable_offset >= self.stable.get(partition, 0)
            assert place.last_stable_offset >= place.log_start_offset
            self.stable[partition] = place.last_stable_offset
            self.check_rows(partition)
            self.check_segments(partition)

    def check_offsets(self) -> None:
        """Groups have the offsets of the model, and the model's pending ones are pending."""
        state = self.history.state
        found = {
            (name, partition_id.partition): (offset.offset, offset.slot)
            for name, group in state.groups.items()
            for partition_id, offset in group.offsets.items()
        }
        assert found == self.offsets
        pending = {(name, each.partition) for name in ("g", "h") for each in pending_partitions(state, name)}
        assert pending == self.pending_places()

    def check_rows(self, partition: int) -> None:
        """Readers see what the model says, from the log start on."""
        place = self.history.partition(partition)
        batches = [batch for segment in self.sealed[partition] for batch in segment.batches] + place.active
        for committed, wanted in ((True, self.model.committed(partition)), (False, self.model.uncommitted(partition))):
            found = [each for each in visible(batches, place, committed=committed) if each >= place.log_start_offset]
            assert found == [each for each in wanted if each >= place.log_start_offset]

    def check_segments(self, partition: int) -> None:
        """What index files hold is what the model says, and what a replay of each segment gives."""
        place, sealed = self.history.partition(partition), self.sealed[partition]
        assert [segment.end_offset for segment in place.sealed] == [segment.end_offset for segment in sealed]
        first = sealed[0].base_offset if sealed else place.segment_base_offset
        assert first <= place.log_start_offset
        index = [
            (txn.first_offset, txn.last_offset, txn.last_stable_offset)
            for each in [*(segment.aborted for segment in sealed), place.aborted]
            for txn in each
        ]
        assert index == [txn for txn in self.model.aborted.get(partition, []) if txn[1] >= first]
        for segment in sealed:
            assert segment.aborted == replayed(segment.batches, segment.start_producers)
        self.producers[partition, place.next_offset] = dict(place.producers)
        starts = [(segment.base_offset, segment.start_producers) for segment in sealed]
        for base_offset, found in [*starts, (place.segment_base_offset, place.start_producers)]:
            for producer_id, state in self.producers.get((partition, base_offset), {}).items():
                if producer_id not in found and producer_id not in place.producers:
                    # It rolled over after that offset and before the seal.
                    continue
                # The marker of staged batches is a row like any other, though they leave no producer state.
                assert found[producer_id].producer_epoch >= state.producer_epoch
                if found[producer_id].producer_epoch == state.producer_epoch:
                    assert found[producer_id] == state._replace(batches=state.batches[-1:])

    def check_lookup(self) -> None:
        """Kafka's lookup over the sealed indexes and the active one finds what any range must know."""
        for partition in range(PARTITIONS):
            segments = [each.aborted for each in self.sealed[partition]] + [self.history.partition(partition).aborted]
            for fetch, upper in ((0, 3), (2, 9), (5, self.stable.get(partition, 0))):
                found: list[AbortedTransaction] = []
                for segment in segments:
                    part, complete = collect_aborted(segment, fetch, upper)
                    found += part
                    if complete:
                        break
                wanted = [t for each in segments for t in each if t.last_offset >= fetch and t.first_offset < upper]
                assert found == wanted


def restored(state: StoreState, slot: int) -> StoreState:
    return checkpoint.restore({part.name: part.encode() for part in checkpoint.parts(state, slot)})


@given(st.data())
def test_readers_see_what_the_definitions_say_at_every_slot_of_any_history(data: st.DataObject) -> None:
    run = Run(data)
    for _ in range(data.draw(st.integers(5, 40))):
        run.step()
    run.check_lookup()


@pytest.mark.scenario(45)
@given(st.data())
def test_a_checkpoint_holds_the_whole_state_and_the_history_goes_on_from_it(data: st.DataObject) -> None:
    run = Run(data)
    for _ in range(data.draw(st.integers(0, 30))):
        run.step()

    with parts_of(data.draw(st.sampled_from((1, 6, 8192)))):
        state = restored(run.history.state, run.history.slot)

    assert state == run.history.state
    for partition_id, partition in state.partitions.items():
        before = run.history.state.partitions[partition_id]
        assert list(partition.open_transactions) == list(before.open_transactions)
    run.history.state = state
    for _ in range(data.draw(st.integers(0, 10))):
        run.step()


@examples(10)
@given(st.data())
def test_a_part_whose_name_and_changed_slot_are_the_same_is_the_same(data: st.DataObject) -> None:
    run = Run(data)
    known: dict[tuple[str, int], bytes] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        run.step()
        for rows in (1, 6, 8192):
            with parts_of(rows):
                found = list(checkpoint.parts(run.history.state, run.history.slot))
            for part in found:
                if part.name.startswith(PARTITIONS_PREFIX):
                    body = part.encode()
                    assert known.setdefault((part.name, part.changed_slot), body) == body


@given(st.data())
def test_only_unused_ids_expire_and_open_transactions_stay(data: st.DataObject) -> None:
    run = Run(data)
    for _ in range(data.draw(st.integers(1, 25))):
        run.step()
    history = run.history
    ongoing = dict(history.state.ongoing)
    application_versions = dict(history.state.application_versions)
    history.now_ms += 10**12
    planned = planned_expiry(history.state, history.now_ms)
    if planned is not None:
        history.append(lambda draft: draft.append(planned))

    for group, partition in run.pending_places() & run.offsets.keys():
        assert committed_offset(history.state, group, PartitionId(TOPIC_ID, partition)) is not None
    assert history.state.ongoing == ongoing
    assert set(history.state.transactions) == set(ongoing)
    assert history.state.application_versions == application_versions
    assert not history.state.producers
    open_ids = {history.state.transactions[name].open_producer_id for name in ongoing}
    for partition in range(PARTITIONS):
        assert set(history.partition(partition).open_transactions) <= open_ids
    assert history.follower == history.state
