"""``docs/spark.md`` describes options and errors as the data source has them."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest

import eoslog
from eoslog.errors import EosLogError, InvalidOption, Replayed
from pyspark_eoslog.options import NAMES, STORE_PREFIX, Options
from pyspark_eoslog.options.source_options import TOPIC_OPTIONS
from pyspark_eoslog.read.batch_reader import STREAM_OPTIONS
from pyspark_eoslog.stream.stream_reader import check_stream_options
from pyspark_eoslog.table import EosLogTable
from tests.pages import REPOSITORY, fenced_blocks, table_rows

PAGE = REPOSITORY / "docs/spark.md"
TEXT = PAGE.read_text(encoding="utf-8")
STORE_OPTIONS = f"{STORE_PREFIX}<option>"
EACH = '{"a": {"0": 1}}'
VALUES = {
    "startingOffsets": "earliest",
    "startingTimestamp": "1",
    "startingOffsetsByTimestamp": EACH,
    "startingOffsetsByTimestampStrategy": "latest",
    "endingOffsets": "latest",
    "endingTimestamp": "1",
    "endingOffsetsByTimestamp": EACH,
    "slot": "1",
    "versionAsOf": "1",
    "timestampAsOf": "1",
    "assign": '{"a": [0]}',
    "latestByKey": "true",
}


def options_of(direction: str) -> dict[str, tuple[str, str]]:
    """Where each option of a table is for, and its default."""
    found = {}
    for names, place, default, _ in table_rows(PAGE, f"options of {direction}"):
        found.update(dict.fromkeys(re.findall(r"`([^`]+)`", names), (place, default.strip("`"))))
    return found


READS, WRITES = options_of("reads"), options_of("writes")


def stream_options(**given: str) -> Options:
    topic = {} if given.keys() & set(TOPIC_OPTIONS) else {"topic": "a"}
    return Options.of({"path": "/store", **topic, **given})


def test_the_two_tables_have_all_options_that_there_are_and_no_others() -> None:
    assert READS.keys() | WRITES.keys() == {*NAMES, STORE_OPTIONS}
    assert READS.keys() & WRITES.keys() == {"path", "topic", "failOnDataLoss", STORE_OPTIONS}


@pytest.mark.parametrize("name", [name for name, (place, _) in READS.items() if place == "batch"])
def test_an_option_for_batches_alone_is_refused_by_streams(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"option '{name}' is for batch reads"):
        check_stream_options(stream_options(**{name: VALUES[name]}))


@pytest.mark.parametrize("name", [name for name in READS if name in VALUES and READS[name][0].startswith("all")])
def test_an_option_of_all_reads_works_in_streams_and_documented_snapshots(name: str) -> None:
    check_stream_options(stream_options(**{name: VALUES[name]}))

    of_snapshots = stream_options(isolationLevel="snapshot", **{name: VALUES[name]})
    if "not `snapshot`" in READS[name][0]:
        with pytest.raises(InvalidOption, match=f"option '{name}'"):
            check_stream_options(of_snapshots)
    else:
        check_stream_options(of_snapshots)


def test_the_options_for_streams_alone_are_those_that_batches_ignore() -> None:
    assert {name for name, (place, _) in READS.items() if place == "stream"} == set(STREAM_OPTIONS)


def test_the_defaults_of_switches_are_those_of_the_code() -> None:
    told = {name: default for name, (_, default) in (READS | WRITES).items() if default in ("true", "false")}
    defaults = stream_options()
    switches = {
        name: str(getattr(defaults, attribute)).lower()
        for name in NAMES
        if isinstance(getattr(defaults, attribute := re.sub("([A-Z])", r"_\1", name).lower(), None), bool)
    }

    assert told == switches
    assert defaults.isolation.value == READS["isolationLevel"][1]
    assert defaults.max_trigger_delay_ms == 15 * 60_000
    assert READS["maxTriggerDelay"][1] == "15m"


def test_the_methods_and_arguments_of_the_table_are_those_of_the_code() -> None:
    arguments = {}
    for method, told in re.findall(r"`(\w+)\(([^`)]*=)\)`", TEXT):
        arguments[method] = [name.strip().rstrip("=") for name in told.split(",")]

    for method, names in arguments.items():
        known = inspect.signature(getattr(EosLogTable, method)).parameters
        assert names == [name for name in known if name != "self"] or set(names) == known.keys() - {"self"}
    assert arguments.keys() == {"toDF", "optimize", "vacuum"}
    for method in re.findall(r"`(?:table|EosLogTable|DeltaTable)\.(\w+)", TEXT):
        assert hasattr(EosLogTable, method) or method == "isDeltaTable", method


def test_each_error_that_is_told_is_there() -> None:
    errors = [each for each in vars(eoslog.errors).values() if inspect.isclass(each) and issubclass(each, EosLogError)]
    codes = {each.code for each in errors} | {Replayed.code}
    names = {each.__name__ for each in errors}

    told = set(re.findall(r"\[(EOSLOG_\w+)\]", TEXT))

    assert told
    assert told <= codes
    assert set(re.findall(r"`([A-Z]\w+(?:Fenced|Mismatch|Unknown|Schema))`", TEXT)) <= names


def test_the_page_is_a_program() -> None:
    for block in fenced_blocks(PAGE, "python"):
        compile(block, str(PAGE), "exec")
    assert len(fenced_blocks(PAGE, "python")) > 10


def test_every_field_of_the_options_comes_from_one_that_is_told() -> None:
    own = {"location", "given", "topics", "isolation", "checkpoint_location", "query_name"}
    renamed = {"timestamp_ms": "timestampAsOf", "application_id": "txnAppId", "version": "txnVersion"}
    for field in fields(Options):
        words = field.name.removesuffix("_ms").split("_")
        name = renamed.get(field.name, words[0] + "".join(word.capitalize() for word in words[1:]))
        assert field.name in own or name in NAMES, field.name
