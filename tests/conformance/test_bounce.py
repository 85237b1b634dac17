"""Processes of the operating system that copy 500 records from topic to topic, and are killed or replaced meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import eoslog
from eoslog.store import Store
from tests.conformance.copying import COPY, SOURCE

RECORDS = 500
REPOSITORY = Path(__file__).resolve().parents[2]


@contextmanager
def copier(url: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.conformance.copying", str(url)]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def by_partition(store: Store, topic: str) -> list[list[bytes]]:
    """The values of each partition in the order of their offsets."""
    return [
        store.scan(topic, columns=["value"], partitions=[each.partition]).to_table()["value"].to_pylist()
        for each in store.admin.offsets(topic)
    ]


def wait_for_rows(store: Store, process: subprocess.Popen[str], rows: int) -> None:
    """Until so many are copied, or the process has ended."""
    while process.poll() is None and store.scan(COPY).record_count < rows:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)


@pytest.fixture
def url(tmp_path: Path) -> Path:
    store = eoslog.connect(tmp_path / "store", fsync=False)
    for topic in (SOURCE, COPY):
        store.admin.create_topic(topic, partitions=4)
    with store.producer() as producer:
        for number in range(RECORDS):
            producer.send(SOURCE, b"%d" % number, key=b"%d" % number)
    return tmp_path / "store"


@pytest.mark.slow
@pytest.mark.scenario(124)
@pytest.mark.further("End to end")
def test_copiers_that_are_killed_in_the_middle_copy_every_record_once_and_in_order(url: Path) -> None:
    store = eoslog.connect(url, fsync=False)
    ends = []
    for rows in (50, 200, 350):
        with copier(url) as process:
            wait_for_rows(store, process, rows)
        ends.append(process.returncode)
    with copier(url) as last:
        assert last.wait() == 0

    assert ends[0] == -signal.SIGKILL
    assert by_partition(store, COPY) == by_partition(store, SOURCE)


@pytest.mark.slow
@pytest.mark.scenario(125)
@pytest.mark.further("End to end")
def test_a_copier_that_is_paused_and_replaced_is_fenced_and_every_record_is_copied_once(url: Path) -> None:
    store = eoslog.connect(url, fsync=False)
    with copier(url) as zombie:
        wait_for_rows(store, zombie, 50)
        zombie.send_signal(signal.SIGSTOP)
        before = store.scan(COPY).record_count
        with copier(url) as successor:
            wait_for_rows(store, successor, before + 1)
            zombie.send_signal(signal.SIGCONT)
            told = zombie.communicate()[1]
            assert successor.wait() == 0

    assert zombie.returncode != 0
    assert "EOSLOG_PRODUCER_FENCED" in told
    assert by_partition(store, COPY) == by_partition(store, SOURCE)
