"""A catalog of Iceberg tables with Iceberg's REST interface, in which engines find the tables by name.

The catalog only points at the metadata files of the tables, which stay the truth. So a table is *registered* with the
path of its newest metadata file. Changes are not committed to the catalog: it would write metadata files of its own.
These would be a second history, beside the one that all publishers agree on.

Source: the operations ``registerTable``, ``loadTable``, ``dropTable``, ``createNamespace``, ``getConfig`` and
``getToken`` of Iceberg's ``rest-catalog-open-api.yaml``.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlencode

from pydantic import BaseModel, ConfigDict, ValidationError

from eoslog.session.settings import IcebergSettings
from eoslog.storage.environment import Environment
from eoslog.storage.renewed_credentials import Clocks, Credentials, RenewedCredentials, call_named, mapped

if TYPE_CHECKING:
    from eoslog.storage.http_connections import HttpConnections

TOKEN_VARIABLE = "ICEBERG_CATALOG_TOKEN"
"""The environment variable with a token, which is never renewed."""
CREDENTIAL_VARIABLE = "ICEBERG_CATALOG_CREDENTIAL"
"""The environment variable with an OAuth2 client, ``client_id:client_secret``."""
_ATTEMPTS = 3
_SEPARATOR = "%1F"
"""The separator of a namespace's levels in a path, unless the catalog names another one."""
_NO_OVERWRITE = (406, 501)
"""The answers of catalogs that cannot register a table again."""
_Model = TypeVar("_Model", bound="_AnswerPart")


class CatalogFailed(Exception):
    """The catalog gave no answer, or refused a request."""


class _AnswerPart(BaseModel):
    """A part of an answer. Other parts are ignored."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"), frozen=True, strict=True)


class _Config(_AnswerPart):
    defaults: dict[str, str | None] = {}
    overrides: dict[str, str | None] = {}


class _Metadata(_AnswerPart):
    location: str


class _Table(_AnswerPart):
    metadata_location: str = ""
    metadata: _Metadata


class _ErrorDetail(_AnswerPart):
    type: str = ""


class _Error(_AnswerPart):
    error: _ErrorDetail = _ErrorDetail()


class _Token(BaseModel):
    access_token: str
    expires_in: int | None = None


class _Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def error(self) -> str:
        """The type of the error; empty if the answer names none."""
        try:
            return _Error.model_validate_json(self.body).error.type[:100]
        except ValidationError:
            return ""


class RestCatalog:
    """The catalog of one process. Threads may share it.

    Its methods run in threads of the library. So no interrupt leaves a lock locked.
    """

    def __init__(self, settings: IcebergSettings, environment: Environment, clocks: Clocks) -> None:
        """Set up the catalog of ``settings.catalog_uri``. Nothing is connected yet."""
        self._settings = settings
        self._environment = environment
        self._clocks = clocks
        self._uri = (settings.catalog_uri or "").rstrip("/")
        self._connections = self._connected(self._uri)
        self._credentials = RenewedCredentials(self._new_credentials, clocks)
        self._namespace = settings.namespace.split(".")
        self._config: dict[str, str | None] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._uri!r})"

    def _connected(self, uri: str) -> HttpConnections:
        # Only a publisher with a catalog loads the HTTP client.
        from eoslog.storage.http_connections import connections_to

        return connections_to(
            uri,
            connect_timeout_ms=self._settings.connect_timeout_ms,
            read_timeout_ms=self._settings.read_timeout_ms,
        )

    def point(self, table: str, *, location: str, metadata_location: str) -> None:
        """Let a table of the namespace point at a metadata file. The call may be repeated.

        Args:
            location: the directory of the table. A table of this name with another directory stays as it is.
            metadata_location: the path or URL of the metadata file.

        Raises:
            CatalogFailed: the catalog gave no answer, refused the request, or has another table of this name.
            EosLogError: there are no credentials.
        """
        for _ in range(_ATTEMPTS):
            found = self._loaded(table)
            if found is None:
                answer = self._register(table, metadata_location)
            elif found.metadata_location == metadata_location:
                return
            elif found.metadata.location.rstrip("/") != location:
                raise CatalogFailed(
                    f"it has another table {self._settings.namespace}.{table}, in another directory. Drop that table, "
                    "or set iceberg.namespace to another namespace"
                )
            else:
                answer = self._replace(table, metadata_location)
            # 409: another publisher was faster. Look again.
            if answer.status != 409:
                self._checked(answer, "registering the table")
                self._environment.reached("iceberg.catalog.registered")
                return
        raise CatalogFailed("other publishers changed the table at the same time")

    def _replace(self, table: str, metadata_location: str) -> _Answer:
        """Register a table again."""
        answer = self._register(table, metadata_location, overwrite=True)
        if answer.status not in _NO_OVERWRITE and answer.error != "AlreadyExistsException":
            return answer
        # The catalog cannot do it in one step. Its table has no files of its own, so a drop of the table loses none.
        dropped = self._send("DELETE", f"{self._tables()}/{quote(table, safe='')}", query={"purgeRequested": "false"})
        if dropped.status != 404:
            self._checked(dropped, "dropping the old registration")
        self._environment.reached("iceberg.catalog.dropped")
        return self._register(table, metadata_location)

    def _register(self, table: str, metadata_location: str, *, overwrite: bool = False) -> _Answer:
        request: dict[str, Any] = {"name": table, "metadata-location": metadata_location}
        if overwrite:
            request["overwrite"] = True
        path = f"{self._namespace_path()}/register"
        answer = self._send("POST", path, request)
        if answer.status == 404 and not overwrite:
            created = self._send("POST", f"{self._prefix()}/namespaces", {"namespace": self._namespace})
            if created.status != 409:
                self._checked(created, "creating the namespace")
            answer = self._send("POST", path, request)
        return answer

    def _loaded(self, table: str) -> _Table | None:
        answer = self._send("GET", f"{self._tables()}/{quote(table, safe='')}", query={"snapshots": "refs"})
        if answer.status == 404:
            return None
        return self._decoded(_Table, self._checked(answer, "loading the table"))

    def _tables(self) -> str:
        return f"{self._namespace_path()}/tables"

    def _namespace_path(self) -> str:
        separator = unquote(self._configured().get("namespace-separator") or _SEPARATOR)
        return f"{self._prefix()}/namespaces/{quote(separator.join(self._namespace), safe='')}"

    def _prefix(self) -> str:
        prefix = (self._configured().get("prefix") or "").strip("/")
        return f"/v1/{quote(unquote(prefix), safe='/')}" if prefix else "/v1"

    def _configured(self) -> dict[str, str | None]:
        """Return the catalog's configuration. If it names another server, this is ignored: the user named this one."""
        if self._config is None:
            warehouse = self._settings.warehouse
            query = {"warehouse": warehouse} if warehouse is not None else {}
            answer = self._checked(self._send("GET", "/v1/config", query=query), "reading its configuration")
            found = self._decoded(_Config, answer)
            self._config = {**found.defaults, **found.overrides}
        return self._config

    def _checked(self, answer: _Answer, what: str) -> _Answer:
        if answer.status >= 300:
            raise CatalogFailed(f"{what} was answered {answer.status} {answer.error}".rstrip())
        return answer

    def _decoded(self, model: type[_Model], answer: _Answer) -> _Model:
        try:
            return model.model_validate_json(answer.body)
        except ValidationError:
            raise CatalogFailed(
                "an answer has another form than that of a REST catalog. Check iceberg.catalog_uri"
            ) from None

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, query: Mapping[str, str] | None = None
    ) -> _Answer:
        """Send a request, and once more with new credentials if the first ones are refused."""
        url = f"{self._uri}{path}" + (f"?{urlencode(query)}" if query else "")
        encoded = None if body is None else json.dumps(body).encode()

        def attempt() -> _Answer:
            headers = {"Accept": "application/json", "Content-Type": "application/json"}
            credentials = self._credentials.current()
            if self._settings.signing_name is not None:
                headers = self._signed(method, url, headers, encoded, credentials)
            elif "token" in credentials:
                headers["Authorization"] = f"Bearer {credentials['token']}"
            return _exchanged(self._connections, method, url, headers, encoded)

        answer = attempt()
        # 419: the token has expired. AWS answers 403 to expired credentials.
        refused = (401, 403) if self._settings.signing_name is not None else (401, 419)
        if answer.status in refused and self._credentials.renew():
            answer = attempt()
        return answer

    def _signed(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, credentials: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the headers of a request with a signature (AWS Signature Version 4)."""
        # Only a publisher with a catalog of AWS needs these.
        from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
        from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
        from botocore.credentials import Credentials as Keys  # type: ignore[import-untyped]
        from botocore.session import Session  # type: ignore[import-untyped]

        region = self._settings.signing_region or Session().get_config_variable("region")
        if region is None:
            raise CatalogFailed("no region is known for the signature of requests. Set iceberg.signing_region")
        keys = Keys(credentials["key"], credentials["secret"], credentials.get("token"))
        request = AWSRequest(method, url, dict(headers), body)
        SigV4Auth(keys, self._settings.signing_name, region).add_auth(request)
        return dict(request.headers.items())

    def _new_credentials(self) -> Credentials:
        """Return a token, or AWS's keys for signatures, or nothing for a catalog that takes every request."""
        if self._settings.signing_name is not None:
            return self._new_keys()
        if self._settings.credentials is not None:
            found = call_named(self._settings.credentials, self._uri)
            return mapped(found, self._settings.credentials, self._uri, required=("token",))
        if token := os.environ.get(TOKEN_VARIABLE):
            return Credentials({"token": token})
        if client := os.environ.get(CREDENTIAL_VARIABLE):
            return self._exchanged_token(client)
        return Credentials({})

    def _new_keys(self) -> Credentials:
        """Return the keys of an AWS identity."""
        if self._settings.credentials is not None:
            found = call_named(self._settings.credentials, self._uri)
            return mapped(found, self._settings.credentials, self._uri, required=("key", "secret"), optional=("token",))
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
        from botocore.session import Session

        try:
            keys = Session().get_credentials()
            frozen = None if keys is None else keys.get_frozen_credentials()
        except BotoCoreError as error:
            raise CatalogFailed(f"AWS gave no credentials ({type(error).__name__})") from error
        if frozen is None:
            raise CatalogFailed("there are no credentials of AWS in the environment, with which requests are signed")
        values = {"key": frozen.access_key, "secret": frozen.secret_key, "token": frozen.token}
        return Credentials({name: value for name, value in values.items() if value})

    def _exchanged_token(self, client: str) -> Credentials:
        """Return a token for an OAuth2 client (RFC 6749, 4.4)."""
        # As in Iceberg's Java client: a secret may have colons, and may stand alone.
        name, secret = client.split(":", 1) if ":" in client else ("", client)
        uri = self._settings.oauth2_server_uri or f"{self._uri}/v1/oauth/tokens"
        form = {"grant_type": "client_credentials", "client_secret": secret, "scope": self._settings.scope}
        if name:
            form["client_id"] = name
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        answer = _exchanged(self._connected(uri), "POST", uri, headers, urlencode(form).encode())
        try:
            found = _Token.model_validate_json(self._checked(answer, "asking for a token").body)
        except ValidationError:
            raise CatalogFailed(
                "the answer to a request for a token has none. Check iceberg.oauth2_server_uri"
            ) from None
        now_ms = self._clocks.now_ms()
        expires_at_ms = now_ms + found.expires_in * 1000 if found.expires_in is not None and now_ms else None
        return Credentials({"token": found.access_token}, expires_at_ms)


def _exchanged(
    connections: HttpConnections, method: str, url: str, headers: Mapping[str, str], body: bytes | None
) -> _Answer:
    from urllib3.exceptions import HTTPError

    try:
        status, _, found = connections.exchange(method, url, headers, body)
    except (OSError, http.client.HTTPException, HTTPError) as error:
        # The text of the error may have the URL, and the URL of a proxy may have a password.
        raise CatalogFailed(f"it gave no answer ({type(error).__name__})") from error
    return _Answer(status, found)
