"""Transactions: their list, one of them, and its abort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eoslog.admin.transaction_admin import LastCommitted, last_committed
from eoslog.admin.transaction_descriptions import TransactionDescription, describe_transaction
from eoslog.errors import InvalidOption, InvalidRequest, TransactionalIdNotFound
from eoslog.read.history import Operation
from eoslog.state.names import TopicPartition
from eoslog.state.partition_state import Outcome, Partition
from eoslog.state.pending_offsets import pending_offsets
from eoslog.state.store_state import StoreState, Transaction, TransactionState
from eoslog.ui.console_store import RECENT_SLOTS, ConsoleStore
from eoslog.ui.pages import Listing, Moved, Page, Query
from eoslog.wording import quoted

_FILTERS = ("all", "open", "prepared", "committed", "aborted", "fenced")
_COUNTED = ("open", "prepared", "fenced")
_ENDS = {"timeout": "by its timeout", "fence": "fenced by a newer run", "admin": "by an administrator"}


class TransactionLine(NamedTuple):
    """A transactional id in the list."""

    transaction: Transaction
    age_ms: int | None
    """How long the transaction has been open (ms); None if none is open."""
    timeout_ms: int | None
    """How long it may be open (ms); None for a prepared transaction without a limit."""
    rows: int
    """The rows of the open transaction that have offsets."""
    ended: str
    """How the last transaction ended; empty if it is not known."""

    @property
    def is_overdue(self) -> bool:
        """True if any process may abort it."""
        return self.age_ms is not None and self.timeout_ms is not None and self.age_ms > self.timeout_ms


class OpenRows(NamedTuple):
    """The rows of an open transaction in one partition."""

    topic_partition: TopicPartition
    first_offset: int | None
    """None if the transaction has no row with an offset there: its rows are staged, or only offsets are committed."""
    rows: int
    holds_back: bool
    """True if its first row is the partition's last stable offset."""


def _last_ends(console: ConsoleStore) -> dict[str, Operation]:
    """Return the last recent end of a transaction of each id. The state keeps an end only until the id's next init."""
    ends: dict[str, Operation] = {}
    for operation in console.recent().operations:
        if operation.transactional_id is not None and operation.reason is not None:
            ends.setdefault(operation.transactional_id, operation)
    return ends


def _passes(transaction: Transaction, wanted: str, ends: Mapping[str, Operation]) -> bool:
    is_open = transaction.state is TransactionState.ONGOING
    match wanted:
        case "open":
            return is_open
        case "prepared":
            return is_open and transaction.prepared is not None
        case "committed":
            return not is_open and _end(transaction, ends).startswith("committed")
        case "aborted":
            return not is_open and _end(transaction, ends).startswith("aborted")
        case "fenced":
            return _end(transaction, ends).endswith(_ENDS["fence"])
    return True


def _order(transaction: Transaction) -> tuple[bool, int]:
    """Open transactions come first, the oldest first; then the others, the last used first."""
    is_open = transaction.state is TransactionState.ONGOING
    return not is_open, transaction.start_ms if is_open else -transaction.last_update_ms


def _line(state: StoreState, transaction: Transaction, now_ms: int, ends: Mapping[str, Operation]) -> TransactionLine:
    prepared = transaction.prepared
    is_open = transaction.state is TransactionState.ONGOING
    since_ms = transaction.start_ms if prepared is None else prepared.time_ms
    return TransactionLine(
        transaction,
        max(0, now_ms - since_ms) if is_open else None,
        transaction.timeout_ms if prepared is None else prepared.timeout_ms,
        sum(each.rows for each in open_rows(state, transaction)) if is_open else 0,
        _end(transaction, ends),
    )


def _end(transaction: Transaction, ends: Mapping[str, Operation]) -> str:
    found = ends.get(transaction.transactional_id)
    if found is not None:
        outcome, reason = "committed" if found.outcome == "commit" else "aborted", found.reason
    elif transaction.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        is_committed = transaction.state is TransactionState.COMPLETE_COMMIT
        outcome, reason = "committed" if is_committed else "aborted", transaction.last_end_reason
    else:
        return ""
    return " ".join([outcome, _ENDS.get(reason or "", "")]).strip()


def open_rows(state: StoreState, transaction: Transaction) -> list[OpenRows]:
    """Return the rows of an open transaction by partition."""
    found = []
    for partition_id in sorted(transaction.partitions):
        topic = state.topics.get(partition_id.topic_id)
        if topic is not None:
            topic_partition = TopicPartition(topic.topic, partition_id.partition)
            found.append(_open_rows(state.partitions[partition_id], topic_partition, transaction.open_producer_id))
    return found


def _open_rows(partition: Partition, topic_partition: TopicPartition, producer_id: int) -> OpenRows:
    first = partition.open_transactions.get(producer_id)
    rows = 0
    # Rows of open transactions are at or after the last stable offset. Sealed segments end before it.
    for batch in reversed(partition.active):
        if first is None or batch.base_offset < first:
            break
        if batch.outcome is Outcome.OPEN and batch.producer_id == producer_id:
            rows += batch.record_count
    return OpenRows(topic_partition, first, rows, first is not None and first == partition.last_stable_offset)


def transactions(console: ConsoleStore, query: Query) -> Page:
    """Return the list of transactional ids, without those of the tasks of jobs."""
    wanted, text, now_ms = query.text("state") or "all", query.text("q"), console.now_ms()
    if wanted not in _FILTERS:
        raise InvalidOption(f"state is {quoted(wanted)}; it must be one of {', '.join(_FILTERS)}")
    ends = _last_ends(console)

    def snapshot(state: StoreState, slot: int) -> tuple[Listing[TransactionLine], dict[str, int]]:
        everything = state.transactions.values()
        passing = [each for each in everything if text in each.transactional_id and _passes(each, wanted, ends)]
        listing: Listing[Transaction] = Listing(sorted(passing, key=_order), query)
        counts = {name: sum(_passes(each, name, ends) for each in everything) for name in _COUNTED}
        return listing.map(lambda each: _line(state, each, now_ms, ends)), counts

    listing, counts = console.store.read(snapshot)
    values = {"transactions": listing, "counts": counts, "filters": _FILTERS, "wanted": wanted, "text": text}
    return Page("transactions.html", "Transactions", values)


class _Whole(NamedTuple):
    description: TransactionDescription
    line: TransactionLine | None
    """None for a task of a job."""
    rows: Sequence[OpenRows]
    last: LastCommitted | None
    groups: Mapping[str, int]
    """The number of offsets that the open transaction would commit, by group."""


def transaction(console: ConsoleStore, query: Query, *, problem: str | None = None) -> Page:
    """Return the page of one transactional id."""
    name, now_ms, ends = query.text("id"), console.now_ms(), _last_ends(console)

    def snapshot(state: StoreState, slot: int) -> _Whole:
        description = describe_transaction(state, name, now_ms)
        found = state.transactions.get(name)
        try:
            last = last_committed(state, name)
        except TransactionalIdNotFound:
            last = None
        if found is None:
            return _Whole(description, None, (), last, {})
        groups = Counter(each.group for each in pending_offsets(found))
        return _Whole(description, _line(state, found, now_ms, ends), open_rows(state, found), last, groups)

    whole = console.store.read(snapshot)
    job = name.rpartition("/")[0] if whole.description.kind == "task" else name
    return Page(
        "transaction.html",
        f"Transaction {name}",
        {
            "name": name,
            "job": job,
            "whole": whole,
            "rows": Listing(whole.rows, query),
            "operations": [each for each in console.recent().operations if each.transactional_id == job][:50],
            "recent_slots": RECENT_SLOTS,
            "problem": problem,
        },
        400 if problem else 200,
        is_live=problem is None,
    )


def abort(console: ConsoleStore, form: Mapping[str, str]) -> Page | Moved:
    """Abort an open transaction, after the user has written its id."""
    name = form.get("id", "")
    query = Query("/transactions/one", {"id": name})
    if form.get("confirmed", "") != name:
        return transaction(console, query, problem="Write the transactional id to confirm. Nothing was changed.")
    if form.get("even_prepared") == "yes":
        ended = console.store.admin.force_terminate_transaction(name)
    else:
        ended = console.store.admin.abort_transaction(name)
    if not ended:
        raise InvalidRequest(f"no transaction of {quoted(name)} is open. It has ended meanwhile")
    return Moved(query.link())
