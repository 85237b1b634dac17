"""The connections and credentials of one process to Azure Blob Storage. azure-identity gets the access tokens."""

from __future__ import annotations

import os
import re
import threading
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import sha256
from hmac import digest
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from eoslog.errors import InvalidOption, StoreAccessDenied, StoreUnavailable
from eoslog.storage.azure_options import AzureOptions
from eoslog.storage.http_connections import PARALLEL_REQUESTS, connections_to
from eoslog.storage.http_store import Answer, Request
from eoslog.storage.renewed_credentials import Clocks, Credentials, RenewedCredentials, call_named, mapped
from eoslog.storage.xml_answers import detail_of_error
from eoslog.wording import quoted

_VERSION = "2023-11-03"
"""The version of the service's interface. Since 2021-02-12 lists encode names that XML cannot hold."""
_SCOPE = "https://storage.azure.com/.default"
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_VALID = ("token", "sas_token", "account_key")
_SIGNED_HEADERS = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
"""The headers whose values the signature has without their names, in this order."""


@dataclass(frozen=True, slots=True)
class AzureAccount:
    """A storage account: the URL of its blobs, and the credentials that the environment has for it."""

    name: str
    endpoint: str
    """Without a slash at its end."""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)


def account_of(options: AzureOptions, host: str | None) -> AzureAccount:
    """Return the storage account of a URL.

    Args:
        host: the server of the account's blobs, if the URL names it.

    Raises:
        InvalidOption: nothing names the account.
    """
    known = _account_of_environment()
    name = options.account or (host.partition(".")[0] if host is not None else None)
    endpoint = options.endpoint_url or (f"https://{host}" if host is not None else None)
    if name is None and endpoint is not None:
        # A server such as Azurite has the account in its path. Otherwise the server's name begins with the account.
        parts = urlsplit(endpoint)
        name = parts.path.strip("/").partition("/")[0] or (parts.hostname or "").partition(".")[0]
    if known is None or (name or known.name) != known.name:
        # The credentials of one account must not be sent to another one.
        known = None
    if name is None and known is not None:
        name = known.name
    if endpoint is None and known is not None:
        endpoint = known.endpoint
    if name is None:
        raise InvalidOption(
            "the URL names no storage account. Write abfss://container@account.dfs.core.windows.net/prefix, or give "
            "the option account or AZURE_STORAGE_ACCOUNT."
        )
    return AzureAccount(
        name,
        (endpoint or _endpoint_of(name)).rstrip("/"),
        {} if known is None else known.credentials,
    )


def _account_of_environment() -> AzureAccount | None:
    """Return the account in the variables of Azure's command line."""
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    parts = dict(part.partition("=")[::2] for part in text.split(";") if part)
    name = parts.get("AccountName") or os.environ.get("AZURE_STORAGE_ACCOUNT")
    endpoint = parts.get("BlobEndpoint", "").rstrip("/")
    if not name and endpoint:
        name = (urlsplit(endpoint).hostname or "").partition(".")[0]
    if not name:
        return None
    suffix = parts.get("EndpointSuffix", "core.windows.net")
    scheme = parts.get("DefaultEndpointsProtocol", "https")
    key = parts.get("AccountKey") or os.environ.get("AZURE_STORAGE_KEY")
    sas_token = parts.get("SharedAccessSignature") or os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    given = {"account_key": key} if key else {"sas_token": sas_token} if sas_token else {}
    return AzureAccount(name, endpoint or _endpoint_of(name, suffix, scheme), given)


def _endpoint_of(name: str, suffix: str = "core.windows.net", scheme: str = "https") -> str:
    # The name becomes a part of the server's name. With a slash in it, it would lead to another server.
    if not _ACCOUNT.fullmatch(name):
        raise InvalidOption(
            f"The storage account {quoted(name)} is no valid name: 3 to 24 lowercase letters and digits. Correct the "
            "option account or AZURE_STORAGE_ACCOUNT. For another server, give the option endpoint_url."
        )
    return f"{scheme}://{name}.blob.{suffix}"


class AzureTransport:
    """The connections of one process for one container. It asks for credentials at the first request.

    Its methods run in threads of the library. So no interrupt leaves its lock locked.
    """

    def __init__(self, container: str, host: str | None, options: AzureOptions, url: str, clocks: Clocks) -> None:
        """
        Args:
            host: the server of the account's blobs, if the URL names it.
            url: the URL of the store, for the function that gives credentials.
        """
        self.amendments = 0
        self._container = container
        self._url = url
        self._options = options
        self._account = account_of(options, host)
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(PARALLEL_REQUESTS)
        self._connections = connections_to(
            self._account.endpoint,
            connect_timeout_ms=options.connect_timeout_ms,
            read_timeout_ms=options.read_timeout_ms,
        )
        self._credentials = RenewedCredentials(self._new_credentials, clocks)
        self._library: Any = None
        """The credential of azure-identity. It is kept, because it knows how to renew itself."""

    def bucket_url(self) -> str:
        return f"{self._account.endpoint}/{self._container}"

    def send(self, request: Request) -> Answer:
        url = self.bucket_url() + (f"/{quote(request.key, safe='/')}" if request.key else "")
        query = dict(request.query)
        # The request has the time of this host, as on S3. The server refuses it if the time is wrong by 15 minutes.
        headers = {**request.headers, "x-ms-version": _VERSION, "x-ms-date": formatdate(usegmt=True)}
        if request.kind == "PUT":
            headers["Content-Type"] = "application/octet-stream"
        given = {} if self._options.anon else self._credentials.current()
        if "token" in given:
            headers["Authorization"] = f"Bearer {given['token']}"
        elif "sas_token" in given:
            query |= dict(parse_qsl(given["sas_token"].removeprefix("?")))
        elif "account_key" in given:
            headers["Authorization"] = self._signature(request, url, query, headers, given["account_key"])
        if query:
            url += f"?{urlencode(query, safe='/', quote_via=quote)}"
        with self._free:
            status, answered, body = self._connections.exchange(request.method, url, headers, request.body or None)
        code = answered.get("x-ms-error-code") or detail_of_error(body, "Code") if status >= 300 else ""
        return Answer(status, answered, body, code[:100])

    def amends(self, answer: Answer, amendments: int) -> bool:
        options = self._options
        is_fixed = options.anon or options.token or options.account_key or options.sas_token
        if answer.status not in (401, 403) or is_fixed:
            return False
        with self._lock:
            # Another request may have been refused, too, while this one was on its way.
            if self.amendments == amendments:
                self.amendments += self._credentials.renew()
            return self.amendments != amendments

    def _signature(
        self, request: Request, url: str, query: Mapping[str, str], headers: Mapping[str, str], key: str
    ) -> str:
        """Return the header that signs a request with the account's key (Azure's scheme ``SharedKey``)."""
        lower = {name.lower(): value for name, value in headers.items()}
        if request.body:
            lower["content-length"] = str(len(request.body))
        signed = [request.method, *(lower.get(name, "") for name in _SIGNED_HEADERS)]
        signed += [f"{name}:{value}" for name, value in sorted(lower.items()) if name.startswith("x-ms-")]
        signed += [f"/{self._account.name}{urlsplit(url).path}"]
        signed += [f"{name}:{value}" for name, value in sorted(query.items())]
        try:
            secret = b64decode(key, validate=True)
        except NotBase64 as error:
            raise StoreAccessDenied(
                f"{self._url}: the account's key is not in base64. Copy it again, with all characters."
            ) from error
        found = b64encode(digest(secret, "\n".join(signed).encode(), sha256)).decode()
        return f"SharedKey {self._account.name}:{found}"

    def _new_credentials(self) -> Credentials:
        options = self._options
        if self._library is None and options.credentials is not None:
            found = call_named(options.credentials, self._url)
            if not hasattr(found, "get_token"):
                return mapped(found, options.credentials, self._url, optional=_VALID)
            self._library = found
        for name in _VALID:
            if (given := getattr(options, name)) is not None:
                return Credentials({name: given})
        has_identity = options.client_id is not None or options.credentials is not None
        if self._account.credentials and not has_identity:
            return Credentials(self._account.credentials)
        return self._from_library()

    def _from_library(self) -> Credentials:
        try:
            from azure.core import exceptions
            from azure.identity import ClientSecretCredential, DefaultAzureCredential, ManagedIdentityCredential
        except ImportError as error:
            raise InvalidOption(
                f"{self._url}: access tokens for Azure need azure-identity. Install eoslog[azure], or give the option "
                "account_key, sas_token, token, credentials or anon."
            ) from error
        options = self._options
        try:
            if self._library is not None:
                pass
            elif options.tenant_id and options.client_id and options.client_secret:
                self._library = ClientSecretCredential(options.tenant_id, options.client_id, options.client_secret)
            elif options.client_id is not None:
                self._library = ManagedIdentityCredential(client_id=options.client_id)
            else:
                self._library = DefaultAzureCredential()
            found = self._library.get_token(_SCOPE)
        except (exceptions.AzureError, OSError, ValueError) as error:
            # azure-identity takes an error of the network for a refusal, and names it as the cause.
            is_refused = isinstance(error, exceptions.ClientAuthenticationError) and not isinstance(
                error.__cause__, (OSError, exceptions.ServiceRequestError, exceptions.ServiceResponseError)
            )
            if isinstance(error, exceptions.AzureError) and not is_refused:
                raise StoreUnavailable(
                    f"{self._url}: Azure gave no access token ({type(error).__name__}). Try again."
                ) from error
            raise StoreAccessDenied(
                f"{self._url}: there are no credentials ({type(error).__name__}). Azure Blob Storage takes these: an "
                "account's key or a SAS (options account_key and sas_token, or AZURE_STORAGE_CONNECTION_STRING); a "
                "service principal (options tenant_id, client_id and client_secret, or AZURE_TENANT_ID, "
                "AZURE_CLIENT_ID and AZURE_CLIENT_SECRET); a managed or workload identity; the login of az. A public "
                "container needs none with anon=True."
            ) from error
        return Credentials({"token": found.token}, found.expires_on * 1000)
