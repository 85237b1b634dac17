"""The comparison with other formats: its statistics, and the page that is written from recorded results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.delay import delayed, kind_of
from benchmarks.peers import __main__ as runner
from benchmarks.peers import page
from benchmarks.peers.aborted import outcomes_of
from benchmarks.peers.measurements import TIME, Results, Spread, compare
from benchmarks.peers.parts import PARTS
from benchmarks.peers.sizes import SIZES

MACHINE = {"Processor": "a processor", "Cores": "2"}


def recorded(values: Mapping[str, list[float]], metric: str = TIME, case: str = "write") -> Results:
    results = Results("batch-local", "smoke", {"rows": "10"})
    for system, each in values.items():
        for value in each:
            results.add(case, system, {metric: value})
    return results


def test_a_factor_is_taken_within_each_round() -> None:
    (found,) = compare(recorded({"eoslog": [1, 20, 3], "Delta": [2, 10, 12]}))

    assert found.factor == Spread(2, 0.5, 4)
    assert not found.ahead
    assert not found.behind


def test_of_a_rate_the_larger_is_ahead_and_of_a_time_the_smaller() -> None:
    (rate,) = compare(recorded({"eoslog": [4, 6], "Delta": [2, 2]}, "commits/s"))
    (duration,) = compare(recorded({"eoslog": [4, 6], "Delta": [2, 2]}))

    assert rate.ahead
    assert duration.behind
    assert duration.factor == Spread((2 / 4 + 2 / 6) / 2, 2 / 6, 2 / 4)


def test_a_difference_of_some_percent_is_none() -> None:
    (slower,) = compare(recorded({"eoslog": [1.04], "Delta": [1.0]}))
    (faster,) = compare(recorded({"eoslog": [1.0], "Delta": [1.04]}))

    assert not slower.behind
    assert not faster.ahead


def test_variants_are_compared_with_peers_and_not_with_each_other_and_phases_not_at_all() -> None:
    found = compare(recorded({"eoslog": [1], "eoslog, toDF": [2], "Delta": [3], "Kafka": [4]}))

    assert {(each.ours, each.peer) for each in found} == {
        ("eoslog", "Delta"),
        ("eoslog", "Kafka"),
        ("eoslog, toDF", "Delta"),
        ("eoslog, toDF", "Kafka"),
    }
    assert compare(recorded({"eoslog": [1], "Delta": [3]}, "work (ms)")) == []


def test_rounds_alternate_the_order_and_leave_out_the_warm_ones() -> None:
    results, done = Results("batch-local", "smoke"), []

    def work(system: str) -> Mapping[str, float]:
        done.append(system)
        return {TIME: float(len(done))}

    results.rounds("write", {"a": lambda: work("a"), "b": lambda: work("b")}, rounds=2, warm=1)

    assert done == ["a", "b", "b", "a", "a", "b"]
    assert [(each.system, each.values) for each in results.measurements] == [("a", [4, 5]), ("b", [3, 6])]


def test_a_system_that_fails_does_not_stop_the_others() -> None:
    results = Results("batch-local", "smoke")

    def fail() -> None:
        raise OSError("no space in /some/where left\nmore")

    results.rounds("write", {"Delta": fail, "eoslog": lambda: {TIME: 1.0}}, rounds=3)

    (failure,) = results.failures
    assert (failure.case, failure.system, failure.reason) == ("write", "Delta", "OSError: no space in left")
    assert [(each.system, each.values) for each in results.measurements] == [("eoslog", [1, 1, 1])]


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    results = recorded({"eoslog": [1, 2]})
    results.fail("write", "Delta", "it was not there")
    results.keep(tmp_path / "results" / "part.json")

    assert Results.load(tmp_path / "results" / "part.json") == results


def test_the_page_names_each_case_in_which_eoslog_is_behind_with_the_inverse_factor(tmp_path: Path) -> None:
    results = recorded({"eoslog": [4, 6], "Delta": [2, 2], "pyarrow": [5, 5]})

    text = page.write({"batch-local": results}, MACHINE, tmp_path).read_text()

    losses = text.partition("## Where eoslog is behind")[2].partition("## Summary")[0]
    assert "- write, time (s): `eoslog` is behind Delta by 2.40x (2-3)\n" in losses
    assert "pyarrow" not in losses
    assert "| Batches without Spark | 0 | 1 | 1 |" in text
    assert "| write | 5 (4-6) | 2 | 5 |" in text
    assert "| write | time (s) | eoslog | **0.42x (0.33-0.50)** | 1.04x (0.83-1.25) |" in text
    assert "An Arrow table of 10 rows is written" in text
    assert "| Processor | a processor |" in text
    assert "![Batches without Spark](images/performance-batch-local.svg)" in text
    assert (tmp_path / "images" / "performance-batch-local.svg").read_text().startswith("<?xml")


def test_the_page_of_a_run_that_loses_nothing_says_so_and_that_of_a_failed_part_says_why(tmp_path: Path) -> None:
    failed = Results("writers", "smoke")
    failed.fail("", "", "it did not end within 300 s")

    text = page.write({"batch-local": recorded({"eoslog": [1], "Delta": [2]}), "writers": failed}, MACHINE, tmp_path)

    assert "\n- none\n" in text.read_text()
    assert "> **Failed**: this part: `it did not end within 300 s`" in text.read_text()


def test_the_same_results_give_the_same_pictures(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        page.write({"batch-local": recorded({"eoslog": [1, 2], "Delta": [2, 3]})}, MACHINE, place)

    (name,) = [each.name for each in (one / "images").iterdir()]
    assert (one / "images" / name).read_bytes() == (other / "images" / name).read_bytes()


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("writers", {"100 ms, 8 threads": {"commits/s": 2.0}, "100 ms, 8 processes": {"commits/s": 1.0}}),
        ("history", {"1,000 transactions, 10 ms": {"open and plan (ms)": 3.0, "requests": 4.0}}),
        ("micro-batches", {"sink": {"trigger (ms)": 9.0, "work (ms)": 5.0}}),
    ],
)
def test_each_kind_of_picture_is_drawn(part: str, values: Mapping[str, Mapping[str, float]], tmp_path: Path) -> None:
    results = Results(part, "smoke")
    for case, numbers in values.items():
        for system in ("eoslog", "deltalake"):
            results.add(case, system, numbers)

    page.write({part: results}, MACHINE, tmp_path)

    assert (tmp_path / "images" / f"performance-{part}.svg").exists()


def test_each_part_has_a_title_and_an_introduction_that_the_settings_of_none_leave_whole() -> None:
    text = page.text({part: Results(part, "smoke") for part in PARTS}, MACHINE, {})

    for module in PARTS.values():
        assert f"## {module.TITLE}\n" in text
    assert "{" not in text


@pytest.mark.parametrize("percent", [0, 10, 50])
def test_aborted_transactions_lie_between_committed_ones(percent: int) -> None:
    outcomes = outcomes_of(45, percent)

    assert outcomes.count(True) == 45
    assert round(100 * outcomes.count(False) / len(outcomes)) == percent
    assert percent != 50 or "True, True" not in str(outcomes)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"GET /bucket/key HTTP/1.1\r\n", "GET"),
        (b"GET /bucket?list-type=2&prefix=a%2F HTTP/1.1\r\n", "LIST"),
        (b"GET /bucket/?prefix=a HTTP/1.1\r\n", "LIST"),
        (b"PUT /bucket/key HTTP/1.1\r\n", "PUT"),
        (b"POST /bucket?delete HTTP/1.1\r\n", "POST"),
        (b"OPTIONS / HTTP/1.1\r\n", "POST"),
    ],
)
def test_the_delay_tells_kinds_of_requests_apart(head: bytes, kind: str) -> None:
    assert kind_of(head) == kind


def test_the_delay_passes_bodies_and_answers_unchanged_and_counts_requests() -> None:
    body = b"x" * 200_000
    requests = b"PUT /b/k HTTP/1.1\r\nContent-Length: %d\r\n\r\n%sGET /b/k HTTP/1.1\r\n\r\n" % (len(body), body)
    chunked = b"PUT /b/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-trailer: 1\r\n\r\n"

    async def through_the_delay() -> tuple[bytes, Mapping[str, int]]:
        arrived = bytearray()
        expected = len(requests + chunked)
        whole = asyncio.Event()

        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while len(arrived) < expected:
                arrived.extend(await reader.read(1 << 16))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            writer.close()
            whole.set()

        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        with delayed(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}") as delay:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(delay.url.rpartition(":")[2]))
            writer.write(requests + chunked)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await whole.wait()
            writer.close()
            counts = delay.counts()
        listening.close()
        return bytes(arrived), counts

    arrived, counts = asyncio.run(through_the_delay())

    assert arrived == requests + chunked
    assert {kind: count for kind, count in counts.items() if count} == {"PUT": 2, "GET": 1}


def test_the_processes_of_a_part_end_with_it_also_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "part.py").write_text(
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
        "sys.exit('it went wrong')\n"
    )
    monkeypatch.setattr(runner, "COMMAND", [str(tmp_path / "part.py")])
    monkeypatch.setattr(runner, "results_path", lambda part: tmp_path / f"{part}.json")

    assert not runner.run_part("writers", "smoke", None, tmp_path)

    child = Path("/proc") / (tmp_path / "child").read_text()
    end = time.monotonic() + 30
    while child.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not child.exists() or "zombie" in (child / "status").read_text()
    (failure,) = Results.load(tmp_path / "writers.json").failures
    assert failure.reason == "it ended with exit code 1"


def test_sizes_grow() -> None:
    smoke, quick, full = (SIZES[name] for name in ("smoke", "quick", "full"))

    assert smoke.rows < quick.rows < full.rows
    assert max(smoke.history) < max(quick.history) < max(full.history)
