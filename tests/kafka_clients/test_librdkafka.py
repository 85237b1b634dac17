"""librdkafka's own tests pass against the gateway, except those with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka_clients import librdkafka
from tests.kafka_clients.conftest import AS_TESTS_OF_CLIENTS_EXPECT, PLACES, Served
from tests.kafka_clients.librdkafka_tests import PASSES, QUICK, REASONS, WHOLE, WITHOUT_CREATION

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


@pytest.fixture(scope="module", params=PLACES)
def servers_without_creation(request: pytest.FixtureRequest, served_at: Callable[..., Served]) -> str:
    """The address of a gateway that creates no topics by itself."""
    return served_at(request.param, *AS_TESTS_OF_CLIENTS_EXPECT[1:]).servers


def check(name: str, servers: str, directory: Path, **modes: bool) -> None:
    result = librdkafka.run(name[:4], servers, directory, **modes)[name]
    assert result.state == "PASSED", result.output


@pytest.mark.parametrize("name", QUICK)
def test_librdkafka_passes_in_its_quick_mode(servers: str, tmp_path: Path, name: str) -> None:
    check(name, servers, tmp_path)


@pytest.mark.parametrize("name", WHOLE)
def test_librdkafka_passes_what_its_quick_mode_leaves_out(servers: str, tmp_path: Path, name: str) -> None:
    check(name, servers, tmp_path, quick=False)


@pytest.mark.parametrize("name", WITHOUT_CREATION)
def test_librdkafka_passes_without_automatic_topics(servers_without_creation: str, tmp_path: Path, name: str) -> None:
    check(name, servers_without_creation, tmp_path, quick=False, creates_topics=False)


def test_each_test_of_librdkafka_is_listed() -> None:
    source = (librdkafka.SOURCE / "tests" / "test.c").read_text(encoding="utf-8")
    table = source[source.index("struct test tests[] = {") : source.index("{NULL}};")]
    tests = re.findall(r"_TEST\((\d{4}_\w+),(.*?)(?=_TEST\(|$)", table, re.DOTALL)

    assert sorted([*PASSES, *REASONS]) == sorted(
        name for name, flags in tests if "TEST_F_LOCAL" not in flags and "TEST_F_MANUAL" not in flags
    )
