"""A store on a disk that somebody tampered with: what leads outside, blocks or was swapped is refused, and said so."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import eoslog
from eoslog.format.checked_files import crc32c
from eoslog.format.data_file import encode_data_file

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]}, schema=SCHEMA)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = eoslog.connect(tmp_path / "store", fsync=False)
    store.admin.create_topic("t", schema=SCHEMA)
    with store.producer() as producer:
        producer.send_table("t", ROWS)
    return tmp_path / "store"


def data_file(root: Path) -> Path:
    (found,) = root.glob("t/*/0/*/*.parquet")
    return found


def newest_slot(root: Path) -> Path:
    return max(root.glob("__transaction_state/slot/*/*.json"))


def as_link(place: Path) -> None:
    """The object itself, moved out of the store, with a link in its place."""
    outside = Path(tempfile.mkdtemp(dir=place.parents[len(place.parts) - 1 - place.parts.index("store")])) / place.name
    place.rename(outside)
    place.symlink_to(outside)


def as_pipe(place: Path) -> None:
    place.unlink()
    os.mkfifo(place)


def as_device(place: Path) -> None:
    place.unlink()
    place.symlink_to("/dev/zero")


def as_directory(place: Path) -> None:
    place.unlink()
    place.mkdir()


FORGERIES: dict[str, Callable[[Path], None]] = {
    "a link": as_link,
    "a named pipe": as_pipe,
    "a device": as_device,
    "a directory": as_directory,
}
PLACES: dict[str, Callable[[Path], Path]] = {
    "data file": data_file,
    "its directory": lambda root: data_file(root).parent,
    "the topic's directory": lambda root: root / "t",
    "slot": newest_slot,
    "directory of slots": lambda root: newest_slot(root).parent,
    "eoslog.json": lambda root: root / "eoslog.json",
}


DIRECTORIES = {"its directory", "the topic's directory", "directory of slots"}


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize(
    ("place", "forgery"),
    [(place, forgery) for place in PLACES for forgery in FORGERIES if forgery == "a link" or place not in DIRECTORIES],
)
def test_irregular_files_are_neither_followed_nor_waited_for(place: str, forgery: str, root: Path) -> None:
    found = PLACES[place](root)
    FORGERIES[forgery](found)

    try:
        rows = eoslog.connect(root, fsync=False).scan("t").to_table()
    except eoslog.EosLogError:
        return
    # Of a slot that is not to be had nothing is known: the log ends before it.
    assert place in ("slot", "directory of slots")
    assert rows.num_rows == 0


SWAPS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "others of the same length": (lambda body: body[:40] + bytes([body[40] ^ 1]) + body[41:], "checksum is 0x"),
    "fewer bytes": (lambda body: body[:-1], r"has \d+ bytes, but its entry says"),
    "more bytes": (lambda body: body + b"\x00", r"has \d+ bytes, but its entry says"),
    "nothing": (lambda body: b"", "has 0 bytes, but its entry says"),
}


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("swap", SWAPS)
def test_every_reader_finds_a_swapped_data_file(swap: str, root: Path) -> None:
    forge, reason = SWAPS[swap]
    place = data_file(root)
    place.write_bytes(forge(place.read_bytes()))
    store = eoslog.connect(root, fsync=False)

    with pytest.raises(eoslog.CorruptRecord, match=reason):
        store.scan("t").to_table()
    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([eoslog.TopicPartition("t", 0)])
        with pytest.raises(eoslog.CorruptRecord, match=reason):
            consumer.poll(1.0)


FORGED_FILES: dict[str, tuple[pa.Table, str]] = {
    "fewer rows": (ROWS.slice(1), "has 2 rows, but its entry says 3"),
    "more rows": (pa.concat_tables([ROWS, ROWS]), "has 6 rows, but its entry says 3"),
    "another type": (ROWS.set_column(0, "id", pa.array(["x", "y", "z"])), "cannot be read as a data file"),
    "a column twice": (ROWS.append_column("id", ROWS["id"]), "the file has column 'id' 2 times"),
}


def forge_commit(root: Path, table: pa.Table) -> None:
    """Put other bytes under the entry, and their length and checksum into the entry: what a malicious writer can do."""
    place, slot = data_file(root), newest_slot(root)
    before, body = place.read_bytes(), encode_data_file(table)
    place.write_bytes(body)
    text = slot.read_text()
    text = text.replace(f'"length":{len(before)}', f'"length":{len(body)}')
    slot.write_text(text.replace(f'"crc32c":{crc32c(before)}', f'"crc32c":{crc32c(body)}'))


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("forged", FORGED_FILES)
def test_a_file_that_contradicts_its_entry_or_topic_is_corrupt(forged: str, root: Path) -> None:
    table, reason = FORGED_FILES[forged]
    forge_commit(root, table)

    with pytest.raises(eoslog.CorruptRecord, match=reason):
        eoslog.connect(root, fsync=False).scan("t").to_table()


@pytest.mark.usefixtures("files_are_objects")
def test_columns_that_a_forged_file_has_beside_the_topics_are_not_read(root: Path) -> None:
    forge_commit(root, ROWS.append_column("_offset", pa.array([7, 8, 9])).append_column("_topic", pa.array(["x"] * 3)))

    rows = eoslog.connect(root, fsync=False).scan("t", columns=["id", "_offset", "_topic"]).to_table()

    assert rows.to_pydict() == {"id": [1, 2, 3], "_offset": [0, 1, 2], "_topic": ["t"] * 3}


PATHS = (
    "../outside.parquet",
    "/etc/passwd",
    "s3://bucket/file.parquet",
    "file:///etc/passwd",
    "__transaction_state/slot/x.parquet",
    "other/{id}/0/0/x.parquet",
    "t/{id}/1/0/x.parquet",
    "t/{id}/0/../../../../outside.parquet",
    "t/{id}/0/0/x\\u0000.parquet",
    "t/{id}/0/0/x\\n.parquet",
    "T/{id}/0/0/x.parquet",
    "t/{id}/0\\\\0/x.parquet",
    "t/{id}/0//x.parquet",
    "t/{id}/0/%2e%2e/%2e%2e/\\u2025/x.parquet",
)


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("path", PATHS)
def test_an_entry_that_names_a_file_elsewhere_is_inert_and_stops_writers(path: str, root: Path) -> None:
    place, slot = data_file(root), newest_slot(root)
    named = place.relative_to(root)
    forged = path.replace("{id}", named.parts[1])
    slot.write_text(slot.read_text().replace(f'"path":"{named}"', f'"path":"{forged}"'))

    store = eoslog.connect(root, fsync=False)

    assert store.scan("t").to_table().num_rows == 0
    with pytest.raises(eoslog.EosLogError, match="invalid record"):
        store.admin.create_topic("another")


@pytest.mark.parametrize("count", [2**31, 2**62, 2**63, 10**30])
def test_a_batch_of_more_rows_than_there_can_be_is_inert(count: int, root: Path) -> None:
    slot = newest_slot(root)
    slot.write_text(slot.read_text().replace('"record_count":3', f'"record_count":{count}'))

    assert eoslog.connect(root, fsync=False).scan("t", columns=["_offset"]).to_table().num_rows == 0
