"""The coordinator's run: each step at its interval, whatever becomes of the others, at a cost that stays small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from eoslog import errors
from eoslog.maintenance.coordinator import STEPS, Coordinator, StepReport
from eoslog.maintenance.sealing import seal_segments
from eoslog.session.settings import CoordinatorSettings
from eoslog.state.entries import TopicConfig
from eoslog.storage.object_store import PutOutcome
from eoslog.store import Store
from tests.unit.support.transactions import begun
from tests.unit.support.world import World, faulty

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ALL = [step.name for step in STEPS]


def until(world: World, duration_ms: int) -> Callable[[], bool]:
    """Stops a run when so much time has passed."""
    end_ms = world.time_ms + duration_ms
    return lambda: world.time_ms >= end_ms


# One run of everything


def test_one_run_does_everything_and_a_second_one_nothing(store: Store, world: World) -> None:
    store.admin.create_topic("s", config=TopicConfig(segment_batches=1))
    begun(store, "idle", 0).commit_transaction()
    with store.producer() as producer:
        producer.send("s", b"1")
        producer.flush()
        producer.send("s", b"2")
    orphan = f"t/{store.admin.describe_topic('t').topic_id}/0/{0:020d}/{'0' * 32}.parquet"
    store.object_store.put(orphan, b"of a writer that died")
    world.pass_time(8 * DAY_MS)
    begun(store, "dead", 0, transaction_timeout_ms=1_000)
    world.pass_time(2_000)
    coordinator = Coordinator(world.process())

    first, second = coordinator.run_once(), coordinator.run_once()

    did = {report.step: report.did for report in first}
    assert [report.step for report in first] == ALL
    assert did["abort-timed-out-transactions"] == {"aborted_transactions": ["dead"]}
    assert did["expire-transactional-ids"] == {"expired_transactional_ids": ["idle"]}
    assert len(did["expire-producer-ids"]["expired_producer_ids"]) == 1
    assert "s-0" in did["seal-segments"]["sealed_segments"]
    assert "s-0" in did["compact-files"]["compacted_segments"]
    assert did["vacuum"] == {"deleted_files": 1, "deleted_bytes": 21}
    assert not any(report.did or report.error for report in second)
    assert store.scan("s").to_table()["value"].to_pylist() == [b"1", b"2"]


def test_a_run_in_a_store_at_rest_appends_nothing(store: Store) -> None:
    slot = store.read(lambda state, slot: slot)

    Coordinator(store).run_once(steps=[name for name in ALL if name != "vacuum"])

    assert store.read(lambda state, slot: slot) == slot


def test_a_step_that_fails_is_told_and_the_others_are_taken(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun(store, "dead", 0, transaction_timeout_ms=1_000)
    world.pass_time(2_000)

    def fault(*_: object, **__: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(Coordinator, "evict_silent_members", fault)
    monkeypatch.setattr(Coordinator, "vacuum", lambda _: (_ for _ in ()).throw(errors.CorruptRecord("an index")))

    reports = {report.step: report for report in Coordinator(world.process()).run_once()}

    assert {name for name, report in reports.items() if report.error} == {"evict-silent-members", "vacuum"}
    assert list(reports) == ALL
    assert reports["abort-timed-out-transactions"].did == {"aborted_transactions": ["dead"]}
    assert "evict-silent-members" in caplog.text


@pytest.mark.usefixtures("files_are_objects")
def test_vacuum_reports_the_indexes_that_it_cannot_read(store: Store, world: World) -> None:
    store.admin.create_topic("s", config=TopicConfig(segment_batches=1))
    with store.producer() as producer:
        producer.send("s", b"1")
    (sealed, *_) = seal_segments(store)
    store.object_store.delete([sealed.index.path])

    (report,) = Coordinator(store).run_once(steps=["vacuum"])

    assert report.error is None
    assert report.did == {"unreadable_indexes": [sealed.index.path]}


@pytest.mark.usefixtures("files_are_objects")
def test_an_unreadable_index_is_logged_once_and_then_counted(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.admin.create_topic("s", config=TopicConfig(segment_batches=1))
    with store.producer() as producer:
        for number in range(2):
            producer.send("s", b"%d" % number)
            producer.flush()
    first, second = (sealed.index.path for sealed in seal_segments(store))
    body = store.object_store.get(first).body
    coordinator = Coordinator(store)

    def logged() -> tuple[int, int, str]:
        caplog.clear()
        coordinator.run_once(steps=["vacuum"])
        text = "\n".join(each.getMessage() for each in caplog.records if "vacuum keeps" in each.getMessage())
        return text.count(first), text.count(second), text

    store.object_store.delete([first])
    assert logged()[:2] == (1, 0)
    store.object_store.delete([second])
    assert logged()[:2] == (0, 1)
    *named, text = logged()
    assert named == [0, 0]
    assert "2 segment indexes are still unreadable" in text
    store.object_store.put(first, body)
    assert "1 segment index is still unreadable" in logged()[2]
    # An index that is damaged again is new.
    store.object_store.delete([first])
    assert logged()[:2] == (1, 0)


def test_a_report_tells_time_and_requests(store: Store, world: World) -> None:
    begun(store, "dead", 0, transaction_timeout_ms=1_000)
    world.pass_time(2_000)

    (report,) = Coordinator(store).run_once(steps=["abort-timed-out-transactions"])

    assert report.time_ms == world.time_ms
    assert report.requests == {"GET": 1, "PUT": 1}


def test_a_step_that_does_not_exist_is_refused_with_those_that_do(store: Store) -> None:
    with pytest.raises(errors.InvalidOption, match=r"no step 'sweep'\. Use one of: abort-timed-out-transactions, "):
        Coordinator(store).run_once(steps=["sweep"])
    with pytest.raises(errors.InvalidOption, match="no step 'sweep'"):
        Coordinator(store, intervals_ms={"sweep": 1})


def test_every_step_has_a_setting_of_its_own() -> None:
    settings = [step.setting for step in STEPS]

    assert len(set(settings)) == len(settings)
    assert set(settings) == {name for name in CoordinatorSettings.model_fields if not name.endswith("expiration_ms")}


# The run that goes on


def test_each_step_is_taken_at_its_interval(store: Store, world: World) -> None:
    taken: Counter[str] = Counter()

    Coordinator(store, intervals_ms={"seal-segments": 7_200_000}).run(
        report=lambda report: taken.update([report.step]), stop=until(world, HOUR_MS)
    )

    assert taken == {
        "abort-timed-out-transactions": 360,
        "evict-silent-members": 60,
        "expire-offsets": 6,
        "expire-producer-ids": 6,
        "expire-transactional-ids": 1,
        "seal-segments": 1,
        "apply-retention": 12,
        "publish": 360,
        "compact-keys": 240,
        "compact-files": 60,
        "write-checkpoint": 60,
        "vacuum": 1,
        "delete-old-slots": 1,
    }


def test_only_the_chosen_steps_are_taken(store: Store, world: World) -> None:
    reports: list[StepReport] = []

    Coordinator(store).run(steps=["vacuum", "seal-segments"], report=reports.append, stop=until(world, 60_000))

    assert [report.step for report in reports] == ["seal-segments", "vacuum"]


def test_a_run_is_stopped_between_two_steps(store: Store, world: World) -> None:
    reports: list[StepReport] = []

    Coordinator(store).run(report=reports.append, stop=lambda: len(reports) == 2)

    assert [report.step for report in reports] == ALL[:2]


def test_a_store_outage_delays_the_run_and_does_not_end_it(store: Store, world: World) -> None:
    begun(store, "dead", 0, transaction_timeout_ms=1_000)
    process = world.process()
    faulty(process).go_down()
    begin_ms = world.time_ms
    world.while_asleep = lambda: faulty(process).heal() if world.time_ms - begin_ms > 30_000 else None
    reports: list[StepReport] = []

    Coordinator(process).run(steps=["abort-timed-out-transactions"], report=reports.append, stop=until(world, 45_000))

    failed = [report for report in reports if report.error is not None]
    assert all(isinstance(report.error, errors.StoreUnavailable) for report in failed)
    assert 2 < len(failed) < 12
    assert [report.did for report in reports if report.did] == [{"aborted_transactions": ["dead"]}]


def test_a_step_that_may_not_write_is_told_at_its_interval(store: Store, world: World) -> None:
    begun(store, "dead", 0, transaction_timeout_ms=1_000)
    process = world.process()
    faulty(process).deny("__transaction_state/")
    reports: list[StepReport] = []

    Coordinator(process).run(steps=["abort-timed-out-transactions"], report=reports.append, stop=until(world, 60_000))

    denied = [report for report in reports if report.error is not None]
    assert len(denied) == 5
    assert all(isinstance(report.error, errors.StoreAccessDenied) for report in denied)


def test_a_place_that_is_no_store_ends_the_run(world: World) -> None:
    with pytest.raises(errors.NotAStore):
        Coordinator(world.process()).run(stop=until(world, HOUR_MS))


def test_two_coordinators_at_once_do_everything_once(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them does all its steps before each slot that the other one is about to take."""
    names = [f"dead{number}" for number in range(5)]
    for name in names:
        begun(store, name, 0, transaction_timeout_ms=1_000)
    store.producer("idle").init_transactions()
    world.pass_time(8 * DAY_MS)
    did: list[tuple[str, object]] = []

    def note(report: StepReport) -> None:
        assert report.error is None
        did.extend(report.did.items())

    slower, faster = world.process(), Coordinator(world.process())
    put_if_absent, overtaken = faulty(slower).put_if_absent, []

    def overtake(path: str, body: bytes) -> PutOutcome:
        overtaken.append(path)
        faster.run_once(report=note)
        return put_if_absent(path, body)

    monkeypatch.setattr(faulty(slower), "put_if_absent", overtake)
    Coordinator(slower).run_once(report=note)

    assert overtaken
    assert sorted(did, key=str) == sorted(
        [("aborted_transactions", names), ("expired_transactional_ids", ["idle"])], key=str
    )
    assert store.admin.list_transactions(states=["Ongoing"]) == []


# What it costs to do nothing


def idle_hour(world: World) -> Counter[str]:
    """The requests of a coordinator's second hour in a store at rest."""
    process = world.process()
    coordinator = Coordinator(process)
    requests: list[Counter[str]] = []

    def stopped() -> bool:
        elapsed_ms = world.time_ms - begin_ms
        if elapsed_ms >= HOUR_MS * (len(requests) + 1):
            requests.append(Counter(process.requests))
        return len(requests) == 2

    begin_ms = world.time_ms
    coordinator.run(stop=stopped)
    return requests[1] - requests[0]


def test_an_idle_hour_costs_some_hundred_small_gets_and_a_few_lists(store: Store, world: World) -> None:
    cost = idle_hour(world)

    assert cost.keys() <= {"GET", "LIST"}
    assert cost["GET"] <= 1_260
    assert cost["LIST"] <= 4


def test_an_idle_hour_costs_the_same_after_a_long_history(store: Store, world: World) -> None:
    store.admin.create_topic("s", config=TopicConfig(segment_batches=5))

    def after_transactions(count: int) -> Counter[str]:
        with store.producer("tx") as producer:
            producer.init_transactions()
            for number in range(count):
                producer.begin_transaction()
                producer.send("s", b"%d" % number)
                producer.flush()
                producer.commit_transaction()
        Coordinator(store).run_once()
        return idle_hour(world)

    short, long = after_transactions(80), after_transactions(240)

    assert long == short


def test_a_read_of_the_log_at_rest_is_one_small_get(store: Store) -> None:
    Coordinator(store).run_once()
    before = Counter(store.requests)

    Coordinator(store).abort_timed_out_transactions()

    assert Counter(store.requests) - before == {"GET": 1}
