"""Isolation levels: the rows that a reader sees."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eoslog.errors import InvalidOption
from eoslog.format.batch_columns import BatchColumns
from eoslog.state.partition_state import NO_SLOT, Batch, Outcome, Partition
from eoslog.wording import quoted


class IsolationLevel(StrEnum):
    """Kafka's two isolation levels, and ``snapshot``, which Kafka does not have."""

    READ_COMMITTED = "read_committed"
    """Rows below the last stable offset, without rows of aborted transactions. This level is the default."""
    READ_UNCOMMITTED = "read_uncommitted"
    """All rows below the high watermark."""
    SNAPSHOT = "snapshot"
    """The rows of all transactions that committed at or before a slot: whole transactions, over all partitions."""

    @classmethod
    def of(cls, value: str | IsolationLevel) -> IsolationLevel:
        """Return the level of this name, in upper or lower case: Kafka's ``IsolationLevel`` has upper case.

        Raises:
            InvalidOption: there is no level of this name.
        """
        try:
            return cls(value.lower() if isinstance(value, str) else "")
        except ValueError:
            levels = ", ".join(level.value for level in cls)
            raise InvalidOption(f"isolation level {quoted(value)} is unknown. Use one of: {levels}") from None


class EndBounds(NamedTuple):
    """The transactions whose rows ``snapshot`` shows, by their ends. The default shows all that committed."""

    after_slot: int = NO_SLOT
    """They ended after this slot."""
    slot: int | None = None
    """They ended at or before this slot; None sets no bound."""
    time_ms: int | None = None
    """They ended at or before this log time (ms); None sets no bound."""


ANY_END = EndBounds()


def visible_end(partition: Partition, isolation: IsolationLevel) -> int:
    """Return the offset at which the visible rows of a partition end now (exclusive)."""
    if isolation is IsolationLevel.READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def is_visible(batch: Batch, isolation: IsolationLevel, ended: EndBounds = ANY_END) -> bool:
    """Return True if a batch below the visible end is visible. A control row is visible if its transaction's rows are.

    Args:
        ended: for ``snapshot`` only.
    """
    if isolation is IsolationLevel.READ_UNCOMMITTED:
        return True
    if batch.outcome is not Outcome.COMMITTED:
        return False
    if isolation is IsolationLevel.READ_COMMITTED:
        return True
    after_slot, slot, time_ms = ended
    return (
        after_slot < batch.end_slot
        and (slot is None or batch.end_slot <= slot)
        and (time_ms is None or batch.end_time_ms <= time_ms)
    )


def visible_rows(columns: BatchColumns, isolation: IsolationLevel, ended: EndBounds) -> npt.NDArray[np.bool_]:
    """Return ``is_visible`` for each batch of a segment."""
    if isolation is IsolationLevel.READ_UNCOMMITTED:
        return np.ones(len(columns), np.bool_)
    visible = columns.is_committed
    if isolation is IsolationLevel.READ_COMMITTED:
        return visible
    after_slot, slot, time_ms = ended
    visible &= after_slot < columns.end_slot
    if slot is not None:
        visible &= columns.end_slot <= slot
    if time_ms is not None:
        visible &= columns.end_time_ms <= time_ms
    return visible
