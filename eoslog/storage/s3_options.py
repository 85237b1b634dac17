"""Options of the connection to S3 or to a compatible store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from eoslog.errors import InvalidOption
from eoslog.storage.http_options import HttpOptions
from eoslog.wording import quoted

_ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options(HttpOptions):
    """Connection options. Without credentials here, the environment, the profile or the instance's role gives them."""

    kind: ClassVar[str] = "an S3"

    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    region: str | None = None
    profile: str | None = None
    anon: bool = False
    server_side_encryption: str | None = None
    """The header ``x-amz-server-side-encryption`` of each put: ``AES256``, ``aws:kms`` or ``aws:kms:dsse``."""
    sse_kms_key_id: str | None = None
    """The key of KMS that encrypts; None for the bucket's."""

    def __post_init__(self) -> None:
        HttpOptions.__post_init__(self)
        if (self.key is None) != (self.secret is None):
            raise InvalidOption("key and secret belong together. Give both, or none to take the environment's.")
        if self.anon and self.key is not None:
            raise InvalidOption("anon excludes key and secret. Leave one of them out.")
        self.check_one_of("credentials", "key")
        self.check_one_of("credentials", "anon")
        if self.server_side_encryption not in (None, *_ENCRYPTIONS):
            raise InvalidOption(
                f"server_side_encryption is {quoted(self.server_side_encryption)}. Valid are {', '.join(_ENCRYPTIONS)}."
            )
        if self.sse_kms_key_id is not None and self.server_side_encryption in (None, "AES256"):
            raise InvalidOption("sse_kms_key_id needs server_side_encryption='aws:kms' or 'aws:kms:dsse'.")

    @property
    def headers_of_puts(self) -> dict[str, str]:
        """The headers that each put has."""
        given = {
            "x-amz-server-side-encryption": self.server_side_encryption,
            "x-amz-server-side-encryption-aws-kms-key-id": self.sse_kms_key_id,
        }
        return {name: value for name, value in given.items() if value is not None}
