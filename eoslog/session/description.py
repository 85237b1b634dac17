"""``eoslog.json``: the description at the root of a store. It identifies the directory as a store."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eoslog.errors import CorruptRecord, EosLogError, NotAStore, UnsupportedFormat
from eoslog.log.replica import LogConfig
from eoslog.log.slots import SLOTS
from eoslog.state.features import check_features
from eoslog.storage.object_store import ObjectNotFound, ObjectStore
from eoslog.wording import first_problem, quoted

DESCRIPTION_PATH = "eoslog.json"
COPY_DIRECTORY = ".copy/"
"""The directory of the decisions of the copy that made a store. Nothing reads them after the copy."""
FORMAT_VERSION = 1
_OF_TOPIC = re.compile(r"[0-9a-f]{32}/\d+/")
"""The path of a topic's file below the topic's directory."""
_MOST_LISTED = 1_000


class ProbeRecord(BaseModel):
    """The result of the put-if-absent probe at the creation of the store."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    put_if_absent: bool
    """True if exactly one of many creates of one name succeeded."""
    time_ms: int
    """The time of the probe, by the store's clock (ms since the epoch)."""


class CopiedFrom(BaseModel):
    """The store and the slot that a store is a copy of."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    store_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """The id of the source. The copy has the same id, unless it was made with a new one."""
    slot: Annotated[int, Field(strict=True, ge=0, lt=2**43)]
    """The slot of the source."""
    first_slot: Annotated[int, Field(strict=True, ge=1, lt=2**43)]
    """The first slot of the copy's own log: ``slot`` + 1, or a later one if the copy was updated."""
    time_ms: Annotated[int, Field(strict=True, ge=0)]
    """The time of the copy's plan, by the clock of the copy's store (ms since the epoch)."""


class StoreDescription(BaseModel):
    """The store's identity, format and features. It is written once and never changed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format_version: Annotated[int, Field(strict=True, ge=1)] = FORMAT_VERSION
    store_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """A random id, drawn at the creation. A later store at the same URL has another id."""
    reader_features: tuple[str, ...] = ()
    """Features that a reader must know. A reader that does not know one refuses the store."""
    writer_features: tuple[str, ...] = ()
    """Features that a writer must know. A writer that does not know one refuses the store."""
    created_ms: Annotated[int, Field(strict=True, ge=0)]
    """The time of the creation, by the store's clock (ms since the epoch)."""
    slot_retention_ms: Annotated[int, Field(strict=True, gt=0, lt=2**53)] = LogConfig.slot_retention_ms
    """The retention of slots (ms). No process deletes a younger slot, or trusts its replica for longer than half of
    it."""
    probe: ProbeRecord
    copied: CopiedFrom | None = None
    """The origin of a copy; None for a store that is not a copy."""


def encode_description(description: StoreDescription) -> bytes:
    return description.model_dump_json(indent=2, exclude_none=True).encode() + b"\n"


def read_description(store: ObjectStore) -> StoreDescription:
    """Raises: NotAStore, CorruptRecord, UnsupportedFormat"""
    found = find_description(store)
    if found is None:
        raise no_store(store)
    return found


def find_description(store: ObjectStore) -> StoreDescription | None:
    """Return the description; None if there is none.

    Raises:
        CorruptRecord, UnsupportedFormat
    """
    try:
        body = store.get(DESCRIPTION_PATH).body
    except ObjectNotFound:
        return None
    return decode_description(body, store.url)


def no_store(store: ObjectStore) -> NotAStore:
    """Return the error that no store is here. It says what is here instead, for which it lists objects."""
    return NotAStore(f"there is no eoslog store at {shown_url(store.url)}. {_remedy(store)}")


def _remedy(store: ObjectStore) -> str:
    """Return the advice. A user of Delta tables may have given the directory of a topic, like that of a table."""
    root, _, topic = store.url.rstrip("/").rpartition("/")
    # The error that there is no store tells more than the error that the objects cannot be listed.
    with suppress(EosLogError):
        if any(store.list(COPY_DIRECTORY, limit=1)):
            return "This is a copy that was not completed. Run the same eoslog copy again"
        if store.list_directories(SLOTS):
            return "Its log is there, but eoslog.json is not. Run eoslog verify"
        if any(_OF_TOPIC.match(found.path) for found in store.list("", limit=_MOST_LISTED)):
            return (
                f"This is the directory of topic {quoted(topic)} in the store {root or '.'}. Give the path of the "
                f"store, and name the topic, in Spark with option('topic', {quoted(topic)})"
            )
    return "Check the URL, or create a topic there to create a store"


def shown_url(url: str) -> str:
    """Return the URL. A relative path is completed: processes have different current directories."""
    return url if "://" in url or Path(url).is_absolute() else f"{url} ({Path(url).absolute()})"


def decode_description(body: bytes, url: str) -> StoreDescription:
    """Raises: CorruptRecord, UnsupportedFormat"""
    try:
        version = _Version.model_validate_json(body).format_version
        if version > FORMAT_VERSION:
            raise UnsupportedFormat(
                f"the store at {url} has format version {version}, but this version of eoslog knows only "
                f"{FORMAT_VERSION}. Upgrade eoslog"
            )
        description = StoreDescription.model_validate_json(body)
    except ValidationError as error:
        raise CorruptRecord(f"{url}/{DESCRIPTION_PATH} is malformed: {first_problem(error)}") from None
    check_features(description.reader_features, description.writer_features)
    return description


class _Version(BaseModel):
    format_version: int
