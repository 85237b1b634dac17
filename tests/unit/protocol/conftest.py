from __future__ import annotations

from tests.unit.conftest import store, world

__all__ = ["store", "world"]
