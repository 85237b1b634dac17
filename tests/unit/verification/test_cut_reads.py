"""An answer that is cut short on its way is no damage: an object is read again before anything is said of it."""

from __future__ import annotations

from collections import Counter

import pytest

from eoslog import Store
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import StoredObject
from tests.unit.verification.histories import copy_of_small_history, faults


class CutOnce(MemoryStore):
    """The first answer for each object below ``prefix`` is cut short."""

    prefix = "nothing yet"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.read: Counter[str] = Counter()

    def get(self, path: str) -> StoredObject:
        found = super().get(path)
        self.read[path] += 1
        if self.read[path] > 1 or not path.startswith(self.prefix):
            return found
        return StoredObject(found.body[: len(found.body) // 2], found.last_modified_ms)


@pytest.mark.parametrize(
    "prefix", ["eoslog.json", "__transaction_state/slot/", "__transaction_state/checkpoint/", "t/"]
)
def test_an_object_whose_answer_was_cut_short_once_is_read_again(environment: Environment, prefix: str) -> None:
    kept = CutOnce(environment)
    copy_of_small_history(Store(kept, environment))
    kept.read.clear()
    kept.prefix = prefix

    assert faults(Store(kept, environment)) == []
    assert max(kept.read.values()) > 1
