"""The stores of the pages' examples."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _without_fsync() -> Iterator[None]:
    """No test needs rows to outlive the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EOSLOG_LOCAL__FSYNC", "false")
        yield
