"""Features: a store gets one with the first entry that asks for it, so that who does not know it refuses the store."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidEntry, UnsupportedFormat
from eoslog.format.checkpoint_codec import parts
from eoslog.session.store_machine import StoreMachine
from eoslog.state.entries import FeaturesAdded
from eoslog.state.features import STARTS_ANEW_AFTER
from eoslog.state.transaction_entries import QueryVersion
from tests.unit.state.histories import History, fold


def test_a_fresh_start_needs_its_feature_from_the_first_one_on() -> None:
    history = History()
    history.micro_batch(0)
    assert history.state.reader_features == ()

    for query_id, before in (("second", "query"), ("third", "second")):
        after = QueryVersion(query_id=before, version=0)
        history.micro_batch(0, query_id, owner=query_id, after=after)

    types = [[entry["type"] for entry in record] for record in history.records]
    assert types[-2:] == [["init", "features", "end"], ["init", "end"]]
    assert history.state.reader_features == (STARTS_ANEW_AFTER,)
    encoded = {part.name: part.encode() for part in parts(history.state, history.slot)}
    assert StoreMachine().restore(encoded) == history.state


@pytest.mark.parametrize("features", ["reader_features", "writer_features"])
def test_a_feature_that_is_added_and_not_known_is_of_a_newer_version(features: str) -> None:
    history = History()

    with pytest.raises(UnsupportedFormat, match="time-travel"):
        fold(history.state, history.slot + 1, [{"type": "features", features: ["time-travel"]}])


def test_a_feature_is_added_once() -> None:
    history = History()
    added = FeaturesAdded(reader_features=(STARTS_ANEW_AFTER,))
    history.append(lambda draft: draft.append(added))

    assert isinstance(history.refused(lambda draft: draft.append(added)), InvalidEntry)
