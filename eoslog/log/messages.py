"""Messages: the requests of one process, as it sends them to the process that appends them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from eoslog.errors import InvalidRequest
from eoslog.wording import first_problem

MOST_REQUESTS = 1024
"""The largest number of requests in a message."""


class PendingRequest(BaseModel):
    """A request that any process may append."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    entries: tuple[dict[str, Any], ...]
    """The entries as in a record. The process that appends them fills in their results, such as offsets."""
    files: dict[str, str] = Field(default_factory=dict)
    """The contents of the files that are to be in the record, by path, in base64."""

    def contents(self) -> dict[str, bytes]:
        """Return the contents of the files by path. Raises: ValueError: one is not base64."""
        return {path: b64decode(content, validate=True) for path, content in self.files.items()}


OthersRequests: TypeAlias = Sequence[tuple[str, PendingRequest]]
"""The requests of a message, with their ids."""


class Message(BaseModel):
    """The requests of one process."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """A random name, with which the ids of the requests begin."""
    slot: Annotated[int, Field(strict=True, ge=0, lt=2**43)]
    """The newest slot that the sender knows. The requests are validated on the state after this slot or a later one."""
    requests: Annotated[tuple[PendingRequest, ...], Field(max_length=MOST_REQUESTS)]
    """Empty if the sender wants to put the next record by itself."""

    @property
    def with_ids(self) -> OthersRequests:
        """The requests with their ids."""
        return [(request_id(self.name, index), request) for index, request in enumerate(self.requests)]


def request_id(name: str, index: int) -> str:
    """Return the id of a request: the name of its message, and its index there, from 0."""
    return f"{name}-{index}"


def encode_message(message: Message) -> bytes:
    return to_json(message)


def decode_message(body: bytes) -> Message:
    """Return the message in these bytes.

    Raises:
        InvalidRequest: they are malformed.
    """
    try:
        return Message.model_validate(from_json(body))
    except ValidationError as error:
        raise InvalidRequest(f"a message of another process is malformed: {first_problem(error)}") from None
    except ValueError as error:
        raise InvalidRequest(f"a message of another process is not a JSON object: {error}") from None
