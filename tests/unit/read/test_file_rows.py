"""Rows of sealed segments, planned on columns: the same as those of the same batches that are not sealed yet."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import fields
from itertools import product
from typing import Any

import pytest

from eoslog.errors import CorruptRecord
from eoslog.format.checked_files import crc32c
from eoslog.format.segment_index import SegmentIndexes, encode_segment_index
from eoslog.read.file_rows import BatchRows, FileRows
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import PartitionPlan, ReadPlanner
from eoslog.read.time_travel import AsOf
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Batch, Control, Outcome, Partition, SealedSegment
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore

TOPIC_ID = "0" * 32
PLACE = f"00/{TOPIC_ID}/0"
A_SEGMENT = 40


def batches_of(seed: int, count: int = 200) -> list[Batch]:
    """Batches with and without gaps, empty ones and control rows, of transactions that ended in every way."""
    draws = random.Random(seed)
    batches: list[Batch] = []
    offset, slot = 0, 1
    for number in range(count):
        kind = draws.choice(["rows", "rows", "rows", "gaps", "control", "none"])
        outcome = draws.choice([Outcome.COMMITTED, Outcome.COMMITTED, Outcome.ABORTED])
        rows = draws.randint(2, 9)
        file = FileReference(path=f"{PLACE}/{number}.parquet", length=100 + number, crc32c=number)
        batch = Batch(
            offset, rows, rows - 1, file, 0, None, slot, slot + draws.randint(0, 3), 1000 * slot, outcome,
            draws.choice([None, "a", "b"]), draws.randint(0, 3), 0, draws.choice([-1, 2**31 - 3]), number, number, True,
        )  # fmt: skip
        if kind == "gaps":
            batch = batch._replace(record_count=draws.randint(1, rows - 1))
        elif kind == "control":
            control = Control.COMMIT if outcome is Outcome.COMMITTED else Control.ABORT
            batch = batch._replace(record_count=1, last_offset_delta=0, file=None, control=control, base_sequence=-1)
        elif kind == "none":
            batch = batch._replace(record_count=0, file=None)
        batches.append(batch)
        offset = batch.end_offset + draws.choice([0, 0, 0, 2])
        slot += draws.randint(0, 2)
    return batches


def active(batches: list[Batch]) -> Partition:
    return Partition(PartitionId(TOPIC_ID, 0), next_offset=batches[-1].end_offset, active=batches)


def sealed(objects: MemoryStore, batches: list[Batch], *, left: int = 0) -> Partition:
    """The same partition with its batches in sealed segments, but the last ones."""
    partition = active(batches[len(batches) - left :] if left else batches)
    segments = []
    for first in range(0, len(batches) - left, A_SEGMENT):
        part = batches[first : min(first + A_SEGMENT, len(batches) - left)]
        body = encode_segment_index(part, b"")
        index = FileReference(path=f"{PLACE}/{first}.index.parquet", length=len(body), crc32c=crc32c(body))
        objects.put_if_absent(index.path, body)
        times = [batch.max_timestamp for batch in part]
        ends = max(batch.end_slot for batch in part)
        segments.append(
            SealedSegment(
                part[0].base_offset,
                part[-1].end_offset,
                batch_count=len(part),
                bytes=1,
                min_timestamp=min(times),
                max_timestamp=max(times),
                max_end_slot=ends,
                index=index,
                txnindex=None,
                snapshot=index,
                slot=part[-1].slot,
                file_count=1,
            )
        )
    partition.sealed = tuple(segments)
    partition.segment_base_offset = segments[-1].end_offset
    partition.active = batches[len(batches) - left :] if left else []
    return partition


def test_a_plan_is_the_same_whether_batches_are_sealed_or_not() -> None:
    for seed, left in product(range(2), (0, 30)):
        batches = batches_of(seed)
        objects = MemoryStore(Environment())
        indexes = SegmentIndexes(objects)
        here, there = active(batches), sealed(objects, batches, left=left)
        draws = random.Random(seed)
        for isolation, control_rows, _ in product(IsolationLevel, (False, True), range(5)):
            start, end = sorted(draws.sample(range(here.next_offset + 1), 2))
            slots = sorted(draws.sample(range(batches[-1].slot + 3), 2))
            as_of, after_slot = None, None
            if isolation is IsolationLevel.SNAPSHOT:
                as_of = draws.choice([None, AsOf(slots[1], None), AsOf(None, slots[1] * 1000)])
                after_slot = draws.choice([None, -1, slots[0]])

            planner = ReadPlanner(indexes, "t", isolation, as_of, control_rows)
            plans = [
                planner.plan(partition, start, end)
                if after_slot is None
                else planner.plan_commits(partition, after_slot, slots[1])
                for partition in (here, there)
            ]

            expected, found = (_batches(plan.rows) for plan in plans)
            assert found == expected
            assert_described(plans[1])


def _batches(files: Iterable[FileRows]) -> list[tuple[Any, ...]]:
    """The batches with the files that hold them. A control row is in no file."""
    names = [field.name for field in fields(BatchRows)]
    return [
        (None if each[names.index("control")] >= 0 else (rows.file, rows.file_rows, rows.file_base_offset), each)
        for rows in files
        for each in zip(*(getattr(rows.batches, name).tolist() for name in names), strict=True)
    ]


def assert_described(plan: PartitionPlan) -> None:
    """What a plan says of its rows without an array of them is what they say themselves."""
    files = list(plan.rows)
    assert plan.record_count == sum(rows.record_count for rows in files)
    assert plan.bytes == sum({rows.file.path: rows.file.length for rows in files if rows.file is not None}.values())
    assert bool(plan.rows) == bool(files)
    assert len(list(plan.rows.statistics())) == sum(len(rows.batches) for rows in files)


def test_an_index_is_read_once_and_only_if_the_range_reaches_it() -> None:
    batches = batches_of(1)
    objects = MemoryStore(Environment())
    partition = sealed(objects, batches)
    indexes = SegmentIndexes(objects)
    third = partition.sealed[2]
    before = objects.requests["GET"]

    planner = ReadPlanner(indexes, "t", IsolationLevel.READ_COMMITTED)
    for _ in range(3):
        planner.plan(partition, third.base_offset, third.end_offset)

    assert objects.requests["GET"] - before == 1


def test_repeated_passes_over_more_indexes_than_are_kept_read_fewer() -> None:
    batches = batches_of(1, 4000)
    objects = MemoryStore(Environment())
    partition = sealed(objects, batches)
    room = SegmentIndexes(objects).columns(partition.sealed[0]).bytes * len(partition.sealed) // 2
    indexes = SegmentIndexes(objects, room)
    planner = ReadPlanner(indexes, "t", IsolationLevel.READ_COMMITTED)
    planner.plan(partition)
    before = objects.requests["GET"]

    planner.plan(partition)

    assert objects.requests["GET"] - before <= len(partition.sealed) * 2 // 3
    assert indexes.bytes <= room


def test_an_index_of_another_segment_is_refused_each_time() -> None:
    batches = batches_of(1)
    objects = MemoryStore(Environment())
    partition = sealed(objects, batches)
    first, second = partition.sealed[:2]
    indexes = SegmentIndexes(objects)
    indexes.columns(first)
    strange = SealedSegment(
        **{name: getattr(second, name) for name in SealedSegment.__slots__} | {"index": first.index}
    )

    for _ in range(2):
        with pytest.raises(CorruptRecord, match="but its segment has"):
            indexes.columns(strange)
