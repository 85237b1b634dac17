"""The parts of a state: what is written again, and what damage is."""

from __future__ import annotations

import pytest

from eoslog.errors import CorruptRecord, UnsupportedFormat
from eoslog.rules.checkpoint import parts, restore
from eoslog.rules.machine import StoreMachine
from eoslog.rules.state import StoreState
from tests.unit.rules.histories import OTHER_TOPIC_ID, TOPIC_ID, History, topic_created


def encoded(history: History) -> dict[str, bytes]:
    return {part.name: part.encode() for part in parts(history.state, history.slot)}


def test_an_empty_state_is_restored() -> None:
    bodies = {part.name: part.encode() for part in parts(StoreState(), 0)}

    assert restore(bodies) == StoreState()


def test_a_topic_that_did_not_change_keeps_its_changed_slot() -> None:
    history = History()
    history.append(lambda draft: draft.append(topic_created("other", OTHER_TOPIC_ID)))
    created = history.slot
    history.send(history.init(None), transactional_id=None)

    changed = {part.name: part.changed_slot for part in parts(history.state, history.slot)}

    assert changed[f"topic/{OTHER_TOPIC_ID}"] == created
    assert changed[f"topic/{TOPIC_ID}"] == history.slot


def test_a_deleted_topic_has_no_part() -> None:
    history = History()
    history.delete_topic()

    assert not any(name.startswith("topic/") for name in encoded(history))


@pytest.mark.parametrize("name", ["store", "transactions", "producers", "tokens", f"topic/{TOPIC_ID}"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise"])
def test_a_damaged_part_is_a_corrupt_record(name: str, damage: str) -> None:
    bodies = encoded(History())
    body = bodies.pop(name)
    if damage != "missing":
        bodies[name] = {"empty": b"", "cut": body[: len(body) // 2], "noise": b"noise" * 9}[damage]

    with pytest.raises(CorruptRecord):
        restore(bodies)


def test_a_state_that_needs_an_unknown_feature_is_of_a_newer_version() -> None:
    bodies = encoded(History())
    bodies["store"] = bodies["store"].replace(b'"reader_features": []', b'"reader_features": ["time-travel"]')

    with pytest.raises(UnsupportedFormat, match="time-travel"):
        StoreMachine().restore(bodies)
