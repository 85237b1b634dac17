"""Isolation levels: which rows a reader is shown."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from eoslog.errors import InvalidOption, quoted
from eoslog.format.batch_columns import BatchColumns
from eoslog.state.partition_state import Batch, Partition, Verdict


class IsolationLevel(StrEnum):
    """Kafka's two levels, and one beyond Kafka."""

    READ_COMMITTED = "read_committed"
    """Rows below the last stable offset, without those of aborted transactions. The default everywhere."""
    READ_UNCOMMITTED = "read_uncommitted"
    """All rows below the high watermark."""
    SNAPSHOT = "snapshot"
    """Rows of the transactions that had ended by a slot: whole transactions, over all partitions."""

    @classmethod
    def of(cls, value: str | IsolationLevel) -> IsolationLevel:
        """Raises: InvalidOption: no such level."""
        try:
            return cls(value)
        except ValueError:
            levels = ", ".join(level.value for level in cls)
            raise InvalidOption(f"isolation level {quoted(value)} is unknown; the levels are: {levels}") from None


def visible_end(partition: Partition, isolation: IsolationLevel) -> int:
    """The offset up to which a reader is shown rows now (exclusive)."""
    if isolation is IsolationLevel.READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def is_visible(
    batch: Batch, isolation: IsolationLevel, after_slot: int, slot: int | None, time_ms: int | None = None
) -> bool:
    """Whether a batch below the visible end is shown. Control rows are decided upon like the rows they end.

    ``after_slot`` (exclusive) and ``slot`` (inclusive, None for the newest) bound the slots in which transactions
    ended, ``time_ms`` (inclusive) the log's time there; only ``snapshot`` looks at them.
    """
    if isolation is IsolationLevel.READ_UNCOMMITTED:
        return True
    if batch.verdict is not Verdict.COMMITTED:
        return False
    if isolation is IsolationLevel.READ_COMMITTED:
        return True
    return (
        after_slot < batch.end_slot
        and (slot is None or batch.end_slot <= slot)
        and (time_ms is None or batch.end_time_ms <= time_ms)
    )


def visible_rows(
    columns: BatchColumns, isolation: IsolationLevel, after_slot: int, slot: int | None, time_ms: int | None = None
) -> npt.NDArray[np.bool_]:
    """As ``is_visible``, of each batch of a segment."""
    if isolation is IsolationLevel.READ_UNCOMMITTED:
        return np.ones(len(columns), np.bool_)
    visible = columns.has_verdict(Verdict.COMMITTED)
    if isolation is IsolationLevel.READ_COMMITTED:
        return visible
    visible &= after_slot < columns.end_slot
    if slot is not None:
        visible &= columns.end_slot <= slot
    if time_ms is not None:
        visible &= columns.end_time_ms <= time_ms
    return visible
