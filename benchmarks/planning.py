"""How long the plan of a topic of many small files takes, cold and again, and the memory that the indexes take.

``python -m benchmarks.planning [files …]``. The store lies in memory, so that the time is that of the CPU alone.
"""

from __future__ import annotations

import sys
import time
from uuid import UUID

from rich.console import Console
from rich.table import Table

from eoslog.format.checked_files import crc32c
from eoslog.format.segment_index import SegmentIndexes, encode_segment_index
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import ReadPlanner
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Batch, Outcome, Partition, SealedSegment
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectStore

FILES_A_SEGMENT = 500
ROWS_A_FILE = 10
TOPIC_ID = "0" * 32
STATISTICS = '{"day":[0,20000,20001],"carrier":[0,"AA","UA"],"miles":[0,31,4983],"fare":[0,"12.50","1199.00"]}'


def main(counts: list[int]) -> None:
    table = Table("files", "cold (s)", "cold (µs a file)", "again (s)", "again (µs a file)", "in memory (MB)")
    for count in counts:
        cold, again, size = measure(count)
        numbers = (f"{cold:.3f}", f"{cold / count * 1e6:.1f}", f"{again:.4f}", f"{again / count * 1e6:.2f}")
        table.add_row(f"{count:,}", *numbers, f"{size / 1e6:.1f}")
    Console().print(table)


def measure(files: int) -> tuple[float, float, int]:
    """The seconds of a cold plan and of the next one, and the bytes of the indexes in memory."""
    objects = MemoryStore(Environment())
    partition = _partition(objects, files)
    indexes = SegmentIndexes(objects)
    return _seconds(indexes, partition), _seconds(indexes, partition), indexes.bytes


def _seconds(indexes: SegmentIndexes, partition: Partition) -> float:
    started = time.perf_counter()
    plan = ReadPlanner(indexes, "flights", IsolationLevel.READ_COMMITTED).plan(partition)
    seconds = time.perf_counter() - started
    assert plan.record_count == partition.next_offset
    return seconds


def _partition(objects: ObjectStore, files: int) -> Partition:
    """A partition whose files were never compacted: one of ten rows for each transaction."""
    partition = Partition(PartitionId(TOPIC_ID, 0), next_offset=files * ROWS_A_FILE)
    segments = []
    for first in range(0, files, FILES_A_SEGMENT):
        batches = [_batch(number) for number in range(first, min(files, first + FILES_A_SEGMENT))]
        body = encode_segment_index(batches, b"")
        path = f"{TOPIC_ID[:2]}/{TOPIC_ID}/0/{batches[0].base_offset:020}.index.parquet"
        objects.put_if_absent(path, body)
        segments.append(_segment(batches, FileReference(path=path, length=len(body), crc32c=crc32c(body))))
    partition.sealed = tuple(segments)
    partition.segment_base_offset = partition.next_offset
    return partition


def _batch(number: int) -> Batch:
    path = f"{TOPIC_ID[:2]}/{TOPIC_ID}/0/data/{UUID(int=number * 0x9E3779B97F4A7C15 % 2**128).hex}.parquet"
    file = FileReference(path=path, length=2_000 + number % 100, crc32c=number * 2_654_435_761 % 2**32)
    slot, time_ms = 10 + number, 1_700_000_000_000 + number * 50
    return Batch(
        base_offset=number * ROWS_A_FILE,
        record_count=ROWS_A_FILE,
        last_offset_delta=ROWS_A_FILE - 1,
        file=file,
        first_row=0,
        control=None,
        slot=slot,
        end_slot=slot,
        end_time_ms=time_ms,
        outcome=Outcome.COMMITTED,
        transactional_id=f"writer-{number % 8}",
        producer_id=number % 8,
        producer_epoch=0,
        base_sequence=number * ROWS_A_FILE % 2**31,
        min_timestamp=time_ms,
        max_timestamp=time_ms,
        transactional=True,
        statistics=STATISTICS,
    )


def _segment(batches: list[Batch], index: FileReference) -> SealedSegment:
    first, last = batches[0], batches[-1]
    return SealedSegment(
        base_offset=first.base_offset,
        end_offset=last.end_offset,
        batch_count=len(batches),
        bytes=sum(batch.file.length for batch in batches if batch.file is not None),
        min_timestamp=first.min_timestamp,
        max_timestamp=last.max_timestamp,
        max_end_slot=last.end_slot,
        index=index,
        txnindex=None,
        snapshot=index,
        slot=last.slot,
        file_count=len(batches),
    )


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [1_000, 10_000, 100_000])
