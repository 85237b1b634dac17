"""The parts of checkpoints that hold partitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eoslog.format import partition_rows
from eoslog.state.store_state import StoreState
from tests.unit.state.histories import TOPIC_ID


def partitions_part(state: StoreState, topic_id: str = TOPIC_ID) -> str:
    """The name of the part that holds a topic's partitions, all of which are in one."""
    (name,) = {
        partition_rows.part_name(part)
        for part in partition_rows.shared_parts(state)
        if any(partition.id.topic_id == topic_id for partition in part)
    }
    return name


@contextmanager
def parts_of(rows: int) -> Iterator[None]:
    """Parts have so many rows at most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_rows, "ROWS_OF_A_PART", rows)
        yield
