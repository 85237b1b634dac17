"""Options of the connection to Google Cloud Storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from eoslog.storage.http_options import HttpOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsOptions(HttpOptions):
    """Connection options. Without credentials here, the application default credentials count."""

    kind: ClassVar[str] = "a Google Cloud"

    token: str | None = field(default=None, repr=False)
    """An OAuth 2.0 access token. It is never renewed."""
    key_file: str | None = None
    """A JSON file with the key of a service account or with a workload identity federation."""
    anon: bool = False

    def __post_init__(self) -> None:
        HttpOptions.__post_init__(self)
        self.check_one_of("token", "key_file", "anon", "credentials")
