"""The pieces of a read, and packing their rows into Spark's partitions: evenly by bytes, in the order of the log.

Small files share a partition. A large file is cut by rows if there would be too few tasks, or too uneven ones. A task
that reads a part of a file decodes only the row groups of its rows. ``read_rows`` says which parts of a file it
fetches.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from eoslog import Topic
from eoslog.format.partitioner import RowKeys
from eoslog.read.file_rows import FileRows
from eoslog.read.planner import PartitionPlan
from eoslog.read.predicate import Predicate
from eoslog.read.read_request import TopicRead

LARGEST_BYTES = 48 << 20
"""The approximate size of a Spark partition (bytes), unless a file is larger."""
_SMALLEST_BYTES = 1 << 20
_SMALLEST_CUT_BYTES = 4 << 20
"""A smaller part of a file is not worth another fetch, unless the user asks for that many partitions (bytes)."""
_FILE_COST_BYTES = 256 << 10
"""The cost of opening a file, in bytes."""
_DEFAULT_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Files of one topic partition, with all that a task needs to read them."""

    topic: str
    partition: int
    stored: str | None
    """The topic's schema, encoded as in its entry; None for Kafka records."""
    files: tuple[FileRows, ...]
    predicate: Predicate | None = None
    """Only rows for which it is true are read; None: all rows."""
    latest: RowKeys | None = None
    """Only the newest row of each of these keys is read; None: all rows."""


def piece_of(topic: Topic, plan: PartitionPlan, read: TopicRead) -> Piece:
    """Return the piece that reads a plan of one topic-partition."""
    return Piece(
        topic=topic.topic,
        partition=plan.partition,
        stored=topic.topic_schema.arrow,
        files=tuple(plan.rows),
        predicate=read.predicate,
        latest=read.latest,
    )


class _Run(NamedTuple):
    """Rows of a file, and the number of the piece that contains them."""

    piece: int
    rows: FileRows


_Task = list[_Run]


def pack(
    pieces: Sequence[Piece], min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[Piece, ...]]:
    """Return the pieces, cut for one Spark partition each.

    Args:
        min_partitions: the least number of partitions, unless there are fewer rows. By default four, but none of less
            than 1 MiB.
        max_records: the largest number of rows in a partition. Control rows in the plan count too.
    """
    tasks = _by_bytes(pieces, min_partitions)
    if max_records is not None:
        tasks = [part for task in tasks for part in _parts(task, -(-_rows(task) // max_records))]
    if min_partitions is not None and len(tasks) < min_partitions:
        tasks = _at_least(tasks, min_partitions)
    return [_joined(pieces, task) for task in tasks]


def _by_bytes(pieces: Sequence[Piece], min_partitions: int | None) -> list[_Task]:
    files = [[_Run(index, rows)] for index, piece in enumerate(pieces) for rows in piece.files]
    left = sum(map(_cost, files))
    if min_partitions is None:
        target = min(LARGEST_BYTES, max(_SMALLEST_BYTES, -(-left // _DEFAULT_PARTITIONS)))
        count = -(-left // target)
        smallest_cut = _SMALLEST_CUT_BYTES
    else:
        count = max(min_partitions, -(-left // LARGEST_BYTES))
        smallest_cut = min(_SMALLEST_CUT_BYTES, max(1, left // (8 * count)))
    largest_whole = left // max(1, count) * 3 // 2
    tasks: list[_Task] = []
    task: _Task = []
    filled = 0
    for file in files:
        rest = file
        while rest:
            cost = _cost(rest)
            # Divide the rest again for each task, so that the last one is not smaller than the others.
            room = (left + filled) // max(1, count - len(tasks)) - filled
            if cost >= largest_whole and min(room, cost - room) >= smallest_cut:
                begun, rest = _cut(rest, max(1, round(_rows(rest) * room / cost)))
            elif task and room < cost // 2:
                begun = []
            else:
                begun, rest = rest, []
            task += begun
            done = cost - _cost(rest)
            filled += done
            left -= done
            if rest:
                tasks.append(task)
                task, filled = [], 0
    return [each for each in [*tasks, task] if each]


def _cost(runs: Iterable[_Run]) -> int:
    """Return the cost of files' rows (bytes), with a share of the cost of opening each. Control rows cost nothing."""
    cost = 0
    for run in runs:
        file, rows = run.rows.file, run.rows.in_file_count
        if file is not None and rows:
            cost += file.length * rows // max(1, run.rows.file_rows) + _FILE_COST_BYTES
    return cost


def _rows(runs: Iterable[_Run]) -> int:
    return sum(run.rows.record_count for run in runs)


def _parts(task: _Task, count: int) -> Iterator[_Task]:
    """Split a task into this number of tasks with nearly equal numbers of rows."""
    rest = task
    for missing in range(count, 1, -1):
        part, rest = _cut(rest, -(-_rows(rest) // missing))
        yield part
    yield rest


def _at_least(tasks: Sequence[_Task], count: int) -> list[_Task]:
    """Split the tasks with the most rows until there are enough tasks, or each has one row."""
    rows = [_rows(task) for task in tasks]
    parts_of = [1] * len(tasks)
    largest = [(-number, index) for index, number in enumerate(rows) if number > 1]
    heapq.heapify(largest)
    for _ in range(count - len(tasks)):
        if not largest:
            break
        _, index = heapq.heappop(largest)
        parts_of[index] += 1
        if parts_of[index] < rows[index]:
            heapq.heappush(largest, (-(rows[index] // parts_of[index]), index))
    return [part for task, parts in zip(tasks, parts_of, strict=True) for part in _parts(task, parts)]


def _cut(runs: _Task, rows: int) -> tuple[_Task, _Task]:
    """Split after the first ``rows`` rows."""
    for index, run in enumerate(runs):
        count = run.rows.record_count
        if rows < count:
            if rows == 0:
                return runs[:index], runs[index:]
            first, rest = run.rows.cut(rows)
            return [*runs[:index], run._replace(rows=first)], [run._replace(rows=rest), *runs[index + 1 :]]
        rows -= count
    return runs, []


def _joined(pieces: Sequence[Piece], task: _Task) -> tuple[Piece, ...]:
    """Join adjacent rows of the same piece."""
    return tuple(
        replace(pieces[index], files=tuple(run.rows for run in runs))
        for index, runs in groupby(task, key=lambda run: run.piece)
    )
