"""Options: what is not understood is refused, with the names and values that are."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidOption
from eoslog.read.isolation import IsolationLevel
from pyspark_eoslog.options import Options


def of(**options: str) -> Options:
    return Options.of({"path": "/store", **options})


def test_names_are_case_insensitive() -> None:
    options = Options.of({"PATH": "/store", "StartingOffsets": "Earliest", "ISOLATIONLEVEL": "Snapshot"})

    assert options.location.url == "/store"
    assert options.starting_offsets == "earliest"
    assert options.isolation is IsolationLevel.SNAPSHOT


def test_an_unknown_option_is_refused_and_the_valid_ones_are_named() -> None:
    with pytest.raises(
        InvalidOption, match=r"\[EOSLOG_INVALID_OPTION\] option 'topics' is unknown.*subscribe.*txnVersion"
    ):
        of(topics="a")


def test_a_misspelt_option_is_told_what_it_may_mean() -> None:
    with pytest.raises(InvalidOption, match=r"option 'startingoffset' is unknown; did you mean 'startingOffsets'\?"):
        of(startingOffset="earliest")


def test_sparks_own_options_are_passed_over() -> None:
    assert of(queryname="q", checkpointlocation="/ck").checkpoint_location == "/ck"


def test_a_missing_path_is_told() -> None:
    with pytest.raises(InvalidOption, match="option 'path' is missing"):
        Options.of({"topic": "a"})


def test_a_memory_store_is_refused() -> None:
    with pytest.raises(InvalidOption, match="lives within one process"):
        Options.of({"path": "memory://x"})


def test_subscribe_takes_several_topics() -> None:
    assert of(subscribe="a, b,a").topics_to_read() == ("a", "b")


def test_topic_and_subscribe_exclude_each_other() -> None:
    with pytest.raises(InvalidOption, match="not both"):
        of(topic="a", subscribe="b")


def test_a_read_needs_a_topic() -> None:
    with pytest.raises(InvalidOption, match="name what to read"):
        of().topics_to_read()


def test_a_write_takes_one_topic_or_none() -> None:
    assert of().topic_to_write() is None
    with pytest.raises(InvalidOption, match="column 'topic'"):
        of(subscribe="a,b").topic_to_write()


def test_offsets_are_read_as_the_kafka_connector_reads_them() -> None:
    options = of(startingOffsets='{"a": {"0": 23, "1": -2}}')

    assert options.starting_offsets == {"a": {0: 23, 1: -2}}


@pytest.mark.parametrize(
    "value",
    ["newest", "[]", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": -3}}', '{"a": {"0": "1"}}', '{"a": {"0": true}}'],
)
def test_other_offsets_are_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="'earliest', 'latest' and offsets by topic and partition as JSON"):
        of(endingOffsets=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("txnVersion", "-1"),
        ("slot", "x"),
        ("maxOffsetsPerTrigger", "0"),
        ("minPartitions", "1.5"),
        ("failOnDataLoss", "yes"),
        ("includeHeaders", "1"),
        ("transactionalId", " "),
        ("isolationLevel", "serializable"),
    ],
)
def test_values_that_are_not_allowed_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidOption):
        of(**{name: value})


def test_store_options_are_passed_on_and_never_printed() -> None:
    options = Options.of({"path": "s3://bucket/x", "store.key": "name", "store.secret": "hidden"})

    assert dict(options.location.options) == {"key": "name", "secret": "hidden"}
    assert "hidden" not in repr(options)


def test_the_driver_s_settings_travel_with_the_location_unless_options_say_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EOSLOG_S3__ENDPOINT_URL", "https://s3.example.com")
    monkeypatch.setenv("EOSLOG_S3__MAX_ATTEMPTS", "3")
    monkeypatch.setenv("EOSLOG_LOCAL__FSYNC", "false")

    s3 = Options.of({"path": "s3://bucket/prefix", "store.max_attempts": "9"})

    assert dict(s3.location.options) == {"endpoint_url": "https://s3.example.com", "max_attempts": "9"}
    assert dict(of().location.options) == {"fsync": "False"}
