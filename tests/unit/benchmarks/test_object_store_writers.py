"""The benchmark of many writers: what it counts, and what it says about numbers that mislead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import eoslog
from benchmarks.object_store_writers import Case, CaseFailed, Measured, Target, local_stores, main, measure, s3_stores
from benchmarks.writer_process import Report, Window, Writer
from eoslog.log.slots import records_backwards
from tests.s3.servers import ServerMissing

SECONDS = 0.5


def measured(requests: Mapping[str, int], *, commits: int = 50, proxied: int | None = None, hosts: int = 1) -> Measured:
    report = Report([commits], [0.1] * 50 + [7.0], {"StoreUnavailable": 2}, requests, 0.5, has_queue=False)
    return Measured(Case(hosts=hosts, put_ms=100), 10, 1.25, [report], 0.9, 0.5, proxied)


@pytest.mark.slow
def test_the_processes_of_two_hosts_commit_to_one_store(tmp_path: Path) -> None:
    case = Case(hosts=2, processes=1, threads=2)
    target = local_stores(str(tmp_path))(case)

    found = measure(case, target, seconds=SECONDS, warm_up=0)

    rows = eoslog.connect(target.url).scan("t").to_table().num_rows
    assert [len(report.commits) for report in found.reports] == [2, 2]
    assert 0 < found.commits <= rows
    assert found.requests["PUT"] > 0
    assert list(found.notes()) == []


@pytest.mark.slow
def test_the_service_of_a_case_appends_for_the_writers(tmp_path: Path) -> None:
    case = Case(hosts=2, service=True)
    target = local_stores(str(tmp_path))(case)

    measure(case, target, seconds=SECONDS, warm_up=0)

    store = eoslog.connect(target.url)
    newest = store.log.read(lambda state, slot: slot)
    assert any(record.requests for record in records_backwards(store.object_store, newest))


@pytest.mark.slow
def test_a_process_without_turns_has_no_queue(tmp_path: Path) -> None:
    case = Case(hosts=2, processes=2)

    found = measure(case, local_stores(str(tmp_path))(case), seconds=SECONDS, warm_up=0, takes_turns=False)

    assert "took no turns" in next(found.notes())


@pytest.mark.slow
@pytest.mark.s3
def test_the_proxy_delays_puts_and_counts_the_requests_that_the_clients_count() -> None:
    case = Case(processes=2, put_ms=100, other_ms=5)
    try:
        with s3_stores() as new_store:
            found = measure(case, new_store(case), seconds=1, warm_up=0)
    except ServerMissing as error:
        pytest.skip(str(error))

    # A commit cannot be faster than the PUT of its record, which holds its row.
    assert min(duration for report in found.reports for duration in report.durations_s) > 0.1
    assert found.proxied
    assert list(found.notes()) == []


def test_a_row_has_the_rate_the_slowest_commit_and_the_requests_by_verb() -> None:
    row = measured({"PUT": 100, "GET": 25, "LIST": 0}).row()

    assert row[:2] == ("1 process", "100 / 0")
    assert row[3:] == (
        "5.0",
        "0.100",
        "7.000",
        "7.000",
        "50 / 50",
        "2.50: 2.00 PUT, 0.50 GET",
        "10.0",
        "90% / 50%",
        "2 StoreUnavailable",
    )


def test_a_note_tells_that_the_proxy_saw_other_requests_than_the_clients() -> None:
    assert list(measured({"PUT": 100}, proxied=102).notes()) == []
    assert list(measured({"PUT": 100}, proxied=150).notes()) == [
        "1 process: the clients counted 100 requests, but the proxy 150."
    ]


def test_a_note_tells_that_the_processes_of_a_host_took_no_turns() -> None:
    found = replace(measured({"PUT": 100}), case=Case(hosts=2, processes=2))

    assert "took no turns" in next(found.notes())


def test_a_note_tells_that_no_commit_ended() -> None:
    (note,) = measured({}, commits=0).notes()

    assert "no commit ended in the window" in note


def test_a_writer_counts_an_error_and_goes_on_with_a_new_producer(tmp_path: Path) -> None:
    store = eoslog.connect(tmp_path / "store")
    store.admin.create_topic("t")
    writer = Writer(store, "writer")
    writer.begin()
    # A second producer of the same id fences the first.
    store.producer("writer", staged=True).init_transactions()

    writer.commit_once()

    assert writer.errors == {"ProducerFenced": 1}
    assert store.scan("t").to_table().num_rows == 1


def test_a_commit_that_is_in_flight_when_the_window_ends_shows_in_the_durations_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = eoslog.connect(tmp_path / "store")
    writer = Writer(store, "writer")
    times = iter([0.0, 12.0])
    monkeypatch.setattr("benchmarks.writer_process.time.monotonic", lambda: next(times, 12.0))
    monkeypatch.setattr(writer, "_commit", lambda: None)

    writer.write(Window(begin_s=1, end_s=11))

    assert writer.commits == 0
    assert writer.durations_s == [12.0]


def test_a_case_whose_processes_end_early_has_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = Target("unknown://store")

    with pytest.raises(CaseFailed, match="not all writers have begun"):
        measure(Case(), target, seconds=SECONDS, warm_up=0)

    assert "Unknown scheme" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "local", "--directory", "/no/such/directory"], "is not a directory"),
        (["--store", "local", "--put-ms", "10"], "has no delay"),
        (["--directory", "."], "has a directory of its own"),
        (["--processes", "0"], "at least 1"),
        (["--other-ms", "nan"], "at least 0"),
    ],
)
def test_a_wrong_argument_is_an_error(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)

    assert message in capsys.readouterr().err


def test_a_missing_server_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOSLOG_S3_SERVER", "/no/such/program")

    with pytest.raises(SystemExit, match="which is no program"):
        main([])
