"""Topics: exactly one option says which are read."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidOption
from eoslog.read.topics_snapshot import TopicSelection
from pyspark_eoslog.options.source_options import topic_selection


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, TopicSelection()),
        ({"topic": " a "}, TopicSelection(("a",))),
        ({"subscribe": "a, b,a"}, TopicSelection(("a", "b"))),
        ({"subscribepattern": r"a\d "}, TopicSelection(pattern=r"a\d")),
        ({"assign": '{"b": [1, 0, 1], "a": [2]}'}, TopicSelection(assigned={"b": (0, 1), "a": (2,)})),
    ],
)
def test_topics_are_selected_as_in_the_kafka_connector(options: dict[str, str], expected: TopicSelection) -> None:
    assert topic_selection(options) == expected
    assert bool(expected) is bool(options)


def test_two_ways_exclude_each_other() -> None:
    with pytest.raises(InvalidOption, match="either option 'topic' or option 'subscribe', not both"):
        topic_selection({"topic": "a", "subscribe": "b"})
    with pytest.raises(InvalidOption, match="either option 'subscribePattern' or option 'assign', not both"):
        topic_selection({"subscribepattern": "a", "assign": '{"a": [0]}'})


@pytest.mark.parametrize("name", ["topic", "subscribe", "subscribepattern", "assign"])
def test_an_empty_selection_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="is empty"):
        topic_selection({name: " "})


@pytest.mark.parametrize("value", ["a-0", "{}", "[]", '{"a": []}', '{"a": 0}', '{"a": ["0"]}', '{"a": [-1]}'])
def test_other_assignments_are_refused_with_an_example(value: str) -> None:
    with pytest.raises(InvalidOption, match=r'option \'assign\' is .*\{"flights": \[0, 1\]'):
        topic_selection({"assign": value})


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"'a\(', which is not a regular expression"):
        topic_selection({"subscribepattern": "a("})
