from __future__ import annotations

import pytest

from tests.unit.state.histories import History


@pytest.fixture
def history() -> History:
    """The state machine without a store: the topic ``t`` with two partitions."""
    return History()
