"""Stores that do not enforce put-if-absent are refused."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from eoslog.errors import PutIfAbsentUnsupported, StoreAccessDenied, StoreUnavailable
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectNotFound, PutOutcome
from eoslog.storage.probe import probe_put_if_absent


class Overwriting(MemoryStore):
    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        self.put(path, body)
        return PutOutcome.CREATED


class OverwritingButSayingExists(MemoryStore):
    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        outcome = super().put_if_absent(path, body)
        self.put(path, body)
        return outcome


class CheckingThenWriting(MemoryStore):
    """As fsspec's own local and memory file systems do."""

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        try:
            self.get(path)
        except ObjectNotFound:
            time.sleep(0.005)
            self.put(path, body)
            return PutOutcome.CREATED
        return PutOutcome.EXISTS


class ChangingBodies(MemoryStore):
    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        return super().put_if_absent(path, b"%x\r\n%b" % (len(body), body))


class AlwaysExisting(MemoryStore):
    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        super().put_if_absent(path, body)
        return PutOutcome.EXISTS


class SpoilingEachFirstAttempt(MemoryStore):
    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.spoiled: set[tuple[str, bytes]] = set()

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        if (path, body) in self.spoiled:
            return super().put_if_absent(path, body)
        self.spoiled.add((path, body))
        return self.spoil(path, body)

    def spoil(self, path: str, body: bytes) -> PutOutcome:
        raise NotImplementedError


class LosingEachFirstAnswer(SpoilingEachFirstAttempt):
    def spoil(self, path: str, body: bytes) -> PutOutcome:
        super(SpoilingEachFirstAttempt, self).put_if_absent(path, body)
        raise StoreUnavailable("lost")


class AskingForAnotherAttempt(SpoilingEachFirstAttempt):
    def spoil(self, path: str, body: bytes) -> PutOutcome:
        return PutOutcome.CONFLICT


class Silent(MemoryStore):
    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        raise StoreUnavailable("no answer")


class PatientEnvironment(Environment):
    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(min(duration_ms, 1))


@pytest.mark.parametrize("kind", [Overwriting, OverwritingButSayingExists, CheckingThenWriting, AlwaysExisting])
def test_a_store_without_put_if_absent_is_refused_and_left_clean(kind: type[MemoryStore]) -> None:
    store = kind(PatientEnvironment())

    with pytest.raises(PutIfAbsentUnsupported, match="does not enforce put-if-absent"):
        probe_put_if_absent(store, PatientEnvironment())

    assert list(store.list("")) == []


@pytest.mark.parametrize("kind", [LosingEachFirstAnswer, AskingForAnotherAttempt])
def test_lost_answers_and_conflicts_do_not_make_a_good_store_fail(kind: type[MemoryStore]) -> None:
    assert probe_put_if_absent(kind(PatientEnvironment()), PatientEnvironment()).put_if_absent


def test_a_store_that_does_not_answer_is_unavailable_and_says_why() -> None:
    with pytest.raises(StoreUnavailable, match=r"not answered 5 times.*no answer"):
        probe_put_if_absent(Silent(PatientEnvironment()), PatientEnvironment())


def test_a_writer_that_may_not_delete_passes_all_the_same() -> None:
    class WithoutDelete(MemoryStore):
        def delete(self, paths: Sequence[str]) -> None:
            raise StoreAccessDenied("no permission")

    assert probe_put_if_absent(WithoutDelete(PatientEnvironment()), PatientEnvironment()).races == 4


def test_a_store_that_changes_bodies_is_told_from_one_that_overwrites() -> None:
    with pytest.raises(PutIfAbsentUnsupported, match=r"other bytes than were put: b'5\\r\\nfirst'"):
        probe_put_if_absent(ChangingBodies(Environment()), Environment())
