"""Options: what is not understood is refused, with the names and values that are."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidOption
from eoslog.producer.job import WorkVersion
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
    with pytest.raises(InvalidOption, match=r"option 'startingoffset' is unknown. Did you mean 'startingOffsets'\?"):
        of(startingOffset="earliest")


def test_sparks_own_options_are_passed_over() -> None:
    assert of(queryname="q", checkpointlocation="/ck").checkpoint_location == "/ck"


def test_a_missing_path_is_told() -> None:
    with pytest.raises(InvalidOption, match="option 'path' is missing"):
        Options.of({"topic": "a"})


def test_a_memory_store_is_refused() -> None:
    with pytest.raises(InvalidOption, match="lives within one process"):
        Options.of({"path": "memory://x"})


def test_without_a_path_the_driver_s_default_store_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOSLOG_STORE", "/default")

    assert Options.of({"topic": "a"}).location.url == "/default"
    assert of().location.url == "/store"


def test_a_read_needs_a_topic() -> None:
    with pytest.raises(InvalidOption, match="name what to read"):
        of().topics_to_read()


def test_a_write_takes_one_topic_or_none() -> None:
    assert of().topic_to_write() is None
    with pytest.raises(InvalidOption, match="column 'topic'"):
        of(subscribe="a,b").topic_to_write()
    with pytest.raises(InvalidOption, match="column 'topic'"):
        of(assign='{"a": [0]}').topic_to_write()


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
        ("maxBytesPerTrigger", "0"),
        ("maxFilesPerTrigger", "0"),
        ("minOffsetsPerTrigger", "many"),
        ("maxTriggerDelay", "soon"),
        ("maxRecordsPerPartition", "0"),
        ("mergeSchema", "yes"),
        ("columns", " , "),
        ("predicate", ""),
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


def test_the_options_of_admission_take_sparks_sizes_and_durations() -> None:
    options = of(maxBytesPerTrigger="64m", maxTriggerDelay="2min", minOffsetsPerTrigger="7", maxFilesPerTrigger="3")

    assert (options.max_bytes_per_trigger, options.max_trigger_delay_ms) == (64 << 20, 120_000)
    assert (options.min_offsets_per_trigger, options.max_files_per_trigger) == (7, 3)
    assert of().max_trigger_delay_ms == 15 * 60_000


def test_columns_are_names_in_their_order() -> None:
    assert of(columns=" b, a ,b").columns == ("b", "a")
    assert of().columns is None


def test_the_given_options_are_known_and_can_be_refused() -> None:
    options = of(MAXFILESPERTRIGGER="1")

    assert options.given == {"path", "maxFilesPerTrigger"}
    options.refuse(("maxBytesPerTrigger",), "is not meant")
    with pytest.raises(InvalidOption, match="option 'maxFilesPerTrigger' is for streams"):
        options.refuse(("maxBytesPerTrigger", "maxFilesPerTrigger"), "is for streams")


@pytest.mark.parametrize(
    ("value", "query_id", "version"), [("3f2b-6c1e:17", "3f2b-6c1e", 17), (" a:b:0 ", "a:b", 0), ("7", None, 7)]
)
def test_start_anew_after_names_a_query_and_its_version(value: str, query_id: str | None, version: int) -> None:
    assert of(startAnewAfter=value).start_anew_after == WorkVersion(version, query_id)


@pytest.mark.parametrize(
    "value", ["", "true", "query", "query:", "query:-1", "query:1.5", f"query:{2**63}", "q" * 1025 + ":1"]
)
def test_a_fresh_start_after_anything_else_is_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="'startAnewAfter'"):
        of(startAnewAfter=value)


@pytest.mark.parametrize(
    "name", ["slot", "txnVersion", "startingTimestamp", "timestampAsOf", "startAnewAfter", "maxOffsetsPerTrigger"]
)
def test_a_number_too_long_for_python_is_refused_like_any_other(name: str) -> None:
    with pytest.raises(InvalidOption):
        of(**{name: "9" * 5000})
