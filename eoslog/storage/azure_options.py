"""Options of the connection to Azure Blob Storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from eoslog.errors import InvalidOption
from eoslog.storage.http_options import HttpOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions(HttpOptions):
    """Connection options. Without credentials here, the environment or the identity of the machine gives them."""

    kind: ClassVar[str] = "an Azure"

    account: str | None = None
    """The name of the storage account, if the URL does not name it."""
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """An access token of Microsoft Entra ID. It is never renewed."""
    tenant_id: str | None = None
    client_id: str | None = None
    """The application of a service principal. Without ``tenant_id``: a managed identity that the user assigned."""
    client_secret: str | None = field(default=None, repr=False)
    anon: bool = False

    def __post_init__(self) -> None:
        HttpOptions.__post_init__(self)
        self.check_one_of("account_key", "sas_token", "token", "client_id", "anon", "credentials")
        is_principal = (self.tenant_id is not None, self.client_secret is not None)
        if any(is_principal) and not (all(is_principal) and self.client_id is not None):
            raise InvalidOption("tenant_id, client_id and client_secret belong together. Give all of them.")
