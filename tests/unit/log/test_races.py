"""Hosts that compete for slots of a remote store: the winner of a race gives way, so that nobody starves."""

from __future__ import annotations

import pytest

from eoslog.log import contention
from eoslog.log.log import Log
from tests.unit.log.ledger import Ledger, add
from tests.unit.log.world import World, names, script

COMPETITION_MS = 10_000


@pytest.fixture
def world() -> World:
    return World(tail_bytes=64 << 10)


def remote(log: Log[Ledger]) -> Log[Ledger]:
    script(log).is_remote = True
    log.read(lambda state, slot: None)
    return log


def gets_of_an_append(log: Log[Ledger], name: str) -> int:
    before = script(log).requests["GET"]
    log.append(add(name))
    return script(log).requests["GET"] - before


def lose_a_race(world: World, log: Log[Ledger], other: Log[Ledger]) -> None:
    script(log).before.append(lambda: other.append(add(f"other{world.now_ms}")))
    log.append(add(f"own{world.now_ms}"))
    assert log.appender.counts.conflicts > 0


def test_the_winner_of_a_race_reads_the_next_slot_before_it_puts_again(world: World) -> None:
    other, log = world.created(), remote(world.process())
    lose_a_race(world, log, other)

    assert gets_of_an_append(log, "next") == 1


def test_a_record_that_came_meanwhile_loses_no_race(world: World) -> None:
    other, log = world.created(), remote(world.process())
    lose_a_race(world, log, other)
    conflicts = log.appender.counts.conflicts
    other.append(add("first"))

    log.append(add("second"))

    assert names(log)[-2:] == ["first", "second"]
    assert log.appender.counts.conflicts == conflicts


def test_a_winner_gives_way_no_longer_than_others_compete(world: World) -> None:
    other, log = world.created(), remote(world.process())
    lose_a_race(world, log, other)
    world.now_ms += COMPETITION_MS
    gets_of_an_append(log, "once")

    assert [gets_of_an_append(log, f"n{number}") for number in range(5)] == [0] * 5


def test_a_writer_that_knows_of_no_other_gives_way_once_in_ten_seconds(world: World) -> None:
    world.created()
    log = remote(world.process())
    gets = []
    for number in range(600):
        world.now_ms += 100
        gets.append(gets_of_an_append(log, f"n{number}"))

    assert 5 <= sum(gets) <= 6
    assert log.appender.counts.conflicts == 0


def test_a_log_is_created_though_its_process_took_long_before(world: World) -> None:
    log = world.process()
    script(log).is_remote = True
    world.now_ms += COMPETITION_MS

    log.create(add("created"))

    assert names(log) == ["created"]


def test_a_local_store_needs_no_giving_way(world: World) -> None:
    other, log = world.created(), world.process()
    log.read(lambda state, slot: None)
    lose_a_race(world, log, other)

    assert gets_of_an_append(log, "next") == 0


def test_the_writer_that_lost_most_races_pauses_least(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other, log = world.created(), remote(world.process())
    pauses: list[int] = []
    monkeypatch.setattr(contention, "back_off", lambda environment, races: pauses.append(races))
    script(log).before.extend([lambda n=n: other.append(add(f"other{n}")) for n in range(7)])  # type: ignore[misc]

    log.append(add("own"))

    assert pauses == sorted(pauses, reverse=True)
    assert len(set(pauses)) > 2
