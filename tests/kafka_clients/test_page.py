"""The page of Kafka's clients is what the lists of tests say."""

from __future__ import annotations

from tests.kafka_clients.librdkafka_tests import PASSES, REASONS
from tests.kafka_clients.page import PAGE, render


def test_the_page_is_what_the_lists_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run `python -m tests.kafka_clients.page`"


def test_a_test_that_passes_has_no_reason() -> None:
    assert not REASONS.keys() & set(PASSES)
