"""The tables of ``docs/semantics.md`` say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eoslog import errors
from eoslog.errors import EosLogError, InvalidTxnState, ProducerFenced
from eoslog.log.machine import Request
from eoslog.session.store_machine import StoreMachine
from eoslog.state.draft import AppendEntry
from eoslog.state.end_requests import EndTransaction, end_request, prepare_request
from eoslog.state.entries import StoreCreated, TopicCreated, TopicSchema
from eoslog.state.entry_fields import FileReference
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.store_state import StoreState, TransactionState
from eoslog.state.transaction_entries import BatchAppended
from eoslog.state.transaction_requests import InitProducerId, PrepareTransaction

PAGE = (Path(__file__).resolve().parents[3] / "docs/semantics.md").read_text(encoding="utf-8")
TOPIC_ID = "0" * 32
T_ID = "etl-1"


def table(name: str) -> list[list[str]]:
    """The rows of the table that follows the comment of this name, without its head."""
    (text,) = re.findall(rf"<!-- table: {name} -->\n((?:\|.*\n)+)", PAGE)
    return [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in text.splitlines()][2:]


class Log:
    """A fold without a store: each append is a slot."""

    def __init__(self) -> None:
        self.machine = StoreMachine()
        self.state: StoreState = self.machine.initial()
        self.slot = -1

    def append(self, request: Request[object]) -> object:
        draft = self.machine.new_draft(self.state, self.slot + 1)
        answer = request.apply(draft)
        draft.merge()
        self.slot += 1
        return answer


@pytest.fixture
def log() -> Log:
    log = Log()
    log.append(AppendEntry(StoreCreated(store_id="1" * 32, time_ms=1)))
    topic = TopicCreated(
        topic="t", topic_id=TOPIC_ID, partitions=1, topic_schema=TopicSchema(kind="records"), time_ms=1
    )
    log.append(AppendEntry(topic))
    log.append(InitProducerId(T_ID, timeout_ms=1000, time_ms=1))
    return log


def identity(log: Log) -> ProducerIdentity:
    known = log.state.transactions[T_ID]
    return ProducerIdentity(known.producer_id, known.producer_epoch)


def write(log: Log) -> None:
    producer_id, producer_epoch = identity(log)
    batch = BatchAppended(
        topic_id=TOPIC_ID,
        partition=0,
        base_offset=0,
        record_count=1,
        file=FileReference(path=f"t/{TOPIC_ID}/0/{0:020d}/a.parquet", length=1, crc32c=0),
        upload_ms=1,
        transactional_id=T_ID,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        min_timestamp=1,
        max_timestamp=1,
        time_ms=1,
    )
    log.append(AppendEntry(batch))


def end(log: Log, who: ProducerIdentity, outcome: str) -> None:
    log.append(EndTransaction(end_request(T_ID, who, outcome, time_ms=2)))


def bring_to(log: Log, state: str) -> None:
    """One transaction is over at least, so that there is an epoch before the current one."""
    write(log)
    end(log, identity(log), "abort" if state == "COMPLETE_ABORT" else "commit")
    if state.startswith("ONGOING"):
        write(log)
    if "prepared" in state:
        request = prepare_request(T_ID, identity(log), time_ms=1, timeout_ms=None)
        log.append(PrepareTransaction(request))
    if "kept" in state:
        log.append(InitProducerId(T_ID, timeout_ms=1000, time_ms=1, keep_prepared=True))
    if state == "EMPTY":
        log.append(InitProducerId(T_ID, timeout_ms=1000, time_ms=1))
    transaction = log.state.transactions[T_ID]
    assert transaction.state is TransactionState[state.split(",")[0]]
    assert (transaction.prepared is not None) == ("prepared" in state)


def answer_to(log: Log, outcome: str, who: str) -> str:
    before = identity(log)
    asked = before if who == "current" else before._replace(producer_epoch=before.producer_epoch - 1)
    try:
        end(log, asked, outcome)
    except (InvalidTxnState, ProducerFenced) as error:
        return type(error).__name__
    return "repeated" if identity(log) == before else "ok"


COLUMNS = (("abort", "retry"), ("abort", "current"), ("commit", "retry"), ("commit", "current"))


@pytest.mark.parametrize(
    ("state", "outcome", "who", "answer"),
    [(row[0], *column, cell) for row in table("end") for column, cell in zip(COLUMNS, row[1:], strict=True)],
)
def test_an_end_is_answered_as_the_table_says(log: Log, state: str, outcome: str, who: str, answer: str) -> None:
    bring_to(log, state)

    assert answer_to(log, outcome, who) == answer


def test_the_table_of_ends_has_every_state_that_is_at_rest() -> None:
    assert {row[0].split(",")[0] for row in table("end")} == {"EMPTY", "ONGOING", "COMPLETE_COMMIT", "COMPLETE_ABORT"}
    assert {row[0] for row in table("end")} > {"ONGOING, prepared", "ONGOING, prepared and kept by an init"}


def errors_of(group: type[EosLogError]) -> set[str]:
    own = [error for error in group.__subclasses__() if error.__module__ == errors.__name__]
    return {name for error in own for name in {error.__name__} | errors_of(error)}


def test_the_table_of_errors_has_every_error_in_its_group() -> None:
    groups = (
        errors.RetriableError,
        errors.AbortableError,
        errors.ApplicationRecoverableError,
        errors.FatalError,
        errors.Wakeup,
    )
    known = {group.__name__: errors_of(group) for group in groups}

    told = {re.findall(r"\w+", row[0])[0]: set(re.findall(r"`(\w+)`", row[2])) for row in table("errors")}

    assert told == known
    assert {group.__name__ for group in EosLogError.__subclasses__()} == set(known)
