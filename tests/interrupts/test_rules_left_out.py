"""Each rule that makes interrupts harmless is needed: without it an interrupt at some instruction does harm."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from eoslog.consumer.assigned_partitions import AssignedPartitions
from eoslog.producer.producer_calls import ProducerCalls
from eoslog.producer.sender import Sender
from eoslog.storage.environment import Environment
from tests.interrupts import test_consumer_interrupts as consumers
from tests.interrupts import test_producer_interrupts as producers

_MOST_POINTS = 150


def harms_a_producer(kind: str, call: str, way: str) -> bool:
    return _harms(
        producers.points_of(kind, call), lambda point: producers.run(kind, call, way, point, KeyboardInterrupt)
    )


def harms_a_consumer(call: str) -> bool:
    return _harms(consumers.points_of(call), lambda point: consumers.run(call, point, KeyboardInterrupt))


def _harms(points: list[Any], run: Callable[[Any], None]) -> bool:
    for point in random.Random(1).sample(points, min(_MOST_POINTS, len(points))):
        try:
            run(point)
        except Exception:
            return True
    return False


def test_records_of_an_interrupted_poll_must_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AssignedPartitions, "settle", lambda self, *, has_returned: None)

    assert harms_a_consumer("poll")


def test_the_answer_of_an_interrupted_commit_must_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerCalls, "untold", lambda *_: None)

    assert harms_a_producer("staged", "commit_transaction", "repeat")


def test_steps_must_run_where_no_signal_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Environment, "uninterrupted", lambda self, step: step())

    assert harms_a_producer("without transactions", "flush", "repeat")


def test_futures_must_be_told_again_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(self: Sender, call: Any) -> None:
        while self._settled:
            awaited, outcome = self._settled.popleft()
            awaited.tell(outcome, call)

    monkeypatch.setattr(Sender, "tell", tell)

    assert harms_a_producer("without transactions", "flush", "repeat")
