"""Rows that a producer still holds when the interpreter exits are written, or their number is logged."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import eoslog
from eoslog.producer import exit_flush
from eoslog.store import Store
from tests.depth import sweep
from tests.programs import ran
from tests.s3.servers import S3Server
from tests.unit.support.world import values

Run = Callable[[str], str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a program on the store ``store`` in the working directory, which has the topic ``t``; returns its errors."""
    eoslog.connect(tmp_path / "store", fsync=False).admin.create_topic("t")
    return lambda program: told_by(f"import eoslog\nstore = eoslog.connect('store', fsync=False)\n{program}", tmp_path)


def told_by(program: str, directory: Path) -> str:
    """Run a program that succeeds. Return its errors."""
    status, _, errors = ran(program, directory=directory)
    assert status == 0, errors
    return errors


def test_rows_without_a_transaction_are_written_at_exit(run: Run, tmp_path: Path) -> None:
    told = run("producer = store.producer()\nfor n in range(3): producer.send('t', b'%d' % n)")

    assert told == ""
    assert values(eoslog.connect(tmp_path / "store")) == [b"0", b"1", b"2"]


def test_rows_of_a_producer_that_the_program_dropped_are_written_at_exit(run: Run, tmp_path: Path) -> None:
    run("import gc\nstore.producer().send('t', b'v')\ngc.collect()")

    assert values(eoslog.connect(tmp_path / "store")) == [b"v"]


def test_rows_that_a_thread_sends_after_the_main_thread_has_ended_are_written(run: Run, tmp_path: Path) -> None:
    program = """
import threading
def work():
    threading.main_thread().join()
    store.producer().send('t', b'v')
threading.Thread(target=work).start()
"""
    assert run(program) == ""

    assert values(eoslog.connect(tmp_path / "store")) == [b"v"]


def test_rows_that_an_exit_function_sends_are_written(run: Run, tmp_path: Path) -> None:
    assert run("import atexit\natexit.register(lambda: store.producer().send('t', b'v') and None)") == ""

    assert values(eoslog.connect(tmp_path / "store")) == [b"v"]


def test_rows_that_a_callback_of_the_last_flush_sends_are_written(run: Run, tmp_path: Path) -> None:
    program = """
producer = store.producer()
producer.send('t', b'1').add_done_callback(lambda _: producer.send('t', b'2') and None)
producer.flush()
"""
    assert run(program) == ""

    assert values(eoslog.connect(tmp_path / "store")) == [b"1", b"2"]


@pytest.mark.parametrize("staged", sweep([True, False], quick=[True]))
def test_rows_in_an_open_transaction_are_counted_at_exit(run: Run, tmp_path: Path, staged: bool) -> None:
    program = f"""
producer = store.producer('tx', staged={staged})
producer.init_transactions()
producer.begin_transaction()
for n in range(5):
    producer.send('t', b'%d' % n)
    if n == 2:
        producer.flush()
"""
    told = run(program)

    assert "rows lost: 5. The transaction of 'tx' was not committed: call commit_transaction()" in told
    assert values(eoslog.connect(tmp_path / "store")) == []


def test_settled_rows_log_nothing_at_exit(run: Run, tmp_path: Path) -> None:
    program = """
with store.producer() as producer:
    producer.send('t', b'closed')
flushed = store.producer()
flushed.send('t', b'flushed')
flushed.flush()
transactional = store.producer('tx')
transactional.init_transactions()
transactional.begin_transaction()
transactional.send('t', b'aborted')
transactional.abort_transaction()
transactional.begin_transaction()
transactional.send('t', b'committed')
transactional.commit_transaction()
"""
    assert run(program) == ""

    assert values(eoslog.connect(tmp_path / "store")) == [b"closed", b"committed", b"flushed"]


def test_rows_whose_error_was_raised_are_not_told_again_at_exit(run: Run) -> None:
    program = """
zombie = store.producer('tx')
zombie.init_transactions()
zombie.begin_transaction()
zombie.send('t', b'v')
store.producer('tx').init_transactions()
try:
    zombie.commit_transaction()
except eoslog.ProducerFenced:
    print('fenced')
"""
    assert "rows lost" not in run(program)


def test_a_forked_child_leaves_the_rows_to_its_parent(run: Run, tmp_path: Path) -> None:
    program = """
import os
producer = store.producer()
producer.send('t', b'v')
if os.fork():
    os.wait()
"""
    assert run(program) == ""

    assert values(eoslog.connect(tmp_path / "store")) == [b"v"]


@pytest.mark.s3
def test_the_exit_flush_can_still_resolve_the_s3_host(any_s3_server: S3Server, tmp_path: Path) -> None:
    """Python's thread pools, in one of which names are resolved, are shut down early in the exit."""
    options = any_s3_server.options()
    options["endpoint_url"] = str(options["endpoint_url"]).replace("127.0.0.1", "localhost")
    url = f"s3://{any_s3_server.new_bucket()}/exit"
    store = eoslog.connect(url, **options)
    store.admin.create_topic("t")
    program = f"""
import eoslog
store = eoslog.connect({url!r}, **{options!r})
producer = store.producer()
producer.send('t', b'v')
# As after an idle time: the flush needs a new connection.
store.object_store._transports.clear()
"""
    assert told_by(program, tmp_path) == ""

    assert values(store) == [b"v"]


@pytest.mark.usefixtures("files_are_objects")
def test_the_exit_flush_is_bounded_and_counts_lost_rows_if_the_store_does_not_answer(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exit_flush, "_left_ms", 100)
    for _ in range(3):
        producer = store.producer()
        producer.send("t", b"v")
        producer.send("t", b"v")
    answered = threading.Event()
    monkeypatch.setattr(store.object_store, "put", lambda path, body: answered.wait())

    with caplog.at_level(logging.WARNING, logger="eoslog"):
        exit_flush._flush_all()
        exit_flush._flush_and_warn()

    lost = "rows lost: 2. They were not acknowledged: call flush() or close()"
    assert sum(lost in message for message in caplog.messages) == 3
    answered.set()


def test_an_interrupt_of_the_exit_flush_counts_lost_rows_too(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.producer().send("t", b"v")

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exit_flush, "_flush_all", interrupt)

    with caplog.at_level(logging.WARNING, logger="eoslog"), pytest.raises(KeyboardInterrupt):
        exit_flush._flush_and_warn()

    assert any("rows lost: 1" in message for message in caplog.messages)


def test_a_multiprocessing_child_writes_its_rows_and_counts_those_in_a_transaction(run: Run, tmp_path: Path) -> None:
    program = """
import multiprocessing
def work():
    store.producer().send('t', b'v')
    producer = store.producer('tx')
    producer.init_transactions()
    producer.begin_transaction()
    producer.send('t', b'lost')
child = multiprocessing.get_context('fork').Process(target=work)
child.start()
child.join()
"""
    assert "rows lost: 1. The transaction of 'tx' was not committed" in run(program)

    assert values(eoslog.connect(tmp_path / "store")) == [b"v"]
