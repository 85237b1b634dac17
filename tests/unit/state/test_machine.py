"""The fold: total, all or nothing, and equal to what its writers did."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import UnsupportedFormat
from eoslog.state import state_machine as machine
from eoslog.state.append_requests import AppendBatches
from eoslog.state.draft import Draft
from eoslog.state.state_machine import decode_entry
from eoslog.state.store_state import StoreState
from eoslog.state.transaction_entries import ApplicationVersion
from tests.unit.state.histories import History, fold, new_draft, topic_created


def example() -> History:
    history = History()
    identity = history.init()
    history.send(identity, 0, 3)
    history.job("run", history.staged(2, task=0), version=1)
    history.commit(identity)
    return history


EXAMPLE = example()
VALID = [entry for record in EXAMPLE.records for entry in record]


def test_a_record_with_one_invalid_entry_is_wholly_inert() -> None:
    history = example()
    before = history.state.frozen_copy()
    good = {"type": "horizon", "horizon_ms": 5}

    for bad in (good, {"type": "topic"}, VALID[0], VALID[-1], 7, None, {}):
        assert fold(history.state, history.slot + 1, [good, bad]) is not None
        assert history.state == before


@pytest.mark.scenario(99)
def test_an_entry_of_an_unknown_type_is_of_a_newer_version() -> None:
    """Kafka skips types that it does not know; here an unknown entry may decide a row, so the store is refused."""
    history = example()
    with pytest.raises(UnsupportedFormat, match="Upgrade eoslog"):
        fold(history.state, history.slot + 1, [{"type": "teleport"}])


@pytest.mark.parametrize("features", ["reader_features", "writer_features"])
def test_a_store_that_needs_an_unknown_feature_is_of_a_newer_version(features: str) -> None:
    created = VALID[0] | {features: ["time-travel"]}
    with pytest.raises(UnsupportedFormat, match="time-travel"):
        fold(StoreState(), 0, [created])


def test_the_logs_time_never_runs_backwards_though_entries_times_do() -> None:
    history = History()
    identity = history.init()
    history.send(identity, 0, 1)
    history.now_ms += 5_000
    history.commit(identity)
    history.now_ms -= 4_000
    other = history.init("other")
    history.send(other, 0, 1, transactional_id="other")
    history.commit(other, transactional_id="other")

    first, _, second, _ = history.partition().active
    assert history.state.time_ms == first.end_time_ms == second.end_time_ms
    assert second.end_slot > first.end_slot


@pytest.mark.parametrize("trouble", [MemoryError, RecursionError])
def test_trouble_of_the_process_that_folds_makes_no_record_inert(
    monkeypatch: pytest.MonkeyPatch, trouble: type[Exception]
) -> None:
    def fails(draft: Draft, entry: object) -> None:
        raise trouble

    monkeypatch.setitem(machine._APPLY, "store", fails)

    with pytest.raises(trouble):
        fold(StoreState(), 0, [VALID[0]])


@pytest.mark.parametrize("slot", [0, 1])
def test_a_store_is_created_once_at_slot_0(slot: int) -> None:
    state = StoreState()
    if slot == 0:
        assert fold(state, 0, [VALID[0]]) is None
    assert fold(state, slot, [VALID[0]]) is not None


def test_a_dropped_draft_leaves_no_trace() -> None:
    history = example()
    before = copy.deepcopy(history.state)
    draft = new_draft(history.state, history.slot + 1)
    draft.append(topic_created("u", "c" * 32))
    child = draft.child()
    child.append(topic_created("v", "d" * 32))
    child.merge()

    assert history.state == before
    draft.merge()
    assert set(history.state.topic_ids) == {"t", "u", "v"}


NOISE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["a" * 32, "tx", "job", "t", "commit", "abort", "../x", 0, 1, 2**63 - 1, 32766]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def spoilt_entries(draw: st.DrawFn) -> Any:
    """A valid entry of the example with some fields taken away or replaced, at any depth."""
    entry = copy.deepcopy(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(0, 3))):
        place: Any = entry
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
                continue
            if key != "type":
                place[key] = draw(NOISE)
            break
    return entry


@given(st.lists(spoilt_entries() | NOISE | st.fixed_dictionaries({"type": NOISE}), min_size=1, max_size=3))
def test_no_entry_whatever_makes_the_fold_raise_or_leaves_half_of_a_record(entries: list[Any]) -> None:
    state = EXAMPLE.state.frozen_copy()
    before = copy.deepcopy(state)
    try:
        reason = fold(state, EXAMPLE.slot + 1, entries)
    except UnsupportedFormat:
        reason = "of a newer version"
    if reason is not None:
        assert state == before


def test_every_type_of_entry_survives_its_json() -> None:
    assert {entry["type"] for entry in VALID} >= {"store", "topic", "init", "batch", "end"}
    for entry in VALID:
        assert decode_entry(entry).model_dump(mode="json", exclude_none=True) == entry


@pytest.mark.parametrize(("of", "field"), [("init", "producer_epoch"), ("end", "next_producer_epoch")])
def test_an_entry_in_the_log_without_its_results_is_invalid(of: str, field: str) -> None:
    history = History()
    history.commit(history.init(), application_version=ApplicationVersion(application_id="a", sink="*", version=1))
    index = next(slot for slot, entries in enumerate(history.records) if entries[0]["type"] == of)
    state = StoreState()
    for slot, entries in enumerate(history.records[:index]):
        assert fold(state, slot, entries) is None
    whole = dict(history.records[index][0])

    assert fold(state, index, [{name: value for name, value in whole.items() if name != field}]) is not None
    assert fold(state, index, [whole]) is None


def test_a_refused_entry_leaves_no_time_in_its_draft() -> None:
    history = History()
    identity = history.init(None)
    batch = history.batch(identity, transactional_id=None)
    history.append(lambda draft: draft.append(batch))
    draft = new_draft(history.state, history.slot + 1)
    late = batch.model_copy(update={"time_ms": batch.time_ms + 9_999})

    AppendBatches([late]).apply(draft)

    assert draft.time_ms == history.state.time_ms
