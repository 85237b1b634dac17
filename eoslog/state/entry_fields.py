"""What the fields of entries are made of: numbers within bounds, names, and references to files."""

from __future__ import annotations

from typing import Annotated

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
"""Characters."""

Statistics = Annotated[str, Field(min_length=2, max_length=LONGEST_STATISTICS)]
"""The statistics of a file's columns, as JSON text: planning alone reads it, so it stays text until then."""


class Model(BaseModel):
    """Part of a record: immutable, and blind to fields that a later minor version adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class FileReference(Model):
    """An immutable object that an entry names, with what proves that it is the one."""

    path: Annotated[str, Field(min_length=1, max_length=2048)]
    """Where it lies, from the store's root."""
    length: Annotated[int, Field(strict=True, ge=0, lt=2**53)]
    """Bytes."""
    crc32c: Annotated[int, Field(strict=True, ge=0, lt=2**32)]
    """CRC-32C of all its bytes."""

    @field_validator("path")
    @classmethod
    def _relative(cls, path: str) -> str:
        if path.startswith("/") or "://" in path or "\\" in path or "\x00" in path:
            raise ValueError("a referenced path is relative to the store")
        parts = path.split("/")
        if "" in parts or "." in parts or ".." in parts:
            raise ValueError("a referenced path has no empty, '.' or '..' parts")
        if not path.isascii() or not path.isprintable():
            raise ValueError("a referenced path has no control characters and no letters beyond ASCII")
        return path
