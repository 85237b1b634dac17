"""What the command prints of stored values acts on no terminal, and JSON stays what it says."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from eoslog.cli.console import _on_a_terminal
from eoslog.cli.rendering import Columns, Line, as_object, json_text, shown
from eoslog.state.names import TopicPartition

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202eevil\u2028\r\n\ud800"


@pytest.mark.parametrize("text", [json_text({"a": HOSTILE}), Line({"a": HOSTILE}).json(), shown(HOSTILE)])
def test_control_characters_are_escaped(text: str) -> None:
    assert text.isprintable()


def test_escaped_json_means_the_same() -> None:
    value = {"text": HOSTILE, "tags": ["\U000e0001", "café 東京", "\u0000"], "number": 1.5}

    assert json.loads(json_text(value, indent=2)) == value


def test_a_value_on_a_terminal_loses_tabs_and_escapes() -> None:
    assert _on_a_terminal(b"a\tkey\x1b[31m\xff\xc2\x9b\n") == b"a\\tkey\\x1b[31m\\xff\\x9b\\n"


def test_a_column_is_declared_once_for_people_and_programs() -> None:
    columns = Columns("RowCount Place=topic_partition.topic LAST-OFFSET=offset", ("All", lambda each: each.places))
    place = TopicPartition("t", 3)

    values = columns.of(SimpleNamespace(row_count=2, topic_partition=place, offset=None, places=(place,)))

    assert values == {"RowCount": 2, "Place": "t", "LAST-OFFSET": None, "All": ["t-3"]}
    assert as_object(values) == {"row_count": 2, "place": "t", "last_offset": None, "all": ["t-3"]}
