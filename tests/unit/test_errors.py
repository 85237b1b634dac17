"""Messages are safe wherever they are shown: what a store or a user gave stands in them as text, and not whole."""

from __future__ import annotations

import pytest

from eoslog.errors import CorruptRecord
from eoslog.wording import LONGEST_MESSAGE, without_code


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("a\nERROR forged line", "a ERROR forged line"),
        ("a\r\tb", "a  b"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b31m\x00\x7f", "\\x9b31m\\x00\\x7f"),
        ("right\u202eto left", "right\\u202eto left"),
        ("\ud800", "\\ud800"),
        ("café 東京", "café 東京"),
    ],
)
def test_control_characters_do_not_act_on_logs_and_terminals(given: str, told: str) -> None:
    assert str(CorruptRecord(given)) == f"[EOSLOG_CORRUPT_RECORD] {told}"


def test_a_message_that_repeats_something_long_is_cut_in_its_middle() -> None:
    told = str(CorruptRecord(f"the name {'x' * 10**6} is too long; give a shorter one"))

    assert len(told) < LONGEST_MESSAGE + 100
    assert told.startswith("[EOSLOG_CORRUPT_RECORD] the name xxx")
    assert told.endswith("xxx is too long; give a shorter one")


@pytest.mark.parametrize("said", ["x", "column a[] is [b] c", "[line 3] [EOSLOG_CORRUPT_RECORD] of another"])
def test_an_error_quotes_the_message_of_another_without_its_code(said: str) -> None:
    assert without_code(CorruptRecord(said)) == said
    assert without_code(str(CorruptRecord(said))) == said
    assert without_code(ValueError(said)) == said
