"""The times of Kafka records: the times that writers accept, and the times that readers show for all others.

Spark and Arrow readers get microseconds, and Python's dates end with the year 9999. A later time usually is a number of
microseconds or nanoseconds that a program gave as milliseconds. Writers refuse it. But a store may hold such a time
from a writer of an earlier version. Then readers of microseconds show the nearest time within the range, and a consumer
returns the number as it is stored.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

LEAST_MS = -62_135_596_800_000
"""The beginning of the year 1, in ms since the epoch."""
GREATEST_MS = 253_402_300_799_999
"""The end of the year 9999, in ms since the epoch."""
RANGE = "the years 1 to 9999"


def shown_ms(time_ms: int) -> int:
    """Return the time in ms that readers of microseconds show for a stored time."""
    return min(max(time_ms, LEAST_MS), GREATEST_MS)


def unstorable(times: Any) -> int | None:
    """Return a time in ms that a writer must refuse; None if there is none.

    Args:
        times: a column of timestamps in milliseconds.
    """
    least, greatest = _ends(times)
    if least is None or greatest is None or (least >= LEAST_MS and greatest <= GREATEST_MS):
        return None
    return greatest if greatest > GREATEST_MS else least


def shown_times(times: Any, wanted: pa.DataType) -> Any:
    """Return stored timestamps in milliseconds as readers show them in another unit."""
    if unstorable(times) is not None:
        numbers = times.cast(pa.int64())
        numbers = pc.max_element_wise(numbers, LEAST_MS, skip_nulls=False)
        times = pc.min_element_wise(numbers, GREATEST_MS, skip_nulls=False).cast(times.type)
    return times.cast(wanted)


def _ends(times: Any) -> tuple[int | None, int | None]:
    ends: Any = pc.min_max(times)
    return ends["min"].value, ends["max"].value
