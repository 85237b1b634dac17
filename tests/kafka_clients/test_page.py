"""The page of Kafka's clients is what the lists of tests say."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.kafka_clients import franz_go_tests, kafka_python_tests, librdkafka_tests
from tests.kafka_clients.page import PAGE, render


def test_the_page_is_what_the_lists_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run `python -m tests.kafka_clients.page`"


@pytest.mark.parametrize("lists", [franz_go_tests, kafka_python_tests, librdkafka_tests])
def test_a_test_that_passes_has_no_reason(lists: ModuleType) -> None:
    assert not lists.REASONS.keys() & set(lists.PASSES)
