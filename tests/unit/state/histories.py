"""A small store of rules for tests: coordinator calls that become slots, and a naive model of what readers must see.

The model is written from the definitions alone: a list of rows per partition, each with its transaction's name; a
transaction's outcome decides its rows, and an open one holds the last stable offset.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from eoslog.format.checked_files import crc32c
from eoslog.session.store_machine import StoreMachine
from eoslog.state.append_requests import AppendBatches
from eoslog.state.draft import Draft
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request, prepare_request
from eoslog.state.entries import (
    Entry,
    Expired,
    SegmentSealed,
    SegmentsReplaced,
    StoreCreated,
    TopicConfig,
    TopicCreated,
    TopicDeleted,
    TopicSchema,
)
from eoslog.state.entry_fields import FileReference, SharedPosition, shared_object_path
from eoslog.state.expiry import ExpireUnused
from eoslog.state.group_entries import GroupMember, GroupOffsets
from eoslog.state.group_members import plan_group_change
from eoslog.state.groups import EMPTY_GROUP
from eoslog.state.jobs import CommitJob
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Batch, Outcome, Partition
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.state_machine import encode_entry
from eoslog.state.store_state import Group, StoreState, Transaction
from eoslog.state.transaction_entries import (
    AddedToTransaction,
    ApplicationVersion,
    BatchAppended,
    CommitSummary,
    QueryVersion,
    StagedBatch,
    TransactionPartition,
)
from eoslog.state.transaction_requests import (
    AbortOverdueTransactions,
    AbortTransaction,
    AddToTransaction,
    FenceProducer,
    ForceTerminateTransaction,
    InitProducerId,
    PrepareTransaction,
)

NOW_MS = 1_000_000
TOPIC_ID = "a" * 32
OTHER_TOPIC_ID = "b" * 32
NOBODY = ProducerIdentity(0, 0)
fold, new_draft = StoreMachine().fold, StoreMachine().new_draft


def topic_created(topic: str = "t", topic_id: str = TOPIC_ID, partitions: int = 2, **config: int) -> TopicCreated:
    return TopicCreated(
        topic=topic,
        topic_id=topic_id,
        partitions=partitions,
        topic_schema=TopicSchema(kind="records"),
        config=TopicConfig(**config),
        time_ms=NOW_MS,
    )


def with_content(options: dict[str, Any]) -> dict[str, Any]:
    """The options of an end or a prepare, with those of its content in one value."""
    names = {each.name for each in fields(TransactionContent)}
    content = {name: value for name, value in options.items() if name in names}
    return {name: value for name, value in options.items() if name not in names} | {
        "content": TransactionContent(**content)
    }


def planned_expiry(state: StoreState, now_ms: int, **options: int) -> Expired | None:
    """What would expire in this state."""
    return ExpireUnused(now_ms, **options).apply(new_draft(state, 1 << 20))


class History:
    """The state of a store, moved on slot by slot, with a follower that folds the JSON of every slot."""

    def __init__(self, partitions: int = 2) -> None:
        self.state = StoreState()
        self.follower = StoreState()
        self.slot = -1
        self.now_ms = NOW_MS
        self.records: list[list[dict[str, Any]]] = []
        self._files = itertools.count()
        self.append(lambda draft: draft.append(StoreCreated(store_id="5" * 32, time_ms=NOW_MS)))
        self.append(lambda draft: draft.append(topic_created(partitions=partitions)))

    def append(self, propose: Callable[[Draft], Any]) -> Any:
        """Do one call in one slot, as the log does; an error takes no slot."""
        draft = new_draft(self.state, self.slot + 1)
        answer = propose(draft)
        if draft.entries:
            entries = [encode_entry(entry) for entry in draft.entries]
            draft.merge()
            self.slot += 1
            self.records.append(entries)
            reason = fold(self.follower, self.slot, entries)
            assert reason is None, reason
        return answer

    def refused(self, propose: Callable[[Draft], Any]) -> Exception:
        """The error of a call that must fail; it leaves no trace."""
        before = self.state.frozen_copy()
        try:
            self.append(propose)
        except Exception as error:
            assert self.state == before
            return error
        raise AssertionError("the call was not refused")

    def is_invalid(self, *entries: Entry) -> bool:
        """Whether readers take a record with these entries for invalid."""
        state = self.state.frozen_copy()
        is_invalid = fold(state, self.slot + 1, [encode_entry(entry) for entry in entries]) is not None
        assert not is_invalid or state == self.state
        return is_invalid

    def partition(self, partition: int = 0, topic_id: str = TOPIC_ID) -> Partition:
        return self.state.partitions[PartitionId(topic_id, partition)]

    def transaction(self, transactional_id: str = "tx") -> Transaction:
        return self.state.transactions[transactional_id]

    def file(self, partition: int = 0, topic_id: str = TOPIC_ID, name: str = "") -> FileReference:
        topic = self.state.topics[topic_id].topic if topic_id in self.state.topics else "t"
        path = f"{topic}/{topic_id}/{partition}/{name or next(self._files)}.parquet"
        return FileReference(path=path, length=100, crc32c=7)

    def data_file(self, partition: int = 0, topic_id: str = TOPIC_ID) -> FileReference:
        return self.file(partition, topic_id).model_copy(update={"footer_crc32c": 8})

    def init(self, transactional_id: str | None = "tx", **options: Any) -> ProducerIdentity:
        options = {"timeout_ms": 60_000, "time_ms": self.now_ms} | options
        identity: ProducerIdentity = self.append(lambda draft: InitProducerId(transactional_id, **options).take(draft))
        return identity

    def batch(
        self,
        identity: ProducerIdentity,
        base_sequence: int = 0,
        count: int = 1,
        *,
        transactional_id: str | None = "tx",
        partition: int = 0,
        topic_id: str = TOPIC_ID,
        **fields: Any,
    ) -> BatchAppended:
        return BatchAppended(
            **{
                "topic_id": topic_id,
                "partition": partition,
                "base_offset": 0,
                "record_count": count,
                "file": self.data_file(partition, topic_id),
                "upload_ms": self.now_ms,
                "transactional_id": transactional_id,
                "producer_id": identity.producer_id,
                "producer_epoch": identity.producer_epoch,
                "base_sequence": base_sequence,
                "min_timestamp": self.now_ms,
                "max_timestamp": self.now_ms,
                "statistics": f'{{"n":[0,0,{count}]}}',
                "time_ms": self.now_ms,
            }
            | fields
        )

    def send_in_record(self, identity: ProducerIdentity, base_sequence: int = 0, **options: Any) -> int:
        """Append a batch whose file travels in the record; the answer is its base offset."""
        batch = self.batch(identity, base_sequence, **options)
        file = in_record(batch.file)
        request = AppendBatches([batch.model_copy(update={"file": file})], {file.path: bytes(file.length)})
        (appended,) = self.append(request.apply)
        return int(appended.base_offset)

    def send_shared(self, identity: ProducerIdentity, base_sequence: int = 0, **options: Any) -> int:
        """Append a batch whose file is in a shared object; the answer is its base offset."""
        batch = self.batch(identity, base_sequence, **options)
        batch = batch.model_copy(update={"file": shared(batch.file, self.now_ms)})
        base_offset: int = self.append(lambda draft: draft.append(batch).base_offset)
        return base_offset

    def send(self, identity: ProducerIdentity, base_sequence: int = 0, count: int = 1, **options: Any) -> int:
        batch = self.batch(identity, base_sequence, count, **options)
        base_offset: int = self.append(lambda draft: draft.append(batch).base_offset)
        return base_offset

    def addition(
        self,
        identity: ProducerIdentity,
        *partitions: int,
        offsets: Iterable[GroupOffsets] = (),
        transactional_id: str = "tx",
        topic_id: str = TOPIC_ID,
    ) -> AddedToTransaction:
        return AddedToTransaction(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            partitions=tuple(TransactionPartition(topic_id=topic_id, partition=each) for each in partitions),
            offsets=tuple(offsets),
            time_ms=self.now_ms,
        )

    def add(self, identity: ProducerIdentity, *partitions: int, may_begin: bool = True, **options: Any) -> None:
        """Add partitions, and the group offsets in ``offsets``, to a transaction."""
        start_slot = None if may_begin else self.transaction().start_slot
        request = AddToTransaction(self.addition(identity, *partitions, **options), start_slot)
        self.append(request.apply)

    def end(
        self, identity: ProducerIdentity, outcome: str, transactional_id: str = "tx", **options: Any
    ) -> ProducerIdentity:
        request = end_request(transactional_id, identity, outcome, **({"time_ms": self.now_ms} | with_content(options)))
        after: ProducerIdentity = self.append(lambda draft: EndTransaction(request).apply(draft).identity)
        return after

    def commit(self, identity: ProducerIdentity, transactional_id: str = "tx", **options: Any) -> ProducerIdentity:
        return self.end(identity, "commit", transactional_id, **options)

    def abort(self, identity: ProducerIdentity, transactional_id: str = "tx", **options: Any) -> ProducerIdentity:
        return self.end(identity, "abort", transactional_id, **options)

    def prepare(self, identity: ProducerIdentity, transactional_id: str = "tx", **options: Any) -> ProducerIdentity:
        options = {"time_ms": self.now_ms, "timeout_ms": None, "upload_ms": self.now_ms} | options
        request = prepare_request(transactional_id, identity, **with_content(options))
        named: ProducerIdentity = self.append(lambda draft: PrepareTransaction(request).apply(draft))
        return named

    def staged(
        self, count: int = 1, *, partition: int = 0, topic_id: str = TOPIC_ID, task: int | None = None
    ) -> StagedBatch:
        return StagedBatch(
            topic_id=topic_id,
            partition=partition,
            base_offset=0,
            record_count=count,
            file=self.data_file(partition, topic_id),
            min_timestamp=self.now_ms,
            max_timestamp=self.now_ms,
            statistics=f'{{"n":[0,0,{count}]}}',
            task=task,
        )

    def job(
        self,
        owner: str,
        *batches: StagedBatch,
        job_id: str = "job",
        version: int | None = None,
        take_over: bool = True,
        tasks: int = 2,
        query_id: str | None = None,
        after: QueryVersion | None = None,
        **options: Any,
    ) -> ProducerIdentity:
        application_version = None
        if version is not None:
            application_version = ApplicationVersion(
                application_id=options.get("application_id", "app"),
                sink=options.get("sink", "*"),
                version=version,
                query_id=query_id,
                starts_anew_after=after,
                **{name: options[name] for name in ("rows", "content", "invocation") if name in options},
            )
        self.append(
            lambda draft: CommitJob(
                job_id=job_id,
                owner=owner,
                take_over=take_over,
                content=TransactionContent(
                    batches=batches,
                    upload_ms=options.get("upload_ms", self.now_ms),
                    application_version=application_version,
                    task_count=tasks,
                    summary=CommitSummary(),
                ),
                time_ms=self.now_ms,
                replaces=options.get("replaces"),
            ).apply(draft)
        )
        job = self.transaction(job_id)
        return ProducerIdentity(job.producer_id, job.producer_epoch)

    def micro_batch(
        self, batch_id: int, query_id: str = "query", *, owner: str = "run", job_id: str = "job", **options: Any
    ) -> None:
        """Commit one row as a micro-batch of a stream sink, or as many as ``rows`` says, which are compared then."""
        application_version = ApplicationVersion(
            application_id=options.get("application_id", job_id),
            sink=options.get("sink", "t:" + TOPIC_ID),
            version=batch_id,
            query_id=query_id,
            starts_anew_after=options.get("after"),
        )
        rows: int | None = options.get("rows")
        staged = self.staged(1 if rows is None else rows, task=0)
        self.append(
            lambda draft: CommitJob(
                job_id=job_id,
                owner=owner,
                take_over=True,
                content=TransactionContent(
                    batches=[staged],
                    upload_ms=self.now_ms,
                    application_version=application_version,
                    task_count=1,
                    summary=CommitSummary(),
                ),
                time_ms=self.now_ms,
                micro_batch=True,
                rows=rows,
            ).apply(draft)
        )

    def change_group(self, *joined: GroupMember, left: Iterable[str] = (), revoked: Iterable[str] = ()) -> Group:
        """Members of the group ``g`` join, leave and give up; the group after it."""

        def propose(draft: Draft) -> None:
            entry = plan_group_change(draft, "g", joined=joined, left=left, revoked=revoked, time_ms=self.now_ms)
            if entry is not None:
                draft.append(entry)

        self.append(propose)
        return self.state.groups.get("g", EMPTY_GROUP)

    def abort_timed_out(self) -> list[str]:
        aborted: list[str] = self.append(lambda draft: AbortOverdueTransactions(self.now_ms).apply(draft))
        return aborted

    def abort_by_admin(self, transactional_id: str = "tx") -> bool:
        aborted: bool = self.append(
            lambda draft: AbortTransaction(transactional_id, reason="admin", time_ms=self.now_ms).apply(draft)
        )
        return aborted

    def fence(self, transactional_id: str = "tx") -> bool:
        aborted: bool = self.append(lambda draft: FenceProducer(transactional_id, time_ms=self.now_ms).apply(draft))
        return aborted

    def force_terminate(self, transactional_id: str = "tx") -> bool:
        ended: bool = self.append(
            lambda draft: ForceTerminateTransaction(transactional_id, time_ms=self.now_ms).apply(draft)
        )
        return ended

    def delete_topic(self, topic: str = "t", topic_id: str = TOPIC_ID) -> None:
        self.append(lambda draft: draft.append(TopicDeleted(topic=topic, topic_id=topic_id)))

    def seal_entry(self, end_offset: int, partition: int = 0, *, index: bool = True, **fields: Any) -> SegmentSealed:
        place = self.partition(partition)
        aborted = any(txn.last_offset < end_offset for txn in place.aborted)
        return SegmentSealed(
            **{
                "topic_id": TOPIC_ID,
                "partition": partition,
                "base_offset": place.segment_base_offset,
                "end_offset": end_offset,
                "index": self.file(partition, name=f"index-{end_offset}"),
                "txnindex": self.file(partition, name=f"txn-{end_offset}") if aborted and index else None,
                "snapshot": self.file(partition, name=f"snapshot-{end_offset}"),
                "upload_ms": self.now_ms,
            }
            | fields
        )

    def seal(self, end_offset: int, partition: int = 0) -> None:
        entry = self.seal_entry(end_offset, partition)
        self.append(lambda draft: draft.append(entry))

    def replace_entry(self, first: int, last: int, partition: int = 0, **fields: Any) -> SegmentsReplaced:
        """A merge of the sealed segments from the ``first`` to the ``last`` one."""
        segments = self.partition(partition).sealed[first : last + 1]
        aborted = any(segment.txnindex for segment in segments)
        return SegmentsReplaced.model_validate(
            {
                "topic_id": TOPIC_ID,
                "partition": partition,
                "reason": "compact_files",
                "replaced": [{"base_offset": each.base_offset, "index": each.index.path} for each in segments],
                "base_offset": segments[0].base_offset,
                "end_offset": segments[-1].end_offset,
                "batch_count": sum(each.batch_count for each in segments),
                "file_count": 1,
                "bytes": 100,
                "min_timestamp": min(each.min_timestamp for each in segments),
                "max_timestamp": max(each.max_timestamp for each in segments),
                "index": self.file(partition),
                "txnindex": self.file(partition) if aborted else None,
                "snapshot": segments[0].snapshot,
                "upload_ms": self.now_ms,
                "time_ms": self.now_ms,
            }
            | fields
        )

    def at_epoch(self, producer_epoch: int, transactional_id: str = "tx") -> ProducerIdentity:
        """Move a transactional id's epoch, as if it had ended so many transactions."""
        from dataclasses import replace

        for state in (self.state, self.follower):
            transaction = state.transactions[transactional_id]
            state.transactions[transactional_id] = replace(transaction, producer_epoch=producer_epoch)
        return ProducerIdentity(self.transaction(transactional_id).producer_id, producer_epoch)


def in_record(file: FileReference) -> FileReference:
    """A data file whose content, so many zeros, is in the record."""
    return file.model_copy(update={"in_record": True, "crc32c": crc32c(bytes(file.length))})


def shared(file: FileReference, upload_ms: int, position: int = 0) -> FileReference:
    """A data file whose content is in a shared object."""
    path = shared_object_path(upload_ms, "5" * 32)
    return file.model_copy(update={"shared": SharedPosition(path=path, position=position)})


def offsets_of(
    group: str,
    offset: int,
    generation: int = -1,
    member_id: str = "",
    topic_id: str = TOPIC_ID,
    *,
    partition: int = 0,
    instance: str | None = None,
) -> Any:
    return GroupOffsets.model_validate(
        {
            "group": group,
            "generation": generation,
            "member_id": member_id,
            "group_instance_id": instance,
            "offsets": [{"topic_id": topic_id, "partition": partition, "offset": offset}],
        }
    )


def joining(member_id: str, *topics: str, instance: str | None = None) -> GroupMember:
    return GroupMember(
        member_id=member_id,
        topics=topics or ("t",),
        group_instance_id=instance,
        client_id=f"client of {member_id}",
        host=f"host-of-{member_id}",
    )


def coordinating(member_id: str, *topics: str, address: str | None = None) -> GroupMember:
    """The coordinator of a group of Kafka's clients, at an address of its own unless one is given."""
    return joining(member_id, *topics).model_copy(update={"address": address or f"{member_id}.example:9092"})


@dataclass
class Row:
    """One offset of a partition, as the model knows it."""

    transaction: str | None
    """Which transaction wrote it; None for a row without one."""
    is_control: bool = False


@dataclass
class Model:
    """Partitions as plain lists of rows, and what became of each transaction."""

    rows: dict[int, list[Row]] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    """``commit`` or ``abort`` of each transaction that ended."""
    touched: dict[str, set[int]] = field(default_factory=dict)
    aborted: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By partition: first offset, offset of the marker, last stable offset right after it."""

    def write(self, partition: int, transaction: str | None, count: int) -> None:
        self.rows.setdefault(partition, []).extend(Row(transaction) for _ in range(count))
        if transaction is not None:
            self.touched.setdefault(transaction, set()).add(partition)

    def end(self, transaction: str, outcome: str, *, eager: bool = True) -> None:
        partitions = sorted(self.touched.get(transaction, ()))
        self.outcomes[transaction] = outcome
        for partition in partitions:
            rows = self.rows[partition]
            first = next(at for at, row in enumerate(rows) if row.transaction == transaction)
            rows.append(Row(transaction, is_control=True))
            if outcome == "abort":
                stable = self.last_stable_offset(partition)
                self.aborted.setdefault(partition, []).append((first, len(rows) - 1, stable))

    def last_stable_offset(self, partition: int) -> int:
        for offset, row in enumerate(self.rows.get(partition, ())):
            if row.transaction is not None and row.transaction not in self.outcomes:
                return offset
        return len(self.rows.get(partition, ()))

    def committed(self, partition: int) -> list[int]:
        return [
            offset
            for offset, row in enumerate(self.rows.get(partition, ())[: self.last_stable_offset(partition)])
            if not row.is_control and (row.transaction is None or self.outcomes[row.transaction] == "commit")
        ]

    def uncommitted(self, partition: int) -> list[int]:
        return [offset for offset, row in enumerate(self.rows.get(partition, ())) if not row.is_control]


def visible(batches: list[Batch], partition: Partition, *, committed: bool) -> list[int]:
    """The offsets that a reader of these batches sees, by outcome and last stable offset alone."""
    end = partition.last_stable_offset if committed else partition.high_watermark
    return [
        offset
        for batch in batches
        if batch.control is None and (not committed or batch.outcome is Outcome.COMMITTED)
        for offset in range(batch.base_offset, batch.end_offset)
        if offset < end
    ]
