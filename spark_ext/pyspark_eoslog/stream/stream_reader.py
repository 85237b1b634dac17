"""The stream reader that Spark calls: the start of a stream, the end of its next micro-batch, and its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_eoslog.options import Options
from pyspark_eoslog.read.batch_reader import read_task
from pyspark_eoslog.stores import patiently, plain_errors
from pyspark_eoslog.stream.data_loss import DataLoss
from pyspark_eoslog.stream.limits import Limits
from pyspark_eoslog.stream.log_follower import LogFollower
from pyspark_eoslog.stream.micro_batch import check_joined_columns, covers, plan_micro_batch
from pyspark_eoslog.stream.next_end import NextEnd, visible_offsets
from pyspark_eoslog.stream.start import check_stream_options, first_offsets
from pyspark_eoslog.stream.stream_offsets import StreamOffsets


class EosLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of topics. Spark makes several readers, so a reader sends no request before the first call."""

    def __init__(self, options: Options, schema: StructType) -> None:
        with plain_errors():
            check_stream_options(options)
            self._follower = LogFollower(options)
        self._options = options
        self._schema = schema
        self._loss = DataLoss(fail=options.fail_on_data_loss)
        self._limits = Limits(
            options.max_offsets_per_trigger,
            options.max_bytes_per_trigger,
            options.max_files_per_trigger,
            options.min_offsets_per_trigger,
        )
        self._next_end = NextEnd(options, self._loss)
        self._initial: StreamOffsets | None = None
        self._newest: StreamOffsets | None = None
        self._is_frozen = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a stream without a checkpoint. Spark asks twice, so the answer is kept."""
        with plain_errors():
            if self._initial is None:
                self._initial = patiently(self._first_offsets)
            return self._initial.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._limits.default_read_limit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the stream at the current end. Later topics and partitions are not read."""
        with plain_errors():
            self._newest = patiently(lambda: visible_offsets(self._follower.newest(), self._options.isolation))
            self._is_frozen = True

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch; ``start`` itself if there is nothing new, or not enough yet.

        After such an answer Spark asks again at once. So an idle stream waits here, for at most a second.
        """
        with plain_errors():
            begin = StreamOffsets.of(start)
            if not self._is_frozen:
                patiently(self._follower.wait)
            end = patiently(lambda: self._end_after(begin, limit))
            self._follower.found(end != begin)
            answer: dict[str, Any] = start if end == begin else end.as_json()
            return answer

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end of the stream without limits, as last found. This sends no request."""
        return None if self._newest is None else self._newest.as_json()

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        with plain_errors():
            return patiently(lambda: self._plan(StreamOffsets.of(start), StreamOffsets.of(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options.location, partition)

    def commit(self, end: Any) -> None:
        """Do nothing: only the checkpoint holds the position of the stream."""

    def stop(self) -> None:
        """Do nothing: the reader holds no resources."""

    def _first_offsets(self) -> StreamOffsets:
        snapshot = self._follower.newest()
        self._follower.check_named()
        return first_offsets(self._follower.store, snapshot, self._options)

    def _end_after(self, begin: StreamOffsets, limit: ReadLimit) -> StreamOffsets:
        limits = self._limits.asked_for(limit)
        if self._is_frozen and self._newest is not None:
            snapshot, newest = self._follower.known(), self._newest
            limits = replace(limits, min_offsets=None)
        else:
            snapshot = self._follower.newest()
            newest = self._newest = visible_offsets(snapshot, self._options.isolation)
        end = self._next_end.after(begin, newest, snapshot, self._follower.store.indexes, limits, self._follower.exists)
        if self._loss.fails:
            self._follower.check_named()
        check_joined_columns(snapshot, begin, end, self._schema, self._options)
        return end

    def _plan(self, begin: StreamOffsets, end: StreamOffsets) -> list[InputPartition]:
        snapshot = self._follower.known()
        if not covers(snapshot, end):
            snapshot = self._follower.newest()
        return plan_micro_batch(
            self._follower.store.indexes, snapshot, begin, end, self._schema, self._options, self._loss
        )
