"""The types of the fields of entries: bounded numbers, names, and references to files."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Offset = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Count = Annotated[int, Field(strict=True, ge=0, lt=2**40)]
Milliseconds = Annotated[int, Field(strict=True, ge=0, lt=2**53)]
Timestamp = Annotated[int, Field(strict=True, ge=-1, lt=2**63)]
ProducerId = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
ProducerEpoch = Annotated[int, Field(strict=True, ge=0, le=32767)]
Sequence = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
PartitionIndex = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
Identifier = Annotated[str, Field(min_length=1, max_length=1024)]
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]

SHARED_OBJECTS = "__shared_files/"
"""The directory of the objects that have several data files each. A name begins with a time (ms): see
``SharedPosition.time_ms``."""
_TIME_DIGITS = 16
SHARED_OBJECT = re.compile(rf"{SHARED_OBJECTS}[0-9]{{{_TIME_DIGITS}}}-[0-9a-f]{{32}}")
"""The path of a shared object."""

LONGEST_STATISTICS = 8192
"""The maximum length of a file's statistics, in characters."""

Statistics = Annotated[str, Field(min_length=2, max_length=LONGEST_STATISTICS)]
"""The statistics of a file's columns, as JSON text. Only planning parses it, so applying an entry stays cheap."""


class Model(BaseModel):
    """A part of a record. It is immutable, and ignores fields that a later minor version adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class SharedPosition(Model):
    """The position of a data file in an object that has several of them."""

    path: Annotated[str, Field(pattern=rf"^{SHARED_OBJECT.pattern}$")]
    """The path of the object, relative to the store's root."""
    position: Annotated[int, Field(strict=True, ge=0, lt=2**53)]
    """The position of the file's first byte in the object (bytes)."""

    @property
    def time_ms(self) -> int:
        """The time in the path (ms): the store's time or the log's before the upload, whichever was later."""
        return shared_object_time_ms(self.path)


def shared_object_path(time_ms: int, name: str) -> str:
    """Return the path of a new shared object.

    Args:
        time_ms: the store's time or the log's before the upload, whichever is later (ms).
        name: 32 hexadecimal digits that nobody else has.
    """
    return f"{SHARED_OBJECTS}{time_ms:0{_TIME_DIGITS}d}-{name}"


def shared_object_time_ms(path: str) -> int:
    """Return the time in the path of a shared object (ms)."""
    return int(path[len(SHARED_OBJECTS) :][:_TIME_DIGITS])


class FileReference(Model):
    """A reference to immutable content, with the length and checksum that identify it.

    The content is an object, a part of a shared object, or in a record.
    """

    path: Annotated[str, Field(min_length=1, max_length=2048)]
    """Its path, relative to the store's root."""
    length: Annotated[int, Field(strict=True, ge=0, lt=2**53)]
    """Its length in bytes."""
    crc32c: Annotated[int, Field(strict=True, ge=0, lt=2**32)]
    """The CRC-32C of all its bytes."""
    footer_crc32c: Annotated[int, Field(strict=True, ge=0, lt=2**32)] | None = None
    """For a data file: the CRC-32C of its Parquet footer, up to the end of the file. If it is None, readers fetch the
    whole file. Other files have none."""
    in_record: Literal[True] | None = None
    """True if the content of a data file is in the record of the slot that gave its rows their offsets. An object at
    ``path`` may have the same content, but need not exist."""
    shared: SharedPosition | None = None
    """The place of a data file in a shared object; None if it is elsewhere. An object at ``path`` may have
    the same content, but need not exist."""

    @property
    def is_object(self) -> bool:
        """True if the file is the object at ``path``, and not in a record or a shared object."""
        return not self.in_record and self.shared is None

    @property
    def object_path(self) -> str | None:
        """The path of the object that has the content, alone or among others; None if the content is in a record."""
        if self.in_record:
            return None
        return self.path if self.shared is None else self.shared.path

    def as_object(self) -> FileReference:
        """Return the reference to an object at ``path`` with the same content."""
        return self if self.is_object else self.model_copy(update={"in_record": None, "shared": None})

    @field_validator("shared")
    @classmethod
    def _in_one_place(cls, shared: SharedPosition | None, info: ValidationInfo) -> SharedPosition | None:
        # ``in_record`` is declared before ``shared``, so it has been validated.
        if shared is not None and info.data.get("in_record"):
            raise ValueError("a file must not be both in a record and in a shared object")
        return shared

    @field_validator("path")
    @classmethod
    def _relative(cls, path: str) -> str:
        if path.startswith("/") or "://" in path or "\\" in path or "\x00" in path:
            raise ValueError("a referenced path must be relative to the store")
        parts = path.split("/")
        if "" in parts or "." in parts or ".." in parts:
            raise ValueError("a referenced path must have no empty, '.' or '..' parts")
        if not path.isascii() or not path.isprintable():
            raise ValueError("a referenced path must have only printable ASCII characters")
        return path
