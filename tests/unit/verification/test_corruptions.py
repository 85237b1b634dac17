"""Each damage done to a real store is found, by its kind and place, and nothing else is reported."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog import Store, TopicPartition
from eoslog.errors import StoreAccessDenied
from eoslog.format.checked_files import crc32c
from eoslog.format.data_file import OFFSET_DELTA_COLUMN, encode_data_file
from eoslog.log import checkpoint
from eoslog.log.append_client import APPEND_KEY_PATH
from eoslog.log.checkpoint import read_root, write_checkpoint
from eoslog.log.replica import LogConfig
from eoslog.log.slots import CHECKPOINTS, CheckpointEntry, decode_line, first_line, slot_path
from eoslog.session.session import partition_named
from eoslog.storage.environment import Environment
from eoslog.storage.local_store import LocalStore
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectNotFound
from tests.unit.verification.histories import (
    FILES_ARE_OBJECTS,
    copy_of_small_history,
    faults,
    fresh,
    newest,
    partition,
    references,
    rows,
)

pytestmark = pytest.mark.usefixtures("files_are_objects")


@pytest.fixture(params=[pytest.param("local", marks=pytest.mark.slow), "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, environment: Environment) -> Store:
    """A small store."""
    local = request.param == "local"
    kept = LocalStore(tmp_path / "store", environment, fsync=False) if local else MemoryStore(environment)
    return copy_of_small_history(Store(kept, environment, FILES_ARE_OBJECTS))


def change(store: Store, path: str, how: Callable[[bytes], bytes]) -> str:
    store.object_store.put(path, how(store.object_store.get(path).body))
    return path


def remove(store: Store, path: str) -> str:
    store.object_store.delete([path])
    return path


def flip(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


def cut(body: bytes) -> bytes:
    return body[: len(body) // 2]


def lengthen(body: bytes) -> bytes:
    return body + b"\0"


def edit_slot(store: Store, slot: int, edit: Callable[[dict[str, Any]], object]) -> str:
    """Change a record, as nobody ever may."""

    def how(body: bytes) -> bytes:
        record = json.loads(first_line(body))
        edit(record)
        return json.dumps(record, separators=(",", ":")).encode() + b"\n"

    return change(store, slot_path(slot), how)


def sealed_index(store: Store) -> str:
    return partition(store).sealed[0].index.path


def txnindex(store: Store) -> str:
    return next(each.txnindex.path for each in partition(store).sealed if each.txnindex is not None)


def snapshot(store: Store) -> str:
    return partition(store).sealed[1].snapshot.path


def lose_snapshot(store: Store) -> str:
    """The content of a segment's snapshot follows from the segment before, which is dropped."""
    store.admin.delete_records({TopicPartition("t", 0): partition(store).sealed[1].base_offset})
    return remove(store, partition(store).sealed[0].snapshot.path)


def sealed_data(store: Store) -> str:
    directory = sealed_index(store).rpartition("/")[0]
    listed = [info.path for info in store.object_store.list(f"{directory}/")]
    return next(path for path in listed if path.endswith(".parquet") and not path.endswith(".index.parquet"))


def active_data(store: Store, topic: str = "t") -> str:
    return next(each.file.path for each in partition(store, topic).active if each.file is not None)


def with_the_same_reference(
    store: Store, path: str, body: bytes, *, topic: str = "t", footer: int | None = None, **changed: object
) -> str:
    """Put another file in the place of one that the state names, with a slot that names it as it is.

    The entry that names the file is rewritten too.
    """
    store.object_store.put(path, body)
    new: dict[str, object] = {"path": path, "length": len(body), "crc32c": crc32c(body)}
    if footer is not None:
        new["footer_crc32c"] = footer
    for slot in range(newest(store) + 1):
        stored = store.object_store.get(slot_path(slot)).body
        if path.encode() in stored:
            edit_slot(store, slot, lambda record: _replace(record, path, new, changed))
    return path


def _replace(value: Any, path: str, new: dict[str, object], changed: dict[str, object]) -> None:
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, dict) and each.get("path") == path:
                value[key] = dict(new)
                value.update(changed)
            else:
                _replace(each, path, new, changed)
    elif isinstance(value, list):
        for each in value:
            _replace(each, path, new, changed)


def behind_the_checkpoint(store: Store) -> tuple[str, int]:
    """A data file, of Kafka records, that only a slot behind the newest checkpoint names."""
    batch = partition(store).active[-1]
    assert batch.file is not None
    return batch.file.path, batch.slot


def a_column_behind_the_checkpoint(store: Store) -> str:
    producer = store.producer()
    producer.send_table("c", rows(7))
    producer.flush()
    batch = partition(store, "c").active[-1]
    assert batch.file is not None
    return batch.file.path


def records(store: Store, path: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(store.object_store.get(path).body))


class Damage(NamedTuple):
    do: Callable[[Store], str | None]
    """Returns the path of the finding."""
    kind: str
    needs_data: bool = False


def needed(store: Store) -> int:
    """The first slot above the older checkpoint."""
    return references(store)[1].slot + 1


def drop_description(store: Store) -> str:
    return remove(store, "eoslog.json")


def another_store_id(store: Store) -> str:
    def how(body: bytes) -> bytes:
        return json.dumps(json.loads(body) | {"store_id": "ab" * 16}).encode()

    return change(store, "eoslog.json", how)


def repeat_an_append_id(store: Store) -> str:
    """The newest record has the append id of the first one."""
    first = decode_line(first_line(store.object_store.get(slot_path(0)).body), 0)
    return edit_slot(store, newest(store), lambda record: record.update(append_id=first.append_id))


def later_slot_after_a_gap(store: Store) -> str:
    slot = newest(store)
    body = store.object_store.get(slot_path(slot)).body
    record = json.loads(first_line(body)) | {"slot": slot + 5, "append_id": "cd" * 16}
    store.object_store.put(slot_path(slot + 5), json.dumps(record).encode() + b"\n")
    return slot_path(slot + 1)


def forge_checkpoint(store: Store) -> str:
    """A checkpoint whose checksums are right, and whose state is not the fold."""
    log = fresh(store)
    state, slot, append_id = log.read(lambda state, slot: (state.frozen_copy(), slot, log.replica.append_id))
    state.horizon_ms += 1
    reference, _ = write_checkpoint(
        store.object_store,
        store.environment,
        log.machine,
        state=state,
        slot=slot,
        append_id=append_id,
        shared=None,
    )
    entry = CheckpointEntry(reference=reference, upload_ms=store.now_ms())
    append_record(store, [entry.model_dump(exclude_none=True)])
    return reference.path


def append_record(store: Store, entries: list[dict[str, Any]]) -> str:
    """A record that no correct writer makes."""
    slot = newest(store)
    before = json.loads(first_line(store.object_store.get(slot_path(slot)).body))
    named = references(store)
    record = {
        "format": 1,
        "slot": slot + 1,
        "append_id": store.environment.new_id(),
        "prev": before["append_id"],
        "checkpoint": named[0].model_dump(),
        "previous_checkpoint": named[1].model_dump(),
        "entries": entries,
    }
    store.object_store.put(slot_path(slot + 1), json.dumps(record).encode() + b"\n")
    return slot_path(slot + 1)


def batch_entry(store: Store, **fields: object) -> dict[str, Any]:
    slot = behind_the_checkpoint(store)[1]
    (entry,) = json.loads(first_line(store.object_store.get(slot_path(slot)).body))["entries"]
    entry["base_offset"] = partition(store).next_offset
    entry["base_sequence"] += 1
    return entry | fields


def refer_outside(store: Store, path: str) -> str:
    entry = batch_entry(store)
    entry["file"]["path"] = path
    return append_record(store, [entry])


def name_a_file_twice(store: Store) -> str:
    path = behind_the_checkpoint(store)[0]
    append_record(store, [batch_entry(store)])
    return path


def part_of_checkpoint(store: Store) -> str:
    """The newest checkpoint with a part in an object of its own, which is then damaged."""
    before = checkpoint.INLINE_PART_BYTES
    checkpoint.INLINE_PART_BYTES = 1
    try:
        fresh(store).checkpoint()
    finally:
        checkpoint.INLINE_PART_BYTES = before
    root = read_root(store.object_store, references(store)[0])
    return next(part.path for part in root.parts if part.path is not None)


def swap_columns(store: Store) -> str:
    path = a_column_behind_the_checkpoint(store)
    table = records(store, path)
    body = encode_data_file(table.set_column(1, "miles", pa.array(["x"] * table.num_rows)))
    return with_the_same_reference(store, path, body)


def foreign_column(store: Store) -> str:
    path = a_column_behind_the_checkpoint(store)
    table = records(store, path)
    body = encode_data_file(table.append_column("other", pa.array([1] * table.num_rows)))
    return with_the_same_reference(store, path, body)


def beyond_statistics(store: Store, column: str, value: object) -> str:
    path = a_column_behind_the_checkpoint(store)
    table = records(store, path)
    index = table.schema.get_field_index(column)
    changed = pa.array([value] * table.num_rows, table.schema.field(column).type)
    body = encode_data_file(table.set_column(index, table.schema.field(column), changed))
    return with_the_same_reference(store, path, body)


def fewer_rows(store: Store) -> str:
    path = a_column_behind_the_checkpoint(store)
    return with_the_same_reference(store, path, encode_data_file(records(store, path).slice(1)))


def other_footer(store: Store) -> str:
    path, _ = behind_the_checkpoint(store)
    return with_the_same_reference(store, path, store.object_store.get(path).body, footer=5)


def no_parquet(store: Store) -> str:
    path, _ = behind_the_checkpoint(store)
    return with_the_same_reference(store, path, b"PAR1 not at all PAR1")


def other_timestamps(store: Store) -> str:
    path, _ = behind_the_checkpoint(store)
    table = records(store, path)
    index = table.schema.get_field_index("timestamp")
    field = table.schema.field("timestamp")
    body = encode_data_file(table.set_column(index, field, pa.array([5] * table.num_rows, field.type)))
    return with_the_same_reference(store, path, body)


def other_offsets(store: Store) -> str:
    path, _ = behind_the_checkpoint(store)
    table = records(store, path)
    offsets = pa.array([12345] * table.num_rows, pa.int64())
    return with_the_same_reference(
        store, path, encode_data_file(table.drop_columns(["_offset_delta"]).append_column(OFFSET_DELTA_COLUMN, offsets))
    )


DAMAGES: dict[str, Damage] = {
    "description: missing": Damage(drop_description, "description-missing"),
    "description: no JSON": Damage(lambda store: change(store, "eoslog.json", cut), "description-damaged"),
    "description: empty": Damage(lambda store: change(store, "eoslog.json", lambda body: b""), "description-damaged"),
    "description: another store's": Damage(another_store_id, "description-differs"),
    "slot: one is missing": Damage(lambda store: remove(store, slot_path(newest(store) - 1)), "slot-missing"),
    "slot: the one behind the older checkpoint is missing": Damage(
        lambda store: remove(store, slot_path(references(store)[1].slot + 1)), "slot-missing"
    ),
    "slot: that of the older checkpoint is missing": Damage(
        lambda store: remove(store, slot_path(references(store)[1].slot)), "slot-missing"
    ),
    "slot: one beyond a gap": Damage(later_slot_after_a_gap, "slot-missing"),
    "slot: empty": Damage(lambda store: change(store, slot_path(newest(store)), lambda body: b""), "slot-damaged"),
    "slot: cut": Damage(lambda store: change(store, slot_path(needed(store)), cut), "slot-damaged"),
    "slot: cut below both checkpoints": Damage(
        lambda store: change(store, slot_path(references(store)[1].slot - 1), cut), "old-slot-damaged"
    ),
    "slot: no end of its line": Damage(
        lambda store: change(store, slot_path(needed(store)), lambda body: body.rstrip(b"\n")), "slot-damaged"
    ),
    "slot: another slot's record": Damage(
        lambda store: change(store, slot_path(needed(store)), lambda body: store.object_store.get(slot_path(2)).body),
        "slot-damaged",
    ),
    "slot: no append id": Damage(
        lambda store: edit_slot(store, needed(store), lambda record: record.pop("append_id")), "slot-damaged"
    ),
    "slot: another predecessor": Damage(
        lambda store: edit_slot(store, newest(store), lambda record: record.update(prev="ef" * 16)), "slot-chain-broken"
    ),
    "slot: a predecessor of the first": Damage(
        lambda store: edit_slot(store, 0, lambda record: record.update(prev="ef" * 16)), "slot-chain-broken"
    ),
    "slot: an append id that was there": Damage(repeat_an_append_id, "slot-append-id-repeated"),
    "record: an entry that is not valid": Damage(
        lambda store: append_record(store, [batch_entry(store, base_offset=10**6)]), "record-invalid"
    ),
    "record: a malformed entry": Damage(
        lambda store: append_record(store, [{"type": "horizon", "horizon_ms": "soon"}]), "record-invalid"
    ),
    "record: a malformed checkpoint": Damage(
        lambda store: append_record(store, [{"type": "checkpoint"}]), "record-invalid"
    ),
    "record: a file of the host": Damage(lambda store: refer_outside(store, "/etc/passwd"), "reference-outside"),
    "record: a file above the root": Damage(lambda store: refer_outside(store, "t/../../x"), "reference-outside"),
    "record: a file elsewhere": Damage(lambda store: refer_outside(store, "s3://other/x"), "reference-outside"),
    "record: a file twice": Damage(name_a_file_twice, "file-shared"),
    "checkpoint: the newest is missing": Damage(
        lambda store: remove(store, references(store)[0].path), "checkpoint-missing"
    ),
    "checkpoint: the older is missing": Damage(
        lambda store: remove(store, references(store)[1].path), "checkpoint-missing"
    ),
    "checkpoint: the newest is damaged": Damage(
        lambda store: change(store, references(store)[0].path, flip), "checkpoint-damaged"
    ),
    "checkpoint: the older is cut": Damage(
        lambda store: change(store, references(store)[1].path, cut), "checkpoint-damaged"
    ),
    "checkpoint: a part is missing": Damage(
        lambda store: remove(store, part_of_checkpoint(store)), "checkpoint-missing"
    ),
    "checkpoint: a part is damaged": Damage(
        lambda store: change(store, part_of_checkpoint(store), flip), "checkpoint-damaged"
    ),
    "checkpoint: another state": Damage(forge_checkpoint, "checkpoint-differs"),
    "index: missing": Damage(lambda store: remove(store, sealed_index(store)), "index-missing"),
    "index: damaged": Damage(lambda store: change(store, sealed_index(store), flip), "index-damaged"),
    "index: cut": Damage(lambda store: change(store, sealed_index(store), cut), "index-damaged"),
    "txnindex: missing": Damage(lambda store: remove(store, txnindex(store)), "txnindex-missing"),
    "txnindex: damaged": Damage(lambda store: change(store, txnindex(store), flip), "txnindex-damaged"),
    "snapshot: missing": Damage(lambda store: remove(store, snapshot(store)), "snapshot-missing"),
    "snapshot: longer": Damage(lambda store: change(store, snapshot(store), lengthen), "snapshot-damaged"),
    "snapshot: missing, and so is the segment before": Damage(lose_snapshot, "snapshot-lost"),
    "data: a sealed file is missing": Damage(lambda store: remove(store, sealed_data(store)), "data-missing"),
    "data: an active file is missing": Damage(lambda store: remove(store, active_data(store)), "data-missing"),
    "data: a sealed file is cut": Damage(lambda store: change(store, sealed_data(store), cut), "data-damaged"),
    "data: an active file is longer": Damage(lambda store: change(store, active_data(store), lengthen), "data-damaged"),
    "data: a bit is flipped": Damage(
        lambda store: change(store, sealed_data(store), flip), "data-damaged", needs_data=True
    ),
    "data: no Parquet": Damage(no_parquet, "data-unreadable", needs_data=True),
    "data: another footer than its entry says": Damage(other_footer, "data-damaged", needs_data=True),
    "data: fewer rows": Damage(fewer_rows, "data-rows-differ", needs_data=True),
    "data: another type": Damage(swap_columns, "data-schema-differs", needs_data=True),
    "data: another column": Damage(foreign_column, "data-schema-differs", needs_data=True),
    "data: values beyond the statistics": Damage(
        lambda store: beyond_statistics(store, "miles", 10**9), "data-statistics-false", needs_data=True
    ),
    "data: nulls beyond the statistics": Damage(
        lambda store: beyond_statistics(store, "name", None), "data-statistics-false", needs_data=True
    ),
    "data: text below the statistics": Damage(
        lambda store: beyond_statistics(store, "name", "a"), "data-statistics-false", needs_data=True
    ),
    "data: a NaN beyond the statistics": Damage(
        lambda store: beyond_statistics(store, "share", float("nan")), "data-statistics-false", needs_data=True
    ),
    "data: a value where all were null": Damage(
        lambda store: beyond_statistics(store, "price", 1), "data-statistics-false", needs_data=True
    ),
    "data: other timestamps": Damage(other_timestamps, "data-timestamps-differ", needs_data=True),
    "data: other offsets": Damage(other_offsets, "data-offsets-differ", needs_data=True),
}


def test_the_store_as_it_was_made_is_sound(store: Store) -> None:
    assert list(store.admin.verify(data=True)) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found_and_nothing_else(store: Store, damage: str) -> None:
    path = DAMAGES[damage].do(store)

    found = faults(Store(store.object_store, store.environment))

    assert [(each.kind, each.path) for each in found] == [(DAMAGES[damage].kind, path)], found
    assert all(each.problem and each.follows and each.remedy for each in found)
    assert not any(each.problem.startswith(f"{each.path}: ") for each in found), found


@pytest.mark.parametrize("damage", [name for name, each in DAMAGES.items() if each.needs_data])
def test_without_data_only_names_and_lengths_of_files_count(store: Store, damage: str) -> None:
    DAMAGES[damage].do(store)

    assert faults(store, data=False) == []


@pytest.fixture
def local(tmp_path: Path, environment: Environment) -> tuple[Store, Path]:
    kept = LocalStore(tmp_path / "store", environment, fsync=False)
    return copy_of_small_history(Store(kept, environment, FILES_ARE_OBJECTS)), tmp_path / "store"


@pytest.mark.parametrize("do", [remove, lambda store, path: change(store, path, cut)], ids=["lost", "damaged"])
def test_rows_of_a_lost_old_slot_are_missing_also_without_data(
    store: Store, do: Callable[[Store, str], object]
) -> None:
    store = Store(store.object_store, store.environment, LogConfig(inline_limit_bytes=64_000))
    store.admin.create_topic("records")
    for value in (b"of the oldest slot", b"of the second", b"of the third"):
        with store.producer() as producer:
            producer.send("records", value)
    batch = store.read(lambda state, slot: partition_named(state, TopicPartition("records", 0))[1].active[1])
    assert batch.file is not None
    assert batch.file.in_record
    for _ in range(2):
        store.log.checkpoint()
    do(store, slot_path(batch.slot))

    found = faults(Store(store.object_store, store.environment), data=False)

    assert next(each.kind for each in found if each.slot == batch.slot) in ("slot-lost", "old-slot-damaged")
    assert [(each.path, each.slot, each.offsets) for each in found if each.kind.startswith("data-")] == [
        (batch.file.path, batch.slot, (batch.base_offset, batch.end_offset))
    ]


def test_a_link_for_a_file_is_found_as_missing_and_link(local: tuple[Store, Path]) -> None:
    store, root = local
    path = active_data(store)
    elsewhere = root.parent / "elsewhere"
    (root / path).rename(elsewhere)
    (root / path).symlink_to(elsewhere)

    assert [(each.kind, each.path) for each in faults(store)] == [("not-an-object", path), ("data-missing", path)]


@pytest.mark.parametrize("place", ["slot", "checkpoint"])
def test_links_and_special_files_are_all_told_before_one_stops_the_look(local: tuple[Store, Path], place: str) -> None:
    store, root = local
    path = slot_path(newest(store) - 1) if place == "slot" else references(store)[0].path
    (root / path).unlink()
    (root / path).symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    found = iter(store.admin.verify())

    told = [next(found), next(found)]

    assert sorted((each.kind, each.path) for each in told) == [("not-an-object", path), ("not-an-object", "pipe")]
    with pytest.raises(StoreAccessDenied, match=path):
        next(found)


def test_a_broken_chain_names_both_slots_as_either_may_be_damaged(store: Store) -> None:
    last = newest(store)
    edit_slot(store, last - 1, lambda record: record.update(append_id="ef" * 16))

    [broken] = [each for each in faults(Store(store.object_store, store.environment)) if each.slot == last]

    assert (broken.kind, broken.path) == ("slot-chain-broken", slot_path(last))
    assert broken.problem.endswith(f"this record or {slot_path(last - 1)} is not what was written")


def test_links_and_special_files_are_found(local: tuple[Store, Path]) -> None:
    store, root = local
    (root / "link").symlink_to("/etc")
    os.mkfifo(root / "pipe")

    assert {(each.kind, each.path) for each in faults(store)} == {("not-an-object", "link"), ("not-an-object", "pipe")}


def test_slots_that_were_deleted_in_their_order_are_no_fault(store: Store) -> None:
    store.object_store.delete([slot_path(slot) for slot in range(references(store)[1].slot)])

    assert list(store.admin.verify(data=True)) == []


def test_a_slot_below_those_that_were_deleted_is_told_and_no_fault(store: Store) -> None:
    body = store.object_store.get(slot_path(2)).body
    store.object_store.delete([slot_path(slot) for slot in range(references(store)[1].slot)])
    store.object_store.put(slot_path(2), body)

    assert [(each.kind, each.slot) for each in store.admin.verify(data=True)] == [("slot-stray", 2)]


@pytest.mark.parametrize("deleted", [0, 2])
def test_a_slot_lost_below_the_older_checkpoint_is_a_warning(store: Store, deleted: int) -> None:
    store.object_store.delete([slot_path(slot) for slot in range(deleted)])
    lost = references(store)[1].slot - 1
    remove(store, slot_path(lost))

    [found] = store.admin.verify(data=True)

    assert (found.kind, found.slot, found.severity.value) == ("slot-lost", lost, "warning")


@pytest.mark.parametrize("ahead", [0, 7])
def test_a_record_naming_a_checkpoint_not_written_before_is_found(store: Store, ahead: int) -> None:
    log = fresh(store)
    state, slot, append_id = log.read(lambda state, slot: (state.frozen_copy(), slot, log.replica.append_id))
    forged, _ = write_checkpoint(
        store.object_store,
        store.environment,
        log.machine,
        state=state,
        slot=slot + ahead,
        append_id=append_id,
        shared=None,
    )
    for _ in range(2):
        append_record(store, [])
        fresh(store).checkpoint()
    last = newest(store)
    edit_slot(store, last, lambda record: record.update(checkpoint=forged.model_dump()))

    found = faults(Store(store.object_store, store.environment))

    assert ("checkpoint-differs", slot_path(last)) in [(each.kind, each.path) for each in found]


def test_slots_below_one_that_was_lost_are_looked_at_too(store: Store) -> None:
    remove(store, slot_path(references(store)[1].slot - 1))
    change(store, slot_path(1), cut)

    assert [(each.kind, each.slot) for each in faults(store)] == [
        ("slot-lost", references(store)[1].slot - 1),
        ("old-slot-damaged", 1),
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_strays_directly_below_the_oldest_slot_are_told_and_no_fault(store: Store, count: int) -> None:
    """The first took its name with what its writer knew, the second, if there is one, went on from there."""
    for slot in range(2):
        remove(store, slot_path(slot))
    for slot in range(2, 2 + count):
        append_id, prev = f"{slot:032x}", f"{slot - 1:032x}"
        edit_slot(
            store, slot, lambda record, append_id=append_id, prev=prev: record.update(append_id=append_id, prev=prev)
        )

    [stray] = store.admin.verify(data=True)

    assert (stray.kind, stray.slot) == ("slot-stray", 2)
    assert stray.problem.startswith(f"slots 2 to {1 + count} ")


def test_files_that_nobody_names_are_told_and_no_fault(store: Store) -> None:
    directory = active_data(store).rpartition("/")[0]
    store.object_store.put(f"{directory}/{'ab' * 16}.parquet", b"of a task that died")
    store.object_store.put("README.txt", b"not ours")
    store.object_store.put(f"{CHECKPOINTS}notes", b"not ours either")

    found = list(store.admin.verify(data=True))

    assert [each.kind for each in found] == ["files-unreferenced", "files-unknown"]
    assert "files that no entry names: 1, 19 bytes" in found[0].problem
    assert "do not belong to the store: 2. They are" in found[1].problem


def test_files_of_refused_delta_writers_are_reported_as_files_that_vacuum_deletes(store: Store) -> None:
    topic = active_data(store).partition("/")[0]
    store.object_store.put(f"{topic}/_partition=0/part-00000.parquet", b"rows")
    store.object_store.put("no-topic/_partition=0/part-00000.parquet", b"rows")

    found = list(store.admin.verify())

    assert [(each.kind, each.topic) for each in found] == [("files-unreferenced", topic), ("files-unknown", None)]


def test_the_key_of_append_services_is_no_fault_and_other_names_there_are_told(store: Store) -> None:
    store.object_store.put(APPEND_KEY_PATH, b"0" * 64)
    assert list(store.admin.verify(data=True)) == []

    other = APPEND_KEY_PATH.replace("key", "notes")
    store.object_store.put(other, b"not ours")

    [found] = store.admin.verify(data=True)
    assert (found.kind, found.path) == ("files-unknown", other)


def test_a_file_that_is_gone_between_two_looks_is_missing(store: Store) -> None:
    path = active_data(store)
    listed = list(store.object_store.list(""))
    remove(store, path)

    assert any(info.path == path for info in listed)
    with pytest.raises(ObjectNotFound):
        store.object_store.get(path)
    assert [each.kind for each in faults(store, topic="t")] == ["data-missing"]
    assert faults(store, topic="c") == []
