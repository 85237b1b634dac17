"""What the library logs: connections, creations and commits at INFO, requests at DEBUG, never a credential."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import eoslog
from eoslog.storage.request_log import is_logged
from tests.pages import REPOSITORY, fenced_blocks
from tests.unit.support.transactions import begun, open_transaction
from tests.unit.support.world import World, faulty, values

REQUESTS = "eoslog.storage.requests"


def told(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.startswith(logger)]


def commit(store: eoslog.Store, *, version: int | None = None) -> None:
    with open_transaction(store, "etl-1") as producer:
        producer.send("t", b"v")
        producer.commit_transaction(version=version)


def test_creation_connection_and_commits_are_logged_at_info(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eoslog")
    url = str(tmp_path / "store")

    store = eoslog.connect(url, fsync=False)
    store.admin.create_topic("t", partitions=2)
    commit(store, version=1)
    slot = store.admin.last_committed("etl-1").slot
    commit(store, version=1)
    eoslog.connect(url, fsync=False).admin.list_topics()

    store_id = store.describe().store_id
    assert told(caplog, "eoslog.session") == [
        f"created a new store at {url}, its id is {store_id}",
        f"{url}: connected to store {store_id}",
        f"{url}: connected to store {store_id}",
    ]
    assert told(caplog, "eoslog.admin") == [f"{url}: created topic t with 2 partitions"]
    initialized, committed, again, replayed = told(caplog, "eoslog.producer")
    named = f"{re.escape(url)}: transactional id 'etl-1' initialized with producer id [0-9]+ and epoch"
    assert re.fullmatch(f"{named} 0", initialized)
    assert re.fullmatch(f"{named} 2", again)
    assert re.fullmatch(
        f"{re.escape(url)}: transactional id 'etl-1' committed 1 row in 1 file at slot {slot}, open for [0-9]+ ms",
        committed,
    )
    assert replayed == f"{url}: transactional id 'etl-1': the version was committed before"
    assert told(caplog, REQUESTS) == []


def test_a_prepared_transaction_is_logged_without_the_rows_that_its_prepare_counted(
    store: eoslog.Store, caplog: pytest.LogCaptureFixture
) -> None:
    producer = open_transaction(store, "etl-1")
    producer.send("t", b"v")
    prepared = producer.prepare_transaction()
    caplog.set_level(logging.INFO, "eoslog")

    producer.complete_transaction(prepared)

    slot = store.admin.last_committed("etl-1").slot
    assert told(caplog, "eoslog.producer") == [
        f"{store.url}: transactional id 'etl-1' committed its prepared transaction at slot {slot}"
    ]


class _Handler(logging.Handler):
    """Hands lines to a function."""

    def __init__(self, emitted: Callable[[str], object]) -> None:
        super().__init__()
        self._emitted = emitted

    def emit(self, record: logging.LogRecord) -> None:
        self._emitted(record.getMessage())


@contextmanager
def handled(
    emitted: Callable[[str], object], name: str = "eoslog.producer", new_level: int = logging.INFO
) -> Iterator[None]:
    logger, handler = logging.getLogger(name), _Handler(emitted)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(new_level)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def test_a_handler_that_fails_does_not_fail_the_commit(store: eoslog.Store) -> None:
    def fail(line: str) -> None:
        raise OSError("the disk of the log is full")

    with store.producer("etl-1") as producer, handled(fail):
        producer.init_transactions()
        for value in (b"1", b"2"):
            producer.begin_transaction()
            producer.send("t", value)
            assert producer.commit_transaction()

    assert values(store) == [b"1", b"2"]


@pytest.mark.parametrize("name", ["eoslog.admin", "eoslog.producer", "eoslog.session", "eoslog.storage"])
def test_a_handler_that_fails_hides_no_change(name: str) -> None:
    lines = []

    def fail(line: str) -> None:
        lines.append(line)
        if " connected to " not in line:
            raise OSError("the disk of the log is full")

    store = eoslog.connect(f"memory://failing-{name}")
    with handled(fail, name, logging.DEBUG):
        store.create()
        store.admin.create_topic("t")
        with open_transaction(store, "etl-1") as producer:
            producer.send("t", b"v")
            producer.flush()
            producer.abort_transaction()
            producer.begin_transaction()
            producer.commit_transaction()

    assert lines
    assert store.admin.list_topics() == ["t"]
    assert values(store) == []


def test_a_handler_may_write_its_lines_to_the_store(store: eoslog.Store) -> None:
    store.admin.create_topic("lines")

    def write(line: str) -> None:
        with store.producer() as lines:
            lines.send("lines", line.encode())

    with handled(write):
        commit(store)

    assert values(store) == [b"v"]
    lines = values(store, "lines")
    assert len(lines) == 2
    assert all(any(done in line for line in lines) for done in (b"initialized with", b"committed 1 row"))


def test_an_abort_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eoslog.producer")
    store = eoslog.connect("memory://logged-abort")
    store.admin.create_topic("t")
    with open_transaction(store, "etl-1") as producer:
        producer.send("t", b"v")
        producer.flush()
        producer.abort_transaction()

    name = "memory://logged-abort: transactional id 'etl-1'"
    assert told(caplog, "eoslog.producer") == [
        f"{name} initialized with producer id {producer.producer_id} and epoch 0",
        f"{name} aborted",
    ]


def test_both_producers_log_that_one_fenced_the_other(store: eoslog.Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "eoslog")
    zombie = begun(store, "etl-1", 0)
    id_, epoch = zombie.producer_id, zombie.producer_epoch

    begun(store, "etl-1", 0)
    with pytest.raises(eoslog.ProducerFenced) as fenced:
        zombie.commit_transaction()
    with pytest.raises(eoslog.ProducerFenced):
        zombie.commit_transaction()

    name = f"{store.url}: transactional id 'etl-1'"
    assert told(caplog, "eoslog") == [
        f"{name} initialized with producer id {id_} and epoch {epoch + 2}. "
        f"It fenced the producer with epoch {epoch} and aborted its open transaction",
        f"{name} cannot continue, close the producer: {fenced.value}",
    ]


def test_a_transaction_that_timed_out_is_logged_where_it_is_aborted_and_at_its_producer(
    store: eoslog.Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "eoslog")
    producer = begun(store, "etl-1", 0, transaction_timeout_ms=1_000)
    world.pass_time(2_000)

    eoslog.Coordinator(world.process()).run_once(steps=["abort-timed-out-transactions"])
    with pytest.raises(eoslog.TransactionAborted) as ended:
        producer.commit_transaction()

    at_the_coordinator, at_the_producer = told(caplog, "eoslog")
    assert at_the_coordinator.endswith(": 1 transaction aborted after their timeouts: 'etl-1'")
    assert at_the_producer == (f"{store.url}: transactional id 'etl-1' must abort its transaction: {ended.value}")


def test_a_fenced_static_member_is_logged(store: eoslog.Store, world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "eoslog")
    first = store.consumer("g", group_instance_id="one")
    first.subscribe("t")
    first.poll()
    with world.process().consumer("g", group_instance_id="one") as second:
        second.subscribe("t")
        second.poll()
        for _ in range(2):
            with pytest.raises(eoslog.FencedInstanceId):
                first.poll()

    (line,) = told(caplog, "eoslog.consumer")
    assert line.endswith(" of group 'g' is fenced: another consumer has joined as 'one'")


def test_phases_of_a_producer_are_logged_at_debug(store: eoslog.Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "eoslog.producer")

    commit(store)

    phases = [each.getMessage() for each in caplog.records if each.levelno == logging.DEBUG]
    name = f"{store.url}: transactional id 'etl-1': "
    assert phases == [
        name + change
        for change in (
            "uninitialized -> initializing",
            "initializing -> ready",
            "ready -> in transaction",
            "in transaction -> committing",
            "committing -> ready",
            "ready -> closed",
        )
    ]


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_with_block_that_drops_rows_warns(
    store: eoslog.Store, caplog: pytest.LogCaptureFixture, staged: bool, flushed: bool
) -> None:
    caplog.set_level(logging.DEBUG, "eoslog")

    with open_transaction(store, "etl-1", staged=staged) as producer:
        for _ in range(2):
            producer.send("t", b"secret", key=b"secret")
        if flushed:
            producer.flush()

    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warnings == [f"{store.url}: transactional id 'etl-1': the with block ends without a commit, rows dropped: 2"]
    assert "secret" not in caplog.text


def test_a_with_block_whose_rows_cannot_be_written_warns(store: eoslog.Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "eoslog")

    def leave_by_an_error() -> None:
        with store.producer(max_block_ms=100) as producer:
            producer.send("t", b"secret")
            faulty(store).go_down()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave_by_an_error()

    assert f"{store.url}: the with block ends, rows lost: up to 1. DeliveryTimedOut" in told(caplog, "eoslog.producer")
    assert "secret" not in caplog.text


def test_a_with_block_that_drops_nothing_is_silent(store: eoslog.Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "eoslog")

    commit(store)
    with open_transaction(store, "two-phase") as producer:
        producer.send("t", b"v")
        producer.prepare_transaction()
    with store.producer() as producer:
        producer.send("t", b"v")

    assert told(caplog, "eoslog") == []


def test_a_failure_is_logged_without_the_values_of_rows(store: eoslog.Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "eoslog")
    producer = begun(store, "etl-1", 0)

    def refuse(request: object, **options: object) -> None:
        raise eoslog.SchemaMismatch("the value secret does not fit")

    store.log.append = refuse  # type: ignore[method-assign]
    with pytest.raises(eoslog.SchemaMismatch):
        producer.commit_transaction()

    assert f"{store.url}: transactional id 'etl-1' must abort its transaction: SchemaMismatch" in told(caplog, "eoslog")
    assert "secret" not in caplog.text


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_each_request_is_logged_at_debug_with_its_outcome(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    url = str(tmp_path / "store") if kind == "local" else "memory://logged"
    caplog.set_level(logging.DEBUG, REQUESTS)

    store = eoslog.connect(url)
    store.admin.create_topic("t")
    commit(store)
    before = len(told(caplog, REQUESTS))
    reads_and_puts = sum(" DELETE " not in line for line in told(caplog, REQUESTS))
    sent = dict(store.requests)
    list(store.object_store.list("t/"))
    with pytest.raises(Exception, match="absent"):
        store.object_store.get("absent")
    store.object_store.delete(["absent"])

    lines = told(caplog, REQUESTS)
    assert reads_and_puts == sent["PUT"] + sent["GET"] + sent["LIST"]
    assert any(re.search(r"PUT __transaction_state/slot/\S+: created in [0-9]+ ms$", line) for line in lines)
    assert [re.sub("[0-9]+ ms$", "", line) for line in lines[before:]] == [
        f"{url}: LIST t/: 1 objects, done in ",
        f"{url}: GET absent: ObjectNotFound in ",
        f"{url}: DELETE absent: done in ",
    ]


def test_requests_are_not_logged_unless_asked_for() -> None:
    assert not is_logged()


def test_the_page_s_configuration_shows_requests_and_no_commits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (block,) = [each for each in fenced_blocks(REPOSITORY / "docs/operations.md", "python") if "logging" in each]
    names = re.findall(r'getLogger\("([\w.]+)"\)', block)
    before = {name: logging.getLogger(name).level for name in names}
    try:
        exec(block, {})
        store = eoslog.connect("memory://page")
        store.admin.create_topic("t")
        commit(store)
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)

    assert told(caplog, "eoslog.admin")
    assert told(caplog, REQUESTS)
    assert told(caplog, "eoslog.producer") == []
