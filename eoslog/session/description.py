"""``eoslog.json``: what lies at a store's root and says that it is one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eoslog.errors import CorruptRecord, NotAStore, UnsupportedFormat, first_problem
from eoslog.log.replica import LogConfig
from eoslog.state.features import check_features
from eoslog.storage.object_store import ObjectNotFound, ObjectStore

DESCRIPTION_PATH = "eoslog.json"
FORMAT_VERSION = 1


class ProbeRecord(BaseModel):
    """What the probe of put-if-absent found when the store was made."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    put_if_absent: bool
    """Of many creates of one name exactly one succeeded."""
    time_ms: int
    """When, by the store's clock (ms since the epoch)."""


class StoreDescription(BaseModel):
    """The store's identity, format and features. It is written once and never changed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format_version: Annotated[int, Field(strict=True, ge=1)] = FORMAT_VERSION
    store_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Drawn when the store is made; one made anew at the same place has another."""
    reader_features: tuple[str, ...] = ()
    """What a reader must know; one that does not refuses the store."""
    writer_features: tuple[str, ...] = ()
    """What a writer must know; one that does not refuses the store."""
    created_ms: Annotated[int, Field(strict=True, ge=0)]
    """By the store's clock (ms since the epoch)."""
    slot_grace_ms: Annotated[int, Field(strict=True, gt=0, lt=2**53)] = LogConfig.grace_ms
    """No process deletes a younger slot, and none trusts what it knows of the log for longer than half of it."""
    probe: ProbeRecord


def read_description(store: ObjectStore) -> StoreDescription:
    """Raises: NotAStore, CorruptRecord, UnsupportedFormat"""
    try:
        body = store.get(DESCRIPTION_PATH).body
    except ObjectNotFound:
        raise NotAStore(
            f"there is no eoslog store at {_place(store.url)}: check the place, or create a topic there to make one"
        ) from None
    return decode_description(body, store.url)


def _place(url: str) -> str:
    """A relative path with what it is relative to, which is another directory in each of Spark's processes."""
    return url if "://" in url or Path(url).is_absolute() else f"{url} ({Path(url).absolute()})"


def decode_description(body: bytes, url: str) -> StoreDescription:
    """Raises: CorruptRecord, UnsupportedFormat"""
    try:
        version = _Version.model_validate_json(body).format_version
        if version > FORMAT_VERSION:
            raise UnsupportedFormat(
                f"the store at {url} has format version {version}, this version of eoslog knows {FORMAT_VERSION}: "
                "upgrade eoslog"
            )
        description = StoreDescription.model_validate_json(body)
    except ValidationError as error:
        raise CorruptRecord(f"{url}/{DESCRIPTION_PATH} is malformed: {first_problem(error)}") from None
    check_features(description.reader_features, description.writer_features)
    return description


class _Version(BaseModel):
    format_version: int
