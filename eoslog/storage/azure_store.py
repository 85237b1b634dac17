"""An object store in a container of Azure Blob Storage. Put-if-absent uses ``If-None-Match``.

The account may have a hierarchical namespace, as Azure Data Lake Storage has. Then its lists also have directories, and
their order is not documented.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element

from eoslog.errors import InvalidOption, NotAStore, StoreAccessDenied, StoreUnavailable
from eoslog.storage.azure_options import AzureOptions
from eoslog.storage.azure_transport import AzureTransport
from eoslog.storage.environment import Environment
from eoslog.storage.http_store import Answer, HttpStore, Page, Request
from eoslog.storage.object_store import ObjectInfo, ObjectNotFound, PutOutcome
from eoslog.storage.xml_answers import text_of, xml_of

_MARKER = "hdi_isfolder"
"""The metadata of a directory."""
_NO_CONTAINER = frozenset({"ContainerNotFound", "ContainerDisabled", "FilesystemNotFound"})
_PERMANENT_CONFLICTS = frozenset(
    {"BlobImmutableDueToPolicy", "InvalidBlobType", "ResourceTypeMismatch", "SnapshotsPresent"}
)
"""The codes of the answers 409 that do not change if the request is repeated."""
_CHECK_THE_ROLE = (
    "give the identity a role for data, such as Storage Blob Data Contributor; the role Owner allows no data"
)
_HINTS = {
    "AuthenticationFailed": "check the account's key, the SAS and its expiry, or the token, and this host's clock",
    "AuthorizationFailure": "the account's firewall or policy refuses this client, or the key is another account's",
    "AuthorizationPermissionMismatch": _CHECK_THE_ROLE,
    "InsufficientAccountPermissions": _CHECK_THE_ROLE,
    "InvalidAuthenticationInfo": "renew the credentials, or check the option token",
    "KeyBasedAuthenticationNotPermitted": "the account takes no keys. Use an identity",
    "NoAuthenticationInformation": "the container is not public. Leave anon out",
}


class AzureStore(HttpStore):
    """Objects below ``prefix`` in ``container``."""

    service = "Azure Blob Storage"
    naming = "the account, endpoint_url"
    _options: AzureOptions

    def __init__(
        self,
        container: str,
        prefix: str,
        environment: Environment,
        options: AzureOptions | None = None,
        *,
        host: str | None = None,
    ) -> None:
        """
        Args:
            host: the server of the account's files, such as ``account.dfs.core.windows.net``; None if the options or
                the environment name the account.
        """
        if not container:
            raise InvalidOption(
                "An Azure URL names a container: abfss://container@account.dfs.core.windows.net/prefix, or "
                "az://container/prefix with the option account."
            )
        self._container = container
        self._blob_host = None if host is None else host.replace(".dfs.", ".blob.", 1)
        bucket_url = f"az://{container}" if host is None else f"abfss://{container}@{host}"
        super().__init__(bucket_url, prefix, environment, options or AzureOptions())

    @property
    def root(self) -> str:
        """The URL that names the account, because Spark and PyIceberg know no ``az://``. A test server has none."""
        server = urlsplit(self.location).hostname or ""
        account, is_azure, suffix = server.partition(".blob.")
        if not is_azure:
            return self.url
        return f"abfss://{self._container}@{account}.dfs.{suffix}/{self._key_prefix}".rstrip("/")

    def __repr__(self) -> str:
        return f"AzureStore({self.url!r}, {self._options!r})"

    def _new_transport(self) -> AzureTransport:
        return AzureTransport(self._container, self._blob_host, self._options, self.url, self._clocks)

    def _outcome(self, answer: Answer) -> PutOutcome | None:
        is_there = answer.status == 412 or (answer.status == 409 and answer.code == "BlobAlreadyExists")
        return PutOutcome.EXISTS if is_there else None

    def _put_request(self, key: str, body: bytes, *, if_absent: bool) -> Request:
        headers = {"x-ms-blob-type": "BlockBlob", **({"If-None-Match": "*"} if if_absent else {})}
        return Request("PUT", "PutBlob", "PUT", key, headers=headers, body=body)

    def _get_request(self, key: str, byte_range: str | None) -> Request:
        return Request("GET", "GetBlob", "GET", key, headers={"Range": byte_range} if byte_range else {})

    def _is_directory(self, answer: Answer) -> bool:
        return answer.headers.get(f"x-ms-meta-{_MARKER}", "").lower() == "true"

    def _delete_request(self, key: str) -> Request:
        return Request("DELETE", "DeleteBlob", "DELETE", key)

    def _list_request(self, prefix: str, *, start_after: str, limit: int, only_directories: bool, page: str) -> Request:
        given = {"delimiter": "/" if only_directories else "", "prefix": prefix, "marker": page}
        query = {"restype": "container", "comp": "list", "maxresults": str(limit), "include": "metadata"}
        query |= {name: value for name, value in given.items() if value}
        return Request("LIST", "ListBlobs", "GET", query=query)

    def _page(self, answer: Answer) -> Page:
        root = xml_of(answer, "EnumerationResults")
        objects = []
        for blob in root.iterfind("{*}Blobs/{*}Blob"):
            properties = blob.find("{*}Properties")
            if properties is None:
                raise ValueError("no Properties")
            if not _is_directory(blob, properties):
                modified = parsedate_to_datetime(text_of(properties, "Last-Modified"))
                size = int(text_of(properties, "Content-Length"))
                objects.append(ObjectInfo(_name(blob), size, int(modified.timestamp()) * 1000))
        directories = [_name(each) for each in root.iterfind("{*}Blobs/{*}BlobPrefix")]
        return Page(objects, directories, root.findtext("{*}NextMarker") or "")

    def _refusal(self, request: Request, answer: Answer, path: str) -> Exception:
        status, code = answer.status, answer.code
        if code in _NO_CONTAINER or (status == 404 and request.kind in ("PUT", "LIST")):
            return NotAStore(
                f"Container {self._container!r} does not exist. Create it, or correct the URL or endpoint_url."
            )
        if status == 404:
            return ObjectNotFound(path)
        is_transient = status in (408, 409, 429) or (status >= 500 and status != 501) or status < 300
        if is_transient and code not in _PERMANENT_CONFLICTS:
            return StoreUnavailable(f"{self.url}: {path!r} was answered {answer}. Try again.")
        hint = _HINTS.get(code, "check credentials, permissions and options")
        return StoreAccessDenied(f"{self.url}: {request.operation} of {path!r} was refused with {answer}: {hint}.")


def _is_directory(blob: Element, properties: Element) -> bool:
    return (
        properties.findtext("{*}ResourceType") == "directory"
        or (blob.findtext(f"{{*}}Metadata/{{*}}{_MARKER}") or "").lower() == "true"
    )


def _name(parent: Element) -> str:
    """Return the name of a blob or a directory. It is percent-encoded if XML cannot hold it."""
    name = parent.find("{*}Name")
    if name is None or not name.text:
        raise ValueError("no Name")
    return unquote(name.text) if name.get("Encoded") == "true" else name.text
