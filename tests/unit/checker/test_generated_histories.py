"""Histories of a broker that does everything right break no rule; with a single lie in them they do."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.checker import History, Kind, Outcome, check
from tests.depth import examples
from tests.unit.checker.corruptions import CORRUPTIONS
from tests.unit.checker.model import Model

seeds = st.integers(0, 10**6)


@given(seeds)
def test_a_true_history_breaks_no_rule(seed: int) -> None:
    verdict = check(Model(seed).run())

    assert verdict.is_valid, str(verdict)


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda each: each.__name__)
@examples(10)
@given(seed=seeds)
def test_a_single_lie_is_caught(corrupt: Callable[[History, random.Random], History | None], seed: int) -> None:
    corrupted = corrupt(Model(seed).run(), random.Random(seed))
    assume(corrupted is not None)
    assert corrupted is not None

    assert not check(corrupted).is_valid


def test_the_histories_have_everything_in_them() -> None:
    histories = [Model(seed).run() for seed in range(10)]

    assert {each.outcome for history in histories for each in history} == set(Outcome)
    assert {each.kind for history in histories for each in history} >= {
        Kind.TXN,
        Kind.POLL,
        Kind.SNAPSHOT,
        Kind.SUBSCRIBE,
    }
    assert all(sum(map(len, (list(each.reads()) for each in history))) > 20 for history in histories)
