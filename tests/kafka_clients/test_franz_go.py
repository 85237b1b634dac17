"""franz-go's own tests pass against the gateway, except those with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kafka_clients import franz_go
from tests.kafka_clients.conftest import Served
from tests.kafka_clients.franz_go_tests import PASSES, REASONS

pytestmark = pytest.mark.skipif(
    not franz_go.PROGRAM.exists(), reason="franz-go's tests are not built: run make test-kafka-clients"
)
_OF_GROUPS = ("TestGroupETL", "TestTxnEtl")
"""Consumers of three groups in a chain join and leave while they move records, the second test in transactions."""
_RECORDS = 1_000
_MANY_RECORDS = {"TestGroupETL": 100_000, "TestTxnEtl": 500_000}
_OTHERS = sorted({name.partition("/")[0] for name in PASSES}.difference(_OF_GROUPS))
_NEEDS_A_SERVER = re.compile(r"\b(newTestClient|tmp(Named)?Topic(Partitions)?|(scram|oauth)Seeds)\b")


def _check(results: franz_go.Results, test: str) -> None:
    """Check that all parts of a test have the outcomes that the lists give."""
    expected = [name for name in PASSES if name.partition("/")[0] == test]
    assert [results.outcomes.get(name) for name in expected] == ["PASS"] * len(expected), results.output
    others = results.outcomes.keys() & REASONS.keys()
    assert not [name for name in others if results.outcomes[name] == "PASS"], "these pass: list them"


@pytest.mark.parametrize("test", _OF_GROUPS)
def test_chains_of_groups_lose_and_double_no_record(local: Served, tmp_path: Path, test: str) -> None:
    _check(franz_go.run(test, local.servers, tmp_path, records=_RECORDS), test)


@pytest.mark.slow
@pytest.mark.parametrize("test", _OF_GROUPS)
def test_chains_of_groups_lose_and_double_none_of_many_records(served: Served, tmp_path: Path, test: str) -> None:
    _check(franz_go.run(test, served.servers, tmp_path, records=_MANY_RECORDS[test], timeout_s=500), test)


@pytest.mark.slow
def test_a_chain_of_groups_loses_and_doubles_no_record_while_connections_end(served: Served, tmp_path: Path) -> None:
    _check(franz_go.run("TestGroupETL", served.servers, tmp_path, records=5_000, chaos=True), "TestGroupETL")


@pytest.mark.slow
@pytest.mark.parametrize("test", _OTHERS)
def test_franz_go_passes(served: Served, tmp_path: Path, test: str) -> None:
    _check(franz_go.run(test, served.servers, tmp_path), test)


def test_each_test_of_franz_go_is_listed() -> None:
    found = set()
    for source in franz_go.SOURCE.glob("*_test.go"):
        tests = re.findall(
            r"^func (Test\w+)\(t \*testing\.T\) \{$(.*?)^\}$",
            source.read_text(encoding="utf-8"),
            re.DOTALL | re.MULTILINE,
        )
        found |= {name for name, body in tests if _NEEDS_A_SERVER.search(body)}

    assert {name.partition("/")[0] for name in [*PASSES, *REASONS]} == found
