"""The types of the fields of entries: bounded numbers, names, and references to files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

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

LONGEST_STATISTICS = 8192
"""The maximum length of a file's statistics, in characters."""

Statistics = Annotated[str, Field(min_length=2, max_length=LONGEST_STATISTICS)]
"""The statistics of a file's columns, as JSON text. Only planning parses it, so applying an entry stays cheap."""


class Model(BaseModel):
    """A part of a record. It is immutable, and ignores fields that a later minor version adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class FileReference(Model):
    """A reference to an immutable object, with the length and checksum that identify its content."""

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
