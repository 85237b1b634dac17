"""An object store in a bucket of Google Cloud Storage. Put-if-absent uses ``ifGenerationMatch=0``."""

from __future__ import annotations

import json
from datetime import datetime

from eoslog.errors import InvalidOption, NotAStore, StoreAccessDenied, StoreUnavailable
from eoslog.storage.environment import Environment
from eoslog.storage.gcs_options import GcsOptions
from eoslog.storage.gcs_transport import GcsTransport
from eoslog.storage.http_store import Answer, HttpStore, Page, Request
from eoslog.storage.object_store import ObjectInfo, ObjectNotFound, PutOutcome

_TRANSIENT_CODES = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "backendError", "internalError"})
_HINTS = {
    401: "renew the credentials, or check the option token",
    403: "check the permissions of the account on the bucket (roles/storage.objectUser has all)",
}


class GcsStore(HttpStore):
    """Objects below ``prefix`` in ``bucket``."""

    service = "Google Cloud Storage"
    lists_in_order = True
    _options: GcsOptions

    def __init__(self, bucket: str, prefix: str, environment: Environment, options: GcsOptions | None = None) -> None:
        if not bucket:
            raise InvalidOption("A Google Cloud Storage URL names a bucket: gs://bucket/prefix.")
        super().__init__(f"gs://{bucket}", prefix, environment, options or GcsOptions())
        self._bucket = bucket

    def __repr__(self) -> str:
        return f"GcsStore({self.url!r}, {self._options!r})"

    def _new_transport(self) -> GcsTransport:
        return GcsTransport(self._bucket, self._options, self.url, self._clocks)

    def _outcome(self, answer: Answer) -> PutOutcome | None:
        return PutOutcome.EXISTS if answer.status == 412 else None

    def _put_request(self, key: str, body: bytes, *, if_absent: bool) -> Request:
        query = {"uploadType": "media", "name": key, "fields": "generation"}
        if if_absent:
            query["ifGenerationMatch"] = "0"
        return Request("PUT", "storage.objects.create", "POST", query=query, body=body)

    def _get_request(self, key: str, byte_range: str | None) -> Request:
        headers = {"Range": byte_range} if byte_range else {}
        return Request("GET", "storage.objects.get", "GET", key, headers=headers)

    def _delete_request(self, key: str) -> Request:
        return Request("DELETE", "storage.objects.delete", "DELETE", key)

    def _list_request(self, prefix: str, *, start_after: str, limit: int, only_directories: bool, page: str) -> Request:
        given = {
            "delimiter": "/" if only_directories else "",
            # The offset is inclusive, so the first object may be the one to start after.
            "startOffset": start_after,
            "pageToken": page,
        }
        query = {
            "prefix": prefix,
            "maxResults": str(limit + bool(start_after)),
            "fields": "items(name,size,timeCreated),prefixes,nextPageToken",
        }
        query |= {name: value for name, value in given.items() if value}
        return Request("LIST", "storage.objects.list", "GET", query=query)

    def _page(self, answer: Answer) -> Page:
        try:
            found = json.loads(answer.body)
            objects = [
                ObjectInfo(str(each["name"]), int(each["size"]), _created_ms(each["timeCreated"]))
                for each in found.get("items", ())
            ]
            directories = [str(each) for each in found.get("prefixes", ())]
            return Page(objects, directories, str(found.get("nextPageToken") or ""))
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(type(error).__name__) from error

    def _refusal(self, request: Request, answer: Answer, path: str) -> Exception:
        status, code = answer.status, answer.code
        # Without this bucket nothing can be put or listed. A GET or a DELETE may also miss only its object.
        if code == "NoSuchBucket" or (status == 404 and request.kind in ("PUT", "LIST")):
            return NotAStore(f"Bucket {self._bucket!r} does not exist. Create it, or correct the URL or endpoint_url.")
        if status == 404:
            return ObjectNotFound(path)
        is_transient = status in (408, 409, 429) or (status >= 500 and status != 501) or status < 300
        if is_transient or code in _TRANSIENT_CODES:
            return StoreUnavailable(f"{self.url}: {path!r} was answered {answer}. Try again.")
        hint = _HINTS.get(status, "check credentials, permissions and options")
        return StoreAccessDenied(f"{self.url}: {request.operation} of {path!r} was refused with {answer}: {hint}.")


def _created_ms(time: str) -> int:
    """Return the time of creation in whole seconds, as the answer to a GET has it (ms since the epoch)."""
    return int(datetime.fromisoformat(time).timestamp()) * 1000
