"""librdkafka's own tests pass against the gateway, except those with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_clients import librdkafka
from tests.kafka_clients.conftest import AS_TESTS_OF_CLIENTS_EXPECT, PLACES, Served
from tests.kafka_clients.librdkafka_tests import PASSES, REASONS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not librdkafka.PROGRAM.exists(), reason="librdkafka's tests are not built: run make test-kafka-clients"
    ),
]


@pytest.fixture(scope="module", params=PLACES)
def servers(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> str:
    """The address of a gateway with the settings that librdkafka's tests expect."""
    return served_at(request.param, *AS_TESTS_OF_CLIENTS_EXPECT).servers


@pytest.mark.parametrize("name", PASSES)
def test_librdkafka_passes(servers: str, tmp_path: Path, name: str) -> None:
    results = librdkafka.run(name[:4], servers, tmp_path)

    assert results[name].state == "PASSED", results[name].output


def test_each_test_of_librdkafka_is_listed() -> None:
    source = (librdkafka.SOURCE / "tests" / "test.c").read_text(encoding="utf-8")
    table = source[source.index("struct test tests[] = {") : source.index("{NULL}};")]
    tests = re.findall(r"_TEST\((\d{4}_\w+),(.*?)(?=_TEST\(|$)", table, re.DOTALL)

    assert sorted([*PASSES, *REASONS]) == sorted(
        name for name, flags in tests if "TEST_F_LOCAL" not in flags and "TEST_F_MANUAL" not in flags
    )
