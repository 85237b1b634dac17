"""A null stands only where a column may have one, which its place says: names occur more than once."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog.errors import CorruptRecord
from eoslog.format.checkpoint_codec import parts, restore
from eoslog.state.group_entries import GroupDeleted
from eoslog.state.partition_state import SkippedRows
from eoslog.state.store_state import SchemaVersion
from eoslog.state.transaction_entries import QueryVersion
from tests.unit.state.histories import TOPIC_ID, History, offsets_of

MAY_BE_NULL = {
    "transactions: owner",
    "transactions: prepared",
    "transactions: last_commit",
    "transactions: last_commit.application_version",
    "transactions: last_commit.offsets",
    "application_versions: query_id",
    "application_versions: starts_anew_after",
    "application_versions: starts_anew_after.query_id",
    "application_versions: rows",
    "application_versions: content",
    "application_versions: invocation",
    "partitions: sealed[].txnindex",
    "partitions: active[].file",
    "partitions: active[].file.footer_crc32c",
    "partitions: active[].file.in_record",
    "partitions: active[].file.shared",
    "partitions: active[].control",
    "partitions: active[].transactional_id",
    "partitions: active[].statistics",
}


WORK = {"rows": 1, "content": "{}", "invocation": "4"}
"""What tells a repetition of the work from another work."""


def bodies() -> dict[str, bytes]:
    """The parts of a state in which each column has a value in some row."""
    history = History(partitions=1)
    history.send(history.init(None), transactional_id=None)
    identity = history.init()
    history.send(identity)
    identity = history.abort(identity)
    history.seal(history.partition().next_offset)
    history.send(identity, 0)
    identity = history.abort(identity)
    history.send_in_record(identity, 0)
    history.send_shared(identity, 1)
    history.prepare(identity, offsets=(offsets_of("g", 1),))
    history.append(lambda draft: draft.append(GroupDeleted(group="g")))
    identity = history.init("groups")
    history.send(identity, transactional_id="groups")
    identity = history.commit(identity, "groups", offsets=(offsets_of("h", 1),))
    history.add(identity, 0, offsets=(offsets_of("h", 2),), transactional_id="groups")
    topic = history.state.topics[TOPIC_ID]
    added = SchemaVersion(2, 1, 1, (("place", "lat"),))
    history.state.topics[TOPIC_ID] = replace(topic, schema_versions=(*topic.schema_versions, added))
    history.job("first run", history.staged(task=0))
    after = QueryVersion(query_id="before", version=3)
    history.job("second run", history.staged(task=0), version=7, query_id="query", after=after, **WORK)
    history.partition().skipped = (SkippedRows(base_offset=0, end_offset=1, rows=1, slot=3),)
    return {part.name: part.encode() for part in parts(history.state, history.slot)}


BODIES = bodies()


def columns(schema: Any, place: str = "") -> Iterator[str]:
    """Each column, and each field and element within it, as ``active[].file.path``."""
    for field in schema:
        yield from values_of(field.type, f"{place}{field.name}")


def values_of(data_type: Any, place: str) -> Iterator[str]:
    yield place
    if isinstance(data_type, pa.ListType):
        yield from values_of(data_type.value_type, f"{place}[]")
    elif isinstance(data_type, pa.StructType):
        yield from columns(data_type, f"{place}.")


def without(value: Any, steps: list[str]) -> Any:
    """A value with nulls in one place, wherever there was something before."""
    if value is None or not steps:
        return None
    value = deepcopy(value)
    if steps[0] == "[]":
        return [without(each, steps[1:]) for each in value]
    value[steps[0]] = without(value[steps[0]], steps[1:])
    return value


@pytest.mark.parametrize("name", [name for name in BODIES if name != "store"])
def test_only_what_may_be_null_is(name: str) -> None:
    table = pq.read_table(io.BytesIO(BODIES[name]))
    rows = table.to_pylist()

    for place in columns(table.schema):
        spoilt = [without(row, re.findall(r"\[\]|\w+", place)) for row in rows]
        assert spoilt != rows, f"no row has a value at {place}"
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(spoilt, schema=table.schema), sink)
        try:
            restore(BODIES | {name: sink.getvalue()})
            problem = ""
        except CorruptRecord as error:
            # That a file is missing where rows are is another contradiction.
            problem = str(error)

        may_be_null = f"{name.partition('/')[0]}: {place}" in MAY_BE_NULL
        assert (f"column {place} holds a null" in problem) != may_be_null, (place, problem)
