"""A parser of any bytes gives a valid value or one of the project's own errors, and nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import EosLogError
from tests.depth import examples
from tests.fuzz.mutations import mutate
from tests.fuzz.parsers import PARSERS
from tests.fuzz.samples import samples

LONGEST_MESSAGE = 20_000
"""Characters: an error that repeats what it was given would fill logs."""


def refusal(kind: str, body: bytes) -> str:
    """What the parser says of the input; empty if it is valid. Any other exception fails the test."""
    try:
        PARSERS[kind](body)
    except EosLogError as error:
        return str(error)
    return ""


def test_every_kind_of_sample_has_a_parser_and_every_parser_samples() -> None:
    assert set(samples()) == set(PARSERS)


@pytest.mark.parametrize("kind", PARSERS)
def test_well_formed_input_is_taken(kind: str) -> None:
    for body in samples()[kind]:
        PARSERS[kind](body)


@pytest.mark.parametrize("kind", PARSERS)
@examples(10)
@given(seed=st.integers(0, 2**32))
def test_spoilt_input_is_a_valid_value_or_a_known_error(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    bodies = samples()[kind]

    told = refusal(kind, mutate(chance, chance.choice(bodies), bodies))

    assert told == "" or told.startswith("[EOSLOG_")
    assert len(told) < LONGEST_MESSAGE


@pytest.mark.parametrize("text", [b"", b"soon", b"PT-1S", b"P" + b"9" * 400 + b"D"])
def test_a_text_that_is_no_duration_counts_as_refused(text: bytes) -> None:
    assert refusal("duration", text)


@pytest.mark.parametrize("kind", [kind for kind in PARSERS if kind != "predicate"])
@pytest.mark.parametrize("opened", ["[", '{"a":', "{'a':"])
def test_json_that_is_nested_without_end_is_refused(kind: str, opened: str) -> None:
    assert len(refusal(kind, (opened * 100_000).encode())) < LONGEST_MESSAGE
