"""kafka-python's own integration tests pass against the gateway, except those with a reason."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.kafka_clients import kafka_python
from tests.kafka_clients.conftest import AS_TESTS_OF_CLIENTS_EXPECT, PLACES, Served
from tests.kafka_clients.kafka_python_tests import PASSES, REASONS, SUBSCRIBES_WHILE_CONNECTING

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not kafka_python.TESTS.exists(), reason="kafka-python's tests are not there: run make test-kafka-clients"
    ),
]
_RELEASE = "4.3"


@pytest.fixture(scope="module", params=PLACES)
def results(
    request: pytest.FixtureRequest, served_at: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, kafka_python.Result]:
    """The outcomes of all tests, on each kind of store in turn."""
    served = served_at(request.param, *AS_TESTS_OF_CLIENTS_EXPECT)

    def run(names: Sequence[str]) -> Mapping[str, kafka_python.Result]:
        return kafka_python.run(names, served.servers, tmp_path_factory.mktemp("kafka-python"), version=_RELEASE)

    found = run(PASSES)
    again = [name for name in SUBSCRIBES_WHILE_CONNECTING if found[name].state != "passed"]
    return {**found, **run(again)} if again else found


@pytest.mark.parametrize("name", PASSES)
def test_kafka_python_passes(results: Mapping[str, kafka_python.Result], name: str) -> None:
    assert results[name].state == "passed", results[name].output


def test_the_tests_are_of_the_release_that_is_installed() -> None:
    pinned = (kafka_python.SOURCE / "requirements").read_text(encoding="utf-8").split()[0]

    assert pinned == f"kafka-python=={importlib.metadata.version('kafka-python')}"


def test_each_test_of_kafka_python_is_listed() -> None:
    found = {
        f"{source.name}::{name}"
        for source in kafka_python.TESTS.glob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)\(", source.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert {name.partition("[")[0] for name in [*PASSES, *REASONS]} == found
