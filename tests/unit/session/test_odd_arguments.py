"""Every public call takes an odd value as an argument, or refuses it with an error of eoslog's.

One argument at a time gets the odd value, as a whole or within a mapping, a list or a tuple. All others are valid.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import eoslog
from eoslog import GroupMetadata, OffsetAndMetadata, OffsetReset, Scan, Store, TopicPartition
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore


class _WithoutText:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


ODD: tuple[Any, ...] = (
    *(None, True, False, "", "x", "false", "0", "1000", "t", "\0", "a\udc80", "x" * 5_000, b"", b"x"),
    *(0, -1, -2, 7, 2**31, 2**63, -(2**63) - 1, 10**5_000, 1.5, math.nan, math.inf, -math.inf),
    *(Decimal("1.5"), Decimal("NaN"), Fraction(1, 3), 1j),
    *(np.int64(1), np.float64("nan"), np.bool_(True), np.str_("x"), np.datetime64("NaT"), np.array([1, 2])),
    *(pd.NaT, pd.NA, pd.Timestamp("2026-01-31"), datetime(2026, 1, 31), datetime.max.replace(tzinfo=UTC)),
    *(date(2026, 1, 31), timedelta.max, timedelta(-1)),
    *([], [None], [1, "t"], {}, {"a": 1}, {1: None}, (), ("t", 0, 1), {"t"}, ("t", 0)),
    *(object(), object, lambda: None, _WithoutText(), range(3), iter(()), pa.table({"a": [1]}), pa.int64()),
)

T0 = TopicPartition("t", 0)
VALID: Mapping[str, Any] = {
    "topic": "t",
    "topics": ["t"],
    "name": "n",
    "partition": 0,
    "partitions": [T0],
    "total": 3,
    "offsets": {T0: OffsetAndMetadata(1, "m", 0)},
    "offset": 0,
    "start_offset": 0,
    "timestamps": {T0: 0},
    "timeout": 0,
    "group": GroupMetadata("g", -1, "", None, ()),
    "group_id": "g",
    "process": lambda records, producer: None,
    "reset": OffsetReset(to_earliest=True),
    "topic_ids": {"t": "0" * 32},
    "prepared": "",
    "transactional_id": "x",
    "columns": {"c": "long"},
    "value": b"v",
    "key": b"k",
    "headers": [("h", b"v")],
    "timestamp": 1,
    "table": pa.table({"value": [b"v"]}),
    "findings": [],
    "members": ["m"],
    "rows": 1,
    "url": "memory://",
    "starting_offsets": {0: 0},
    "ending_offsets": {0: 1},
    "states": ["Empty"],
    "producer_ids": [1],
    "steps": ["vacuum"],
    "intervals_ms": {"vacuum": 1_000},
    "config": {"acks": "all"},
}
"""Valid arguments: those that a call needs, and those with an inside."""
OWN: Mapping[str, Mapping[str, Any]] = {
    "Store.scan": {"partitions": [0], "columns": ["value"]},
    "Scan.limit": {},
    "Admin.create_topic": {"topic": "new", "partitions": 1, "key": ["c"], "config": {"retention.ms": "1"}},
    "Admin.list_transactions": {"states": ["Ongoing"]},
    "Admin.reset_consumer_group_offsets": {"partitions": ["t", T0]},
    "Store.consumer": {"config": {"group.id": "g"}},
    "Admin.copy": {"target": None},
    "Admin.delete_records": {"offsets": {T0: 0}},
    "Admin.advance_consumer_group_offsets": {"offsets": {T0: 1}},
    "OffsetReset": {},
}
PASSED_ON = {
    "Store.resolve": "it takes an error of eoslog's",
    "Store.append": "it takes a request of eoslog's",
    "Store.read": "it takes a function of the caller",
    "Store.kept": "it takes a function of the caller",
    "Scan.to_pandas": "pyarrow checks its options",
    "Coordinator.run": "it does not end",
}
"""Calls that are left out, with the reason."""


def _store() -> Store:
    environment = Environment()
    store = Store(MemoryStore(environment), environment)
    store.admin.create_topic("t", partitions=2)
    store.admin.create_topic("wide", schema={"c": "long"})
    with store.producer() as producer:
        producer.send("t", b"v", key=b"k", partition=0)
    return store


def _producer(store: Store, call: str) -> object:
    if call in ("send", "send_table", "flush", "close", "metrics"):
        return store.producer()
    producer = store.producer("x")
    if call == "init_transactions":
        return producer
    producer.init_transactions()
    if call != "begin_transaction":
        producer.begin_transaction()
    if call == "complete_transaction":
        producer.prepare_transaction()
    return producer


def _consumer(store: Store, call: str) -> object:
    consumer = store.consumer("g", consumer_timeout_ms=0)
    if call != "subscribe":
        consumer.assign([T0, TopicPartition("t", 1)])
    consumer.wakeup()
    return consumer


TARGETS: Mapping[type, Callable[[Store, str], object]] = {
    Store: lambda store, call: store,
    eoslog.Admin: lambda store, call: store.admin,
    eoslog.Producer: _producer,
    eoslog.Consumer: _consumer,
    Scan: lambda store, call: store.scan("t"),
    eoslog.Commit: lambda store, call: next(store.commits("t")),
    eoslog.Coordinator: lambda store, call: eoslog.Coordinator(store),
}


def _calls() -> Iterator[tuple[str, Callable[[Store], Callable[..., Any]], inspect.Signature]]:
    for kind, target in TARGETS.items():
        for name, member in inspect.getmembers(kind, callable):
            label = f"{kind.__name__}.{name}"
            if not name.startswith("_") and label not in PASSED_ON:
                signature = inspect.signature(member)
                without_self = signature.replace(parameters=list(signature.parameters.values())[1:])
                yield label, lambda store, target=target, name=name: getattr(target(store, name), name), without_self
    for module_call in (eoslog.connect, OffsetReset, eoslog.IsolationLevel.of, eoslog.TopicConfig):
        yield module_call.__qualname__, lambda store, call=module_call: call, inspect.signature(module_call)
    own = inspect.signature(eoslog.Coordinator)
    yield "Coordinator", lambda store: eoslog.Coordinator, own


CALLS = {label: (bound, signature) for label, bound, signature in _calls() if signature.parameters}


def _within(value: Any, odd: Any) -> Iterator[Any]:
    """Yield an odd value, and the valid value with the odd one in each of its places."""
    yield odd
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from ({inner: each} for inner in _within(key, odd) if _is_hashable(inner))
            yield from ({key: inner} for inner in _within(each, odd))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name in value._fields:
            yield from (value._replace(**{name: inner}) for inner in _within(getattr(value, name), odd))
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            for inner in _within(each, odd):
                yield type(value)([*value[:index], inner, *value[index + 1 :]])


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _use(found: object) -> None:
    """Use what a call returns: a wrong option must not come to light only later."""
    if isinstance(found, eoslog.Consumer):
        found.subscribe("t")
        found.poll(0)
        found.poll(0)
        found.close()
    elif isinstance(found, eoslog.Producer):
        if found.transactional_id is not None:
            found.init_transactions()
            found.begin_transaction()
        found.send("t", b"v")
        found.flush()
        found.close()
    elif isinstance(found, eoslog.Processor):
        found.stop()
        found.run_available()
    elif isinstance(found, Scan):
        found.to_table()
    elif isinstance(found, Iterator):
        for _ in found:
            pass


def _arguments(label: str, signature: inspect.Signature, name: str) -> tuple[dict[str, Any], Any]:
    """Return the valid arguments beside the one of this name, and the valid value of this one."""
    own = VALID | OWN.get(label, {}) | ({"store": None} if label == "Coordinator" else {})
    needed = [each for each in signature.parameters.values() if each.default is each.empty and each.name != name]
    named = [each for each in needed if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    return {each.name: own[each.name] for each in named}, own.get(name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", sorted(CALLS))
def test_an_odd_argument_is_taken_or_refused_with_an_error_of_eoslog(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bound, signature = CALLS[label]
    store = _store()
    wrong = []

    for name, parameter in signature.parameters.items():
        others, valid = _arguments(label, signature, name)
        if label == "Coordinator" and "store" in others:
            others["store"] = store
        if "target" in others:
            others["target"] = eoslog.connect("memory://")
        for odd in ODD:
            for value in _within(valid, odd):
                given = {"retention_ms": value} if parameter.kind is parameter.VAR_KEYWORD else {name: value}
                # The call may have deleted or sealed something, and the producer may be in another phase.
                try:
                    call = bound(store)
                except eoslog.EosLogError:
                    store = _store()
                    call = bound(store)
                try:
                    _use(call(**others, **given))
                except eoslog.EosLogError:
                    pass
                except Exception as error:
                    wrong.append(f"{name}={_text(value)}: {type(error).__name__}: {error}")

    assert wrong == []


def _text(value: object) -> str:
    try:
        return repr(value)[:80]
    except Exception:
        return f"<{type(value).__name__}>"
