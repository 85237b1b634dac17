"""The stream reader, as Spark calls it: where a stream begins, where its next micro-batch ends, and what that reads."""

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
    """Reads a stream of topics. Spark makes several, so none asks the store for anything before a call."""

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
        """Where a stream without checkpoint begins. The answer stays the same: Spark asks twice."""
        with plain_errors():
            if self._initial is None:
                self._initial = patiently(self._first_offsets)
            return self._initial.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._limits.default_read_limit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on the stream ends where it would end now; topics and partitions that come later are not read."""
        with plain_errors():
            self._newest = patiently(lambda: visible_offsets(self._follower.newest(), self._options.isolation))
            self._is_frozen = True

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; ``start`` itself if there is nothing new, or not enough yet.

        Spark asks again at once then, so an idle stream waits here, a second at most.
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
        """Where the stream would end without limits, as it was found last: no request."""
        return None if self._newest is None else self._newest.as_json()

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        with plain_errors():
            return patiently(lambda: self._plan(StreamOffsets.of(start), StreamOffsets.of(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options.location, partition)

    def commit(self, end: Any) -> None:
        """Nothing to do: the checkpoint alone says how far the stream is."""

    def stop(self) -> None:
        """Nothing to do: nothing is held."""

    def _first_offsets(self) -> StreamOffsets:
        look = self._follower.newest()
        self._follower.check_named()
        return first_offsets(self._follower.store, look, self._options)

    def _end_after(self, begin: StreamOffsets, limit: ReadLimit) -> StreamOffsets:
        limits = self._limits.asked_for(limit)
        if self._is_frozen and self._newest is not None:
            look, newest = self._follower.known(), self._newest
            limits = replace(limits, min_offsets=None)
        else:
            look = self._follower.newest()
            newest = self._newest = visible_offsets(look, self._options.isolation)
        end = self._next_end.after(begin, newest, look, self._follower.store.indexes, limits, self._follower.exists)
        if self._loss.fails:
            self._follower.check_named()
        check_joined_columns(look, begin, end, self._schema, self._options)
        return end

    def _plan(self, begin: StreamOffsets, end: StreamOffsets) -> list[InputPartition]:
        look = self._follower.known()
        if not covers(look, end):
            look = self._follower.newest()
        return plan_micro_batch(self._follower.store.indexes, look, begin, end, self._schema, self._options, self._loss)
